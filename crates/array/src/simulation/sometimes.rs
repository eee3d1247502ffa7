//! Rare branches. Over many runs each must be reached, or it is untested.

listed! {
    /// A rare branch.
    Sometimes {
        /// Opening: an incomplete generation was written to the drives that lacked it.
        GenerationFinished,
        /// Opening: a stale drive was given, and counts as missing.
        StaleDriveLeftOut,
        /// Opening: a generation that the others continued without was skipped.
        GenerationDisproved,
        /// Opening: a drive was joining when the pool stopped, and continued to join.
        JoiningWentOn,
        /// Opening: a drive had given up its vote when the pool stopped, and others did not know that yet.
        DepartureWentOn,
        /// Opening: refused because absent drives may hold newer data.
        ForkRefused,
        /// Opening: forced although absent drives may hold newer data.
        ForcedOpen,
        /// Opening: a drive failed meanwhile, and was lost.
        DriveGivenUpWhileOpening,
        /// Replay: there were records behind the checkpoint.
        LogReplayed,
        /// Replay: the log continued in another segment.
        SuccessorEntered,
        /// Replay: an incomplete or missing copy of a record was rewritten.
        CopyOfRecordRepaired,
        /// Replay: the header of an incomplete record lies behind the end of the log.
        TornTail,
        /// Replay: a batch that had been written twice was read twice.
        BatchReadTwice,
        /// Replay: the log announced a segment that blocks were moved into.
        SegmentAnnounced,
        /// Replay: acknowledged records are missing, and the pool stays closed.
        LostRecordsRefused,
        /// Replay: no copy of a header can be read, so the end of the log is unknown, and the pool stays
        /// closed.
        HeaderlessLogRefused,
        /// Opening: interrupted during replay.
        CutWhileReplaying,
        /// Opening: interrupted before its first checkpoint was complete.
        CutWhileBeginning,
        /// Log: a batch failed on a copy, and was written again elsewhere.
        BatchRetriedElsewhere,
        /// Log: a drive failed to write the header of the next segment.
        HeaderRefused,
        /// Log: a copy failed to flush, and was lost.
        LogFlushFailed,
        /// Log: a checkpoint kept a segment whose records were all withdrawn.
        PassedSegmentKept,
        /// Rebuild: a copy on a drive that came back was completed.
        OldCopyCompleted,
        /// Rebuild: a segment that had no copy left got the one on a drive that came back.
        OldCopyTakenOver,
        /// Rebuild: a drive that came back had a block that had gone bad meanwhile.
        UsedCopyMended,
        /// Log: it continued in a segment that no header names.
        LogRestarted,
        /// Log: a checkpoint was made to free a segment for it.
        LogMadeRoom,
        /// Log: a record needed the next segment.
        SegmentFilled,
        /// Drives: one was lost while the pool ran.
        DriveLost,
        /// Drives: another one failed while the loss of one was being recorded.
        DriveLostWhilePublishing,
        /// Drives: those left are too few to continue.
        TooFewToGoOn,
        /// Drives: one had no space for a write, and stays a member.
        DriveOutOfSpace,
        /// Drives: one that had no space has some again.
        SpaceFoundAgain,
        /// Drives: too few have space, and the pool waits.
        WaitedForSpace,
        /// Drives: more failed to write than data has copies to spare, and the pool stopped without failing
        /// them.
        NoCopyToSpare,
        /// Log: a copy could not be completed for lack of space, and was dropped.
        CopyGivenUpForSpace,
        /// Checkpoint: the drives of a node segment had no space, and the segment got a slot elsewhere.
        NodesMovedForSpace,
        /// Drives: one that did not answer was failed.
        StuckDriveGivenUp,
        /// Drives: one was added.
        DriveAdded,
        /// Drives: a lost one has nothing left on it, and was removed from the table.
        DriveForgotten,
        /// Drives: one that was leaving has nothing left on it, and gave up its vote.
        DriveLeft,
        /// Drives: one that was leaving is kept after all.
        DriveKept,
        /// Drives: one that was leaving is kept, because the one that was to replace it never became a member.
        ReplacedDriveKept,
        /// Drives: a slot of a leaving one was copied elsewhere.
        SlotMovedAway,
        /// Drives: a leaving one gets new data, because too few others are there.
        LeavingDriveUsed,
        /// Drives: a copy of a lost one was made in the room that was kept for it.
        SpareRoomUsed,
        /// Drives: room for a lost one is kept again.
        SpareRoomRestored,
        /// Drives: levelling moved a slot to an emptier one.
        SlotLevelled,
        /// Drives: interrupted while they were being levelled.
        CutWhileLevelling,
        /// Drives: copies of a segment were put into one failure domain for lack of room elsewhere.
        DomainShared,
        /// Drives: copies in one failure domain were moved apart.
        CopiesMovedApart,
        /// Drives: copies of a segment were put into several failure sets for lack of room in one.
        SetsSpanned,
        /// Drives: copies in several failure sets were moved into one.
        CopiesGathered,
        /// Drives: levelling gave way to a rebuild or to a drive that leaves.
        LevellingPostponed,
        /// Drives: interrupted while a leaving one was being emptied.
        CutWhileEmptying,
        /// Drives: interrupted while one gave up its vote.
        CutWhileDeparting,
        /// Drives: interrupted while the loss of one was being recorded.
        CutWhileLosing,
        /// Drives: interrupted while one was being added.
        CutWhileAdding,
        /// Checkpoint: interrupted while head and history were merged.
        CutWhileMerging,
        /// Checkpoint: interrupted while the catalogue was merged.
        CutWhileMergingRows,
        /// Checkpoint: interrupted before the flush.
        CutWhileFlushing,
        /// Checkpoint: interrupted before its superblock was complete.
        CutWhilePublishing,
        /// Checkpoint: a drive failed to flush.
        FlushFailed,
        /// Checkpoint: nodes could not be written to every copy.
        NodeWrittenToFewer,
        /// Checkpoint: records were applied while it was made.
        TakenMeanwhile,
        /// Checkpoint: freed segments have to wait for a reader.
        ReaderHoldsSegments,
        /// Checkpoint: a reclamation pass was finished.
        PassFinished,
        /// Checkpoint: nodes were rewritten elsewhere, to free their segments.
        NodesRelocated,
        /// Map: a superseded version went to history.
        WentToHistory,
        /// Map: a moved block had been overwritten meanwhile.
        MoveInVain,
        /// Reading: a wrong or unreadable copy of a block was rewritten.
        BlockRepaired,
        /// Reading: a run was assembled from several copies.
        RunFromSeveralCopies,
        /// Reading: a copy was slow, and another one was read.
        OtherCopyAsked,
        /// Reading: no copy of a block was right.
        BlockLost,
        /// Reading: a wrong or unreadable copy of a node was rewritten.
        NodeRepaired,
        /// Reading: no copy of a node was right.
        NodeLost,
        /// Reading: a condemned segment was still read.
        CondemnedSegmentRead,
        /// Cleaning: segments were emptied.
        SegmentsCleaned,
        /// Cleaning: hot segments were left alone.
        LeftToDie,
        /// Cleaning: the reverse map still knew the content of a log segment.
        VictimKnown,
        /// Cleaning: a segment could not be read completely, and was set aside.
        VictimSetAside,
        /// Cleaning: the target segment was abandoned.
        TargetGivenUp,
        /// Cleaning: interrupted.
        CutWhileCleaning,
        /// Fill: blocks were copied.
        PartFilled,
        /// Fill: a host wrote a block between its reading and its copying.
        HostWroteBeforeTheFill,
        /// Fill: a branch is filled, and one of its points still reads through the parent.
        FillWaitsForAPoint,
        /// Fill: a branch is filled, and a difference is read across its fork.
        FillWaitsForADifference,
        /// Fill: a branch has left its parent.
        BranchFilled,
        /// Fill: interrupted.
        CutWhileFilling,
        /// Groups: an opening completed an operation.
        IntentCompleted,
        /// Groups: interrupted before an operation was complete.
        CutBehindAnIntent,
        /// Cuts: not all pools placed their parts, and those that had removed them.
        CutAbandoned,
        /// Cuts: one that ended early was found to be whole.
        CutConfirmedLater,
        /// Cuts: one that ended early was removed, because a pool lacked its part.
        CutRemovedLater,
        /// A volume that is moved is complete in the new pool, and has its name in neither.
        VolumeBetweenPools,
        /// The caller of a verb went away while its records were on their way into the log.
        CallerWentAway,
        /// Rebuild: a segment has its copy back.
        CopyRebuilt,
        /// Rebuild: a segment became free, or the new drive failed, before its copy was complete.
        RebuildInVain,
        /// Rebuild: only the reserve is left.
        RebuildWaitsForRoom,
        /// Rebuild: interrupted while a slot was copied.
        CutWhileRebuilding,
        /// Space: a host write was delayed.
        HostHeldUp,
        /// Space: a host write was refused.
        HostRefused,
        /// Volumes: a write waited for a partial write of the same block.
        WriteWaited,
    }
}

