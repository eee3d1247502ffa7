//! Pools whose drives come and go, and whose superblocks are interrupted: opening always finds the state last
//! relied on, on drives that missed none of it.

use super::examples;
use array::{
    election::{
        DriveSuperblock, Election, OpenRefusal, can_go_on_as_of, can_go_on_with, check_layout, elect,
    },
    format::{
        DriveId, Generation, GenerationMark, Member, MemberIndex, MemberState, MirroredSegment, SlotAddress,
        SlotNumber, Superblock, features::INCOMPATIBLE_PIVOTS,
    },
    member_table::{MemberChange, must_settle, next_generation},
};
use std::collections::{BTreeMap, BTreeSet};
use world::Random;

/// Most drives a pool ever has.
const DRIVES_MAX: usize = 9;

/// The full state of a pool, of which each drive knows a part.
struct PoolModel {
    random: Random,
    /// Superblock of each drive; joining drives come last.
    drives: Vec<Option<Superblock>>,
    /// The predecessor of each state ever written, by name.
    parents: BTreeMap<String, String>,
    /// The last complete one.
    relied: String,
    /// Drives that a complete generation left out.
    missed: BTreeSet<usize>,
    /// Drives that became members, and interruptions while one was joining.
    joined: u32,
    cut_while_joining: u32,
    /// Drives that left, and openings while one was leaving, or departing.
    left: u32,
    cut_while_leaving: u32,
    cut_while_departing: u32,
}

/// The pool has stopped.
struct Stopped;

/// A running pool: its drives, each with its member index, and the superblock written last.
struct Running {
    there: BTreeMap<MemberIndex, usize>,
    /// Those that have no vote any more, and get superblocks until all know.
    departing: BTreeMap<MemberIndex, usize>,
    superblock: Superblock,
}

/// The change of one publication.
enum MembershipChange {
    None,
    Join { replaced: Option<MemberIndex> },
    Row(MemberChange, MemberIndex),
}

impl Running {
    fn members(&self) -> BTreeSet<MemberIndex> {
        self.there.keys().chain(self.departing.keys()).copied().collect()
    }

    /// Present members with a state.
    fn with_state(&self, state: MemberState) -> Vec<MemberIndex> {
        let members = self.there.keys().copied();
        members.filter(|member| self.superblock.members[usize::from(member.0)].state == state).collect()
    }
}

fn member(given: usize) -> Member {
    Member {
        drive: DriveId([given as u8 + 1; 16]),
        serial: format!("S{given}"),
        state: MemberState::Active,
        since: Generation(1),
        sector_bytes: 512,
        slot_count: 100,
        domain: None,
        set: None,
    }
}

impl PoolModel {
    fn new(seed: u64, count: usize) -> Self {
        let random = Random::new(seed, "election");
        let mut first = examples::superblock();
        first.name = "0".to_owned();
        first.generation = Generation(1);
        first.settled = Generation(0);
        first.features =
            array::format::Features { compatible: 0, read_only: 0, incompatible: INCOMPATIBLE_PIVOTS };
        first.checkpoint.catalogue_segments.clear();
        first.members = (0..count).map(member).collect();
        let mut truth = Self {
            random,
            drives: Vec::new(),
            parents: BTreeMap::new(),
            relied: first.name.clone(),
            missed: BTreeSet::new(),
            joined: 0,
            cut_while_joining: 0,
            left: 0,
            cut_while_leaving: 0,
            cut_while_departing: 0,
        };
        truth.place_segments(&mut first);
        truth.drives = (0..count).map(|index| Some(first.for_place(MemberIndex(index as u16), 1))).collect();
        truth
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.random.below(count) == 0
    }

