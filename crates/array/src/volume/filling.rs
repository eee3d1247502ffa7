//! Copies of the blocks that a branch reads through its parent, a part at a time.
//!
//! A block is read first, and then copied under a lock that no host command shares, if the branch still has
//! no version of it. What was read stays right: a branch that has a version of a block never reads through
//! its parent there again, and what it reads there never changes. So a host waits for the copying of a part
//! at most, and its write or discard wins whenever it comes.

use super::{BlockLocks, HostPath, block_locks::BlockSpan, read::runs, space_promise::WriteScope};
use crate::{
    error::Result,
    format::{BLOCK_BYTES, BlockIndex, BlockKey, BranchNumber, Stamp, VolumeNumber, row::VolumeState},
    log::LogItem,
    map::BlockMapping,
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
};
use std::{collections::BTreeMap, rc::Rc, sync::Arc};
use world::Buffer;

/// A part of a branch that is being filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartToFill {
    pub branch: BranchNumber,
    /// Stamp at which it left its parent.
    pub fork: Stamp,
    /// The volume whose head is on it.
    pub owner: VolumeNumber,
    /// The volume that its room counts to.
    pub payer: VolumeNumber,
    pub first: BlockIndex,
    /// Number of blocks.
    pub count: u64,
}

/// Result of filling a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilledPart {
    /// The head of the branch reads nothing through its parent here; so many blocks were copied.
    Own(u64),
    /// The branch has another head, or is not being filled any more.
    Stale,
}

impl HostPath {
    /// Copies blocks of a part that were read before, by their index in the part: those that the head of the
    /// branch still reads through its parent. `locks` are those of the owner.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::error::Error::Full) and the other errors of a host's write.
    pub async fn copy(
        &self,
        part: PartToFill,
        blocks: BTreeMap<u64, Arc<Buffer>>,
        locks: &Rc<BlockLocks>,
    ) -> Result<FilledPart> {
        self.admission.admit(blocks.len() * BLOCK_BYTES).await?;
        let last = part.first.0 + part.count - 1;
        let is_blind = canary::is(Canary::FillOverwritesANewerWrite);
        let span = if is_blind {
            BlockSpan::whole(part.first.0..=last)
        } else {
            BlockSpan::alone(part.first.0..=last)
        };
        let _alone = locks.lock(span).await;
        if !self.may_fill(part) {
            return Ok(FilledPart::Stale);
        }
        let mapped = {
            let _reading = self.shared.begin_reading();
            self.map.map_of(part.branch, part.first, part.count, None).await?
        };
        let stamp =
            if is_blind { self.shared.state.borrow_mut().next_stamp_of([part.branch]) } else { part.fork };
        let read = blocks.len();
        let items: Vec<LogItem> = blocks
            .into_iter()
            .filter(|(index, _)| is_blind || is_inherited(part.branch, &mapped[*index as usize]))
            .map(|(index, data)| {
                let block = BlockIndex(part.first.0 + index);
                LogItem::Write { key: BlockKey { branch: part.branch, block, stamp }, data }
            })
            .collect();
        sometimes::reached_if(items.len() < read, Sometimes::HostWroteBeforeTheFill);
        let count = items.len() as u64;
        if count > 0 {
            let _admitted = self.admission.enter(part.payer, WriteScope::Added(count)).await?;
            self.log.append(items).await?;
        }
        Ok(FilledPart::Own(count))
    }

    /// True if the branch is still that of the owner's head, and still being filled.
    fn may_fill(&self, part: PartToFill) -> bool {
        let state = self.shared.state.borrow();
        let owner = state.catalogue.volume(part.owner);
        // A rollback to what another left, or to another volume, ends that: its branch has the locks of the volume.
        owner.is_some_and(|row| row.state == VolumeState::Live && row.branch == part.branch)
            && state.catalogue.branches().is_filling(part.branch)
    }

    /// Reads the blocks of a part that the head of the branch reads through its parent, by their index in the
    /// part.
    ///
    /// # Errors
    ///
    /// A block cannot be read.
    pub async fn read_inherited(&self, part: PartToFill) -> Result<BTreeMap<u64, Arc<Buffer>>> {
        let _reading = self.shared.begin_reading();
        let mut mapped = self.map.map_of(part.branch, part.first, part.count, None).await?;
        mapped.iter_mut().for_each(|mapped| {
            if !is_inherited(part.branch, mapped) {
                *mapped = None;
            }
        });
        if canary::is(Canary::FillSkipsABlock)
            && let Some(last) = mapped.iter_mut().rfind(|mapped| mapped.is_some())
        {
            *last = None;
        }
        let mut blocks = BTreeMap::new();
        for (index, run) in runs(part.first, &mapped)? {
            let data = Arc::new(self.shared.read_run(&run).await?);
            for block in 0..run.blocks.len() {
                let bytes = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
                blocks.insert((index + block) as u64, Arc::new(Buffer::part_of(&data, bytes)));
            }
        }
        Ok(blocks)
    }

    /// The next block, from one on, that the branch may read through its parent.
    ///
    /// # Errors
    ///
    /// A part of the map cannot be read.
    pub async fn next_inherited(&self, branch: BranchNumber, from: BlockIndex) -> Result<Option<BlockIndex>> {
        let _reading = self.shared.begin_reading();
        let query = self.shared.state.borrow().sources().next_inherited(branch, from);
        query.finish(&self.map.trees).await
    }

    /// The first of some blocks that the branch reads through its parent, at its head or at one of its points.
    ///
    /// # Errors
    ///
    /// A part of the map cannot be read.
    pub async fn reads_through(
        &self,
        branch: BranchNumber,
        as_of: Option<Stamp>,
        (first, count): (BlockIndex, u64),
    ) -> Result<Option<BlockIndex>> {
        let _reading = self.shared.begin_reading();
        let mapped = self.map.map_of(branch, first, count, as_of).await?;
        let found = mapped.iter().position(|mapped| is_inherited(branch, mapped));
        Ok(found.map(|index| BlockIndex(first.0 + index as u64)))
    }
}

fn is_inherited(branch: BranchNumber, mapped: &Option<BlockMapping>) -> bool {
    mapped.is_some_and(|mapped| mapped.branch != branch)
}
