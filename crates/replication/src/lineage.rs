//! Lineage: compares the histories of two copies of a group: where they diverge, which one is ahead, and what
//! must be sent.
//!
//! A history is a list of *epochs*. Each is one side's right to write: it leaves its parent at the *fork*,
//! the last stamp of the parent that still belongs to it, and its own stamps begin at its *start*. Stamps of
//! one history ascend; stamps of two histories are not comparable beyond the point where they diverge. Each
//! part of a group has its own stamps, so an epoch has a fork and a start in each.
//!
//! ```text
//! epoch 1   1 ───────── 900 ─── 905          stamps above 900 are not part of epoch 2's history
//!                        └─ fork 900
//! epoch 2                    start 900 + 2^32 ────
//! ```
//!
//! Invariants of a lineage:
//!
//! 1. It has a first epoch, without a parent, with fork 0 in each part; each other one's parent is the one
//!    before it.
//! 2. No epoch is in it twice, and all have the same parts.
//! 3. A fork is a stamp of the parent, or the parent's own fork in a part in which the parent wrote nothing.
//!    A parent wrote in at least one part, except for the first epoch.
//! 4. A start is above its fork.
//!
//! A side adds an epoch when it is about to acknowledge its first write, and makes it stable first. So a side
//! that was promoted and wrote nothing has not diverged.
//!
//! A stamp must never be used twice in one epoch. A side that opens after a crash, and may have sent more
//! than it kept, begins a new epoch before it writes, or first fetches what the others have.

use crate::cut::{GroupCut, PARTS_MAX};
use array::format::{EpochId, Stamp, row::EpochRow};

/// Distance by which promotion moves the stamps: more than the old writer can have used since it was last in
/// contact.
pub const PROMOTION_STEP: u64 = 1 << 32;

/// The stamps of an epoch in one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochSpan {
    /// The last stamp of the parent that belongs to this history.
    pub fork: Stamp,
    /// Its lowest stamp.
    pub start: Stamp,
}

/// One side's right to write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupEpoch {
    pub epoch: EpochId,
    /// One for each part.
    pub spans: Vec<EpochSpan>,
}

impl GroupEpoch {
    /// The last state of the parent that belongs to this history.
    pub fn fork(&self) -> GroupCut {
        GroupCut::new(self.spans.iter().map(|span| span.fork).collect())
    }

    fn begins_validly(&self) -> bool {
        self.spans.iter().all(|span| span.fork < span.start)
    }

    /// True if it may follow `parent` in a history, of which the parent is the first epoch or not.
    fn follows(&self, parent: &Self, is_first: bool) -> bool {
        let pairs = || self.spans.iter().zip(&parent.spans);
        let wrote = |(own, parent): (&EpochSpan, &EpochSpan)| own.fork >= parent.start;
        let is_within = pairs().all(|(own, parent)| wrote((own, parent)) || own.fork == parent.fork);
        is_within && (is_first || pairs().any(wrote))
    }
}

/// A history of epochs, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lineage {
    epochs: Vec<GroupEpoch>,
}

/// A list of epochs that is not a valid history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineageError {
    #[error("a lineage has at least one epoch")]
    Empty,
    /// The first epoch has a parent, or another one's parent is not the one before it.
    #[error("epoch {0} does not follow the one before it")]
    NotAChild(EpochId),
    #[error("epoch {0} is in the lineage twice")]
    Twice(EpochId),
    /// Its fork is not a stamp of its parent, or its start is not above the fork.
    #[error("epoch {0} does not begin within its parent")]
    Beginning(EpochId),
    /// The parts have different epochs, or none, or there are too many.
    #[error("the parts of the group have different epochs")]
    Parts,
    #[error("the stamps are used up")]
    UsedUp,
}

impl Lineage {
    /// A lineage of one epoch.
    ///
    /// # Panics
    ///
    /// Without a UUID, or without a valid number of parts.
    pub fn new(epoch: EpochId, parts: usize) -> Self {
        assert_ne!(epoch, EpochId::NONE, "an epoch has a UUID");
        assert!((1..=PARTS_MAX).contains(&parts), "a group has parts");
        let span = EpochSpan { fork: Stamp(0), start: Stamp(1) };
        Self { epochs: vec![GroupEpoch { epoch, spans: vec![span; parts] }] }
    }

