//! Planted bugs of an apply and of a copy, each at the very place where a programmer might make the mistake: a test that does not notice
//! one is worth nothing (`site_crashes`, `transfer_crashes`, `served_moves`, `dr_crashes`). They exist in builds with debug assertions alone.

/// A bug to plant.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyBug {
    /// The pools get their documents before the steps are done.
    DocumentBeforeItsSteps,
    /// A change of the site has the number of the one before.
    GenerationNotRaised,
    /// Only one pool gets its document.
    DocumentOfOnePool,
    /// Destroys what the file lacks.
    DestroyedWithoutName,
    /// A volume is made under its new name, instead of renamed.
    MadeInsteadOfRenamed,
    /// An apply ends before what it destroys is gone.
    EndedBeforeItsLastStep,
    /// A copy that was interrupted is taken for one that is complete; no apply has it.
    IncompleteCopyTakenForDone,
    /// A file that says where a volume was before it moved is taken by its word.
    MovesForgotten,
    /// The rest of a volume that has moved is deleted before the site has followed.
    NotFollowed,
}

impl ApplyBug {
    /// Those of an apply.
    pub const ALL: [Self; 6] = [
        Self::DocumentBeforeItsSteps,
        Self::GenerationNotRaised,
        Self::DocumentOfOnePool,
        Self::DestroyedWithoutName,
        Self::MadeInsteadOfRenamed,
        Self::EndedBeforeItsLastStep,
    ];
}

/// A bug to plant in the changes of groups (`group_crashes`).
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBug {
    /// Work that a crash left is not settled when the pools are opened.
    NotSettledAtStart,
    /// A repeated request does not look whether the first one was done.
    RepeatedBlindly,
    /// A deletion ends after the first pool.
    DeletedInOnePool,
}

impl GroupBug {
    pub const ALL: [Self; 3] = [Self::NotSettledAtStart, Self::RepeatedBlindly, Self::DeletedInOnePool];
}

/// A bug to plant in the keeping of sets (`kept_sets`).
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetBug {
    /// A pool that is not open has no points.
    ClosedPoolIsEmpty,
    /// The points of a backup are removed in the first pool alone.
    RemovedInOnePool,
    /// The flow of a set that the file does not have any more goes on.
    GoesOnWithoutFile,
}

impl SetBug {
    pub const ALL: [Self; 3] = [Self::ClosedPoolIsEmpty, Self::RemovedInOnePool, Self::GoesOnWithoutFile];
}

/// A bug to plant in sets that follow DR groups (`dr_sets`).
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowBug {
    /// The server of a secondary keeps its sets as well.
    KeptBySecondary,
    /// A server that was secondary goes on as if nobody had kept the set meanwhile.
    SuccessionForgotten,
    /// The server of a secondary takes a verdict about other points than those that the other site asked for.
    VerdictOfAnotherClone,
    /// The server of a secondary does not look for locks.
    LocksNotLookedAt,
    /// Held snapshots whose locks have ended stay.
    HeldForGood,
}

impl FollowBug {
    pub const ALL: [Self; 5] = [
        Self::KeptBySecondary,
        Self::SuccessionForgotten,
        Self::VerdictOfAnotherClone,
        Self::LocksNotLookedAt,
        Self::HeldForGood,
    ];
}

/// A bug to plant in presentations (`presentations`).
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresentBug {
    /// A server that was down at the end serves it again for a moment.
    ServedAfterItsTime,
    /// The clone stays when the presentation ends.
    CloneLeftBehind,
    /// A beginning that a crash cut short is not undone.
    HalfBegunStays,
    /// The point is not held.
    PointNotHeld,
}

impl PresentBug {
    /// Those that a run of the simulator notices.
    pub const ALL: [Self; 4] =
        [Self::ServedAfterItsTime, Self::CloneLeftBehind, Self::HalfBegunStays, Self::PointNotHeld];
}