#[cfg(feature = "simulation")]
mod counted {
    use super::Sometimes;
    use std::{cell::RefCell, collections::BTreeMap};

    thread_local! {
        static COUNTS: RefCell<BTreeMap<Sometimes, u64>> = const { RefCell::new(BTreeMap::new()) };
    }

    /// Counts of this thread since the last call.
    #[doc(hidden)]
    pub fn take_counts() -> BTreeMap<Sometimes, u64> {
        COUNTS.take()
    }

    pub(crate) fn reached(branch: Sometimes) {
        COUNTS.with_borrow_mut(|counts| *counts.entry(branch).or_default() += 1);
    }
}

#[cfg(feature = "simulation")]
pub(crate) use counted::reached;
#[cfg(feature = "simulation")]
pub use counted::take_counts;

/// Does nothing without the feature.
#[cfg(not(feature = "simulation"))]
pub(crate) const fn reached(_: Sometimes) {}

/// Counts the branch if the condition holds.
pub(crate) fn reached_if(is_so: bool, branch: Sometimes) {
    if is_so {
        reached(branch);
    }
}

/// An activity. If dropped before [`UnderWay::end`], by a crash or an error, it counts the branch of its
/// current step.
#[derive(Debug)]
pub(crate) struct UnderWay(Option<Sometimes>);

impl UnderWay {
    pub fn begin(cut: Sometimes) -> Self {
        Self(Some(cut))
    }

    pub fn goes_on(&mut self, cut: Sometimes) {
        self.0 = Some(cut);
    }

    pub fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(cut) = self.0 {
            reached(cut);
        }
    }
}
