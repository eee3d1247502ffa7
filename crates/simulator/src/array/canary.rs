//! Planted bugs: do the checks of the simulator detect them?
//!
//! Bugs that can be emulated between the pool and its drives are planted there ([`BuggyDrive`]); the others
//! are in the pool itself ([`array::simulation::canary`]). Each must be caught within a few seeds; a bug that
//! is not caught means that a check is ineffective.

use super::{
    fault_model::{DriveFault, PoolFaultGrade},
    plan::Branching,
};
use array::simulation::canary::Canary;
use std::{rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoResult, LocalFuture, Stability};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// A bug inside the pool.
    InPool(Canary),
    /// A bug between the pool and its drives.
    BeforeDrives(DriveBug),
}

/// A bug emulated between a pool and its drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DriveBug {
    /// Log records are acknowledged once they are in a drive's cache.
    AcknowledgeBeforeStable,
    /// A checkpoint counts before its nodes are stable.
    CheckpointBeforeItsNodes,
    /// Records are written to segments whose headers are not stable.
    RecordsBeforeTheirHeader,
    /// Superblocks are trusted before they are stable.
    GenerationNotStable,
}

impl Bug {
    pub fn all() -> impl Iterator<Item = Self> {
        let spoilings = [
            DriveBug::AcknowledgeBeforeStable,
            DriveBug::CheckpointBeforeItsNodes,
            DriveBug::RecordsBeforeTheirHeader,
            DriveBug::GenerationNotStable,
        ];
        // Those of cuts and of groups over pools need two pools: `cuts`; those of imports a source: `imports` of the tests. The
        // last ones have seeds of their own: one of a
        // thousand shows them.
        let elsewhere = [
            Canary::CutNotHeld,
            Canary::HalfACutServed,
            Canary::OperationDecidedAlone,
            Canary::HalfARollbackServed,
            Canary::ImportSkipsABlock,
            Canary::ImportOverwritesANewerWrite,
            Canary::ImportForgetsDiscards,
            Canary::ImportMarkTooEarly,
            Canary::ImportPartialWriteOverZeroes,
            Canary::ImportNotCompared,
            Canary::PassedSegmentGivenBack,
            Canary::WithholdingBehindItsRollback,
        ];
        let in_pool =
            Canary::ALL.iter().copied().filter(move |bug| !elsewhere.contains(bug)).map(Self::InPool);
        in_pool.chain(spoilings.into_iter().map(Self::BeforeDrives))
    }

    /// The fault grade of the runs that test it.
    pub fn grade(self) -> PoolFaultGrade {
        PoolFaultGrade::Envelope
    }

    /// The fault the faulty drive must have, if few seeds would draw a suitable one.
    pub fn drive_fault(self) -> Option<DriveFault> {
        match self {
            // A drive that dies is detected at its next superblock, header or flush; this bug needs one that
            // fails now and then.
            Self::InPool(Canary::OneLegAcknowledged) => Some(DriveFault::FailsWrites),
            // Few reads are slow enough that their data is freed and overwritten meanwhile.
            Self::InPool(Canary::ReadersNotWaitedFor) => Some(DriveFault::Slow),
            _ => None,
        }
    }

    /// Minimum number of drives.
    pub fn drives_min(self) -> usize {
        match self {
            // With few drives, neighbouring log segments share one: making the next segment stable does so
            // for the last.
            Self::InPool(Canary::SegmentEnteredOverUnstableRecords) => 8,
            _ => 0,
        }
    }

    /// True if it needs a subscriber of the log.
    pub fn subscribes(self) -> bool {
        matches!(self, Self::InPool(Canary::AnswerDespiteHold | Canary::DiscardNotDelivered))
    }

    /// Clones that are filled, if it needs any.
    pub fn filling(self) -> Branching {
        let needs_them =
            matches!(self, Self::InPool(Canary::FillSkipsABlock | Canary::FillOverwritesANewerWrite));
        if needs_them { Branching::Always } else { Branching::Never }
    }