    /// Places the log, and sometimes the catalogue, on random pairs of members with slots.
    fn place_segments(&mut self, superblock: &mut Superblock) {
        let members = (0..superblock.members.len() as u16)
            .filter(|&index| superblock.members[usize::from(index)].state.has_vote());
        let members: Vec<u16> = members.collect();
        let mut segment = || {
            let first = self.random.below(members.len() as u64) as usize;
            let step = 1 + self.random.below((members.len() as u64 - 1).max(1)) as usize;
            let pair: BTreeSet<u16> = [members[first], members[(first + step) % members.len()]].into();
            let slots = pair
                .into_iter()
                .map(|member| SlotAddress { member: MemberIndex(member), slot: SlotNumber(3) });
            slots.collect::<Vec<_>>()
        };
        let (log, catalogue) = (segment(), segment());
        superblock.checkpoint.log.segment.slots = log;
        let like = superblock.checkpoint.log.segment.clone();
        superblock.checkpoint.catalogue_segments = vec![MirroredSegment { slots: catalogue, ..like }];
    }

    fn follows_or_is(&self, state: &str, ancestor: &str) -> bool {
        let mut state = state;
        loop {
            if state == ancestor {
                return true;
            }
            match self.parents.get(state) {
                Some(parent) => state = parent,
                None => return false,
            }
        }
    }

    fn seen(&self, there: impl Iterator<Item = usize>) -> Vec<DriveSuperblock> {
        there
            .filter_map(|given| Some(DriveSuperblock { given, superblock: self.drives[given].clone()? }))
            .collect()
    }

    /// The superblock of each drive, and the drives presented.
    fn story(&self, seen: &[DriveSuperblock]) -> String {
        let line = |(given, superblock): (usize, &Superblock)| {
            let rows: Vec<_> = superblock.members.iter().map(|row| (row.state, row.since.0)).collect();
            let Superblock { name, generation, settled, .. } = superblock;
            format!("\ndrive {given} has {name}, generation {generation}, settled {settled}: {rows:?}")
        };
        let drives = self.drives.iter().enumerate();
        let drives = drives.filter_map(|(given, superblock)| Some((given, superblock.as_ref()?)));
        let presented: Vec<usize> = seen.iter().map(|seen| seen.given).collect();
        let parents = &self.parents;
        drives.map(line).collect::<String>() + &format!("\npresented: {presented:?}; parents: {parents:?}")
    }

    /// Presents some drives; if they make a pool, it is opened and continues, or crashes.
    fn step(&mut self) -> Option<Result<Election, OpenRefusal>> {
        let there: Vec<usize> = (0..self.drives.len()).filter(|_| self.random.below(100) < 70).collect();
        let seen = self.seen(there.into_iter());
        if seen.is_empty() {
            return None;
        }
        let elected = elect(&seen, false);
        if let Ok(election) = &elected {
            let name = &election.superblock.name;
            assert!(
                self.follows_or_is(name, &self.relied),
                "{name} was opened, {} was relied on; {}",
                self.relied,
                self.story(&seen)
            );
            for given in election.present.values() {
                assert!(!self.missed.contains(given), "drive {given} missed something and counts as current");
            }
            let superblock = election.superblock.clone();
            let departing = election.departing.clone();
            self.cut_while_departing += u32::from(!departing.is_empty());
            let running = Running { there: election.present.clone(), departing, superblock };
            let is_any = |state: MemberState| running.superblock.members.iter().any(|row| row.state == state);
            self.cut_while_joining += u32::from(is_any(MemberState::Joining));
            self.cut_while_leaving += u32::from(is_any(MemberState::Leaving));
            let Stopped = self.go_on(running);
        }
        Some(elected)
    }

    fn go_on(&mut self, mut running: Running) -> Stopped {
        // The elected superblock is first written to drives that lack it.
        let elected = running.superblock.clone();
        loop {
            match self.write(&mut running, &elected) {
                Ok(true) => break,
                Ok(false) if can_go_on_with(&elected, &running.members()) => {}
                _ => return Stopped,
            }
        }
        for turn in 0..1 + self.random.below(4) {
            // Occasionally a drive is lost meanwhile, or another one is added.
            if running.there.len() > 1 && self.one_in(3) {
                self.lose_one(&mut running);
            }
            let change = self.draw_change(&running, turn > 0);
            if let Err(stopped) = self.publish(&mut running, change) {
                return stopped;
            }
        }
        Stopped
    }

