//! Branches that a run may or may not take: over many runs each must be taken, else nobody knows that it works.

listed! {
    /// A branch.
    Sometimes {
        /// Opening: a generation that was cut short was given to drives that lacked it.
        GenerationFinished,
        /// Opening: a drive that was given is behind the others, and counts as missing.
        StaleDriveLeftOut,
        /// Opening: a generation that the others went on without was passed over.
        GenerationDisproved,
        /// Opening: a drive was joining when the pool stopped, and went on to join.
        JoiningWentOn,
        /// Opening: it was refused, for drives that are not there may hold newer data.
        ForkRefused,
        /// Opening: it would have been refused, and was forced.
        ForcedOpen,
        /// Opening: a drive failed meanwhile, and was given up.
        DriveGivenUpWhileOpening,
        /// Replay: there were records behind the checkpoint.
        LogReplayed,
        /// Replay: the log went on in another segment.
        SuccessorEntered,
        /// Replay: a record was there on some copies only, or not whole, and is whole now.
        CopyOfRecordMended,
        /// Replay: a header lies behind the end of the log, of a record that is not whole.
        TornTail,
        /// Replay: a flight that had been written again was read twice.
        FlightReadTwice,
        /// Replay: the log told of a segment that blocks were moved into.
        SegmentAnnounced,
        /// Replay: what was acknowledged is missing, and the pool stays closed.
        LostRecordsRefused,
        /// Replay: no copy of a header can be read, nobody knows where the log goes on, and the pool stays closed.
        HeaderlessLogRefused,
        /// Opening: cut short while the log was replayed.
        CutWhileReplaying,
        /// Opening: cut short before its first checkpoint was complete.
        CutWhileBeginning,
        /// Log: a flight failed on a copy, and was written again elsewhere.
        FlightTurnedAway,
        /// Log: a drive failed to take the header of a segment that was to be entered.
        HeaderRefused,
        /// Log: a copy failed to become stable, and was given up.
        LogFlushFailed,
        /// Log: it goes on in a segment that no header names.
        BegunAnew,
        /// Log: there was no segment to go on in, and a checkpoint was made for one.
        LogMadeRoom,
        /// Log: a record needed the next segment.
        SegmentFilled,
        /// Drives: one was lost while the pool ran.
        DriveLost,
        /// Drives: another one failed while the loss of one was written down.
        DriveLostWhilePublishing,
        /// Drives: those that are left are too few to go on.
        TooFewToGoOn,
        /// Drives: one had no space for a write, and stays a member.
        DriveOutOfSpace,
        /// Drives: one that had no space has some again.
        SpaceFoundAgain,
        /// Drives: too few have space for what is written, and the pool waits.
        WaitedForSpace,
        /// Drives: more failed to write than data has copies to spare, and the pool stopped without giving them up.
        NoCopyToSpare,
        /// Log: a copy could not be made whole for want of space, and does not count any more.
        CopyGivenUpForSpace,
        /// Checkpoint: nodes found no space on any of their drives, and their segment got a slot elsewhere.
        NodesMovedForSpace,
        /// Drives: one that does not answer was given up.
        StuckDriveGivenUp,
        /// Drives: one was added.
        DriveAdded,
        /// Drives: one that was lost has nothing left on it, and was taken out of the table.
        DriveForgotten,
        /// Drives: cut short while the loss of one was written down.
        CutWhileLosing,
        /// Drives: cut short while one was added.
        CutWhileAdding,
        /// Checkpoint: cut short while head and history were merged.
        CutWhileMerging,
        /// Checkpoint: cut short while the catalogue was merged.
        CutWhileMergingRows,
        /// Checkpoint: cut short before all was flushed.
        CutWhileFlushing,
        /// Checkpoint: cut short before its superblock was complete.
        CutWhilePublishing,
        /// Checkpoint: a drive failed to flush.
        FlushFailed,
        /// Checkpoint: nodes could not be written to every copy.
        NodeWrittenToFewer,
        /// Checkpoint: records were taken in while it was made.
        TakenMeanwhile,
        /// Checkpoint: what it gave up has to wait for a reader.
        ReaderHoldsSegments,
        /// Checkpoint: a pass over what deleted snapshots left was finished.
        PassFinished,
        /// Checkpoint: nodes were written elsewhere, so that their segments come free.
        NodesRelocated,
        /// Map: a version that was displaced went to history.
        WentToHistory,
        /// Map: a block that was moved had been overwritten meanwhile.
        MoveInVain,
        /// Reading: a copy of a block was wrong or unreadable, and was mended.
        BlockMended,
        /// Reading: a run was put together from several copies.
        RunFromSeveralCopies,
        /// Reading: a copy took long, and another one was asked.
        OtherCopyAsked,
        /// Reading: no copy of a block was right.
        BlockLost,
        /// Reading: a copy of a node was wrong or unreadable, and was mended.
        NodeMended,
        /// Reading: no copy of a node was right.
        NodeLost,
        /// Reading: a segment that was given up was still read.
        CondemnedSegmentRead,
        /// Cleaning: segments were emptied.
        SegmentsCleaned,
        /// Cleaning: segments that are dying by themselves were left alone.
        LeftToDie,
        /// Cleaning: what lay in a segment of the log was still known.
        VictimKnown,
        /// Cleaning: a segment could not be read through, and was set aside.
        VictimSetAside,
        /// Cleaning: the segment in the making was given up.
        TargetGivenUp,
        /// Cleaning: cut short.
        CutWhileCleaning,
        /// Rebuild: a segment has its copy back.
        CopyRebuilt,
        /// Rebuild: a segment came free, or the new drive failed, before its copy was done.
        RebuildInVain,
        /// Rebuild: only the reserve is left.
        RebuildWaitsForRoom,
        /// Rebuild: cut short while a slot was copied.
        CutWhileRebuilding,
        /// Space: a host was held up.
        HostHeldUp,
        /// Space: a host was refused.
        HostRefused,
        /// Volumes: a write waited for a block that another one wrote in part.
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

    /// How often each branch was taken on this thread since this was last asked.
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

/// A branch is taken.
#[cfg(not(feature = "simulation"))]
pub(crate) const fn reached(_: Sometimes) {}

/// A branch is taken if it is so.
pub(crate) fn reached_if(is_so: bool, branch: Sometimes) {
    if is_so {
        reached(branch);
    }
}

/// Something under way: dropped before its end, by a crash or an error, it counts the branch of where it was.
#[derive(Debug)]
pub(crate) struct UnderWay(Option<Sometimes>);

impl UnderWay {
    /// It begins.
    pub fn begin(cut: Sometimes) -> Self {
        Self(Some(cut))
    }

    /// It goes on.
    pub fn goes_on(&mut self, cut: Sometimes) {
        self.0 = Some(cut);
    }

    /// It is done.
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
