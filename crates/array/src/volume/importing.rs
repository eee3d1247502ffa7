//! Volumes that are being imported: a block of which their branch has no version is that of a source, a device elsewhere.
//!
//! Invariants:
//!
//! 1. While a volume is imported, each of its blocks either has a version in its branch, a discard included, and is the
//!    volume's own; or it has none, and is the source's. A block changes from the latter to the former, never back, so
//!    what hosts have written or discarded is never replaced by the source.
//! 2. A block is copied while no host command has it, and only if the branch still has no version of it.
//! 3. A copy has the stamp of the branch's fork, which is below the stamps of all commands of hosts. So the versions
//!    that hosts made are known by their stamps. It becomes stable with what is logged behind it.
//! 4. A block of the source that is all zeroes, or cannot be read, is not copied: the source is asked for it until the
//!    import ends.
//! 5. Nobody waits for the source while segments are kept for a reader, or with a permit of the throttle for longer
//!    than a moment. Hosts wait for it only where they read, or write in part, what is still the source's.

use super::{
    BlockLocks, HostPath,
    block_locks::BlockSpan,
    read::{fill, runs},
    space_promise::WriteScope,
};
use crate::{
    error::{Error, Result},
    format::{BLOCK_BYTES, BlockIndex, BlockKey, BranchNumber, Stamp, VolumeNumber, row::VolumeState},
    log::LogItem,
    map::{BlockMapping, VersionLookup},
    simulation::canary::{self, Canary},
};
use futures_util::future::try_join_all;
use std::{cell::RefCell, collections::BTreeMap, ops::Range, rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteOffset, IoError, IoErrorKind, IoResult};

/// The sources that are attached, by the branches that read them.
pub(crate) type ImportSources = RefCell<BTreeMap<BranchNumber, Rc<ImportSource>>>;

/// The source of a volume that is being imported. It is only read.
pub(crate) struct ImportSource {
    pub device: Rc<dyn BlockDevice>,
    pub source_bytes: u64,
}

impl ImportSource {
    /// Reads blocks; bytes behind the end of the source are zeroes.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub async fn read_blocks(&self, blocks: Range<u64>) -> IoResult<Buffer> {
        let block_bytes = BLOCK_BYTES as u64;
        let (at, end) = (blocks.start * block_bytes, blocks.end * block_bytes);
        let there = end.min(self.source_bytes).saturating_sub(at) as usize;
        let length = (end - at) as usize;
        if there == 0 {
            return Ok(Buffer::zeroed(length));
        }
        let read = self.device.read(ByteOffset(at), vec![Buffer::zeroed(there)]).await?;
        let read = read.into_iter().next();
        let short = || IoError::new(IoErrorKind::Other, "the source answered a read without data");
        let read = read.filter(|read| read.len() == there).ok_or_else(short)?;
        if there == length {
            return Ok(read);
        }
        let mut padded = Buffer::zeroed(length);
        padded[..there].copy_from_slice(&read);
        Ok(padded)
    }
}

/// The owner of a block of a volume that is being imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImportedBlock {
    /// The branch has this version.
    Stored(BlockMapping),
    /// A host has discarded it.
    Discarded,
    OfSource,
}

impl ImportedBlock {
    /// Of a branch's own version.
    pub fn of(branch: BranchNumber, own: VersionLookup) -> Self {
        match own {
            VersionLookup::NOTHING => Self::OfSource,
            VersionLookup::Version(version) if !version.is_zero() => {
                Self::Stored(BlockMapping { branch, version })
            }
            VersionLookup::Version(_) | VersionLookup::Unknown { .. } => Self::Discarded,
        }
    }

    /// True if it is known to read as zeroes.
    pub fn is_hole(self) -> bool {
        self == Self::Discarded
    }

    fn mapping(self) -> Option<BlockMapping> {
        match self {
            Self::Stored(mapping) => Some(mapping),
            Self::Discarded | Self::OfSource => None,
        }
    }
}

/// A part of a volume that is being imported.
#[derive(Clone, Debug)]
pub(crate) struct ImportPart {
    pub branch: BranchNumber,
    /// Stamp at which it began: that of copies.
    pub fork: Stamp,
    pub owner: VolumeNumber,
    /// Never empty.
    pub blocks: Range<u64>,
}

/// The data of some blocks, by their numbers.
pub(crate) type BlockData = BTreeMap<u64, Arc<Buffer>>;

impl HostPath {
    /// The source of a branch whose volume is being imported; `None` if it is not.
    ///
    /// # Errors
    ///
    /// The source is not attached: what the branch reads is not known.
    pub fn source_of(&self, branch: BranchNumber) -> Result<Option<Rc<ImportSource>>> {
        let state = self.shared.state.borrow();
        if !state.catalogue.is_importing(branch) {
            return Ok(None);
        }
        match self.imports.borrow().get(&branch) {
            Some(source) => Ok(Some(Rc::clone(source))),
            None => Err(Error::SourceNotAttached(format!("on branch {branch}"))),
        }
    }

    /// The owner of each of some blocks.
    ///
    /// # Errors
    ///
    /// A part of the map cannot be read.
    pub async fn imported_blocks(
        &self,
        branch: BranchNumber,
        blocks: Range<u64>,
    ) -> Result<Vec<ImportedBlock>> {
        let _reading = self.shared.begin_reading();
        let count = blocks.end - blocks.start;
        let own = self.map.own_versions_of(branch, BlockIndex(blocks.start), count).await?;
        Ok(own.into_iter().map(|own| ImportedBlock::of(branch, own)).collect())
    }