    fn draw_change(&mut self, running: &Running, is_open: bool) -> MembershipChange {
        let [active, leaving] =
            [MemberState::Active, MemberState::Leaving].map(|state| running.with_state(state));
        let mut one_of = |members: &[MemberIndex]| {
            let index = self.random.below(members.len().max(1) as u64) as usize;
            members.get(index).copied()
        };
        let (one_active, one_leaving) = (one_of(&active), one_of(&leaving));
        match (self.random.below(8), one_active, one_leaving) {
            _ if !is_open => MembershipChange::None,
            (0 | 1, _, _) if self.drives.len() < DRIVES_MAX => {
                let replaced = one_active.filter(|_| self.one_in(3));
                MembershipChange::Join { replaced }
            }
            (2 | 3, Some(member), _) if active.len() > 1 => {
                MembershipChange::Row(MemberChange::Leave, member)
            }
            (4 | 5, _, Some(member)) if !active.is_empty() => {
                MembershipChange::Row(MemberChange::GiveUpVote, member)
            }
            (6, _, Some(member)) => MembershipChange::Row(MemberChange::Keep, member),
            _ => MembershipChange::None,
        }
    }

    fn lose_one(&mut self, running: &mut Running) {
        let lost = self.random.below(running.there.len() as u64) as usize;
        let lost = *running.there.keys().nth(lost).expect("some are there");
        running.there.remove(&lost);
    }

    /// Like the pool: writes generations until one is complete and settled.
    fn publish(&mut self, running: &mut Running, change: MembershipChange) -> Result<(), Stopped> {
        let mut settled = running.superblock.generation;
        let (mut joining, mut row_change) = (None, None);
        match change {
            MembershipChange::None => {}
            MembershipChange::Join { replaced } => {
                row_change = replaced.map(|member| (MemberChange::Leave, member));
            }
            MembershipChange::Row(change, member) => row_change = Some((change, member)),
        }
        if let MembershipChange::Row(MemberChange::GiveUpVote, member) = change {
            let given = running.there.remove(&member).expect("it is there");
            running.departing.insert(member, given);
        }
        if let MembershipChange::Join { .. } = change {
            let given = self.drives.len();
            running.there.insert(MemberIndex(running.superblock.members.len() as u16), given);
            self.drives.push(None);
            joining = Some(member(given));
        }
        loop {
            let mark = GenerationMark(self.random.next_u64());
            let there = running.members();
            let mut next = next_generation(&running.superblock, (settled, mark), &there, joining.take());
            if let Some((change, member)) = row_change.take() {
                change.apply(&mut next, member);
            }
            next.name = format!("{}", self.parents.len() + 1);
            self.parents.insert(next.name.clone(), running.superblock.name.clone());
            if !can_go_on_as_of(&running.superblock, settled, &there) {
                return Err(Stopped);
            }
            self.place_segments(&mut next);
            let is_complete = self.write(running, &next)?;
            let is_member = |member: &&Member| member.state.has_vote();
            let members = |superblock: &Superblock| superblock.members.iter().filter(is_member).count();
            self.joined += u32::from(members(&next) > members(&running.superblock));
            running.superblock = next;
            if !is_complete {
                continue;
            }
            self.relied = running.superblock.name.clone();
            let left_out = (0..self.drives.len()).filter(|given| !running.there.values().any(|g| g == given));
            self.missed.extend(left_out);
            if !must_settle(&running.superblock) {
                self.left += running.departing.len() as u32;
                running.departing.clear();
                return Ok(());
            }
            settled = running.superblock.generation;
        }
    }