    /// Validates a list of epochs, oldest first.
    ///
    /// # Errors
    ///
    /// The first invariant that does not hold.
    pub fn from_epochs(epochs: Vec<GroupEpoch>) -> Result<Self, LineageError> {
        let first = epochs.first().ok_or(LineageError::Empty)?;
        let parts = first.spans.len();
        if !(1..=PARTS_MAX).contains(&parts) || epochs.iter().any(|epoch| epoch.spans.len() != parts) {
            return Err(LineageError::Parts);
        }
        if !first.begins_validly() || first.spans.iter().any(|span| span.fork.0 != 0) {
            return Err(LineageError::Beginning(first.epoch));
        }
        let mut known = std::collections::BTreeSet::from([EpochId::NONE]);
        for (index, epoch) in epochs.iter().enumerate() {
            if !known.insert(epoch.epoch) {
                return Err(LineageError::Twice(epoch.epoch));
            }
            let Some(parent) = index.checked_sub(1).map(|before| &epochs[before]) else { continue };
            if !epoch.begins_validly() || !epoch.follows(parent, index == 1) {
                return Err(LineageError::Beginning(epoch.epoch));
            }
        }
        Ok(Self { epochs })
    }

    /// A lineage from the rows of each part, oldest first, as the pools have them.
    ///
    /// # Errors
    ///
    /// The parts have different epochs, or the first invariant that does not hold.
    pub fn from_rows(parts: &[Vec<EpochRow>]) -> Result<Self, LineageError> {
        let first = parts.first().ok_or(LineageError::Parts)?;
        let is_alike = |rows: &Vec<EpochRow>| {
            rows.len() == first.len() && rows.iter().zip(first).all(|(row, other)| row.epoch == other.epoch)
        };
        if !parts.iter().all(is_alike) {
            return Err(LineageError::Parts);
        }
        for rows in parts {
            for (index, row) in rows.iter().enumerate() {
                let parent = index.checked_sub(1).map(|before| rows[before].epoch);
                if row.parent != parent {
                    return Err(LineageError::NotAChild(row.epoch));
                }
            }
        }
        let epoch_at = |index: usize| GroupEpoch {
            epoch: first[index].epoch,
            spans: parts
                .iter()
                .map(|rows| EpochSpan { fork: rows[index].fork, start: rows[index].start })
                .collect(),
        };
        Self::from_epochs((0..first.len()).map(epoch_at).collect())
    }

    /// The rows of one part, oldest first.
    ///
    /// # Panics
    ///
    /// If the group has no such part.
    pub fn rows(&self, part: usize) -> Vec<EpochRow> {
        let parents = [None].into_iter().chain(self.epochs.iter().map(|epoch| Some(epoch.epoch)));
        let rows = self.epochs.iter().zip(parents).map(|(epoch, parent)| {
            let EpochSpan { fork, start } = epoch.spans[part];
            EpochRow { epoch: epoch.epoch, parent, fork, start }
        });
        rows.collect()
    }

    /// Oldest first; never empty.
    pub fn epochs(&self) -> &[GroupEpoch] {
        &self.epochs
    }

    pub fn parts(&self) -> usize {
        self.current().spans.len()
    }

    /// The epoch that is being written.
    pub fn current(&self) -> &GroupEpoch {
        self.epochs.last().expect("a lineage has an epoch")
    }

    /// Begins an epoch, to be stable in all parts before its first write is acknowledged. Its stamps begin 2^32
    /// above `has`, what this side has.
    ///
    /// # Errors
    ///
    /// The UUID was used before, no stamps are left, or `has` is not of this history.
    pub fn promote(&mut self, epoch: EpochId, has: &GroupCut) -> Result<(), LineageError> {
        if has.parts() != self.parts() {
            return Err(LineageError::Parts);
        }
        let span = |&fork: &Stamp| {
            let start = Stamp(fork.0.checked_add(PROMOTION_STEP).ok_or(LineageError::UsedUp)?);
            Ok(EpochSpan { fork, start })
        };
        let spans = has.stamps().iter().map(span).collect::<Result<_, _>>()?;
        // An epoch without writes is no parent: the new one forks from the epoch before it.
        let mut epochs = self.written(has).epochs;
        epochs.push(GroupEpoch { epoch, spans });
        *self = Self::from_epochs(epochs)?;
        Ok(())
    }