    /// As [`Self::imported_blocks`], with the data of those that the branch has and `is_wanted` takes.
    ///
    /// # Errors
    ///
    /// A part of the map, or a block, cannot be read.
    pub async fn read_stored(
        &self,
        branch: BranchNumber,
        blocks: Range<u64>,
        is_wanted: impl Fn(&BlockMapping) -> bool,
    ) -> Result<(Vec<ImportedBlock>, BlockData)> {
        // No segment that is read is reused meanwhile.
        let _reading = self.shared.begin_reading();
        let owners = self.imported_blocks(branch, blocks.clone()).await?;
        let mapped: Vec<_> =
            owners.iter().map(|owner| owner.mapping().filter(|found| is_wanted(found))).collect();
        let runs = runs(BlockIndex(blocks.start), &mapped)?;
        let reads =
            runs.iter().map(async |(index, run)| Ok::<_, Error>((*index, self.shared.read_run(run).await?)));
        let read: Vec<(usize, Buffer)> = try_join_all(reads).await?;
        let mut data = BlockData::new();
        for (index, run) in read {
            put_blocks(&mut data, blocks.start + index as u64, run);
        }
        Ok((owners, data))
    }

    /// Copies blocks of a part that were read from the source: those that are still the source's. Returns how many, or
    /// `None` if the volume is not being imported any more. A power cut may make them the source's again, until the log
    /// is synced. `locks` are those of the volume.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] and the other errors of a host's write.
    pub async fn copy_imported(
        &self,
        part: &ImportPart,
        data: BlockData,
        locks: &Rc<BlockLocks>,
    ) -> Result<Option<u64>> {
        self.admission.admit(data.len() * BLOCK_BYTES).await?;
        let is_blind = canary::is(Canary::ImportOverwritesANewerWrite);
        let (first, last) = (part.blocks.start, part.blocks.end - 1);
        let span = if is_blind { BlockSpan::whole(first..=last) } else { BlockSpan::alone(first..=last) };
        let _alone = locks.lock(span).await;
        if !self.may_import(part) {
            return Ok(None);
        }
        let owners = self.imported_blocks(part.branch, part.blocks.clone()).await?;
        let stamp =
            if is_blind { self.shared.state.borrow_mut().next_stamp_of([part.branch]) } else { part.fork };
        let is_open = |block: u64| owners[(block - first) as usize] == ImportedBlock::OfSource;
        let items: Vec<LogItem> = data
            .into_iter()
            .filter(|(block, _)| is_blind || is_open(*block))
            .map(|(block, data)| {
                let key = BlockKey { branch: part.branch, block: BlockIndex(block), stamp };
                LogItem::Write { key, data }
            })
            .collect();
        let count = items.len() as u64;
        if count > 0 {
            let _admitted = self.admission.enter(part.owner, WriteScope::Added(count)).await?;
            // The source still has what a power cut takes away: the mark waits for stability, not each copy.
            self.log.append_volatile(items).await?;
        }
        Ok(Some(count))
    }

    fn may_import(&self, part: &ImportPart) -> bool {
        let state = self.shared.state.borrow();
        let owner = state.catalogue.volume(part.owner);
        owner.is_some_and(|row| row.state == VolumeState::Live && row.branch == part.branch)
            && state.catalogue.is_importing(part.branch)
    }

    /// Reads the head of a branch whose volume is being imported into buffers, from byte `at`.
    pub(super) async fn read_importing(
        &self,
        (branch, source): (BranchNumber, &ImportSource),
        at: ByteOffset,
        mut into: Vec<Buffer>,
    ) -> Result<Vec<Buffer>> {
        let length: usize = into.iter().map(|buffer| buffer.len()).sum();
        let block_bytes = BLOCK_BYTES as u64;
        let blocks = at.0 / block_bytes..(at.0 + length as u64).div_ceil(block_bytes);
        let (owners, mut data) = self.read_stored(branch, blocks.clone(), |_| true).await?;
        let missing = ranges_of_source(blocks.start, &owners);
        let reads = missing.into_iter().map(async |range| {
            let read = source.read_blocks(range.clone()).await.map_err(Error::Source)?;
            Ok::<_, Error>((range.start, read))
        });
        for (first, read) in try_join_all(reads).await? {
            put_blocks(&mut data, first, read);
        }
        let found: Vec<_> = blocks.map(|block| data.remove(&block).map(|data| (data, 0))).collect();
        fill(at, &found, &mut into);
        Ok(into)
    }
}

/// Adjacent blocks that are the source's; the first owner is that of block `first`.
pub(crate) fn ranges_of_source(first: u64, owners: &[ImportedBlock]) -> Vec<Range<u64>> {
    let of_source = (first..).zip(owners).filter(|(_, owner)| **owner == ImportedBlock::OfSource);
    joined_ranges(of_source.map(|(block, _)| block..block + 1), 0)
}

/// Ascending ranges, as one where at most `gap_max` blocks lie between them.
pub(crate) fn joined_ranges(ranges: impl IntoIterator<Item = Range<u64>>, gap_max: u64) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut().filter(|last| range.start - last.end <= gap_max) {
            Some(last) => last.end = range.end,
            None => joined.push(range),
        }
    }
    joined
}

/// Divides what was read from block `first` on into blocks.
pub(crate) fn put_blocks(data: &mut BlockData, first: u64, read: Buffer) {
    let (count, read) = (read.len() / BLOCK_BYTES, Arc::new(read));
    for index in 0..count {
        let bytes = index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES;
        data.insert(first + index as u64, Arc::new(Buffer::part_of(&read, bytes)));
    }
}
