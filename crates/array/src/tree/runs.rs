//! Runs of a merge: the remaining runs of an old leaf, and the joining of adjacent runs.

use super::{BlockVersion, draft::RunDraft, levels::Levels};
use crate::{
    error::Result,
    format::{
        BLOCK_GRAINS, BlockIndex, BlockLocation, BranchNumber, SegmentGrain, Stamp, Stored, VersionRun,
        node::{MapLeaf, RUN_BLOCKS_MAX, VersionRuns},
    },
};
use zerocopy::little_endian as le;

/// The runs of an old leaf from some block on.
pub(super) struct OldRuns<'a> {
    front: Option<VersionRun<'a>>,
    rest: Option<VersionRuns<'a>>,
}

impl<'a> OldRuns<'a> {
    /// All runs of a leaf; without one there are none.
    pub fn new(leaf: Option<MapLeaf<'a>>) -> Self {
        let mut rest = leaf.map(MapLeaf::runs);
        Self { front: rest.as_mut().and_then(Iterator::next), rest }
    }

    /// The next run, or its remainder.
    #[inline]
    pub fn front(&self) -> Option<&VersionRun<'a>> {
        self.front.as_ref()
    }

    /// Takes the next `count` blocks, which belong to one run.
    #[inline]
    pub fn take(&mut self, count: u64) -> VersionRun<'a> {
        let run = self.front.expect("there is a run");
        if count == u64::from(run.count) {
            self.front = self.rest.as_mut().and_then(Iterator::next);
            return run;
        }
        let next = BlockIndex(run.first.0 + count);
        self.front = Some(run.part(next, run.last()));
        run.part(run.first, BlockIndex(next.0 - 1))
    }
}

/// Joins runs that are adjacent in blocks and in location, up to the maximum length.
pub(super) struct Joiner {
    branch: BranchNumber,
    first: BlockIndex,
    birth: Stamp,
    death: Option<Stamp>,
    location: BlockLocation,
    /// Blocks so far; 0 if there is no run.
    count: u8,
    checksums: [le::U32; RUN_BLOCKS_MAX as usize],
}

impl Joiner {
    pub fn new() -> Self {
        Self {
            branch: BranchNumber(0),
            first: BlockIndex(0),
            birth: Stamp(0),
            death: None,
            location: BlockLocation::Zero,
            count: 0,
            checksums: [le::U32::new(0); RUN_BLOCKS_MAX as usize],
        }
    }

    /// Adds a run behind all others.
    #[inline]
    pub fn push(&mut self, run: &VersionRun, into: &mut Levels<'_, RunDraft>) -> Result<()> {
        if self.is_followed_by(run) {
            self.append(run.checksums);
            self.count += run.count;
            return Ok(());
        }
        self.flush(into)?;
        (self.branch, self.first, self.birth, self.death) = (run.branch, run.first, run.birth, run.death);
        (self.location, self.count) = (run.location, 0);
        self.append(run.checksums);
        self.count = run.count;
        Ok(())
    }

    /// Adds one version of one block behind all others.
    #[inline]
    pub fn push_version(
        &mut self,
        branch: BranchNumber,
        block: BlockIndex,
        version: BlockVersion,
        death: Option<Stamp>,
        into: &mut Levels<'_, RunDraft>,
    ) -> Result<()> {
        let checksum = version.checksum.map(|checksum| le::U32::new(checksum.0));
        let run = VersionRun {
            branch,
            first: block,
            birth: version.birth,
            death,
            location: version.location,
            count: 1,
            checksums: checksum.as_slice(),
        };
        self.push(&run, into)
    }

    /// Passes on the run held back.
    pub fn flush(&mut self, into: &mut Levels<'_, RunDraft>) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let run = self.run();
        into.push(run)?;
        self.count = 0;
        Ok(())
    }

    fn run(&self) -> VersionRun<'_> {
        let has_checksums = matches!(self.location, BlockLocation::Direct { .. });
        VersionRun {
            branch: self.branch,
            first: self.first,
            birth: self.birth,
            death: self.death,
            location: self.location,
            count: self.count,
            checksums: &self.checksums[..if has_checksums { self.count.into() } else { 0 }],
        }
    }

    fn append(&mut self, checksums: &[le::U32]) {
        let start = usize::from(self.count);
        self.checksums[start..start + checksums.len()].copy_from_slice(checksums);
    }

    #[inline]
    fn is_followed_by(&self, run: &VersionRun) -> bool {
        let count = u64::from(self.count);
        count > 0
            && run.first.0 == self.first.0 + count
            && (run.branch, run.birth, run.death) == (self.branch, self.birth, self.death)
            && self.count + run.count <= RUN_BLOCKS_MAX
            && self.location_behind() == Some(run.location)
    }

    /// Location at which the next block would continue the run.
    fn location_behind(&self) -> Option<BlockLocation> {
        match self.location {
            BlockLocation::Direct { segment, at, stored: Stored::PLAIN } => {
                let at = at.0.checked_add(u32::from(self.count) * BLOCK_GRAINS as u32)?;
                Some(BlockLocation::Direct { segment, at: SegmentGrain(at), stored: Stored::PLAIN })
            }
            BlockLocation::Zero => Some(BlockLocation::Zero),
            _ => None,
        }
    }
}
