//! Planted bugs of freezes and of kept logs, each at the very place where a programmer might make the mistake: a test that does
//! not notice one is worth nothing. They exist in builds with debug assertions alone.

/// A bug to plant in the freezes of a group.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreezeBug {
    /// The group counts as frozen before its log is stable: lazy commits are missing in a cut.
    FrozenBeforeStable,
    /// Page writes under way are not awaited.
    PageWritesNotAwaited,
    /// Page writes begin while the group is frozen.
    PageWritesNotHeld,
    /// Commits are answered while the group is frozen.
    CommitsNotHeld,
    /// The log is written while the group is frozen.
    LogNotHeld,
    /// Nothing ends a freeze at its deadline.
    DeadlineForgotten,
    /// Every thaw says that it was the first.
    EveryThawFirst,
    /// A freeze that is given up while it is prepared leaves the group held.
    HeldAfterGivingUp,
    /// The headers are not marked.
    HeadersUnmarked,
}

impl FreezeBug {
    pub const ALL: [Self; 9] = [
        Self::FrozenBeforeStable,
        Self::PageWritesNotAwaited,
        Self::PageWritesNotHeld,
        Self::CommitsNotHeld,
        Self::LogNotHeld,
        Self::DeadlineForgotten,
        Self::EveryThawFirst,
        Self::HeldAfterGivingUp,
        Self::HeadersUnmarked,
    ];
}

/// A bug to plant in keeping and joining logs.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogBug {
    /// Generations that recovery needs are released.
    ReleasedBeyondCheckpoint,
    /// A joined log ends at a generation that no folder has, without a word.
    GapAccepted,
    /// It is not recognised that a log forks from another.
    OtherLineAccepted,
    /// The last generation does not come into the joined log.
    GenerationLeftOut,
    /// The log of a backup may end before the backup.
    EndBeforeBackup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlantedBug {
    Freeze(FreezeBug),
    Log(LogBug),
}

#[cfg(debug_assertions)]
mod planting {
    use super::{FreezeBug, LogBug, PlantedBug};
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<PlantedBug>> = const { Cell::new(None) };
    }

    /// Runs `work` with a bug planted in the freezes of all groups of this thread.
    #[doc(hidden)]
    pub fn with_freeze_bug<T>(bug: FreezeBug, work: impl FnOnce() -> T) -> T {
        with_bug(PlantedBug::Freeze(bug), work)
    }

    /// Runs `work` with a bug planted in the logs of all groups of this thread.
    #[doc(hidden)]
    pub fn with_log_bug<T>(bug: LogBug, work: impl FnOnce() -> T) -> T {
        with_bug(PlantedBug::Log(bug), work)
    }

    fn with_bug<T>(bug: PlantedBug, work: impl FnOnce() -> T) -> T {
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

    pub(super) fn is_planted(bug: PlantedBug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(debug_assertions)]
use planting::is_planted;
#[cfg(debug_assertions)]
pub use planting::{with_freeze_bug, with_log_bug};

#[cfg(not(debug_assertions))]
const fn is_planted(_: PlantedBug) -> bool {
    false
}

pub(crate) fn is(bug: FreezeBug) -> bool {
    is_planted(PlantedBug::Freeze(bug))
}

pub(crate) fn is_log(bug: LogBug) -> bool {
    is_planted(PlantedBug::Log(bug))
}
