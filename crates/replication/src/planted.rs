//! Planted bugs, each at the very place where a programmer might make the mistake: a test that does not notice one is
//! worth nothing. They exist in builds with debug assertions alone.

/// A bug to plant in the flows of a group.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationBug {
    /// Hosts in sync are answered once their writes are stable here.
    AnsweredUnconfirmed,
    /// The secondary confirms a record before it is stable.
    ConfirmedTooEarly,
    /// The secondary confirms a command of which more is to come.
    PartConfirmed,
    /// The secondary confirms all that it has begun when the first command of that is stable.
    BatchConfirmedWithFirst,
    /// Records that are in the log already are sent from memory as well.
    SentTwice,
    /// Of a record that was read last, a command that is taken by now counts as ended.
    EndGuessed,
    /// The log is not read before the stream goes on from memory.
    LogNotRead,
    /// The secondary says after a crash that it has all of its last command.
    PartTakenForAll,
    /// A hand over is sent before it is recorded here that this side is secondary.
    HandOverSentFirst,
    /// The group is handed over before the peer confirmed everything.
    HandedOverUnconfirmed,
    /// The secondary takes over with less than the primary handed over.
    TakenOverWithLess,
    /// A side keeps an epoch in which it wrote nothing when it gives up its right.
    EmptyEpochKept,
    /// Reads are answered without a look at the lease.
    ReadWithoutRight,
    /// Reads return what the peer has not confirmed.
    UnconfirmedRead,
    /// A side goes on alone before the witness knows.
    AloneUnknownToWitness,
    /// The secondary asks for the right although it has promised not to.
    PromiseBroken,
    /// A state that is kept has one of the volumes alone.
    PointOfOneVolume,
    /// The cut of a comparison is taken at the secondary before it has everything up to it.
    VerifiedTooEarly,
    /// Records above the cut of a comparison are sent while that is being taken.
    VerifiedTooLate,
    /// A pass ignores the rate that people set.
    RateIgnored,
    /// Parts join without one whose pool is not open.
    JoinedWithoutAbsent,
    /// A part sets its mark before it meets the others.
    MarkedBeforeOthers,
    /// A secondary shows a mark before all parts keep it.
    MarkShownApart,
    /// A part does not look whether another one shows the mark that it keeps.
    MarkNotSettled,
    /// A group that goes over to sync is recorded as one that has answered nothing without its peer.
    AloneForgottenInMode,
    /// A suspended primary that returned streams once it has compared.
    SuspensionForgotten,
    /// The stream omits sizes: only what a resize discards is sent.
    ResizeNotSent,
    /// A pass brings the present of volumes, and none of their snapshots.
    SnapshotsNotPassed,
    /// A pass leaves snapshots that the primary has deleted.
    DeletedSnapshotsStay,
    /// A secondary follows the deletion of a locked snapshot.
    LockedSnapshotDeleted,
    /// A pass deletes locked snapshots that the primary has no more.
    LockedSnapshotNotPassed,
    /// A snapshot that is held is in no record.
    HeldSnapshotForgotten,
    /// A deletion that is held takes no stamp.
    HeldDeletionUnstamped,
    /// A secondary deletes a volume with a locked snapshot.
    LockedVolumeDeleted,
    /// A pass does not look at what a rollback undid.
    RollbackNotPassed,
    /// A pass leaves volumes as large as they are.
    SizeNotPassed,
    /// Snapshots that an unfinished pass brought are taken for those of a history that is given up.
    PassTakenForFork,
    /// The stamps of an unfinished pass are not recorded: it comes again.
    BroughtForgotten,
    /// A pass leaves out what one that was not finished brought, also if it changed since.
    BroughtThoughChanged,
    /// Blocks that an unfinished pass brought are of the state at its end, also if they came on the way to a snapshot.
    BroughtAsOfEnd,
    /// A step of a pass does not undo what the one before brought from a way that a rollback left.
    StepForgotten,
    /// Volumes go back to a kept state, one after the other, and the record of the group knows of nothing.
    GoneBackWithoutRecord,
    /// A part answers what its peer confirmed before the parts are together.
    AnsweredApart,
    /// A part answers without its peer while the others still send.
    PartedWithoutOthers,
    /// Parts join before what was answered without the peer is there.
    JoinedTooEarly,
    /// A part that is promoted shows all that it has, though the others do not fit.
    JointStateIgnored,
    /// A promoted side does not look whether other parts have joined.
    JoinNotSettled,
    /// A part is cloned at a moment of its own, and not while all parts are held.
    ClonedAtOwnMoment,
    /// A part that is cut applies what comes while it waits for the others.
    CutWithoutHold,
    /// Parts that are apart are cloned as they are.
    ClonedApart,
    /// A promotion that may lose something begins an epoch that counts as empty.
    LossyEpochNotBegun,
    /// The witness hears that the group is in sync as soon as one part is.
    SyncOfOnePart,
    /// A primary whose pool takes no writes any more keeps the right.
    RightOfStoppedPool,
}

