//! Lineage against copies that remember every write: three of them write, replicate in part, are promoted,
//! crash and catch up, in any order.

use array::format::{EpochId, Stamp};
use proptest::{collection::vec, prelude::*};
use replication::{
    cut::GroupCut,
    lineage::{CatchUp, CopyRelation, GroupCopy, Lineage, LineageComparison, Side, compare},
};
use std::collections::{BTreeMap, BTreeSet};

/// A write; `content` is unique in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Write {
    epoch: EpochId,
    stamp: Stamp,
    block: u8,
    content: u32,
}

#[derive(Clone, Debug)]
struct Model {
    lineage: Lineage,
    /// Its writes, in order.
    writes: Vec<Write>,
    acknowledged: Stamp,
    /// True if it may write its current epoch; else it only receives.
    is_writer: bool,
}

impl Model {
    fn has(&self) -> Stamp {
        let fork = self.lineage.current().spans[0].fork;
        self.writes.last().map_or(fork, |write| write.stamp.max(fork))
    }

    fn blocks(&self) -> BTreeMap<u8, u32> {
        self.writes.iter().map(|write| (write.block, write.content)).collect()
    }

    fn write(&mut self, block: u8, content: u32) {
        let epoch = self.lineage.current();
        let stamp = Stamp(epoch.spans[0].start.0.max(self.has().0 + 1));
        self.writes.push(Write { epoch: epoch.epoch, stamp, block, content });
    }

    /// It must begin a new epoch before it writes again: the writes it lost, and their stamps, may have been
    /// sent.
    fn crash(&mut self, lost: usize) {
        let safe = self.writes.partition_point(|write| write.stamp <= self.acknowledged);
        self.writes.truncate(safe.max(self.writes.len().saturating_sub(lost)));
        let last = self.writes.last().map_or(Stamp(0), |write| write.stamp);
        let mut epochs = self.lineage.epochs().to_vec();
        while epochs.last().is_some_and(|epoch| epoch.spans[0].fork > last) {
            epochs.pop();
        }
        self.lineage = Lineage::from_epochs(epochs).unwrap();
        self.is_writer = false;
    }

