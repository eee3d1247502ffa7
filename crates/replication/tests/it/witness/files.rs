//! The ledger on disk: power cuts, rot and foreign files.

use array::format::{EpochId, GroupId, SiteId};
use replication::witness::{
    file::WitnessFile,
    group::{WitnessAction, WitnessGroup, WitnessRequest},
    lease::LeaseSpan,
    ledger::WitnessLedger,
};
use std::collections::BTreeMap;
use world::{
    IoErrorKind, Moment, Random, WallTime,
    sim::{SimStateFile, StateFileFaults},
};

type Groups = BTreeMap<GroupId, WitnessGroup>;

fn groups_of(ledger: &WitnessLedger) -> Groups {
    ledger.groups().map(|(group, state)| (group, state.clone())).collect()
}

/// A request that changes something, of one of a few groups.
fn draw(random: &mut Random, ledger: &WitnessLedger) -> WitnessRequest {
    let group = GroupId([1 + random.below(5) as u8; 16]);
    let seen = ledger.view(group, Moment(0)).map(|view| view.state);
    let site = SiteId([1 + random.below(2) as u8; 16]);
    let (fence, revision) = seen.as_ref().map_or_else(Default::default, |s| (s.fence, s.revision));
    let site = seen.and_then(|state| state.holder).unwrap_or(site);
    let action = match random.below(4) {
        0 => WitnessAction::Acquire { span: LeaseSpan::DEFAULT, head: EpochId([7; 16]), by_person: false },
        1 => WitnessAction::Release { to: SiteId([2; 16]) },
        2 => WitnessAction::RecordSync,
        _ => WitnessAction::RecordAlone,
    };
    WitnessRequest { group, site, fence, revision, action }
}

#[test]
fn a_power_cut_anywhere_loses_nothing_that_was_answered() {
    let mut opened_after_cut = 0;
    for seed in 0..2_000 {
        let mut random = Random::new(seed, "cut");
        let disk = SimStateFile::new("witness.db", seed);
        disk.set_faults(StateFileFaults { power_cut: Some(random.below(40)), ..Default::default() });
        let mut answered = Groups::new();
        // The state of the change at which the power failed may be there or not.
        let mut attempted = Groups::new();
        if let Ok((mut file, _)) = WitnessFile::open(Box::new(disk.open())) {
            let mut ledger = WitnessLedger::default();
            for second in 0..30 {
                let request = draw(&mut random, &ledger);
                let wall = WallTime { seconds: second, nanos: 0 };
                let (_, is_changed) = ledger.apply(&request, Moment(second as u64), wall);
                attempted = groups_of(&ledger);
                if is_changed && file.store(ledger.groups()).is_err() {
                    break;
                }
                if is_changed {
                    answered.clone_from(&attempted);
                }
            }
        }
        disk.cut_power();
        let (_, kept) = WitnessFile::open(Box::new(disk.open())).expect("a cut is no damage");
        assert!(kept == answered || kept == attempted, "seed {seed}");
        opened_after_cut += u32::from(!answered.is_empty());
    }
    assert!(opened_after_cut > 1_000);
}

#[test]
fn syncs_that_lie_are_noticed_by_this_test() {
    let has_lost = (0..200).any(|seed| {
        let disk = SimStateFile::new("witness.db", seed);
        let (mut file, _) = WitnessFile::open(Box::new(disk.open())).expect("it opens");
        disk.set_faults(StateFileFaults { syncs_lie: true, ..Default::default() });
        let ledger = ledger_of(3);
        file.store(ledger.groups()).expect("it seems stable");
        disk.cut_power();
        WitnessFile::open(Box::new(disk.open())).map_or(true, |(_, kept)| kept != groups_of(&ledger))
    });
    assert!(has_lost);
}

fn ledger_of(groups: u8) -> WitnessLedger {
    let mut ledger = WitnessLedger::default();
    for group in 1..=groups {
        let action =
            WitnessAction::Acquire { span: LeaseSpan::DEFAULT, head: EpochId([7; 16]), by_person: false };
        let (group, site) = (GroupId([group; 16]), SiteId([1; 16]));
        let request = WitnessRequest { group, site, fence: Default::default(), revision: 0, action };
        ledger.apply(&request, Moment(0), WallTime::default());
    }
    ledger
}

fn stored(ledger: &WitnessLedger) -> Vec<u8> {
    let disk = SimStateFile::new("witness.db", 1);
    let (mut file, _) = WitnessFile::open(Box::new(disk.open())).expect("it opens");
    file.store(ledger.groups()).expect("it is stored");
    disk.contents()
}

#[test]
fn one_rotten_copy_loses_nothing_and_is_made_whole() {
    let ledger = ledger_of(3);
    let good = stored(&ledger);
    let second = 640 * 1024;
    for at in [0, 9, 20, 30, 50, second, second + 30, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 4;
        let disk = SimStateFile::with_contents("witness.db", 1, bad);
        let (_, kept) = WitnessFile::open(Box::new(disk.open())).expect("the other copy is whole");
        assert_eq!(kept, groups_of(&ledger), "byte {at}");
        let whole = disk.contents();
        assert_eq!(whole[..400], whole[second..second + 400], "both copies are alike again");
    }
}

#[test]
fn damaged_and_foreign_files_are_refused_and_left_as_they_are() {
    let good = stored(&ledger_of(2));
    let mut both = good.clone();
    both[40] ^= 1;
    let last = both.len() - 1;
    both[last] ^= 1;
    for bytes in [both, b"a shopping list".to_vec(), vec![0; 4096], good[..200].to_vec()] {
        let disk = SimStateFile::with_contents("witness.db", 1, bytes.clone());
        let refused = WitnessFile::open(Box::new(disk.open())).expect_err("it is refused");
        assert_eq!(refused.kind(), IoErrorKind::Damaged);
        assert_eq!(refused.to_string().lines().count(), 1);
        assert_eq!(disk.contents(), bytes);
    }
}

#[test]
fn after_an_error_the_file_takes_no_more_changes() {
    let disk = SimStateFile::new("witness.db", 1);
    let (mut file, _) = WitnessFile::open(Box::new(disk.open())).expect("it opens");
    disk.set_faults(StateFileFaults { failed_syncs: 0..3, ..Default::default() });
    let ledger = ledger_of(1);
    assert!(file.store(ledger.groups()).is_err());
    assert!(file.store(ledger.groups()).is_err());
}