    /// Ok(true) if all have it. On failure some drives, which may have it or not, are gone.
    fn write(&mut self, running: &mut Running, superblock: &Superblock) -> Result<bool, Stopped> {
        let (crashes, fails) = (self.one_in(6), self.one_in(6));
        let mut failed = Vec::new();
        // Departing drives are written first: a crash meanwhile leaves the others as they are.
        let crashes_first = crashes && self.one_in(2) && !running.departing.is_empty();
        let departing = running.departing.iter().map(|(&member, &given)| (member, given, true));
        let there = running.there.iter().map(|(&member, &given)| (member, given, false));
        for (member, given, is_first) in departing.chain(there).collect::<Vec<_>>() {
            let has_failed = fails && self.random.below(3) == 0;
            let is_cut = crashes && crashes_first == is_first;
            let is_written =
                (!(is_cut || has_failed) || self.random.below(2) == 0) && (is_first || !crashes_first);
            let holds = superblock.members.get(usize::from(member.0)).is_some_and(|row| {
                row.state.holds_superblocks() || row.is_voteless_since(superblock.settled)
            });
            if is_written && holds {
                let place = (superblock.generation.0 % 2) as u8;
                self.drives[given] = Some(superblock.for_place(member, place));
            }
            failed.extend(has_failed.then_some(member));
        }
        running.there.retain(|member, _| !failed.contains(member));
        running.departing.retain(|member, _| !failed.contains(member));
        if crashes { Err(Stopped) } else { Ok(failed.is_empty()) }
    }
}

/// 300,000 under `SPINDLE_FULL`.
fn election_seeds() -> u64 {
    if std::env::var_os("SPINDLE_FULL").is_some() { 300_000 } else { 10_000 }
}

#[test]
fn what_is_opened_is_what_was_relied_on_last() {
    let (mut opened, mut refused, mut joined, mut cut_while_joining) = (0, 0, 0, 0);
    let (mut left, mut cut_while_leaving, mut cut_while_departing) = (0, 0, 0);
    for seed in 0..election_seeds() {
        let mut truth = PoolModel::new(seed, 1 + seed as usize % 6);
        for _ in 0..25 {
            match truth.step() {
                Some(Ok(_)) => opened += 1,
                Some(Err(OpenRefusal::MayBeNewerElsewhere(_) | OpenRefusal::TooFewDrives(_))) => refused += 1,
                Some(Err(other)) => panic!("seed {seed}: {other}"),
                None => {}
            }
        }
        (joined, cut_while_joining) = (joined + truth.joined, cut_while_joining + truth.cut_while_joining);
        left += truth.left;
        cut_while_leaving += truth.cut_while_leaving;
        cut_while_departing += truth.cut_while_departing;
    }
    let counts =
        format!("{opened} opened, {refused} refused, {joined} joined, {cut_while_joining} cut short");
    let are_enough = opened > 10_000 && refused > 5_000 && joined > 2_000 && cut_while_joining > 500;
    assert!(are_enough, "{counts}: too few of one to show much");
    let counts = format!(
        "{counts}; {left} left, {cut_while_leaving} cut short while leaving, {cut_while_departing} while departing"
    );
    let are_enough = left > 1_000 && cut_while_leaving > 500 && cut_while_departing > 100;
    assert!(are_enough, "{counts}: too few of one to show much");
    println!("{counts}");
}

