//! Division of drives into failure sets, by what each choice costs.
//!
//! A drive that is larger than all others of its set has slots that find no partner there. So a division begins with
//! drives of one size together, and then exchanges pairs of drives while that lowers the cost. The result is a division
//! that no single exchange improves.

use crate::{format::SetNumber, redundancy::FailureDomain, segments::segments_in};
use std::{cmp::Reverse, collections::BTreeMap};

/// A drive that counts.
#[derive(Clone, Copy, Debug)]
pub struct SetDrive {
    /// Its row in the member table.
    pub row: usize,
    /// Zero if it is lost.
    pub slots: u64,
    pub domain: FailureDomain,
    pub before: Option<SetNumber>,
}

/// Cost of a set, the worst first: segments that its drives lack, those that must lie in one domain, pairs of drives of
/// one domain, and pairs of drives that it keeps together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetCost {
    pub lone: u64,
    pub in_one_domain: u64,
    pub domain_pairs: u64,
    pub kept_pairs: Reverse<u64>,
}

/// The cost of a set in a pool of so many copies.
pub fn cost(drives: &[SetDrive], copies: usize) -> SetCost {
    let mut domains: BTreeMap<FailureDomain, (u64, u64)> = BTreeMap::new();
    let mut before: BTreeMap<SetNumber, u64> = BTreeMap::new();
    for drive in drives {
        let (slots, count) = domains.entry(drive.domain).or_default();
        (*slots, *count) = (*slots + drive.slots, *count + 1);
        if let Some(set) = drive.before {
            *before.entry(set).or_default() += 1;
        }
    }
    let slots: Vec<u64> = drives.iter().map(|drive| drive.slots).collect();
    let segments = segments_in(&slots, copies);
    let apart = segments_in(&domains.values().map(|(slots, _)| *slots).collect::<Vec<_>>(), copies);
    let pairs = |count: u64| count * count.saturating_sub(1) / 2;
    SetCost {
        lone: slots.iter().sum::<u64>() / copies.max(1) as u64 - segments,
        in_one_domain: segments - apart.min(segments),
        domain_pairs: domains.values().map(|(_, count)| pairs(*count)).sum(),
        kept_pairs: Reverse(before.into_values().map(pairs).sum()),
    }
}

/// Divides drives into sets of even numbers. Drives of one size come together, so that a large one finds partners; then
/// drives are exchanged between two sets while that lowers their cost.
pub fn divide(drives: &[SetDrive], count: usize, copies: usize) -> Vec<Vec<SetDrive>> {
    let mut sorted = drives.to_vec();
    sorted.sort_by_key(|drive| (Reverse(drive.slots), drive.before, drive.row));
    let mut sets: Vec<Vec<SetDrive>> = Vec::new();
    for index in 0..count {
        let size = drives.len() / count + usize::from(index < drives.len() % count);
        sets.push(sorted.drain(..size).collect());
    }
    while exchange_some(&mut sets, copies) {}
    sets
}

/// Exchanges drives once between each two sets at most; false if no exchange lowers the cost. As the cost of all sets falls
/// with each, this ends.
fn exchange_some(sets: &mut [Vec<SetDrive>], copies: usize) -> bool {
    let mut has_changed = false;
    for one in 0..sets.len() {
        for other in one + 1..sets.len() {
            has_changed |= exchange(sets, (one, other), copies);
        }
    }
    has_changed
}

fn exchange(sets: &mut [Vec<SetDrive>], (one, other): (usize, usize), copies: usize) -> bool {
    let sum = |sets: &[Vec<SetDrive>]| {
        let (one, other) = (cost(&sets[one], copies), cost(&sets[other], copies));
        SetCost {
            lone: one.lone + other.lone,
            in_one_domain: one.in_one_domain + other.in_one_domain,
            domain_pairs: one.domain_pairs + other.domain_pairs,
            kept_pairs: Reverse(one.kept_pairs.0 + other.kept_pairs.0),
        }
    };
    let swap = |sets: &mut [Vec<SetDrive>], (first, second): (usize, usize)| {
        let drive = sets[one][first];
        sets[one][first] = std::mem::replace(&mut sets[other][second], drive);
    };
    let before = sum(sets);
    let is_best = (before.lone, before.in_one_domain, before.domain_pairs) == (0, 0, 0);
    if is_best && sets[one].iter().chain(&sets[other]).all(|drive| drive.before.is_none()) {
        return false;
    }
    let mut best = (before, None);
    for first in 0..sets[one].len() {
        for second in 0..sets[other].len() {
            swap(sets, (first, second));
            let after = sum(sets);
            swap(sets, (first, second));
            if after < best.0 {
                best = (after, Some((first, second)));
            }
        }
    }
    if let Some(pair) = best.1 {
        swap(sets, pair);
    }
    best.1.is_some()
}