    /// Blocks with a version above `since` in the last shared epoch, as a tree with stamps reports them.
    fn changed_since(&self, since: Stamp) -> BTreeSet<u8> {
        self.writes.iter().filter(|write| write.stamp > since).map(|write| write.block).collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A write; a copy that may not write is promoted first.
    Write { at: usize, block: u8 },
    /// A promotion without a write.
    Promote { at: usize },
    /// Acknowledges everything a copy has.
    Acknowledge { at: usize },
    /// Loses up to so many unacknowledged writes; other copies may have them.
    Crash { at: usize, lost: usize },
    /// Sends a part of what `to` lacks.
    Replicate { from: usize, to: usize, count: usize },
    /// Makes two copies equal; if they diverged, `from` wins.
    Settle { from: usize, to: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let at = || 0..3_usize;
    let pair = || (at(), 1..3_usize).prop_map(|(from, step)| (from, (from + step) % 3));
    prop_oneof![
        6 => (at(), 0..12_u8).prop_map(|(at, block)| Step::Write { at, block }),
        1 => at().prop_map(|at| Step::Promote { at }),
        3 => at().prop_map(|at| Step::Acknowledge { at }),
        6 => (pair(), 1..6_usize).prop_map(|((from, to), count)| Step::Replicate { from, to, count }),
        2 => (at(), 1..4_usize).prop_map(|(at, lost)| Step::Crash { at, lost }),
        1 => pair().prop_map(|(from, to)| Step::Settle { from, to }),
    ]
}

/// Three copies and a count of steps.
struct Copies {
    copies: [Model; 3],
    count: u32,
}

impl Copies {
    fn new() -> Self {
        let copy = Model {
            lineage: Lineage::new(EpochId([1; 16]), 1),
            writes: Vec::new(),
            acknowledged: Stamp(0),
            is_writer: false,
        };
        let mut copies = [copy.clone(), copy.clone(), copy];
        copies[0].is_writer = true;
        Self { copies, count: 1 }
    }

    fn promote(&mut self, at: usize) {
        self.count += 1;
        let mut name = [2; 16];
        name[..4].copy_from_slice(&self.count.to_le_bytes());
        let copy = &mut self.copies[at];
        copy.lineage.promote(EpochId(name), &GroupCut::new(vec![copy.has()])).unwrap();
        copy.is_writer = true;
    }

    fn apply(&mut self, step: &Step) {
        self.count += 1;
        match *step {
            Step::Write { at, block } => {
                if !self.copies[at].is_writer {
                    self.promote(at);
                }
                self.copies[at].write(block, self.count);
            }
            Step::Promote { at } => self.promote(at),
            Step::Acknowledge { at } => self.copies[at].acknowledged = self.copies[at].has(),
            Step::Crash { at, lost } => self.copies[at].crash(lost),
            Step::Replicate { from, to, count } => self.replicate(from, to, count),
            Step::Settle { from, to } => {
                let found = self.compare(from, to);
                let has_diverged = found.standing == CopyRelation::Diverged;
                assert!(!has_diverged || found.catch_up(None, Side::Ours).is_empty(), "nobody chose");
                for plan in found.catch_up(Some(Side::Ours), Side::Ours) {
                    assert!(!has_diverged || plan.to == Side::Theirs, "who was chosen is kept");
                    let (sender, receiver) = if plan.to == Side::Theirs { (from, to) } else { (to, from) };
                    self.catch_up(sender, receiver, plan);
                }
            }
        }
    }

    fn compare(&self, ours: usize, theirs: usize) -> LineageComparison {
        let [ours, theirs] = [ours, theirs].map(|at| &self.copies[at]);
        let cut = |stamp| GroupCut::new(vec![stamp]);
        let (our_has, ours_told) = (cut(ours.has()), cut(ours.acknowledged));
        let (their_has, theirs_told) = (cut(theirs.has()), cut(theirs.acknowledged));
        compare(
            GroupCopy { lineage: &ours.lineage, has: &our_has, acknowledged: &ours_told },
            GroupCopy { lineage: &theirs.lineage, has: &their_has, acknowledged: &theirs_told },
        )
    }

    /// The stream: records in order, each with its epoch.
    fn replicate(&mut self, from: usize, to: usize, count: usize) {
        if self.compare(from, to).standing != CopyRelation::Ahead {
            return;
        }
        let source = self.copies[from].clone();
        let target = &mut self.copies[to];
        for write in source.writes[target.writes.len()..].iter().take(count) {
            if target.lineage.current().epoch != write.epoch {
                let epochs = source.lineage.epochs();
                let end = epochs.iter().position(|epoch| epoch.epoch == write.epoch).unwrap() + 1;
                target.lineage = Lineage::from_epochs(epochs[..end].to_vec()).unwrap();
                target.is_writer = false;
            }
            target.writes.push(*write);
        }
    }

    /// The difference: sends only what the plan names, which must suffice.
    fn catch_up(&mut self, sender: usize, receiver: usize, plan: CatchUp) {
        let (source, target) = (&self.copies[sender], &self.copies[receiver]);
        let mut sent = source.changed_since(plan.since.stamps()[0]);
        let own = target.changed_since(plan.since.stamps()[0]);
        assert!(plan.receiver_forks || own.is_empty(), "{own:?} would be lost without a fork");
        sent.extend(own);
        let (mut blocks, wanted) = (target.blocks(), source.blocks());
        for block in sent {
            match wanted.get(&block) {
                Some(content) => blocks.insert(block, *content),
                None => blocks.remove(&block),
            };
        }
        assert_eq!(blocks, wanted, "what was sent does not make them alike: {plan:?}");
        let copy = source.clone();
        self.copies[receiver] = Model { is_writer: false, acknowledged: copy.has(), ..copy };
        assert_eq!(self.compare(sender, receiver).standing, CopyRelation::Equal);
    }

    /// Checks the comparison against the copies' memory.
    fn check(&self, one: usize, other: usize) {
        let (ours, theirs) = (&self.copies[one], &self.copies[other]);
        let found = self.compare(one, other);
        let common = ours.writes.iter().zip(&theirs.writes).take_while(|(one, other)| one == other).count();
        let (our_rest, their_rest) = (&ours.writes[common..], &theirs.writes[common..]);
        let stamp = found.common.as_ref().expect("all have one origin").cut.stamps()[0];
        assert!(ours.writes[..common].iter().all(|write| write.stamp <= stamp), "{found:?}");
        assert!(our_rest.iter().chain(their_rest).all(|write| write.stamp > stamp), "{found:?}");
        let was_told =
            |copy: &Model, rest: &[Write]| rest.iter().any(|write| write.stamp <= copy.acknowledged);
        let (we_told, they_told) = (was_told(ours, our_rest), was_told(theirs, their_rest));
        match found.standing {
            CopyRelation::Equal => assert!(our_rest.is_empty() && their_rest.is_empty()),
            CopyRelation::Behind => assert!(our_rest.is_empty()),
            CopyRelation::Ahead => assert!(their_rest.is_empty()),
            CopyRelation::TailNeverAcknowledged(Side::Ours) => assert!(!we_told),
            CopyRelation::TailNeverAcknowledged(Side::Theirs) => assert!(!they_told),
            CopyRelation::Diverged => assert!(we_told && they_told),
            CopyRelation::Unrelated | CopyRelation::Crossed => panic!("all have one origin, and one part"),
        }
        assert!(found.standing == CopyRelation::Diverged || !(we_told && they_told), "{found:?}");
        self.check_mirrored(&found, &self.compare(other, one));
    }

    fn check_mirrored(&self, one: &LineageComparison, other: &LineageComparison) {
        use CopyRelation as S;
        assert_eq!(one.common, other.common);
        let is_mirrored = match (one.standing, other.standing) {
            (S::Equal, S::Equal) | (S::Behind, S::Ahead) | (S::Ahead, S::Behind) => true,
            (S::Diverged, S::Diverged) | (S::Unrelated, S::Unrelated) => true,
            // Both may revoke their own; otherwise both mean the same side.
            (S::TailNeverAcknowledged(one), S::TailNeverAcknowledged(other)) => {
                one == other.other() || one == Side::Ours && other == Side::Ours
            }
            _ => false,
        };
        assert!(is_mirrored, "{one:?} {other:?}");
    }
}

proptest! {
    #![proptest_config(crate::values::cases(2000))]

    #[test]
    fn copies_are_compared_as_one_who_remembers_every_write_would(steps in vec(step(), 1..60)) {
        let mut copies = Copies::new();
        for step in &steps {
            copies.apply(step);
            for (one, other) in [(0, 1), (1, 2), (2, 0), (0, 0)] {
                copies.check(one, other);
            }
            // A restart reads the same history.
            for copy in &copies.copies {
                let epochs = copy.lineage.epochs().to_vec();
                prop_assert_eq!(Lineage::from_epochs(epochs), Ok(copy.lineage.clone()));
            }
        }
    }
}

#[test]
fn every_standing_is_reached() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..300 {
        let steps = vec(step(), 30..60).new_tree(&mut runner).unwrap().current();
        let mut copies = Copies::new();
        for step in &steps {
            copies.apply(step);
            seen.insert(format!("{:?}", copies.compare(0, 1).standing));
        }
    }
    let all = [
        "Ahead",
        "Behind",
        "Diverged",
        "Equal",
        "TailNeverAcknowledged(Ours)",
        "TailNeverAcknowledged(Theirs)",
    ];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), all);
}
