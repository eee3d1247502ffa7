//! Planted bugs, each at the very place where a programmer might make the mistake.

listed! {
    /// A bug to plant.
    Canary {
        /// A read is not verified against its checksum.
        SkipCrc,
        /// A snapshot loses a version that the very next command superseded.
        DeathOffByOne,
        /// Opening continues with the numbers of the checkpoint, not above those found in the log.
        ForgottenBump,
        /// A snapshot shows the command after it, too.
        SnapshotSeesALaterWrite,
        /// A moved block is looked up at its new location although it was overwritten meanwhile.
        MoverRacesAnOverwrite,
        /// A rebuild copies the old content of the new slot.
        RebuildReadsAStaleSlot,
        /// A checkpoint names the end of the log as of its completion.
        CheckpointTooFar,
        /// Segments a checkpoint frees are reused before it is complete.
        SegmentReusedBeforeCheckpoint,
        /// Segments a checkpoint freed are reused while they are still read.
        ReadersNotWaitedFor,
        /// A log that ends before acknowledged data is accepted.
        MidLogRotTakenForTheTail,
        /// A record that only one copy has is not rewritten on the others.
        OneLegTailServed,
        /// A batch that one copy failed to write is acknowledged.
        OneLegAcknowledged,
        /// Reclaiming a deleted snapshot also frees versions of its neighbours.
        LiveSnapshotLosesHistory,
        /// Partial writes do not lock their blocks.
        BlocksNotLocked,
        /// A write takes its stamp before its place in the log.
        StampBeforeItsTurn,
        /// A discard ignores the trees.
        DiscardForgetsTheTrees,
        /// The log enters another segment before the records of the last one are stable.
        SegmentEnteredOverUnstableRecords,
        /// A segment of the log whose records were all withdrawn is given back while a replay may pass through it.
        PassedSegmentGivenBack,
        /// A drive that had no space for a write is failed.
        FullDriveTakenForDead,
        /// A log whose last segment has lost its header is accepted.
        HeaderlessLogTakenForItsEnd,
        /// Reading a pool whose log has a hole reports nothing as missing.
        CutLogTakenForWhole,
        /// Replay does not flush what a killed process had cached.
        ReplayWithoutFlush,
        /// A command is answered while a subscriber of the log holds its record.
        AnswerDespiteHold,
        /// Subscribers of the log get no discards.
        DiscardNotDelivered,
        /// Shrinking a volume keeps the blocks behind its end.
        ShrinkKeepsTheEnd,
        /// A clone reads what its parent wrote after the fork.
        ChildSeesALaterWrite,
        /// Overwriting an inherited block in a clone ends the parent's version.
        ChildKillsItsParentsVersion,
        /// A block that the parent discards after the fork reads as zero in the clone.
        ParentsDiscardShowsInTheChild,
        /// Deleting a snapshot gives up its point although a clone began there.
        ForkPointGoesWithItsSnapshot,
        /// A rollback deletes the state of before.
        RollbackDropsTheOldHead,
        /// The branch of a volume that took the place of another stays with the one that ended.
        BranchStaysWithTheEnded,
        /// Checkpoints do not store from which clients a volume is withheld.
        WithholdingForgotten,
        /// A forced rollback logs in a second record from which clients the volume is withheld.
        WithholdingBehindItsRollback,
        /// The row of a volume goes with a branch that it has left.
        RowGoesWithTheOldBranch,
        /// Filling a branch leaves out the last block of a part.
        FillSkipsABlock,
        /// Filling a branch copies a block although a host has written it meanwhile.
        FillOverwritesANewerWrite,
        /// An import leaves out the last block of a part.
        ImportSkipsABlock,
        /// An import copies a block although a host has written it meanwhile.
        ImportOverwritesANewerWrite,
        /// A host's discard in a volume that is being imported lets the source show through.
        ImportForgetsDiscards,
        /// An import counts blocks as copied before they are logged.
        ImportMarkTooEarly,
        /// A write of part of a block in a volume that is being imported takes zeroes for its rest.
        ImportPartialWriteOverZeroes,
        /// An import ends without its comparison.
        ImportNotCompared,
        /// A snapshot of a group is logged in two records.
        HalfAGroupCut,
        /// Opening leaves operations on groups as far as they are.
        IntentForgotten,
        /// Hosts get answers while a cut over several pools is placed.
        CutNotHeld,
        /// A snapshot is offered although another pool may lack its part of the cut.
        HalfACutServed,
        /// A pool does its part of an operation on a group before the other pools have theirs.
        OperationDecidedAlone,
        /// A volume is opened although another pool may have rolled back its part of the group.
        HalfARollbackServed,
        /// A difference of two points lacks the last block of each run.
        DifferenceOffByOne,
        /// A difference across branches leaves out the one that is farthest from the later point.
        DifferenceForgetsABranch,
        /// A drive leaves although the last checkpoint still finds data on it.
        RetiredDriveHasTheLastCopy,
        /// A drive that is to be emptied gives up its vote first.
        VoteGivenUpFirst,
        /// Levelling records the new copy, and gives the old one up, before the new one is written.
        LevellingRecordsTheNewCopyFirst,
        /// Copies are placed as if each drive failed alone.
        CopiesInOneDomain,
        /// Copies are placed as if there were no failure sets.
        CopiesAcrossSets,
        /// The new slots of a drive that became larger are used, and no superblock says that it has them.
        GrowthNotRecorded,
    }
}

#[cfg(feature = "simulation")]
mod planted {
    use super::Canary;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Canary>> = const { Cell::new(None) };
    }

    /// Removes the bug when dropped.
    #[derive(Debug)]
    pub struct Planted(());

    /// Plants a bug in all pools of this thread.
    #[doc(hidden)]
    pub fn plant(canary: Canary) -> Planted {
        let before = PLANTED.replace(Some(canary));
        assert_eq!(before, None, "one bug at a time");
        Planted(())
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }

    pub(crate) fn is(canary: Canary) -> bool {
        PLANTED.get() == Some(canary)
    }
}

#[cfg(feature = "simulation")]
pub(crate) use planted::is;
#[cfg(feature = "simulation")]
pub use planted::{Planted, plant};

/// Always false without the feature.
#[cfg(not(feature = "simulation"))]
pub(crate) const fn is(_: Canary) -> bool {
    false
}
