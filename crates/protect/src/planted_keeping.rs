//! Planted bugs of schedules, retention and catalogues, each at the very place where a programmer might make the
//! mistake: a test that does not notice one is worth nothing. They exist in builds with debug assertions alone.

/// A bug to plant in what keeps backups.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepingBug {
    /// In the second pass of a doubled hour the slot is that of the clock.
    SecondPassForgotten,
    /// A clock that jumps to and fro makes a backup at each jump.
    PaceIgnored,
    /// A slot in the future stops its schedule.
    FutureBlocks,
    /// A clock that was set back fills a slot twice.
    SlotTwice,
    /// Hours are counted instead of backups.
    AgesInsteadOfCounts,
    /// A failed round deletes.
    FailedRoundDeletes,
    /// Others' backups count, and go.
    OthersCount,
    /// The last proven one goes by law.
    LastProvenGoes,
    /// Unproven ones count for the proven minimum.
    UnprovenCountForMinimum,
    /// The full backup that logs need goes before them.
    NeededGoes,
    /// Thinning out takes a held one.
    ThinningTakesHeld,
    /// Thinning out takes proven ones first.
    ThinningTakesProvenFirst,
    /// Thinning out takes the newest of a schedule.
    ThinningTakesNewest,
    /// A line is acknowledged before it is stable.
    LineNotSynced,
    /// A line whose sync failed counts as stable when it is read again.
    LastLineNotRewritten,
    /// A damaged line in the middle ends the file.
    DamagedMiddleIgnored,
    /// A file that takes the place of a catalogue may not have it after a power cut.
    NameNotSynced,
    /// A file takes the place of a catalogue before it is stable.
    SuccessorNotSynced,
    /// Old lines of a backup that was held or restored are summed up, too.
    HeldSummedUp,
    /// Slots that backups filled are forgotten with their lines.
    SummedSlotsForgotten,
    /// A clock that is set ahead makes lines old.
    SummedUpByCivilClock,
    /// A sequence number is given again.
    SequenceAgain,
    /// A deletion under way is forgotten.
    DeletionForgotten,
    /// A pool that was not asked has no points.
    SilentPoolIsEmpty,
    /// A backup is cut before the catalogue knows of it.
    CutBeforeBegun,
    /// Points go before the catalogue knows of it.
    PointsBeforeDeleting,
    /// A backup that is in use goes.
    UseIgnored,
    /// A verification that did not look at everything proves a backup.
    UnfinishedIsProven,
    /// A backup that was cut after the time of the day is verified as well.
    DueTooEarly,
    /// The backup that was copied last is copied again.
    CopiedAgain,
    /// A damaged backup is copied.
    DamagedIsCopied,
    /// Logs go once a backup has them that was not proven.
    UnprovenReleases,
    /// Logs go though the points of the backup that has them are gone.
    LostReleases,
    /// A keeper that takes its set over believes that the other site noted nothing else.
    TakenOverBlindly,
    /// A keeper that takes its set over gives numbers that the other site gave.
    NumbersOfOtherSiteForgotten,
    /// The other site's verdict counts whatever points it looked at.
    VerdictOfAnotherClone,
}

impl KeepingBug {
    pub const ALL: [Self; 36] = [
        Self::SecondPassForgotten,
        Self::PaceIgnored,
        Self::FutureBlocks,
        Self::SlotTwice,
        Self::AgesInsteadOfCounts,
        Self::FailedRoundDeletes,
        Self::OthersCount,
        Self::LastProvenGoes,
        Self::UnprovenCountForMinimum,
        Self::NeededGoes,
        Self::ThinningTakesHeld,
        Self::ThinningTakesProvenFirst,
        Self::ThinningTakesNewest,
        Self::LineNotSynced,
        Self::LastLineNotRewritten,
        Self::DamagedMiddleIgnored,
        Self::NameNotSynced,
        Self::SuccessorNotSynced,
        Self::HeldSummedUp,
        Self::SummedSlotsForgotten,
        Self::SummedUpByCivilClock,
        Self::SequenceAgain,
        Self::DeletionForgotten,
        Self::SilentPoolIsEmpty,
        Self::CutBeforeBegun,
        Self::PointsBeforeDeleting,
        Self::UseIgnored,
        Self::UnfinishedIsProven,
        Self::DueTooEarly,
        Self::CopiedAgain,
        Self::DamagedIsCopied,
        Self::UnprovenReleases,
        Self::LostReleases,
        Self::TakenOverBlindly,
        Self::NumbersOfOtherSiteForgotten,
        Self::VerdictOfAnotherClone,
    ];

    /// True if only a whole keeper can have it.
    pub fn is_of_keepers(self) -> bool {
        matches!(
            self,
            Self::CutBeforeBegun
                | Self::PointsBeforeDeleting
                | Self::UseIgnored
                | Self::UnfinishedIsProven
                | Self::DueTooEarly
                | Self::CopiedAgain
                | Self::DamagedIsCopied
                | Self::UnprovenReleases
                | Self::LostReleases
                | Self::TakenOverBlindly
                | Self::NumbersOfOtherSiteForgotten
                | Self::VerdictOfAnotherClone
        )
    }
}

#[cfg(debug_assertions)]
mod planting {
    use super::KeepingBug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<KeepingBug>> = const { Cell::new(None) };
    }

    /// Runs `work` with a bug planted in all sets of this thread.
    #[doc(hidden)]
    pub fn with_keeping_bug<T>(bug: KeepingBug, work: impl FnOnce() -> T) -> T {
        /// Ends the bug, also if the work panics.
        struct Planted;
        impl Drop for Planted {
            fn drop(&mut self) {
                PLANTED.set(None);
            }
        }
        let before = PLANTED.replace(Some(bug));
        assert_eq!(before, None, "one bug at a time");
        let _planted = Planted;
        work()
    }

    pub(crate) fn is(bug: KeepingBug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(debug_assertions)]
pub(crate) use planting::is;
#[cfg(debug_assertions)]
pub use planting::with_keeping_bug;

#[cfg(not(debug_assertions))]
pub(crate) const fn is(_: KeepingBug) -> bool {
    false
}