#[test]
fn a_pool_whose_drives_are_all_there_opens_after_any_crash() {
    for seed in 0..500 {
        let mut truth = PoolModel::new(seed, 1 + seed as usize % 4);
        for _ in 0..10 {
            truth.step();
        }
        elect(&truth.seen(0..truth.drives.len()), false)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn drives_of_two_pools_or_twice_the_same_are_refused() {
    let truth = PoolModel::new(1, 3);
    let seen = |given: usize| truth.seen(given..given + 1).remove(0);
    let mut other = seen(1);
    other.superblock.pool.0[0] ^= 1;
    other.superblock.checkpoint.pool = other.superblock.pool;
    assert!(matches!(elect(&[seen(0), other], false), Err(OpenRefusal::TwoPools(..))));
    assert!(matches!(elect(&[seen(0), seen(0)], false), Err(OpenRefusal::Twice(_))));
    assert_eq!(elect(&[], false).unwrap_err(), OpenRefusal::NoPool);
    let mut newer = seen(0);
    newer.superblock.features.incompatible = 1 << 40;
    assert!(matches!(elect(&[newer], true), Err(OpenRefusal::Features(_))));
}

#[test]
fn a_pool_with_history_from_before_the_first_release_is_refused() {
    let mut superblock = examples::superblock();
    superblock.features = array::format::Features::default();
    superblock.checkpoint.roots.history = superblock.checkpoint.roots.head;
    assert_eq!(check_layout(&superblock), Err(OpenRefusal::OldHistory));
    superblock.features.incompatible = INCOMPATIBLE_PIVOTS;
    assert_eq!(check_layout(&superblock), Ok(()));
    superblock.features.incompatible = 0;
    superblock.checkpoint.roots.history = None;
    assert_eq!(check_layout(&superblock), Ok(()), "without history there is nothing in the old order");
}

#[test]
fn half_a_pool_opens_only_by_force() {
    let mut truth = PoolModel::new(1, 2);
    truth.place_segments(&mut examples::superblock());
    let seen = truth.seen(0..1);
    let Err(refusal @ OpenRefusal::MayBeNewerElsewhere(_)) = elect(&seen, false) else {
        panic!("it was opened")
    };
    assert!(refusal.to_string().contains("02020202-0202-0202-0202-020202020202"), "{refusal}");
    let election = elect(&seen, true).expect("forced");
    assert_eq!(election.absent, [MemberIndex(1)]);
}

#[test]
fn a_drive_that_joins_has_no_vote_until_all_know_of_it() {
    let truth = PoolModel::new(1, 1);
    let first = truth.drives[0].clone().expect("it has one");
    let both = [MemberIndex(0), MemberIndex(1)].into();
    let after = |last: &Superblock, mark, there: &BTreeSet<MemberIndex>, joining| {
        next_generation(last, (last.generation, GenerationMark(mark)), there, joining)
    };
    let says = |given: usize, superblock: &Superblock| DriveSuperblock {
        given,
        superblock: superblock.for_place(MemberIndex(given as u16), 0),
    };
    let names_it = after(&first, 2, &both, Some(member(1)));
    assert!(must_settle(&names_it) && names_it.members[1].state == MemberState::Joining);
    assert_eq!(names_it.geometry.log_copies, first.geometry.log_copies, "one copy is all there can be");
    // Interrupted when the first had it and the second did not.
    let election = elect(&[says(0, &names_it)], false).expect("the second was nothing yet");
    assert_eq!(election.absent, [MemberIndex(1)]);
    let without = after(&names_it, 3, &[MemberIndex(0)].into(), None);
    assert_eq!(
        without.members[1].state,
        MemberState::Withdrawn,
        "others may know of a generation after this"
    );
    let settled = after(&without, 4, &[MemberIndex(0)].into(), None);
    assert_eq!((settled.members.len(), must_settle(&settled)), (1, false), "its row is free again");
    for superblock in [&without, &settled] {
        assert!(elect(&[says(0, superblock)], false).is_ok(), "and at no time does the first need it");
    }
    // Complete: the second alone is not the pool, and the first cannot go on without it.
    assert!(!can_go_on_with(&names_it, &[MemberIndex(1)].into()));
    assert!(matches!(elect(&[says(1, &names_it)], false), Err(OpenRefusal::TooFewDrives(_))));
    let is_member = after(&names_it, 4, &both, None);
    assert!(!must_settle(&is_member) && is_member.members[1].state == MemberState::Active);
    // Interrupted when one of them had that: together they open.
    for (older, newer) in [(0, 1), (1, 0)] {
        let seen = [says(older, &names_it), says(newer, &is_member)];
        let election = elect(&seen, false).expect("all are there");
        assert_eq!((election.generation(), election.present.len()), (is_member.generation, 2));
    }
    // The second has no copy of anything yet; if it had one, the first might not know.
    let mut copied = is_member.clone();
    copied.checkpoint.log.segment.slots.push(SlotAddress { member: MemberIndex(1), slot: SlotNumber(1) });
    copied.checkpoint.catalogue_segments.clear();
    assert!(!can_go_on_with(&copied, &[MemberIndex(1)].into()), "the first opens without it");
    let later = after(&copied, 5, &both, None);
    assert!(can_go_on_with(&later, &[MemberIndex(1)].into()), "the first does not");
    assert!(elect(&[says(0, &later)], false).is_err());
}