    /// This history without its last epochs if nothing was written in them, for a side that has `has`. A side that
    /// gives up its right without a write has not diverged from the next one that gets it.
    #[must_use]
    pub fn written(&self, has: &GroupCut) -> Self {
        let is_unwritten = |epoch: &GroupEpoch| {
            epoch.spans.iter().zip(has.stamps()).all(|(span, &stamp)| stamp < span.start)
        };
        let mut epochs = self.epochs.clone();
        while epochs.len() > 1 && epochs.last().is_some_and(is_unwritten) {
            epochs.pop();
        }
        Self { epochs }
    }

    /// The epoch of a stamp of a part of this history; none if it is in a gap between two.
    pub fn epoch_of(&self, part: usize, stamp: Stamp) -> Option<&GroupEpoch> {
        let index = self.epochs.partition_point(|epoch| epoch.spans[part].start <= stamp).checked_sub(1)?;
        let is_left = self.epochs.get(index + 1).is_some_and(|next| next.spans[part].fork < stamp);
        (!is_left).then_some(&self.epochs[index])
    }

    /// True if a cut is a position in the current epoch: in each part its fork, or a stamp of it.
    pub fn ends_at(&self, cut: &GroupCut) -> bool {
        let spans = &self.current().spans;
        cut.parts() == spans.len()
            && spans.iter().zip(cut.stamps()).all(|(span, &stamp)| stamp == span.fork || stamp >= span.start)
    }
}

/// One copy: its history, and its position in it.
#[derive(Clone, Copy, Debug)]
pub struct GroupCopy<'a> {
    pub lineage: &'a Lineage,
    /// The highest stamps it has; in each part at least the fork of its current epoch.
    pub has: &'a GroupCut,
    /// The highest stamps known to be acknowledged to a host; within `has`. A replica learns them from its
    /// source's records.
    pub acknowledged: &'a GroupCut,
}

/// One of two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    Ours,
    Theirs,
}

impl Side {
    pub fn other(self) -> Self {
        match self {
            Self::Ours => Self::Theirs,
            Self::Theirs => Self::Ours,
        }
    }
}

/// Relation of two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyRelation {
    /// Same content and same history.
    Equal,
    /// Ours is a prefix of theirs.
    Behind,
    /// Theirs is a prefix of ours.
    Ahead,
    /// Each lacks writes of the other, in different parts of one history. Its only writer lost some that it had
    /// sent.
    Crossed,
    /// Each has writes the other lacks, but those of this side were never acknowledged: they may be revoked,
    /// and the side is behind then. If that holds for both, it is ours.
    TailNeverAcknowledged(Side),
    /// Both have acknowledged writes that the other lacks. A person must choose; the loser becomes a fork.
    Diverged,
    /// No common epoch, or contradictory versions of one. Nothing may be sent.
    Unrelated,
}

/// The last state that two copies have in common. Up to there they are the same, block by block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonCut {
    /// The last common epoch.
    pub epoch: EpochId,
    pub cut: GroupCut,
}

/// Result of comparing two copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineageComparison {
    pub standing: CopyRelation,
    /// None if they are unrelated.
    pub common: Option<CommonCut>,
}

/// The transfer that makes one copy equal to the other: the blocks the sender changed since the common cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatchUp {
    /// Receiver.
    pub to: Side,
    /// Versions above are sent.
    pub since: GroupCut,
    /// True if the receiver has changes of its own above it. It keeps them as a fork, and the blocks it
    /// changed are sent as well, even if the sender did not change them.
    pub receiver_forks: bool,
}

