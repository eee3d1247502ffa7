//! Assignment of drives to failure sets, for the member table of the next generation.
//!
//! 1. Fewer than 12 drives have no sets. From 12 on each drive is in one, of 6 to 11 drives.
//! 2. A member table for which this holds stays as it is: only drives that come and go change sets.
//! 3. A division lets as many slots as possible find partners within their sets, then as many of them as possible in
//!    another failure domain; then it spreads each domain, and last it leaves drives together that were.
//!
//! Joining, active and lost drives count. A leaving one keeps its set and does not count; one that has left has none.
//! Lost drives have no room: a new drive is to take the place of one.

use super::division::{SetCost, SetDrive, cost, divide};
use crate::{
    format::{Member, MemberState, SetNumber, Superblock},
    redundancy::FailureDomains,
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// The fewest drives that are divided into sets.
pub const SETS_FROM_DRIVES: usize = 12;
/// Drives of a set (HP EVA8000, redundancy storage sets): the bounds, and the number it should have.
const LEAST: usize = 6;
const MOST: usize = 11;
const BEST: usize = 8;

/// Drives by set.
type Sets = BTreeMap<SetNumber, Vec<SetDrive>>;

/// Gives each drive its set, if the pool wants sets and has drives enough; else none. To be called for each generation.
pub fn assign_sets(superblock: &mut Superblock) {
    let copies = usize::from(superblock.geometry.log_copies);
    if superblock.wants_sets() {
        assign_rows(&mut superblock.members, copies);
    } else {
        superblock.members.iter_mut().for_each(|member| member.set = None);
    }
    superblock.note_sets();
}

/// Gives each drive its set, if there are enough of them.
pub fn assign_rows(members: &mut [Member], copies: usize) {
    let sets = next_sets(members, copies);
    put(members, &sets);
}

/// Divides the drives again if copies would then lie in different domains more often. To be called when domains have
/// changed.
pub fn divide_by_domains(superblock: &mut Superblock) {
    assign_sets(superblock);
    let copies = usize::from(superblock.geometry.log_copies);
    let drives = counting(&superblock.members);
    let sets = by_set(&drives);
    if sets.is_empty() {
        return;
    }
    let divided = numbered(divide(&drives, set_count(drives.len()), copies), &BTreeSet::new());
    let in_one_domain = |sets: &Sets| sets.values().map(|set| cost(set, copies).in_one_domain).sum::<u64>();
    if in_one_domain(&divided) < in_one_domain(&sets) {
        put(&mut superblock.members, &divided);
        superblock.note_sets();
    }
}

/// Puts the sets into the rows. A leaving drive is where most drives of its set are.
fn put(members: &mut [Member], sets: &Sets) {
    let mut next: BTreeMap<usize, SetNumber> = BTreeMap::new();
    for (&number, drives) in sets {
        next.extend(drives.iter().map(|drive| (drive.row, number)));
    }
    for (row, member) in members.iter_mut().enumerate() {
        let of_leaving = || {
            let companions =
                |drives: &[SetDrive]| drives.iter().filter(|one| one.before == member.set).count();
            sets.iter().max_by_key(|(number, drives)| (companions(drives), Reverse(**number)))
        };
        member.set = match member.state {
            MemberState::Leaving => of_leaving().map(|(&number, _)| number),
            _ => next.get(&row).copied(),
        };
    }
}

/// The drives that count, in the order of the table.
fn counting(members: &[Member]) -> Vec<SetDrive> {
    let domains = FailureDomains::of(members);
    let drive = |(row, member): (usize, &Member)| {
        let is_lost = member.state == MemberState::Missing;
        let counts = match member.state {
            MemberState::Active | MemberState::Joining => true,
            // One that has left is missing for a while, too.
            MemberState::Missing => member.set.is_some(),
            MemberState::Leaving | MemberState::Gone | MemberState::Withdrawn => false,
        };
        counts.then(|| SetDrive {
            row,
            slots: if is_lost { 0 } else { member.slot_count.into() },
            domain: domains.of_drive(crate::format::MemberIndex(row as u16)),
            before: member.set,
        })
    };
    members.iter().enumerate().filter_map(drive).collect()
}

fn by_set(drives: &[SetDrive]) -> Sets {
    let mut sets = Sets::new();
    for drive in drives {
        if let Some(set) = drive.before {
            sets.entry(set).or_default().push(*drive);
        }
    }
    sets
}

fn next_sets(members: &[Member], copies: usize) -> Sets {
    let drives = counting(members);
    if drives.len() < SETS_FROM_DRIVES {
        return Sets::new();
    }
    let mut sets = by_set(&drives);
    if sets.is_empty() {
        return numbered(divide(&drives, set_count(drives.len()), copies), &BTreeSet::new());
    }
    for new in drives.iter().filter(|drive| drive.before.is_none()) {
        let number = set_for(&sets, new, copies);
        sets.get_mut(&number).expect("it is one of them").push(*new);
    }
    while let Some((&small, _)) = sets.iter().find(|(_, drives)| drives.len() < LEAST) {
        // All in one set would be too many for it: there is another one.
        let others = sets.iter().filter(|(number, _)| **number != small);
        let other = others.min_by_key(|(number, drives)| (drives.len(), **number));
        let Some((&other, _)) = other else { break };
        let drives = sets.remove(&small).expect("it was found");
        sets.get_mut(&other).expect("it was found").extend(drives);
    }
    while let Some((&large, _)) = sets.iter().find(|(_, drives)| is_too_large(drives)) {
        let drives = sets.remove(&large).expect("it was found");
        let parts = divide(&drives, set_count(drives.len()), copies);
        let taken = sets.keys().copied().collect();
        sets.extend(numbered(parts, &taken));
    }
    sets
}

/// Lost drives are forgotten before others would have to move.
fn is_too_large(drives: &[SetDrive]) -> bool {
    drives.iter().filter(|drive| drive.slots > 0).count() > MOST
}

/// The failure sets of a new pool of so many drives: none if these are too few.
pub fn failure_set_count(drives: usize) -> usize {
    if drives < SETS_FROM_DRIVES { 0 } else { set_count(drives) }
}

/// Sets into which so many drives are divided, as near to eight drives each as they come.
fn set_count(drives: usize) -> usize {
    (drives + BEST / 2) / BEST
}

/// The set that a new drive joins: one in which it finds partners, in other domains, and that has the least room.
fn set_for(sets: &Sets, new: &SetDrive, copies: usize) -> SetNumber {
    let key = |(number, drives): (&SetNumber, &Vec<SetDrive>)| {
        let (before, after) = (cost(drives, copies), cost(&[&drives[..], &[*new]].concat(), copies));
        let more = |of: fn(&SetCost) -> u64| of(&after) as i64 - of(&before) as i64;
        let room: u64 = drives.iter().map(|drive| drive.slots).sum();
        (
            more(|cost| cost.lone),
            more(|cost| cost.in_one_domain),
            more(|cost| cost.domain_pairs),
            room,
            *number,
        )
    };
    sets.iter().map(key).min().map(|(.., number)| number).expect("there are sets")
}

/// Each set has the number that most of its drives had, if no other has it.
fn numbered(sets: Vec<Vec<SetDrive>>, taken: &BTreeSet<SetNumber>) -> Sets {
    let mut all = Sets::new();
    let mut unnamed = Vec::new();
    for set in sets {
        let mut before: BTreeMap<SetNumber, usize> = BTreeMap::new();
        set.iter()
            .filter_map(|drive| drive.before)
            .for_each(|number| *before.entry(number).or_default() += 1);
        let is_free = |number: &SetNumber| !taken.contains(number) && !all.contains_key(number);
        let most = before.into_iter().filter(|(number, _)| is_free(number));
        match most.max_by_key(|&(number, count)| (count, Reverse(number))) {
            Some((number, _)) => drop(all.insert(number, set)),
            None => unnamed.push(set),
        }
    }
    for set in unnamed {
        let mut numbers = (1..=u8::MAX).filter_map(SetNumber::new);
        let number = numbers.find(|number| !taken.contains(number) && !all.contains_key(number));
        all.insert(number.expect("256 drives are fewer than 43 sets"), set);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{DomainName, DriveId, Generation};

    fn member(index: usize, slots: u32, shelf: u8) -> Member {
        let domain = (shelf > 0).then(|| DomainName::new(&format!("shelf-{shelf}")).expect("it is a name"));
        Member {
            drive: DriveId([index as u8; 16]),
            serial: String::new(),
            state: MemberState::Active,
            since: Generation(1),
            sector_bytes: 512,
            slot_count: slots,
            domain,
            set: None,
        }
    }

    fn assign(members: &mut [Member]) {
        assign_rows(members, 2);
    }

    fn equal(count: usize) -> Vec<Member> {
        (0..count).map(|index| member(index, 1000, 0)).collect()
    }

    fn sizes(members: &[Member]) -> Vec<usize> {
        let mut sizes: Vec<usize> = by_set(&counting(members)).values().map(Vec::len).collect();
        sizes.sort_unstable();
        sizes
    }

    fn costs(members: &[Member]) -> Vec<(u64, u64)> {
        let sets = by_set(&counting(members));
        sets.values().map(|set| cost(set, 2)).map(|cost| (cost.lone, cost.in_one_domain)).collect()
    }

    #[test]
    fn sets_begin_at_twelve_drives_and_have_six_to_eleven() {
        for count in 0..=256 {
            let mut members = equal(count);
            assign(&mut members);
            let sizes = sizes(&members);
            assert_eq!(sizes.iter().sum::<usize>(), if count < 12 { 0 } else { count });
            assert!(sizes.iter().all(|size| (LEAST..=MOST).contains(size)), "{count}: {sizes:?}");
        }
        let mut members = equal(12);
        assign(&mut members);
        assert_eq!(sizes(&members), [6, 6]);
    }

    #[test]
    fn a_drive_joins_the_smallest_set_and_twelve_are_two_sets() {
        let mut members = equal(12);
        let mut seen = Vec::new();
        for index in 12..25 {
            members.push(member(index, 1000, 0));
            assign(&mut members);
            seen.push(sizes(&members));
        }
        assert_eq!(seen[..4], [vec![6, 7], vec![7, 7], vec![7, 8], vec![8, 8]]);
        assert_eq!(seen[9], [11, 11], "22 drives");
        assert_eq!(seen[10], [6, 6, 11]);
        assert_eq!(seen[11], [6, 7, 11]);
    }

    #[test]
    fn a_lost_drive_keeps_its_set_until_another_one_has_its_place() {
        let mut members = equal(12);
        assign(&mut members);
        let before: Vec<_> = members.iter().map(|member| member.set).collect();
        members[7].state = MemberState::Missing;
        assign(&mut members);
        assert_eq!(members.iter().map(|member| member.set).collect::<Vec<_>>(), before);
        members.push(member(12, 1000, 0));
        assign(&mut members);
        assert_eq!(members[12].set, before[7]);
        (members[7].state, members[7].set) = (MemberState::Gone, None);
        assign(&mut members);
        assert_eq!(sizes(&members), [6, 6]);
        (members[8].state, members[8].set) = (MemberState::Gone, None);
        assign(&mut members);
        assert_eq!(sizes(&members), [0; 0], "eleven drives");
    }

    #[test]
    fn a_set_that_became_small_takes_drives_of_another_and_most_stay_together() {
        let mut members = equal(22);
        assign(&mut members);
        assert_eq!(sizes(&members), [7, 7, 8]);
        let first = members[0].set;
        let of_first: Vec<usize> = (0..22).filter(|&row| members[row].set == first).collect();
        for &row in &of_first[..of_first.len() - 5] {
            members[row].state = MemberState::Leaving;
        }
        let before: Vec<_> = members.iter().map(|member| member.set).collect();
        assign(&mut members);
        assert_eq!(sizes(&members).iter().sum::<usize>(), 22 - (of_first.len() - 5));
        let moved = (0..22).filter(|&row| members[row].set != before[row]).count();
        assert!(sizes(&members) == [6, 6, 7] && moved <= 2 || sizes(&members).len() == 3, "{moved}");
        assert!(moved <= 6, "{moved} drives changed sets: {:?}", sizes(&members));
    }

    #[test]
    fn drives_of_a_shelf_are_spread_over_all_sets() {
        // Two shelves of eight, in their order.
        let mut members: Vec<Member> =
            (0..16).map(|index| member(index, 1000, 1 + (index / 8) as u8)).collect();
        assign(&mut members);
        assert_eq!(costs(&members), [(0, 0), (0, 0)]);
        for index in 16..19 {
            members.push(member(index, 1000, 3));
            assign(&mut members);
        }
        let of_third: BTreeSet<_> = members[16..18].iter().map(|member| member.set).collect();
        assert_eq!(of_third.len(), 2, "one in each");
    }

    #[test]
    fn large_drives_find_partners_in_their_set() {
        let mut members: Vec<Member> =
            (0..12).map(|index| member(index, if index % 4 == 1 { 1000 } else { 100 }, 0)).collect();
        assign(&mut members);
        assert_eq!(costs(&members), [(0, 0), (0, 0)], "three drives of 1000 are in one set");
        members.push(member(12, 1000, 0));
        assign(&mut members);
        assert_eq!(members[12].set, members[1].set, "a fourth joins them");
    }

    #[test]
    fn any_changes_leave_sets_of_six_to_eleven_and_a_second_look_changes_nothing() {
        let mut random = world::Random::new(3, "sets");
        for _ in 0..60 {
            let mut members: Vec<Member> = Vec::new();
            for step in 0..60 {
                let is_growing = members.len() < 8 || random.percent(60.0);
                let picked = random.below(members.len().max(1) as u64) as usize;
                if is_growing {
                    let (slots, shelf) = (48 + random.below(400) as u32, random.below(4) as u8);
                    members.push(member(step, slots, shelf));
                } else {
                    members[picked].state = match random.below(3) {
                        0 => MemberState::Leaving,
                        1 if members[picked].state == MemberState::Active => MemberState::Missing,
                        _ => MemberState::Gone,
                    };
                    if members[picked].state == MemberState::Gone {
                        members[picked].set = None;
                    }
                }
                assign(&mut members);
                let drives = counting(&members);
                for set in by_set(&drives).values() {
                    assert!(set.len() >= LEAST && !is_too_large(set), "{:?}", sizes(&members));
                }
                assert_eq!(by_set(&drives).is_empty(), drives.len() < SETS_FROM_DRIVES);
                assert!(drives.len() < SETS_FROM_DRIVES || drives.iter().all(|drive| drive.before.is_some()));
                let before: Vec<_> = members.iter().map(|member| member.set).collect();
                assign(&mut members);
                assert_eq!(members.iter().map(|member| member.set).collect::<Vec<_>>(), before);
            }
        }
    }
}
