//! Lineage: compares the histories of two copies: where they diverge, which one is ahead, and what must be
//! sent.
//!
//! A history is a list of *epochs*. Each is one side's right to write: it leaves its parent at the *fork*,
//! the last stamp of the parent that still belongs to it, and its own stamps begin at its *start*. Stamps of
//! one history ascend; stamps of two histories are not comparable beyond the point where they diverge.
//!
//! ```text
//! epoch 1   1 ───────── 900 ─── 905          stamps above 900 are not part of epoch 2's history
//!                        └─ fork 900
//! epoch 2                    start 900 + 2^32 ────
//! ```
//!
//! Invariants of a lineage:
//!
//! 1. It has a first epoch, without a parent, with fork 0; each other one's parent is the one before it.
//! 2. No epoch is in it twice.
//! 3. A fork is a stamp of the parent: not below its start, except of the first, in which nothing may have
//!    been written.
//! 4. A start is above its fork.
//!
//! A side adds an epoch when it is about to acknowledge its first write, and makes it stable first. So a side
//! that was promoted and wrote nothing has not diverged.
//!
//! A stamp must never be used twice in one epoch. A side that opens after a crash, and may have sent more
//! than it kept, begins a new epoch before it writes, or first fetches what the others have.

use crate::format::{EpochId, Stamp, row::EpochRow};

/// Distance by which promotion moves the stamps: more than the old writer can have used since it was last in
/// contact.
pub const PROMOTION_STEP: u64 = 1 << 32;

/// A history of epochs, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    epochs: Vec<EpochRow>,
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
    #[error("the stamps are used up")]
    UsedUp,
}

impl Lineage {
    /// A lineage of one epoch.
    pub fn new(epoch: EpochId) -> Self {
        assert_ne!(epoch, EpochId::NONE, "an epoch has a UUID");
        Self { epochs: vec![EpochRow { epoch, parent: None, fork: Stamp(0), start: Stamp(1) }] }
    }

    /// Validates a list of epochs, oldest first.
    ///
    /// # Errors
    ///
    /// The first invariant that does not hold.
    pub fn from_epochs(epochs: Vec<EpochRow>) -> Result<Self, LineageError> {
        let first = epochs.first().ok_or(LineageError::Empty)?;
        if first.parent.is_some() {
            return Err(LineageError::NotAChild(first.epoch));
        }
        if first.fork.0 != 0 || first.start.0 == 0 {
            return Err(LineageError::Beginning(first.epoch));
        }
        for index in 1..epochs.len() {
            let (before, [epoch, ..]) = epochs.split_at(index) else { unreachable!("there is one more") };
            let parent = &before[index - 1];
            if epoch.parent != Some(parent.epoch) {
                return Err(LineageError::NotAChild(epoch.epoch));
            }
            if before.iter().any(|other| other.epoch == epoch.epoch) {
                return Err(LineageError::Twice(epoch.epoch));
            }
            let is_in_parent = epoch.fork >= parent.start || index == 1 && epoch.fork.0 == 0;
            if !is_in_parent || epoch.start <= epoch.fork {
                return Err(LineageError::Beginning(epoch.epoch));
            }
        }
        Ok(Self { epochs })
    }

    /// Oldest first; never empty.
    pub fn epochs(&self) -> &[EpochRow] {
        &self.epochs
    }

    /// The epoch that is being written.
    pub fn current(&self) -> &EpochRow {
        self.epochs.last().expect("a lineage has an epoch")
    }

    /// Begins an epoch, to be stable before its first write is acknowledged. Its stamps begin 2^32 above
    /// `has`, the highest stamp this side has.
    ///
    /// # Errors
    ///
    /// The UUID was used before, or no stamps are left.
    pub fn promote(&mut self, epoch: EpochId, has: Stamp) -> Result<(), LineageError> {
        let start = Stamp(has.0.checked_add(PROMOTION_STEP).ok_or(LineageError::UsedUp)?);
        // An epoch without writes is no parent: the new one forks from the epoch before it.
        let mut epochs = self.epochs.clone();
        while epochs.len() > 1 && epochs.last().is_some_and(|last| has < last.start) {
            epochs.pop();
        }
        let parent = epochs.last().map(|last| last.epoch);
        epochs.push(EpochRow { epoch, parent, fork: has, start });
        *self = Self::from_epochs(epochs)?;
        Ok(())
    }

    /// The epoch of a stamp of this history; none if it is in a gap between two.
    pub fn epoch_of(&self, stamp: Stamp) -> Option<&EpochRow> {
        let index = self.epochs.partition_point(|epoch| epoch.start <= stamp).checked_sub(1)?;
        let is_left = self.epochs.get(index + 1).is_some_and(|next| next.fork < stamp);
        (!is_left).then_some(&self.epochs[index])
    }
}