/// Compares two copies of one group. The results of the two sides mirror each other, except for tails that
/// neither acknowledged: each side then revokes its own or waits for the other to do so, and both lead to the
/// common cut.
///
/// # Panics
///
/// If the copies have different parts, or a copy has less than the fork of its current epoch, or acknowledged
/// more than it has.
pub fn compare(ours: GroupCopy, theirs: GroupCopy) -> LineageComparison {
    for copy in [ours, theirs] {
        assert!(copy.lineage.ends_at(copy.has), "{:?} is in no epoch", copy.has);
        assert!(copy.acknowledged.is_within(copy.has), "what was acknowledged is there");
    }
    let (our_epochs, their_epochs) = (ours.lineage.epochs(), theirs.lineage.epochs());
    let shared = our_epochs.iter().zip(their_epochs).take_while(|(one, other)| one == other).count();
    let (our_rest, their_rest) = (&our_epochs[shared..], &their_epochs[shared..]);
    let tells_otherwise =
        our_rest.iter().any(|epoch| their_epochs.iter().any(|other| other.epoch == epoch.epoch))
            || their_rest.iter().any(|epoch| our_epochs.iter().any(|other| other.epoch == epoch.epoch));
    if shared == 0 || tells_otherwise {
        return LineageComparison { standing: CopyRelation::Unrelated, common: None };
    }
    // Position of each copy in the last epoch they share.
    let along =
        |copy: GroupCopy, rest: &[GroupEpoch]| rest.first().map_or(copy.has.clone(), GroupEpoch::fork);
    let (our_end, their_end) = (along(ours, our_rest), along(theirs, their_rest));
    let common = our_end.common(&their_end);
    // True if a copy has, or is about to have, writes the other lacks.
    let we_part = !our_rest.is_empty() || our_end != common;
    let they_part = !their_rest.is_empty() || their_end != common;
    let standing = match (we_part, they_part) {
        (false, false) => CopyRelation::Equal,
        (false, true) => CopyRelation::Behind,
        (true, false) => CopyRelation::Ahead,
        (true, true) if our_rest.is_empty() && their_rest.is_empty() => CopyRelation::Crossed,
        (true, true) if ours.acknowledged.is_within(&common) => {
            CopyRelation::TailNeverAcknowledged(Side::Ours)
        }
        (true, true) if theirs.acknowledged.is_within(&common) => {
            CopyRelation::TailNeverAcknowledged(Side::Theirs)
        }
        (true, true) => CopyRelation::Diverged,
    };
    let epoch = our_epochs[shared - 1].epoch;
    LineageComparison { standing, common: Some(CommonCut { epoch, cut: common }) }
}

