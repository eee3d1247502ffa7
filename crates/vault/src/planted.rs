//! Planted bugs of copies, each at the very place where a programmer might make the mistake: a test that does not notice one
//! is worth nothing. They exist in builds with debug assertions alone.

/// A bug to plant in vaults.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VaultBug {
    /// The snapshot is written before the packs are.
    SnapshotBeforePacks,
    /// The last packs are in no index.
    IndexForgotten,
    /// The newest copy is taken as the base, whatever the difference begins with.
    WrongBase,
    /// Locks of others do not count.
    LockIgnored,
    /// The end of a changed range is rounded down.
    ChangeCutShort,
    /// A chunk that is known from an unfinished pack counts as stored, although the pack was lost.
    LostPackCounts,
    /// Copies by hand go as those of the clock do.
    ForgetsCopiesByHand,
    /// The newest copies go, in place of the oldest.
    ForgetsNewest,
    /// A prune removes a pack of which a snapshot needs a part.
    PrunesPartlyUsed,
    /// A prune removes old packs before the index has the new ones.
    PacksBeforeIndex,
}

impl VaultBug {
    pub const OF_REMOVALS: [Self; 4] =
        [Self::ForgetsCopiesByHand, Self::ForgetsNewest, Self::PrunesPartlyUsed, Self::PacksBeforeIndex];
    pub const OF_COPIES: [Self; 5] = [
        Self::SnapshotBeforePacks,
        Self::IndexForgotten,
        Self::WrongBase,
        Self::ChangeCutShort,
        Self::LostPackCounts,
    ];
}

#[cfg(debug_assertions)]
mod planting {
    use super::VaultBug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<VaultBug>> = const { Cell::new(None) };
    }

    /// Runs `work` with a bug planted in all copies of this thread.
    #[doc(hidden)]
    pub fn with_vault_bug<T>(bug: VaultBug, work: impl FnOnce() -> T) -> T {
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

    pub(crate) fn is(bug: VaultBug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(debug_assertions)]
pub(crate) use planting::is;
#[cfg(debug_assertions)]
pub use planting::with_vault_bug;

#[cfg(not(debug_assertions))]
pub(crate) const fn is(_: VaultBug) -> bool {
    false
}