/// One copy: its history, and its position in it.
#[derive(Clone, Copy, Debug)]
pub struct VolumeCopy<'a> {
    pub lineage: &'a Lineage,
    /// The highest stamp it has; at least the fork of its current epoch.
    pub has: Stamp,
    /// The highest stamp known to be acknowledged to a host; at most `has`. A replica learns it from its
    /// source's records.
    pub acknowledged: Stamp,
}

/// One of two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Each has writes the other lacks, but those of this side were never acknowledged: they may be revoked,
    /// and the side is behind then. If that holds for both, it is ours.
    TailNeverAcknowledged(Side),
    /// Both have acknowledged writes that the other lacks. A person must choose; the loser becomes a fork.
    Diverged,
    /// No common epoch, or contradictory versions of one. Nothing may be sent.
    Unrelated,
}

/// Result of comparing two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineageComparison {
    pub standing: CopyRelation,
    /// The last common epoch and the last stamp in it that both have; none if they are unrelated. Up to there
    /// they are the same, block by block.
    pub common: Option<(EpochId, Stamp)>,
}

/// The transfer that makes one copy equal to the other: the blocks the sender changed since the common point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatchUp {
    /// Receiver.
    pub to: Side,
    /// Versions above this stamp are sent.
    pub since: Stamp,
    /// True if the receiver has changes of its own above it. It keeps them as a fork, and the blocks it
    /// changed are sent as well, even if the sender did not change them.
    pub receiver_forks: bool,
}