/// A bug to plant in the hosting of DR groups (`dr_crashes`).
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrBug {
    /// A primary that was away serves hosts before it has compared.
    ServedBeforeCompared,
    /// Hosts reach the volumes of a secondary.
    SecondaryOpen,
    /// An order waits until the connection ends by itself.
    ConnectionNotCut,
    /// The volumes of a new primary stay replicas.
    StaysReplica,
    /// The record of a removed group stays in its pool.
    RecordLeftBehind,
    /// The rows that came with a group are served by a secondary.
    RowsServedBySecondary,
    /// The rows of a site do not travel when they change, but with the first connection alone.
    RowsSentOnce,
    /// The rows that came with a group are kept in memory alone.
    RowsNotJournalled,
    /// Replicas that a creation left stay when the pool is opened.
    OrphansKept,
    /// Groups merge without waiting for their turns.
    TurnsIgnored,
    /// The clients of the other site are kept in memory alone.
    ClientsNotJournalled,
    /// Volumes are withheld from hosts after the promotion that may have lost what they were answered.
    WithheldAfterPromotion,
    /// An apply that goes on makes a group under a new UUID.
    MakingForgotten,
    /// A group in several pools counts as made once it has one part.
    HalfMadeTakenForMade,
    /// Of a group in several pools the part that a request names is removed before the others.
    NamedPartRemovedFirst,
    /// Hosts are served in a pool whose part is primary, wherever the other parts are.
    ServedByParts,
    /// The API deletes what is locked, as someone does who has taken over the machine.
    LockedDeleted,
}

impl DrBug {
    pub const ALL: [Self; 5] = [
        Self::ServedBeforeCompared,
        Self::SecondaryOpen,
        Self::ConnectionNotCut,
        Self::StaysReplica,
        Self::RecordLeftBehind,
    ];

    /// Those of hosts from which volumes are withheld (`dr_withholding`).
    pub const OF_WITHHOLDING: [Self; 2] = [Self::ClientsNotJournalled, Self::WithheldAfterPromotion];

    /// Those of rows that travel with a group (`dr_rows`).
    pub const OF_ROWS: [Self; 3] = [Self::RowsServedBySecondary, Self::RowsSentOnce, Self::RowsNotJournalled];
}

