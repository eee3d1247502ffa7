//! Pools whose drives come and go, and whose superblocks are cut short: what is opened is always what was relied
//! on last, and on drives that missed none of it.

use super::examples;
use array::{
    election::{Election, NotOpened, Seen, can_go_on_with, elect},
    format::{
        DriveId, Generation, GenerationMark, Member, MemberIndex, MemberState, MirroredSegment, SlotAddress,
        SlotNumber, Superblock,
    },
};
use std::collections::{BTreeMap, BTreeSet};
use world::Random;

/// The truth about a pool, of which each drive knows a part.
struct Truth {
    random: Random,
    /// What each drive has.
    drives: Vec<Superblock>,
    /// Of each state ever written, by name: the one it follows.
    parents: BTreeMap<String, String>,
    /// The last complete one.
    relied: String,
    /// Drives that a complete one left out.
    missed: BTreeSet<usize>,
}

impl Truth {
    fn new(seed: u64, count: usize) -> Self {
        let random = Random::new(seed, "election");
        let mut first = examples::superblock();
        first.name = "0".to_owned();
        first.generation = Generation(1);
        first.settled = Generation(0);
        first.features = array::format::Features { compatible: 0, read_only: 0, incompatible: 0 };
        first.checkpoint.catalogue_segments.clear();
        first.members = (0..count)
            .map(|index| Member {
                drive: DriveId([index as u8 + 1; 16]),
                serial: format!("S{index}"),
                state: MemberState::Active,
                since: Generation(1),
                sector_bytes: 512,
                slot_count: 100,
            })
            .collect();
        let mut truth = Self {
            random,
            drives: Vec::new(),
            parents: BTreeMap::new(),
            relied: first.name.clone(),
            missed: BTreeSet::new(),
        };
        truth.place_segments(&mut first);
        truth.drives = (0..count).map(|index| first.for_place(MemberIndex(index as u16), 1)).collect();
        truth
    }