impl ReplicationBug {
    /// Bugs that a stream alone shows.
    pub const OF_STREAMS: [Self; 7] = [
        Self::AnsweredUnconfirmed,
        Self::ConfirmedTooEarly,
        Self::PartConfirmed,
        Self::BatchConfirmedWithFirst,
        Self::SentTwice,
        Self::LogNotRead,
        Self::PartTakenForAll,
    ];

    /// Bugs of changes of rows that streams and passes show.
    pub const OF_ROWS: [Self; 5] = [
        Self::ResizeNotSent,
        Self::SnapshotsNotPassed,
        Self::DeletedSnapshotsStay,
        Self::RollbackNotPassed,
        Self::SizeNotPassed,
    ];

    /// Bugs of passes that few lives show, each with a seed of one that does.
    pub const OF_RARE_PASSES: [(Self, u64); 2] = [(Self::PassTakenForFork, 759), (Self::StepForgotten, 1099)];

    /// Bugs that drives which are slow or refuse show, each with a seed of a life that does.
    pub const OF_TROUBLES: [(Self, u64); 1] = [(Self::EndGuessed, 1434)];

    /// Bugs of passes that go on after a lost line, each with a seed of a life that shows it.
    pub const OF_RESUMED_PASSES: [(Self, u64); 2] =
        [(Self::BroughtThoughChanged, 0), (Self::BroughtAsOfEnd, 1)];

    /// Bugs of groups with a witness.
    pub const OF_TAKEOVERS: [Self; 4] =
        [Self::ReadWithoutRight, Self::UnconfirmedRead, Self::AloneUnknownToWitness, Self::PromiseBroken];

    /// Bugs of locked snapshots.
    pub const OF_LOCKS: [Self; 4] = [
        Self::LockedSnapshotDeleted,
        Self::LockedSnapshotNotPassed,
        Self::HeldSnapshotForgotten,
        Self::HeldDeletionUnstamped,
    ];

    /// Bugs of groups that are suspended and resumed.
    pub const OF_SUSPENSIONS: [Self; 2] = [Self::RateIgnored, Self::SuspensionForgotten];

    /// Bugs of groups whose mode changes, each with a seed of a life that shows it.
    pub const OF_MODES: [(Self, u64); 1] = [(Self::AloneForgottenInMode, 46)];

    /// Bugs of groups with volumes in several pools, each with a seed of a life that shows it.
    pub const OF_JOINT_GROUPS: [(Self, u64); 6] = [
        (Self::JoinedWithoutAbsent, 90),
        (Self::AnsweredApart, 310),
        (Self::PartedWithoutOthers, 36),
        (Self::JoinedTooEarly, 1),
        (Self::JointStateIgnored, 90),
        (Self::JoinNotSettled, 224),
    ];

    /// Bugs of marks of such groups, which are not in sync, each with a seed of a life that shows it.
    pub const OF_MARKS: [(Self, u64); 3] =
        [(Self::MarkedBeforeOthers, 1), (Self::MarkShownApart, 4), (Self::MarkNotSettled, 5)];

    /// Bugs of clones of such groups, each with a seed of a life that shows it.
    pub const OF_JOINT_CLONES: [(Self, u64); 3] =
        [(Self::ClonedAtOwnMoment, 52), (Self::CutWithoutHold, 8), (Self::ClonedApart, 4)];

    /// Bugs of such groups with a witness, each with a seed of a life that shows it.
    pub const OF_JOINT_TAKEOVERS: [(Self, u64); 1] = [(Self::SyncOfOnePart, 169)];

    /// Bugs of comparisons.
    pub const OF_COMPARISONS: [Self; 2] = [Self::VerifiedTooEarly, Self::VerifiedTooLate];

    /// Bugs of planned failovers that crashes show.
    pub const OF_HAND_OVERS: [Self; 2] = [Self::HandOverSentFirst, Self::HandedOverUnconfirmed];
}

#[cfg(debug_assertions)]
mod planting {
    use super::ReplicationBug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<ReplicationBug>> = const { Cell::new(None) };
    }

    /// Runs `work` with a bug planted in all groups of this thread.
    #[doc(hidden)]
    pub fn with_replication_bug<T>(bug: ReplicationBug, work: impl FnOnce() -> T) -> T {
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

    pub(crate) fn is(bug: ReplicationBug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(debug_assertions)]
pub(crate) use planting::is;
#[cfg(debug_assertions)]
pub use planting::with_replication_bug;

#[cfg(not(debug_assertions))]
pub(crate) const fn is(_: ReplicationBug) -> bool {
    false
}
