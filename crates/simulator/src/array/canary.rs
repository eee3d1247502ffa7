//! Planted bugs: is the simulator able to catch what it is there for?
//!
//! What can be spoilt between the pool and its drives is spoilt there ([`SpoiltDrive`]); the other bugs stand in the pool
//! itself ([`array::simulation::canary`]). Each must be caught within a few seeds; one that is not means that a checker
//! sleeps.

use super::atlas::{Grade, Ill};
use array::simulation::canary::Canary;
use std::{rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoResult, LocalFuture, Stability};

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// One that stands in the pool.
    InPool(Canary),
    /// One that stands before its drives.
    BeforeDrives(Spoiling),
}

/// What is spoilt between a pool and its drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spoiling {
    /// Log records are answered when a drive has them in its cache.
    AcknowledgeBeforeStable,
    /// A checkpoint counts before its nodes are stable.
    CheckpointBeforeItsNodes,
    /// Records go to segments whose headers are not stable.
    RecordsBeforeTheirHeader,
    /// Superblocks are relied on before they are stable.
    GenerationNotStable,
}

impl Bug {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let spoilings = [
            Spoiling::AcknowledgeBeforeStable,
            Spoiling::CheckpointBeforeItsNodes,
            Spoiling::RecordsBeforeTheirHeader,
            Spoiling::GenerationNotStable,
        ];
        let in_pool = Canary::ALL.iter().copied().map(Self::InPool);
        in_pool.chain(spoilings.into_iter().map(Self::BeforeDrives))
    }

    /// What drives may do where it is planted.
    pub fn grade(self) -> Grade {
        Grade::Envelope
    }

    /// What the ill drive must have for it to matter, if few of those that seeds draw would do.
    pub fn ill(self) -> Option<Ill> {
        match self {
            // One that dies is found out by its next superblock, header or flush: it takes one that fails now and then.
            Self::InPool(Canary::OneLegAcknowledged) => Some(Ill::FailsWrites),
            // Few reads take so long that what they read is freed and written again meanwhile.
            Self::InPool(Canary::ReadersNotWaitedFor) => Some(Ill::Slow),
            _ => None,
        }
    }

    /// Drives it takes at least.
    pub fn drives_min(self) -> usize {
        match self {
            // Of few, neighbouring segments of the log share one: what makes the next stable does so for the last.
            Self::InPool(Canary::SegmentEnteredOverUnstableRecords) => 8,
            _ => 0,
        }
    }

    /// Whether it takes a kill, and a power cut right behind the replay that follows.
    pub fn cuts_behind_replay(self) -> bool {
        self == Self::InPool(Canary::ReplayWithoutFlush)
    }

    /// Whether it takes a pool in which room is used again soon.
    pub fn is_tight(self) -> bool {
        self == Self::InPool(Canary::ReadersNotWaitedFor)
    }
}

/// A drive, spoilt.
pub struct SpoiltDrive {
    inner: Rc<dyn BlockDevice>,
    spoiling: Spoiling,
}

impl SpoiltDrive {
    /// `inner`, spoilt.
    pub fn new(inner: Rc<dyn BlockDevice>, spoiling: Spoiling) -> Self {
        Self { inner, spoiling }
    }

    /// How stable a write is that begins with these eight bytes.
    fn stability(&self, magic: &[u8], wanted: Stability) -> Stability {
        let spoilt: &[u8] = match self.spoiling {
            Spoiling::AcknowledgeBeforeStable => b"SPNDLREC",
            Spoiling::RecordsBeforeTheirHeader => b"SPNDLSEG",
            Spoiling::GenerationNotStable => b"SPNDLSUP",
            Spoiling::CheckpointBeforeItsNodes => return wanted,
        };
        if magic == spoilt { Stability::Volatile } else { wanted }
    }
}

impl BlockDevice for SpoiltDrive {
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
        match self.spoiling {
            Spoiling::CheckpointBeforeItsNodes => Box::pin(async { Ok(()) }),
            _ => self.inner.flush(),
        }
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.inner.discard(at, length)
    }
}