#[cfg(debug_assertions)]
mod planting {
    use super::{ApplyBug, DrBug, FollowBug, GroupBug, PresentBug, SetBug};
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<ApplyBug>> = const { Cell::new(None) };
        static PLANTED_IN_GROUPS: Cell<Option<GroupBug>> = const { Cell::new(None) };
        static PLANTED_IN_SETS: Cell<Option<SetBug>> = const { Cell::new(None) };
        static PLANTED_IN_FOLLOWING: Cell<Option<FollowBug>> = const { Cell::new(None) };
        static PLANTED_IN_PRESENTING: Cell<Option<PresentBug>> = const { Cell::new(None) };
        static PLANTED_IN_DR: Cell<Option<DrBug>> = const { Cell::new(None) };
    }

    /// Runs `work` with a bug planted in all sets of this thread that follow DR groups.
    #[doc(hidden)]
    pub fn with_follow_bug<T>(bug: FollowBug, work: impl FnOnce() -> T) -> T {
        /// Ends the bug, also if the work panics.
        struct Planted;
        impl Drop for Planted {
            fn drop(&mut self) {
                PLANTED_IN_FOLLOWING.set(None);
            }
        }
        let before = PLANTED_IN_FOLLOWING.replace(Some(bug));
        assert_eq!(before, None, "one bug at a time");
        let _planted = Planted;
        work()
    }

    pub(crate) fn is_in_following(bug: FollowBug) -> bool {
        PLANTED_IN_FOLLOWING.get() == Some(bug)
    }

    /// Runs `work` with a bug planted in all presentations of this thread.
    #[doc(hidden)]
    pub fn with_present_bug<T>(bug: PresentBug, work: impl FnOnce() -> T) -> T {
        /// Ends the bug, also if the work panics.
        struct Planted;
        impl Drop for Planted {
            fn drop(&mut self) {
                PLANTED_IN_PRESENTING.set(None);
            }
        }
        let before = PLANTED_IN_PRESENTING.replace(Some(bug));
        assert_eq!(before, None, "one bug at a time");
        let _planted = Planted;
        work()
    }

    pub(crate) fn is_in_presenting(bug: PresentBug) -> bool {
        PLANTED_IN_PRESENTING.get() == Some(bug)
    }

    /// Runs `work` with a bug planted in all DR groups of this thread.
    #[doc(hidden)]
    pub fn with_dr_bug<T>(bug: DrBug, work: impl FnOnce() -> T) -> T {
        /// Ends the bug, also if the work panics.
        struct Planted;
        impl Drop for Planted {
            fn drop(&mut self) {
                PLANTED_IN_DR.set(None);
            }
        }
        let before = PLANTED_IN_DR.replace(Some(bug));
        assert_eq!(before, None, "one bug at a time");
        let _planted = Planted;
        work()
    }

    pub(crate) fn is_in_dr(bug: DrBug) -> bool {
        PLANTED_IN_DR.get() == Some(bug)
    }

    /// Runs `work` with a bug planted in all changes of groups of this thread.
    #[doc(hidden)]
    pub fn with_group_bug<T>(bug: GroupBug, work: impl FnOnce() -> T) -> T {
        let before = PLANTED_IN_GROUPS.replace(Some(bug));
        assert_eq!(before, None, "one bug at a time");
        let done = work();
        PLANTED_IN_GROUPS.set(None);
        done
    }

    pub(crate) fn is_in_groups(bug: GroupBug) -> bool {
        PLANTED_IN_GROUPS.get() == Some(bug)
    }

    /// Runs `work` with a bug planted in all sets of this thread.
    #[doc(hidden)]
    pub fn with_set_bug<T>(bug: SetBug, work: impl FnOnce() -> T) -> T {
        /// Ends the bug, also if the work panics.
        struct Planted;
        impl Drop for Planted {
            fn drop(&mut self) {
                PLANTED_IN_SETS.set(None);
            }
        }
        let before = PLANTED_IN_SETS.replace(Some(bug));
        assert_eq!(before, None, "one bug at a time");
        let _planted = Planted;
        work()
    }

    pub(crate) fn is_in_sets(bug: SetBug) -> bool {
        PLANTED_IN_SETS.get() == Some(bug)
    }

    /// Runs `work` with a bug planted in all sites of this thread.
    #[doc(hidden)]
    pub fn with_bug<T>(bug: ApplyBug, work: impl FnOnce() -> T) -> T {
        let before = PLANTED.replace(Some(bug));
        assert_eq!(before, None, "one bug at a time");
        let done = work();
        PLANTED.set(None);
        done
    }

    pub(crate) fn is(bug: ApplyBug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(debug_assertions)]
pub(crate) use planting::{is, is_in_dr, is_in_following, is_in_groups, is_in_presenting, is_in_sets};
#[cfg(debug_assertions)]
pub use planting::{with_bug, with_dr_bug, with_follow_bug, with_group_bug, with_present_bug, with_set_bug};

#[cfg(not(debug_assertions))]
pub(crate) const fn is(_: ApplyBug) -> bool {
    false
}

#[cfg(not(debug_assertions))]
pub(crate) const fn is_in_groups(_: GroupBug) -> bool {
    false
}

#[cfg(not(debug_assertions))]
pub(crate) const fn is_in_dr(_: DrBug) -> bool {
    false
}

#[cfg(not(debug_assertions))]
pub(crate) const fn is_in_following(_: FollowBug) -> bool {
    false
}

#[cfg(not(debug_assertions))]
pub(crate) const fn is_in_sets(_: SetBug) -> bool {
    false
}

#[cfg(not(debug_assertions))]
pub(crate) const fn is_in_presenting(_: PresentBug) -> bool {
    false
}
