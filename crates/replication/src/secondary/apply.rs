//! Changes of a record, applied in order.

use crate::frame::SentChange;
use array::{
    error::{Error, Result},
    format::{BLOCK_BYTES, BlockIndex, Stamp, VolumeId},
    pool::{Pool, VolumeKey},
};
use std::sync::Arc;
use world::{Buffer, ByteOffset};

/// Adjacent blocks of one command.
struct WrittenRun {
    volume: VolumeId,
    stamp: Stamp,
    first: BlockIndex,
    blocks: Vec<Arc<Buffer>>,
}

/// Applies changes, each after the one before.
pub(super) async fn apply(pool: &Pool, changes: Vec<(Stamp, SentChange)>) -> Result<()> {
    let mut run: Option<WrittenRun> = None;
    for (stamp, change) in changes {
        match change {
            SentChange::Write { volume, block, data } => {
                if let Some(open) = run.as_mut().filter(|open| open.continues(volume, stamp, block)) {
                    open.blocks.push(data);
                    continue;
                }
                let next = WrittenRun { volume, stamp, first: block, blocks: vec![data] };
                if let Some(before) = run.replace(next) {
                    before.write(pool).await?;
                }
            }
            change => {
                if let Some(before) = run.take() {
                    before.write(pool).await?;
                }
                apply_other(pool, stamp, change).await?;
            }
        }
    }
    match run {
        Some(last) => last.write(pool).await,
        None => Ok(()),
    }
}

/// Applies a change that is no write.
async fn apply_other(pool: &Pool, stamp: Stamp, change: SentChange) -> Result<()> {
    match change {
        SentChange::Discard { volume, first, count } => {
            let volume = pool.volume(VolumeKey::Id(volume))?;
            volume.ensure_discard(first, count, stamp).await.map_err(Error::Copy)?;
            Ok(())
        }
        SentChange::Write { .. } => unreachable!("writes are gathered"),
        SentChange::Zeroes { volume, first, count } => {
            let volume = pool.volume(VolumeKey::Id(volume))?;
            volume.ensure_zeroes(first, count, stamp).await.map_err(Error::Copy)?;
            Ok(())
        }
        SentChange::Resize { .. }
        | SentChange::Snapshot(_)
        | SentChange::SnapshotDeleted(_)
        | SentChange::RollBack { .. }
        | SentChange::VolumeDeleted { .. } => Err(Error::NotYet("this change, in a replica")),
    }
}

impl WrittenRun {
    fn continues(&self, volume: VolumeId, stamp: Stamp, block: BlockIndex) -> bool {
        self.volume == volume && self.stamp == stamp && self.first.0 + self.blocks.len() as u64 == block.0
    }

    async fn write(self, pool: &Pool) -> Result<()> {
        let volume = pool.volume(VolumeKey::Id(self.volume))?;
        let at = ByteOffset(self.first.0 * BLOCK_BYTES as u64);
        volume.ensure_write(at, &self.blocks, self.stamp).await.map_err(Error::Copy)?;
        Ok(())
    }
}