    /// The log, and perhaps the catalogue, come to lie on random pairs of those in good standing.
    fn place_segments(&mut self, superblock: &mut Superblock) {
        let holders: Vec<u16> = (0..superblock.members.len() as u16)
            .filter(|&index| superblock.members[usize::from(index)].state.holds_superblocks())
            .collect();
        let mut segment = || {
            let first = self.random.below(holders.len() as u64) as usize;
            let step = 1 + self.random.below((holders.len() as u64 - 1).max(1)) as usize;
            let pair: BTreeSet<u16> = [holders[first], holders[(first + step) % holders.len()]].into();
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

    /// Some drives are there; if they make a pool, it is opened and its state goes on, or crashes doing so.
    fn step(&mut self) -> Option<Result<Election, NotOpened>> {
        let there: Vec<usize> = (0..self.drives.len()).filter(|_| self.random.below(100) < 70).collect();
        if there.is_empty() {
            return None;
        }
        let seen: Vec<Seen> =
            there.iter().map(|&given| Seen { given, superblock: self.drives[given].clone() }).collect();
        let elected = elect(&seen, false);
        if let Ok(election) = &elected {
            let name = &election.superblock.name;
            assert!(
                self.follows_or_is(name, &self.relied),
                "{name} was opened, {} was relied on",
                self.relied
            );
            for given in election.present.values() {
                assert!(!self.missed.contains(given), "drive {given} missed something and counts as current");
            }
            self.go_on(election);
        }
        Some(elected)
    }

    fn go_on(&mut self, election: &Election) {
        let mut there: BTreeSet<MemberIndex> = election.present.keys().copied().collect();
        let mut superblock = election.superblock.clone();
        let mut settled = superblock.settled;
        // The one that was elected is written first to those that lack it.
        for &member in &there {
            if self.random.below(20) == 0 {
                return;
            }
            let place = (superblock.generation.0 % 2) as u8;
            self.drives[usize::from(member.0)] = superblock.for_place(member, place);
        }
        for _ in 0..1 + self.random.below(3) {
            // Now and then a drive is lost meanwhile.
            if there.len() > 1 && self.random.below(3) == 0 {
                let lost = *there
                    .iter()
                    .nth(self.random.below(there.len() as u64) as usize)
                    .expect("some are there");
                there.remove(&lost);
                if !can_go_on_with(&superblock, &there) {
                    return;
                }
            }
            let parent = superblock.name.clone();
            superblock.name = format!("{}", self.parents.len() + 1);
            superblock.generation = Generation(superblock.generation.0 + 1);
            superblock.settled = settled;
            superblock.previous_mark = superblock.mark;
            superblock.mark = GenerationMark(self.random.next_u64());
            for (index, member) in superblock.members.iter_mut().enumerate() {
                if member.state.holds_superblocks() && !there.contains(&MemberIndex(index as u16)) {
                    member.state = MemberState::Missing;
                    member.since = superblock.generation;
                }
            }
            self.place_segments(&mut superblock);
            self.parents.insert(superblock.name.clone(), parent);
            let place = (superblock.generation.0 % 2) as u8;
            let crashes = self.random.below(3) == 0;
            for &member in &there {
                if !crashes || self.random.below(2) == 0 {
                    self.drives[usize::from(member.0)] = superblock.for_place(member, place);
                }
            }
            if crashes {
                return;
            }
            settled = superblock.generation;
            self.relied = superblock.name.clone();
            self.missed
                .extend((0..self.drives.len()).filter(|&drive| !there.contains(&MemberIndex(drive as u16))));
        }
    }
}

#[test]
fn what_is_opened_is_what_was_relied_on_last() {
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..3000 {
        let mut truth = Truth::new(seed, 1 + seed as usize % 6);
        for _ in 0..25 {
            match truth.step() {
                Some(Ok(_)) => opened += 1,
                Some(Err(NotOpened::MayBeNewerElsewhere(_) | NotOpened::TooFewDrives(_))) => refused += 1,
                Some(Err(other)) => panic!("seed {seed}: {other}"),
                None => {}
            }
        }
    }
    assert!(
        opened > 10_000 && refused > 5_000,
        "{opened} opened, {refused} refused: too few of one to show much"
    );
}

#[test]
fn a_pool_whose_drives_are_all_there_opens_after_any_crash() {
    for seed in 0..500 {
        let mut truth = Truth::new(seed, 4);
        for _ in 0..10 {
            truth.step();
        }
        let seen: Vec<Seen> = truth
            .drives
            .iter()
            .enumerate()
            .map(|(given, superblock)| Seen { given, superblock: superblock.clone() })
            .collect();
        elect(&seen, false).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn drives_of_two_pools_or_twice_the_same_are_refused() {
    let truth = Truth::new(1, 3);
    let seen = |given: usize| Seen { given, superblock: truth.drives[given].clone() };
    let mut other = seen(1);
    other.superblock.pool.0[0] ^= 1;
    other.superblock.checkpoint.pool = other.superblock.pool;
    assert!(matches!(elect(&[seen(0), other], false), Err(NotOpened::TwoPools(..))));
    assert!(matches!(elect(&[seen(0), seen(0)], false), Err(NotOpened::Twice(_))));
    assert_eq!(elect(&[], false).unwrap_err(), NotOpened::NoPool);
    let mut newer = seen(0);
    newer.superblock.features.incompatible = 1 << 40;
    assert!(matches!(elect(&[newer], true), Err(NotOpened::Features(_))));
}

#[test]
fn half_a_pool_opens_only_by_force() {
    let mut truth = Truth::new(1, 2);
    truth.place_segments(&mut examples::superblock());
    let seen = [Seen { given: 0, superblock: truth.drives[0].clone() }];
    let Err(refusal @ NotOpened::MayBeNewerElsewhere(_)) = elect(&seen, false) else {
        panic!("it was opened")
    };
    assert!(refusal.to_string().contains("02020202-0202-0202-0202-020202020202"), "{refusal}");
    let election = elect(&seen, true).expect("forced");
    assert_eq!(election.absent, [MemberIndex(1)]);
}
