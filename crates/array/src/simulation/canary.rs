//! Planted bugs. Each stands at the very place where somebody might make the mistake.

listed! {
    /// A bug to plant.
    Canary {
        /// Whatever a drive gives is taken for the block.
        SkipCrc,
        /// A version that the very next command replaced is not kept for a snapshot.
        DeathOffByOne,
        /// An opening goes on with the numbers of the checkpoint, not beyond those it has seen in the log.
        ForgottenBump,
        /// A snapshot shows the command after its cut, too.
        SnapshotSeesALaterWrite,
        /// A block that was moved is taken to be where it was moved to, though it was overwritten meanwhile.
        MoverRacesAnOverwrite,
        /// A rebuild copies what happens to lie in the new slot.
        RebuildReadsAStaleSlot,
        /// A checkpoint names the end of the log as it is when the checkpoint is done.
        CheckpointTooFar,
        /// What a checkpoint gives up is used again before that checkpoint counts.
        SegmentReusedBeforeCheckpoint,
        /// What a checkpoint gave up is used again while somebody still reads it.
        ReadersNotWaitedFor,
        /// A log that ends before what was acknowledged has just ended there.
        MidLogRotTakenForTheTail,
        /// A record that one copy alone has is served as it is.
        OneLegTailServed,
        /// A flight that one copy refused is answered all the same.
        OneLegAcknowledged,
        /// What a deleted snapshot leaves is taken from its neighbours, too.
        LiveSnapshotLosesHistory,
        /// Blocks written in part are not locked.
        BlocksNotLocked,
        /// A write takes its stamp before it has a place in the log.
        StampBeforeItsTurn,
        /// A discard does not look at what the trees have.
        DiscardForgetsTheTrees,
        /// The log goes on in another segment before what lies in the one before is stable.
        SegmentEnteredOverUnstableRecords,
        /// A drive that had no space for a write is given up as if it were dead.
        FullDriveTakenForDead,
        /// A log whose last segment has no header any more has just ended there.
        HeaderlessLogTakenForItsEnd,
        /// Whoever reads a pool whose log has a hole is told that nothing is missing.
        CutLogTakenForWhole,
        /// A replay does not flush what a killed process had cached.
        ReplayWithoutFlush,
        /// A volume that becomes smaller keeps what lies behind its end.
        ShrinkKeepsTheEnd,
    }
}

#[cfg(feature = "simulation")]
mod planted {
    use super::Canary;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Canary>> = const { Cell::new(None) };
    }

    /// A bug is in until this is dropped.
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

/// Whether a bug is planted.
#[cfg(not(feature = "simulation"))]
pub(crate) const fn is(_: Canary) -> bool {
    false
}
