//! Comparison of a volume that was filled with its source: each block that no host wrote is read on both sides, or on that
//! of the volume alone if the source is read once.

use super::{ImportTarget, ImportTerms, Pool, pass::parts_of};
use crate::{
    engine::{PARALLELISM_MAX, Urgency},
    error::Result,
    format::BLOCK_BYTES,
    map::BlockMapping,
    volume::{BlockData, ImportedBlock, joined_ranges},
};
use futures_util::{StreamExt, future::join, stream};
use std::{collections::BTreeSet, ops::Range, pin::pin};
use tokio::sync::watch;
use world::Job;

/// Copies of a part that lacked blocks, before the source counts as changing.
const ROUNDS_MAX: usize = 3;
/// Blocks between two that are wanted of the source, up to which both are read at once: 64 KiB.
const GAP_MAX: u64 = 16;

/// Result of a comparison, in blocks.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub same: u64,
    /// Read in the volume alone; their checksums are right.
    pub read_back: u64,
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
        self.read_back += other.read_back;
        self.of_hosts += other.of_hosts;
        self.copied += other.copied;
        self.bad.extend(other.bad);
        self.changed.extend(other.changed);
    }
}

impl Pool {
    /// Compares the whole volume with its source, up to the mark of the copy, and on as that moves. What the volume lacks is
    /// copied.
    pub(super) async fn compare_import(
        &self,
        target: &ImportTarget,
        terms: ImportTerms,
        filled_below: watch::Receiver<u64>,
        job: &Job,
    ) -> Result<Comparison> {
        let compare = |part: Range<u64>| async move {
            let compared =
                self.patiently(target, job, async || self.compare_part(target, terms, part.clone()).await);
            (part.end - part.start, compared.await)
        };
        let copied = stream::iter(parts_of(0..target.end)).filter_map(async |part| {
            // It is closed below that if the copy has failed.
            let reached = filled_below.clone().wait_for(|below| *below >= part.end).await.is_ok();
            reached.then_some(part)
        });
        let mut compared = pin!(copied.map(compare).buffer_unordered(PARALLELISM_MAX));
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
    async fn compare_part(
        &self,
        target: &ImportTarget,
        terms: ImportTerms,
        part: Range<u64>,
    ) -> Result<Comparison> {
        let mut copied = 0;
        for _ in 0..ROUNDS_MAX {
            let (mut compared, missing) = self.look_at_part(target, terms, part.clone()).await?;
            if missing.is_empty() {
                compared.copied = copied;
                return Ok(compared);
            }
            copied += self.copy_to_import(target, part.clone(), missing).await?;
        }
        let (mut compared, missing) = self.look_at_part(target, terms, part).await?;
        compared.changed.extend(missing.into_keys());
        compared.copied = copied;
        Ok(compared)
    }

    /// Reads a part on both sides. Returns what the source has, and the volume lacks, too.
    async fn look_at_part(
        &self,
        target: &ImportTarget,
        terms: ImportTerms,
        part: Range<u64>,
    ) -> Result<(Comparison, BlockData)> {
        let mut compared = Comparison::default();
        let is_copy = |found: &BlockMapping| target.is_copy(found);
        let permit = self.throttle.permit(Urgency::CanWait).await?;
        let owners = self.host.imported_blocks(target.branch, part.clone()).await?;
        let asked = joined_ranges(asked_of_source(target, terms, part.start, &owners), GAP_MAX);
        // A block that becomes a host's meanwhile was read for nothing.
        let (own, found) = join(
            self.host.read_stored(target.branch, part.clone(), is_copy),
            self.read_source(target, asked, permit),
        )
        .await;
        let ((owners, own), found) = (own?, found?);
        self.note_bad(target, &found)?;
        let mut missing = BlockData::new();
        for (block, owner) in (part.start..).zip(owners) {
            match (owner, own.get(&block), found.data.get(&block)) {
                (owner, ..) if target.is_of_host(&owner) => compared.of_hosts += 1,
                // Its checksum was right, or it could not have been read.
                (_, Some(_), _) if terms.reads_once => compared.read_back += 1,
                (_, Some(own), Some(source)) if own[..] == source[..] => compared.same += 1,
                (_, Some(_), Some(_)) => _ = compared.changed.insert(block),
                // It was copied before the source lost it, and is complete.
                (_, Some(_), None) => compared.same += 1,
                (_, None, Some(source)) if source.iter().all(|byte| *byte == 0) => compared.same += 1,
                (_, None, Some(source)) => _ = missing.insert(block, source.clone()),
                (_, None, None) => _ = compared.bad.insert(block),
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
            let alone = block..block + 1;
            let found = self.read_source(target, vec![alone.clone()], permit).await?;
            let is_same = found.data.get(&block).is_some_and(|source| own[&block][..] == source[..]);
            // A host may have written it meanwhile.
            let owners = self.host.imported_blocks(target.branch, alone).await?;
            let is_copy = matches!(owners[0], ImportedBlock::Stored(found) if target.is_copy(&found));
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
            blocks += owners.iter().filter(|owner| target.is_of_host(owner)).count();
        }
        Ok((blocks * BLOCK_BYTES) as u64)
    }
}

/// Ranges of blocks that are read in the source: what is a host's is not, and what was copied is not if it is read once.
fn asked_of_source(
    target: &ImportTarget,
    terms: ImportTerms,
    first: u64,
    owners: &[ImportedBlock],
) -> Vec<Range<u64>> {
    let is_asked = |owner: &ImportedBlock| match owner {
        ImportedBlock::OfSource => true,
        owner => !target.is_of_host(owner) && !terms.reads_once,
    };
    let asked = (first..).zip(owners).filter(|(_, owner)| is_asked(owner));
    asked.map(|(block, _)| block..block + 1).collect()
}

impl Comparison {
    /// Bytes of so many blocks.
    pub fn bytes(blocks: u64) -> u64 {
        blocks * BLOCK_BYTES as u64
    }
}