/// Compares two copies. The results of the two sides mirror each other, except for tails that neither
/// acknowledged: each side then revokes its own or waits for the other to do so, and both lead to the common
/// point.
///
/// # Panics
///
/// If a copy has less than the fork of its current epoch, or acknowledged more than it has.
pub fn compare(ours: VolumeCopy, theirs: VolumeCopy) -> LineageComparison {
    for copy in [ours, theirs] {
        let current = copy.lineage.current();
        assert!(copy.has == current.fork || copy.has >= current.start, "{} is in no epoch", copy.has);
        assert!(copy.acknowledged <= copy.has, "what was acknowledged is there");
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
    let along = |copy: VolumeCopy, rest: &[EpochRow]| rest.first().map_or(copy.has, |epoch| epoch.fork);
    let (our_end, their_end) = (along(ours, our_rest), along(theirs, their_rest));
    let common = our_end.min(their_end);
    // True if a copy has, or is about to have, writes the other lacks.
    let we_part = !our_rest.is_empty() || our_end > common;
    let they_part = !their_rest.is_empty() || their_end > common;
    let standing = match (we_part, they_part) {
        (false, false) => CopyRelation::Equal,
        (false, true) => CopyRelation::Behind,
        (true, false) => CopyRelation::Ahead,
        (true, true) if ours.acknowledged <= common => CopyRelation::TailNeverAcknowledged(Side::Ours),
        (true, true) if theirs.acknowledged <= common => CopyRelation::TailNeverAcknowledged(Side::Theirs),
        (true, true) => CopyRelation::Diverged,
    };
    LineageComparison { standing, common: Some((our_epochs[shared - 1].epoch, common)) }
}

impl LineageComparison {
    /// The transfer that makes both equal. `winner` matters only if they diverged. None if nothing is to be
    /// sent, no winner was chosen, or they are unrelated.
    pub fn catch_up(&self, winner: Option<Side>) -> Option<CatchUp> {
        let (_, since) = self.common?;
        let (to, receiver_forks) = match self.standing {
            CopyRelation::Equal | CopyRelation::Unrelated => return None,
            CopyRelation::Behind => (Side::Ours, false),
            CopyRelation::Ahead => (Side::Theirs, false),
            CopyRelation::TailNeverAcknowledged(side) => (side, true),
            CopyRelation::Diverged => (winner?.other(), true),
        };
        Some(CatchUp { to, since, receiver_forks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EpochId = EpochId([0xa; 16]);
    const B: EpochId = EpochId([0xb; 16]);
    const C: EpochId = EpochId([0xc; 16]);

    fn promoted(epoch: EpochId, has: u64) -> Lineage {
        let mut lineage = Lineage::new(A);
        lineage.promote(epoch, Stamp(has)).unwrap();
        lineage
    }

    #[track_caller]
    fn check(
        ours: (&Lineage, u64, u64),
        theirs: (&Lineage, u64, u64),
        standing: CopyRelation,
        common: Option<u64>,
    ) {
        let copy = |(lineage, has, acknowledged)| VolumeCopy {
            lineage,
            has: Stamp(has),
            acknowledged: Stamp(acknowledged),
        };
        let found = compare(copy(ours), copy(theirs));
        assert_eq!((found.standing, found.common.map(|(_, stamp)| stamp.0)), (standing, common));
    }

    #[test]
    fn within_one_epoch_the_higher_stamp_is_ahead() {
        let a = Lineage::new(A);
        check((&a, 900, 900), (&a, 900, 0), CopyRelation::Equal, Some(900));
        check((&a, 900, 900), (&a, 905, 905), CopyRelation::Behind, Some(900));
        check((&a, 905, 905), (&a, 900, 900), CopyRelation::Ahead, Some(900));
        check((&a, 0, 0), (&a, 905, 905), CopyRelation::Behind, Some(0));
    }

    #[test]
    fn a_promoted_side_is_ahead_of_who_has_no_more_than_its_fork() {
        let (a, b) = (Lineage::new(A), promoted(B, 900));
        let start = b.current().start.0;
        check((&a, 900, 900), (&b, start + 7, start + 7), CopyRelation::Behind, Some(900));
        check((&a, 850, 850), (&b, start + 7, start + 7), CopyRelation::Behind, Some(850));
        check((&a, 900, 900), (&b, 900, 900), CopyRelation::Behind, Some(900));
        check((&b, start, start), (&a, 900, 900), CopyRelation::Ahead, Some(900));
    }

    #[test]
    fn a_tail_that_nobody_was_told_of_may_be_taken_back() {
        let (a, b) = (Lineage::new(A), promoted(B, 900));
        let start = b.current().start.0;
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
        let (b_has, c_has) = (b.current().start.0 + 1, c.current().start.0 + 1);
        check((&b, b_has, b_has), (&c, c_has, c_has), CopyRelation::Diverged, Some(870));
        let (b, c) = (promoted(B, 900), promoted(C, 900));
        let start = b.current().start.0;
        check((&b, start, start), (&c, start, start), CopyRelation::Diverged, Some(900));
    }

    #[test]
    fn who_shares_no_epoch_or_tells_it_otherwise_is_unrelated() {
        let (a, other) = (Lineage::new(A), Lineage::new(B));
        check((&a, 9, 9), (&other, 9, 9), CopyRelation::Unrelated, None);
        let (one, another) = (promoted(B, 900), promoted(B, 901));
        check((&one, 900, 900), (&another, 901, 901), CopyRelation::Unrelated, None);
    }

    #[test]
    fn an_epoch_without_a_write_is_no_parent() {
        let mut lineage = promoted(B, 900);
        lineage.promote(C, Stamp(900)).unwrap();
        let names: Vec<EpochId> = lineage.epochs().iter().map(|epoch| epoch.epoch).collect();
        assert_eq!(names, [A, C]);
        assert_eq!(lineage.current().fork, Stamp(900));
    }

    #[test]
    fn a_stamp_belongs_to_one_epoch_or_to_none() {
        let lineage = promoted(B, 900);
        let start = lineage.current().start.0;
        let of = |stamp| lineage.epoch_of(Stamp(stamp)).map(|epoch| epoch.epoch);
        assert_eq!([of(0), of(1), of(900), of(901)], [None, Some(A), Some(A), None]);
        assert_eq!([of(start - 1), of(start), of(u64::MAX)], [None, Some(B), Some(B)]);
    }

    #[test]
    fn what_is_no_history_is_refused() {
        let good = promoted(B, 900).epochs().to_vec();
        let with = |change: fn(&mut Vec<EpochRow>)| {
            let mut epochs = good.clone();
            change(&mut epochs);
            Lineage::from_epochs(epochs)
        };
        assert_eq!(with(|_| ()), Ok(promoted(B, 900)));
        assert_eq!(with(Vec::clear), Err(LineageError::Empty));
        assert_eq!(with(|epochs| epochs.swap(0, 1)), Err(LineageError::NotAChild(B)));
        assert_eq!(with(|epochs| epochs[1].parent = Some(C)), Err(LineageError::NotAChild(B)));
        assert_eq!(with(|epochs| epochs[0].fork = Stamp(1)), Err(LineageError::Beginning(A)));
        assert_eq!(with(|epochs| epochs[0].start = Stamp(901)), Err(LineageError::Beginning(B)));
        assert_eq!(with(|epochs| epochs[1].start = Stamp(900)), Err(LineageError::Beginning(B)));
        assert_eq!(with(|epochs| epochs[1].epoch = A), Err(LineageError::Twice(A)));
        let mut full = Lineage::new(A);
        assert_eq!(full.promote(B, Stamp(u64::MAX - 1)), Err(LineageError::UsedUp));
        assert_eq!(full, Lineage::new(A), "and nothing changed");
    }
}
