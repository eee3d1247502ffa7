//! Comparison of a volume that was filled with its source: each block that no host wrote is read on both sides.

use super::{ImportTarget, Pool, pass::parts_of};
use crate::{
    engine::{PARALLELISM_MAX, Urgency},
    error::Result,
    format::BLOCK_BYTES,
    volume::{BlockData, ImportedBlock},
};
use futures_util::{StreamExt, future::join, stream};
use std::{collections::BTreeSet, ops::Range};
use world::Job;

/// Copies of a part that lacked blocks, before the source counts as changing.
const ROUNDS_MAX: usize = 3;

/// Result of a comparison, in blocks.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub same: u64,
    pub of_hosts: u64,
    /// Found missing, and copied.
    pub copied: u64,
    /// The source cannot read them, and no host has written them.
    pub bad: BTreeSet<u64>,
    /// They are not as they were copied.
    pub changed: BTreeSet<u64>,
}

impl Comparison {
    fn add(&mut self, other: Self) {
        self.same += other.same;
        self.of_hosts += other.of_hosts;
        self.copied += other.copied;
        self.bad.extend(other.bad);
        self.changed.extend(other.changed);
    }
}

impl Pool {
    /// Compares the whole volume with its source. What the volume lacks is copied.
    pub(super) async fn compare_import(&self, target: &ImportTarget, job: &Job) -> Result<Comparison> {
        let compare = |part: Range<u64>| async move {
            let compared =
                self.patiently(target, job, async || self.compare_part(target, part.clone()).await);
            (part.end - part.start, compared.await)
        };
        let mut compared =
            stream::iter(parts_of(0..target.end)).map(compare).buffer_unordered(PARALLELISM_MAX);
        let mut all = Ok(Comparison::default());
        while let Some((count, part)) = compared.next().await {
            match (&mut all, part) {
                (Ok(all), Ok(part)) => {
                    all.add(part);
                    let bytes = count * BLOCK_BYTES as u64;
                    job.advance(bytes);
                    let mut states = self.import_problems.borrow_mut();
                    *states.entry(target.volume).or_default().compared_bytes.get_or_insert_default() += bytes;
                }
                // Parts that have begun come to their end.
                (Ok(_), Err(error)) => all = Err(error),
                (Err(_), _) => {}
            }
        }
        all
    }

    /// Compares a part; what it lacks is copied first.
    async fn compare_part(&self, target: &ImportTarget, part: Range<u64>) -> Result<Comparison> {
        let mut copied = 0;
        for _ in 0..ROUNDS_MAX {
            let (mut compared, missing) = self.look_at_part(target, part.clone()).await?;
            if missing.is_empty() {
                compared.copied = copied;
                return Ok(compared);
            }
            copied += self.copy_to_import(target, part.clone(), missing).await?;
        }
        let (mut compared, missing) = self.look_at_part(target, part).await?;
        compared.changed.extend(missing.into_keys());
        compared.copied = copied;
        Ok(compared)
    }

    /// Reads a part on both sides. Returns what the source has, and the volume lacks, too.
    async fn look_at_part(&self, target: &ImportTarget, part: Range<u64>) -> Result<(Comparison, BlockData)> {
        let mut compared = Comparison::default();
        // Its own copies have the stamp of the fork.
        let is_copy = |found: &crate::map::BlockMapping| found.version.birth == target.fork;
        let is_of_host = |owner: &ImportedBlock| match owner {
            ImportedBlock::Stored(found) => !is_copy(found),
            ImportedBlock::Discarded => true,
            ImportedBlock::OfSource => false,
        };
        let wanted_of = |owners: &[ImportedBlock]| -> BTreeSet<u64> {
            let wanted = (part.start..).zip(owners).filter(|(_, owner)| !is_of_host(owner));
            wanted.map(|(block, _)| block).collect()
        };
        let permit = self.throttle.permit(Urgency::CanWait).await?;
        let wanted = wanted_of(&self.host.imported_blocks(target.branch, part.clone()).await?);
        let (Some(&first), Some(&last)) = (wanted.first(), wanted.last()) else {
            compared.of_hosts = part.end - part.start;
            return Ok((compared, BlockData::new()));
        };
        // A block that becomes a host's meanwhile was read for nothing.
        let (own, found) = join(
            self.host.read_stored(target.branch, part.clone(), is_copy),
            self.read_source(target, first..last + 1, permit),
        )
        .await;
        let ((owners, own), found) = (own?, found?);
        let wanted = wanted_of(&owners);
        compared.of_hosts = part.end - part.start - wanted.len() as u64;
        self.note_bad(target, &found)?;
        let mut missing = BlockData::new();
        for block in wanted {
            let Some(source) = found.data.get(&block) else {
                // A block that was copied before the source lost it is complete.
                match own.contains_key(&block) {
                    true => compared.same += 1,
                    false => _ = compared.bad.insert(block),
                }
                continue;
            };
            match own.get(&block) {
                Some(own) if own[..] == source[..] => compared.same += 1,
                Some(_) => _ = compared.changed.insert(block),
                None if source.iter().all(|byte| *byte == 0) => compared.same += 1,
                None => _ = missing.insert(block, source.clone()),
            }
        }
        self.confirm_changes(target, &mut compared, &own).await?;
        Ok((compared, missing))
    }

    /// Reads blocks that differ once more: what came wrong once is no change.
    async fn confirm_changes(
        &self,
        target: &ImportTarget,
        compared: &mut Comparison,
        own: &BlockData,
    ) -> Result<()> {
        for block in std::mem::take(&mut compared.changed) {
            let permit = self.throttle.permit(Urgency::CanWait).await?;
            let found = self.read_source(target, block..block + 1, permit).await?;
            let is_same = found.data.get(&block).is_some_and(|source| own[&block][..] == source[..]);
            // A host may have written it meanwhile.
            let owners = self.host.imported_blocks(target.branch, block..block + 1).await?;
            let is_copy =
                matches!(owners[0], ImportedBlock::Stored(found) if found.version.birth == target.fork);
            match (is_same, is_copy) {
                (true, _) => compared.same += 1,
                (false, true) => _ = compared.changed.insert(block),
                (false, false) => compared.of_hosts += 1,
            }
        }
        Ok(())
    }

    /// Bytes of a volume that hosts have written or discarded since its import began.
    pub(super) async fn host_bytes_of(&self, target: &ImportTarget) -> Result<u64> {
        let mut blocks = 0;
        for part in parts_of(0..target.end) {
            let owners = self.host.imported_blocks(target.branch, part).await?;
            let is_of_host = |owner: &&ImportedBlock| match owner {
                ImportedBlock::Stored(found) => found.version.birth != target.fork,
                ImportedBlock::Discarded => true,
                ImportedBlock::OfSource => false,
            };
            blocks += owners.iter().filter(is_of_host).count();
        }
        Ok((blocks * BLOCK_BYTES) as u64)
    }
}

impl Comparison {
    /// Bytes of so many blocks.
    pub fn bytes(blocks: u64) -> u64 {
        blocks * BLOCK_BYTES as u64
    }
}