    /// Groups, if it needs any.
    pub fn grouping(self) -> Branching {
        let needs_them = matches!(self, Self::InPool(Canary::HalfAGroupCut | Canary::IntentForgotten));
        if needs_them { Branching::Always } else { Branching::Never }
    }

    /// Clones and rollbacks, if it needs any: rare bugs are rarer among them.
    pub fn branching(self) -> Branching {
        if [self.filling(), self.grouping()].contains(&Branching::Always) {
            return Branching::Always;
        }
        let needs_them = matches!(
            self,
            Self::InPool(
                Canary::ChildSeesALaterWrite
                    | Canary::ChildKillsItsParentsVersion
                    | Canary::ParentsDiscardShowsInTheChild
                    | Canary::ForkPointGoesWithItsSnapshot
                    | Canary::RollbackDropsTheOldHead
                    | Canary::RowGoesWithTheOldBranch
                    | Canary::BranchStaysWithTheEnded
                    | Canary::WithholdingForgotten
                    | Canary::WithholdingBehindItsRollback
                    | Canary::DifferenceForgetsABranch
            )
        );
        if needs_them { Branching::Always } else { Branching::Never }
    }

    /// True if it needs rollbacks that withhold volumes from clients.
    pub fn withholds(self) -> bool {
        matches!(self, Self::InPool(Canary::WithholdingForgotten | Canary::WithholdingBehindItsRollback))
    }

    /// True if it needs drives that leave.
    pub fn drive_changes(self) -> bool {
        self.levels()
            || self.grows()
            || matches!(self, Self::InPool(Canary::RetiredDriveHasTheLastCopy | Canary::VoteGivenUpFirst))
    }

    /// True if it needs drives that are levelled.
    pub fn levels(self) -> bool {
        self == Self::InPool(Canary::LevellingRecordsTheNewCopyFirst)
    }

    /// True if it needs failure domains.
    pub fn domains(self) -> bool {
        self == Self::InPool(Canary::CopiesInOneDomain)
    }

    /// True if it needs failure sets.
    pub fn sets(self) -> bool {
        self == Self::InPool(Canary::CopiesAcrossSets)
    }

    /// True if it needs drives that become larger.
    pub fn grows(self) -> bool {
        self == Self::InPool(Canary::GrowthNotRecorded)
    }

    /// True if it needs comparisons of points.
    pub fn compares(self) -> bool {
        matches!(self, Self::InPool(Canary::DifferenceOffByOne | Canary::DifferenceForgetsABranch))
    }

    /// True if it needs a kill, and a power cut right after the replay that follows.
    pub fn cuts_behind_replay(self) -> bool {
        self == Self::InPool(Canary::ReplayWithoutFlush)
    }

    /// True if it needs a pool that reuses space soon.
    pub fn is_tight(self) -> bool {
        self == Self::InPool(Canary::ReadersNotWaitedFor)
    }
}

/// A drive with a planted bug.
pub struct BuggyDrive {
    inner: Rc<dyn BlockDevice>,
    bug: DriveBug,
}

impl BuggyDrive {
    pub fn new(inner: Rc<dyn BlockDevice>, bug: DriveBug) -> Self {
        Self { inner, bug }
    }

    /// The stability of a write that begins with this magic value.
    fn stability(&self, magic: &[u8], wanted: Stability) -> Stability {
        let spoilt: &[u8] = match self.bug {
            DriveBug::AcknowledgeBeforeStable => b"SPNDLREC",
            DriveBug::RecordsBeforeTheirHeader => b"SPNDLSEG",
            DriveBug::GenerationNotStable => b"SPNDLSUP",
            DriveBug::CheckpointBeforeItsNodes => return wanted,
        };
        if magic == spoilt { Stability::Volatile } else { wanted }
    }
}

impl BlockDevice for BuggyDrive {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        self.inner.read(at, into)
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let stability = self.stability(&from[0][..8], stability);
        self.inner.write(at, from, stability)
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        match self.bug {
            DriveBug::CheckpointBeforeItsNodes => Box::pin(async { Ok(()) }),
            _ => self.inner.flush(),
        }
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.inner.discard(at, length)
    }
}
