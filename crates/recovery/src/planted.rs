//! Planted bugs of recovery, each at the very place where a programmer might make the mistake: a test that does not notice one is
//! worth nothing. They exist in builds with debug assertions alone.

/// A bug to plant in what writes mails.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryBug {
    /// Mails are delivered before they are on the drive.
    DeliveredUnflushed,
    /// Mails count as written though their folder is not on the drive.
    FinishedUnflushed,
    /// Mails that move to `cur` while the folders are listed are seen in neither.
    MovedMailsUnseen,
    /// A mail that was read is delivered again.
    FlagsNotCutOff,
}

impl RecoveryBug {
    pub const ALL: [Self; 4] =
        [Self::DeliveredUnflushed, Self::FinishedUnflushed, Self::MovedMailsUnseen, Self::FlagsNotCutOff];
}

#[cfg(debug_assertions)]
mod planting {
    use super::RecoveryBug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<RecoveryBug>> = const { Cell::new(None) };
    }

    /// Runs `work` with a bug planted in this thread.
    #[doc(hidden)]
    pub fn with_recovery_bug<T>(bug: RecoveryBug, work: impl FnOnce() -> T) -> T {
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

    pub(crate) fn is(bug: RecoveryBug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(debug_assertions)]
pub(crate) use planting::is;
#[cfg(debug_assertions)]
pub use planting::with_recovery_bug;

#[cfg(not(debug_assertions))]
pub(crate) const fn is(_: RecoveryBug) -> bool {
    false
}