impl LineageComparison {
    /// The transfers that make both equal, in their order. `winner` matters only if they diverged, `writer` only
    /// if they are crossed: it gets what it lost first. Empty if nothing is to be sent, no winner was chosen, or
    /// they are unrelated.
    pub fn catch_up(&self, winner: Option<Side>, writer: Side) -> Vec<CatchUp> {
        let Some(common) = &self.common else { return Vec::new() };
        let transfer = |to, receiver_forks| CatchUp { to, since: common.cut.clone(), receiver_forks };
        match self.standing {
            CopyRelation::Equal | CopyRelation::Unrelated => Vec::new(),
            CopyRelation::Behind => vec![transfer(Side::Ours, false)],
            CopyRelation::Ahead => vec![transfer(Side::Theirs, false)],
            CopyRelation::Crossed => [writer, writer.other()].map(|to| transfer(to, false)).into(),
            CopyRelation::TailNeverAcknowledged(side) => vec![transfer(side, true)],
            CopyRelation::Diverged => {
                winner.map(|winner| transfer(winner.other(), true)).into_iter().collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EpochId = EpochId([0xa; 16]);
    const B: EpochId = EpochId([0xb; 16]);
    const C: EpochId = EpochId([0xc; 16]);

    fn at(stamp: u64) -> GroupCut {
        GroupCut::new(vec![Stamp(stamp)])
    }

    fn promoted(epoch: EpochId, has: u64) -> Lineage {
        let mut lineage = Lineage::new(A, 1);
        lineage.promote(epoch, &at(has)).unwrap();
        lineage
    }

    #[track_caller]
    fn check(
        ours: (&Lineage, u64, u64),
        theirs: (&Lineage, u64, u64),
        standing: CopyRelation,
        common: Option<u64>,
    ) {
        let cuts = [ours, theirs].map(|(_, has, acknowledged)| (at(has), at(acknowledged)));
        let copy = |lineage, (has, acknowledged)| GroupCopy { lineage, has, acknowledged };
        let [(our_has, ours_told), (their_has, theirs_told)] = &cuts;
        let found = compare(copy(ours.0, (our_has, ours_told)), copy(theirs.0, (their_has, theirs_told)));
        assert_eq!((found.standing, found.common.map(|found| found.cut)), (standing, common.map(at)));
    }

    #[test]
    fn within_one_epoch_the_higher_stamp_is_ahead() {
        let a = Lineage::new(A, 1);
        check((&a, 900, 900), (&a, 900, 0), CopyRelation::Equal, Some(900));
        check((&a, 900, 900), (&a, 905, 905), CopyRelation::Behind, Some(900));
        check((&a, 905, 905), (&a, 900, 900), CopyRelation::Ahead, Some(900));
        check((&a, 0, 0), (&a, 905, 905), CopyRelation::Behind, Some(0));
    }

    #[test]
    fn a_promoted_side_is_ahead_of_who_has_no_more_than_its_fork() {
        let (a, b) = (Lineage::new(A, 1), promoted(B, 900));
        let start = b.current().spans[0].start.0;
        check((&a, 900, 900), (&b, start + 7, start + 7), CopyRelation::Behind, Some(900));
        check((&a, 850, 850), (&b, start + 7, start + 7), CopyRelation::Behind, Some(850));
        check((&a, 900, 900), (&b, 900, 900), CopyRelation::Behind, Some(900));
        check((&b, start, start), (&a, 900, 900), CopyRelation::Ahead, Some(900));
    }

    #[test]
    fn a_tail_that_nobody_was_told_of_may_be_taken_back() {
        let (a, b) = (Lineage::new(A, 1), promoted(B, 900));
        let start = b.current().spans[0].start.0;
        let ours = CopyRelation::TailNeverAcknowledged(Side::Ours);
        check((&a, 905, 900), (&b, start, start), ours, Some(900));
        check((&a, 905, 901), (&b, start, start), CopyRelation::Diverged, Some(900));
        let theirs = CopyRelation::TailNeverAcknowledged(Side::Theirs);
        check((&b, start, start), (&a, 905, 900), theirs, Some(900));
        check((&a, 905, 900), (&b, start, 900), ours, Some(900));
    }

    #[test]
    fn two_that_were_promoted_have_diverged() {
        let (b, c) = (promoted(B, 900), promoted(C, 870));
        let (b_has, c_has) = (b.current().spans[0].start.0 + 1, c.current().spans[0].start.0 + 1);
        check((&b, b_has, b_has), (&c, c_has, c_has), CopyRelation::Diverged, Some(870));
        let (b, c) = (promoted(B, 900), promoted(C, 900));
        let start = b.current().spans[0].start.0;
        check((&b, start, start), (&c, start, start), CopyRelation::Diverged, Some(900));
    }

    #[test]
    fn who_shares_no_epoch_or_tells_it_otherwise_is_unrelated() {
        let (a, other) = (Lineage::new(A, 1), Lineage::new(B, 1));
        check((&a, 9, 9), (&other, 9, 9), CopyRelation::Unrelated, None);
        let (one, another) = (promoted(B, 900), promoted(B, 901));
        check((&one, 900, 900), (&another, 901, 901), CopyRelation::Unrelated, None);
    }

    #[test]
    fn an_epoch_without_a_write_is_no_parent() {
        let mut lineage = promoted(B, 900);
        lineage.promote(C, &at(900)).unwrap();
        let names: Vec<EpochId> = lineage.epochs().iter().map(|epoch| epoch.epoch).collect();
        assert_eq!(names, [A, C]);
        assert_eq!(lineage.current().spans[0].fork, Stamp(900));
    }

    #[test]
    fn a_stamp_belongs_to_one_epoch_or_to_none() {
        let lineage = promoted(B, 900);
        let start = lineage.current().spans[0].start.0;
        let of = |stamp| lineage.epoch_of(0, Stamp(stamp)).map(|epoch| epoch.epoch);
        assert_eq!([of(0), of(1), of(900), of(901)], [None, Some(A), Some(A), None]);
        assert_eq!([of(start - 1), of(start), of(u64::MAX)], [None, Some(B), Some(B)]);
    }

    #[test]
    fn what_is_no_history_is_refused() {
        let good = promoted(B, 900).rows(0);
        let with = |change: fn(&mut Vec<EpochRow>)| {
            let mut epochs = good.clone();
            change(&mut epochs);
            Lineage::from_rows(&[epochs])
        };
        assert_eq!(with(|_| ()), Ok(promoted(B, 900)));
        assert_eq!(with(Vec::clear), Err(LineageError::Empty));
        assert_eq!(with(|epochs| epochs.swap(0, 1)), Err(LineageError::NotAChild(B)));
        assert_eq!(with(|epochs| epochs[1].parent = Some(C)), Err(LineageError::NotAChild(B)));
        assert_eq!(with(|epochs| epochs[0].fork = Stamp(1)), Err(LineageError::Beginning(A)));
        assert_eq!(with(|epochs| epochs[0].start = Stamp(901)), Err(LineageError::Beginning(B)));
        assert_eq!(with(|epochs| epochs[1].start = Stamp(900)), Err(LineageError::Beginning(B)));
        assert_eq!(with(|epochs| epochs[1].epoch = A), Err(LineageError::Twice(A)));
        let mut full = Lineage::new(A, 1);
        assert_eq!(full.promote(B, &at(u64::MAX - 1)), Err(LineageError::UsedUp));
        assert_eq!(full, Lineage::new(A, 1), "and nothing changed");
    }

    fn cut(stamps: [u64; 2]) -> GroupCut {
        GroupCut::new(stamps.map(Stamp).into())
    }

    #[test]
    fn an_epoch_that_wrote_in_one_part_is_a_parent_in_all() {
        let mut lineage = Lineage::new(A, 2);
        lineage.promote(B, &cut([900, 40])).unwrap();
        let start = lineage.current().spans[0].start.0;
        lineage.promote(C, &cut([start, 40])).unwrap();
        let rows = [0, 1].map(|part| lineage.rows(part));
        assert_eq!(rows.each_ref().map(Vec::len), [3, 3], "the parts have the same epochs");
        assert_eq!(rows[1][2].fork, Stamp(40));
        assert_eq!(Lineage::from_rows(&rows), Ok(lineage.clone()));
        let [mut one, other] = rows;
        one.pop();
        assert_eq!(Lineage::from_rows(&[one, other]), Err(LineageError::Parts));
        let mut idle = lineage.clone();
        idle.promote(EpochId([0xd; 16]), &cut([start, 40])).unwrap();
        assert_eq!(idle.epochs().len(), 3, "C wrote in no part");
    }

    #[test]
    fn parts_of_one_history_may_be_ahead_of_each_other() {
        let a = Lineage::new(A, 2);
        let zero = cut([0, 0]);
        let (ours, theirs) = (cut([5, 9]), cut([7, 8]));
        let copy = |has| GroupCopy { lineage: &a, has, acknowledged: &zero };
        let found = compare(copy(&ours), copy(&theirs));
        assert_eq!(found.standing, CopyRelation::Crossed);
        assert_eq!(found.common.clone().map(|common| common.cut), Some(cut([5, 8])));
        let order: Vec<Side> =
            found.catch_up(None, Side::Theirs).iter().map(|transfer| transfer.to).collect();
        assert_eq!(order, [Side::Theirs, Side::Ours]);
    }

    #[test]
    fn one_acknowledged_part_makes_the_tail_of_a_group_count() {
        let a = Lineage::new(A, 2);
        let mut b = a.clone();
        b.promote(B, &cut([900, 40])).unwrap();
        let wrote = cut([b.current().spans[0].start.0, 40]);
        let check = |has: GroupCut, told: GroupCut, standing| {
            let ours = GroupCopy { lineage: &a, has: &has, acknowledged: &told };
            let theirs = GroupCopy { lineage: &b, has: &wrote, acknowledged: &wrote };
            assert_eq!(compare(ours, theirs).standing, standing);
        };
        check(cut([899, 41]), cut([899, 40]), CopyRelation::TailNeverAcknowledged(Side::Ours));
        check(cut([899, 41]), cut([800, 41]), CopyRelation::Diverged);
        check(cut([899, 40]), cut([899, 40]), CopyRelation::Behind);
    }
}
