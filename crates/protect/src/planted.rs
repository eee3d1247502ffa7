//! Planted bugs of a backup, each at the very place where a programmer might make the mistake: a test that does
//! not notice one is worth nothing. They exist in builds with debug assertions alone.

/// A bug to plant in backups.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupBug {
    /// Nothing is thawed once a step has failed.
    ThawForgottenOnError,
    /// Nothing comes after the thaw if the freeze failed.
    AfterForgottenOnError,
    /// A hold stays if the cut failed.
    HoldNotReleased,
    /// Things are thawed in the order in which they were frozen.
    UndoneForwards,
    /// The label does not depend on what the thaw said.
    LabelledWithoutThaw,
    /// A thing that was not frozen counts as frozen.
    FailedFreezeIgnored,
    /// A cut that no freeze covers stays.
    UncoveredCutKept,
    /// Steps may take as long as they like.
    BudgetIgnored,
    /// A thing that froze nothing counts as frozen.
    NothingIsEvidence,
    /// A thaw hook is started while a freeze hook runs.
    ThawBesideFreeze,
    /// A hook that says *not now* counts as done.
    NotNowIsDone,
    /// The pauses of a hook that says *not now* do not grow.
    PauseNotGrown,
    /// A thaw hook that found nothing frozen counts like any other.
    NotFrozenCountsAsHeld,
    /// The worth that hooks state does not count.
    StatementIgnored,
    /// A filesystem counts as frozen to the end, no matter who thawed it.
    AnyThawCounts,
    /// A thing stays frozen when the connection ends over which it was.
    EndOfConnectionIgnored,
    /// Messages that were delivered and not kept stay open when the connection ends.
    DeliveriesLeftOpen,
    /// Logs are released for a cut that the service does not know.
    UnknownCutReleases,
    /// Logs are released for a cut whose freeze was not held.
    BrokenFreezeReleases,
}

impl BackupBug {
    pub const ALL: [Self; 8] = [
        Self::ThawForgottenOnError,
        Self::AfterForgottenOnError,
        Self::HoldNotReleased,
        Self::UndoneForwards,
        Self::LabelledWithoutThaw,
        Self::FailedFreezeIgnored,
        Self::UncoveredCutKept,
        Self::BudgetIgnored,
    ];

    /// Bugs that need a filesystem.
    pub const OF_FILESYSTEMS: [Self; 1] = [Self::AnyThawCounts];

    /// Bugs that need a socket.
    pub const OF_SOCKETS: [Self; 1] = [Self::EndOfConnectionIgnored];

    /// Bugs that need messages that are delivered.
    pub const OF_DELIVERIES: [Self; 1] = [Self::DeliveriesLeftOpen];

    /// Bugs that need logs that are kept.
    pub const OF_KEPT_LOGS: [Self; 2] = [Self::UnknownCutReleases, Self::BrokenFreezeReleases];

    /// Bugs that need hooks.
    pub const OF_HOOKS: [Self; 6] = [
        Self::NothingIsEvidence,
        Self::ThawBesideFreeze,
        Self::NotNowIsDone,
        Self::PauseNotGrown,
        Self::NotFrozenCountsAsHeld,
        Self::StatementIgnored,
    ];
}

#[cfg(debug_assertions)]
mod planting {
    use super::BackupBug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<BackupBug>> = const { Cell::new(None) };
    }

    /// Runs `work` with a bug planted in all backups of this thread.
    #[doc(hidden)]
    pub fn with_backup_bug<T>(bug: BackupBug, work: impl FnOnce() -> T) -> T {
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

    pub(crate) fn is(bug: BackupBug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(debug_assertions)]
pub(crate) use planting::is;
#[cfg(debug_assertions)]
pub use planting::with_backup_bug;

#[cfg(not(debug_assertions))]
pub(crate) const fn is(_: BackupBug) -> bool {
    false
}
