//! Filling of a volume that is being imported: part after part of the source is copied, several at a time.

use super::{ImportTarget, Pool};
use crate::{
    engine::{PARALLELISM_MAX, Permit, Urgency},
    error::{Error, Result},
    format::{BLOCK_BYTES, BlockIndex},
    simulation::canary::{self, Canary},
    volume::{BlockData, ImportPart, put_blocks, ranges_of_source},
};
use futures_util::{StreamExt, stream};
use std::{ops::Range, pin::pin, rc::Rc, time::Duration};
use tokio::sync::watch;
use world::{Buffer, IoError, IoErrorKind, Job, with_deadline};

/// Blocks of a part: a read of 1 MiB.
pub(super) const PART_BLOCKS: u64 = 256;
/// After so many parts what was copied is made stable, and the mark moves over them: 64 MiB.
const MARKED_PARTS: u64 = 64;
/// A part that cannot be copied is tried again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Between two looks for a cancellation.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A read of the source keeps its permit for so long at most: others need it, and a source may hang.
const PERMIT_HELD_MAX: Duration = Duration::from_millis(500);
/// A source that cannot read more blocks than these is not damaged in places, but out of order.
const BAD_BLOCKS_MAX: usize = 16_384;

/// Blocks as a source has them.
pub(super) struct SourceContent {
    pub data: BlockData,
    /// Blocks that it cannot read.
    pub bad: Vec<u64>,
}

impl Pool {
    /// Copies what is still the source's, from the mark on, and moves the mark, which is closed at the end. Returns the bytes
    /// that were copied.
    pub(super) async fn fill_import(
        &self,
        target: &ImportTarget,
        mark: watch::Sender<u64>,
        job: &Job,
    ) -> Result<u64> {
        let parts = parts_of(target.from..target.end);
        let fill = |part: Range<u64>| async move {
            let copied =
                self.patiently(target, job, async || self.fill_import_part(target, part.clone()).await);
            (part.end, part.end - part.start, copied.await)
        };
        // In order, since the mark moves over all of them.
        let mut filled = stream::iter(parts).map(fill).buffered(PARALLELISM_MAX);
        let (mut copied_blocks, mut filled_below, mut outcome) = (0, target.from, Ok(()));
        while let Some((end, count, copied)) = filled.next().await {
            match copied {
                _ if outcome.is_err() => {}
                Ok(copied) => {
                    copied_blocks += copied;
                    job.advance(count * BLOCK_BYTES as u64);
                    filled_below = end;
                    if (end / PART_BLOCKS).is_multiple_of(MARKED_PARTS) {
                        outcome = self.mark_filled(target, &mark, end).await;
                    }
                }
                // Parts that have begun come to their end.
                Err(error) => outcome = Err(error),
            }
        }
        self.mark_filled(target, &mark, filled_below).await?;
        outcome.map(|()| copied_blocks * BLOCK_BYTES as u64)
    }

    /// Makes stable what was copied, and only then moves the mark: it is where an import goes on after a power cut.
    async fn mark_filled(&self, target: &ImportTarget, mark: &watch::Sender<u64>, below: u64) -> Result<()> {
        self.log.sync().await?;
        self.shared.state.borrow_mut().catalogue.note_filled(target.branch, BlockIndex(below));
        self.shared.note_unsaved_rows();
        let before = mark.send_replace(below);
        assert!(before <= below, "the mark moves up alone");
        Ok(())
    }

    /// Repeats the work on a part while the source or the room of the pool keeps it from its end.
    pub(super) async fn patiently<T>(
        &self,
        target: &ImportTarget,
        job: &Job,
        work: impl AsyncFn() -> Result<T>,
    ) -> Result<T> {
        loop {
            // The volume may have been deleted meanwhile.
            let is_importing = self.shared.state.borrow().catalogue.is_importing(target.branch);
            if job.is_cancelled() || !is_importing {
                return Err(Error::ImportStopped);
            }
            let done = work().await;
            let problem = match &done {
                Err(error) if passes(error) => Some(error.to_string()),
                Err(_) => return done,
                Ok(_) => None,
            };
            let is_done = problem.is_none();
            self.import_problems.borrow_mut().entry(target.volume).or_default().problem = problem;
            if is_done {
                return done;
            }
            let again_at = self.shared.world.now() + AGAIN_AFTER;
            while self.shared.world.now() < again_at && !job.is_cancelled() {
                self.shared.check_runs()?;
                self.shared.world.sleep(LOOK_EVERY).await;
            }
        }
    }

    /// Copies what is still the source's in a part. Returns the number of blocks.
    async fn fill_import_part(&self, target: &ImportTarget, part: Range<u64>) -> Result<u64> {
        let (mut copied, mut start) = (0, part.start);
        while start < part.end {
            let owners = self.host.imported_blocks(target.branch, start..part.end).await?;
            let ranges = ranges_of_source(start, &owners);
            let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { break };
            let permit = self.throttle.permit(Urgency::CanWait).await?;
            let blocks = first.start..last.end.min(first.start + u64::from(permit.blocks_max));
            let mut found = self.read_source(target, vec![blocks.clone()], permit).await?;
            self.note_bad(target, &found)?;
            found.data.retain(|_, data| data.iter().any(|byte| *byte != 0));
            start = blocks.end;
            copied += self.copy_to_import(target, blocks, found.data).await?;
        }
        Ok(copied)
    }

    /// Copies blocks that were read from the source, unless a host has them. Returns how many.
    pub(super) async fn copy_to_import(
        &self,
        target: &ImportTarget,
        blocks: Range<u64>,
        mut data: BlockData,
    ) -> Result<u64> {
        if canary::is(Canary::ImportSkipsABlock) {
            data.pop_last();
        }
        if data.is_empty() {
            return Ok(0);
        }
        let under_way =
            Rc::clone(&self.import_problems.borrow_mut().entry(target.volume).or_default().copies);
        let (host, locks) = (Rc::clone(&self.host), self.handles.locks_of(target.number));
        let part = ImportPart { branch: target.branch, fork: target.fork, owner: target.number, blocks };
        // A task of its own, as a host's command: it may make a checkpoint, which must not be given up.
        let copy = async move {
            let copied = host.copy_imported(&part, data, &locks).await;
            drop(under_way);
            copied
        };
        let copy = self.shared.world.spawn("import", copy);
        if canary::is(Canary::ImportMarkTooEarly) {
            drop(copy);
            return Ok(1);
        }
        copy.await?.ok_or(Error::ImportStopped)
    }

    /// Reads ranges of blocks of the source. Where it cannot read, block after block is tried.
    pub(super) async fn read_source(
        &self,
        target: &ImportTarget,
        mut wanted: Vec<Range<u64>>,
        permit: Permit,
    ) -> Result<SourceContent> {
        let count: u64 = wanted.iter().map(|range| range.end - range.start).sum();
        permit.moves(2 * count as usize * BLOCK_BYTES);
        let mut permit = Some(permit);
        let mut found = SourceContent { data: BlockData::new(), bad: Vec::new() };
        wanted.reverse();
        while let Some(range) = wanted.pop() {
            match self.read_range(target, range.clone(), &mut permit).await {
                Ok(read) => put_blocks(&mut found.data, range.start, read),
                Err(error) if error.kind() != IoErrorKind::Medium => return Err(Error::Source(error)),
                Err(_) if range.end - range.start == 1 => found.bad.push(range.start),
                Err(_) => {
                    let middle = range.start + (range.end - range.start) / 2;
                    wanted.extend([middle..range.end, range.start..middle]);
                }
            }
        }
        Ok(found)
    }

    async fn read_range(
        &self,
        target: &ImportTarget,
        range: Range<u64>,
        permit: &mut Option<Permit>,
    ) -> std::result::Result<Buffer, IoError> {
        let source = self.host.source_of(target.branch).ok().flatten();
        let gone = || IoError::new(IoErrorKind::NotFound, "it is not attached");
        let source = source.ok_or_else(gone)?;
        let mut reading = pin!(source.read_blocks(range));
        if let Some(read) = with_deadline(self.shared.world.sleep(PERMIT_HELD_MAX), &mut reading).await {
            return read;
        }
        drop(permit.take());
        reading.await
    }

    /// Remembers which blocks of a part the source cannot read.
    pub(super) fn note_bad(&self, target: &ImportTarget, found: &SourceContent) -> Result<()> {
        let mut states = self.import_problems.borrow_mut();
        let state = states.entry(target.volume).or_default();
        state.bad.retain(|block| !found.data.contains_key(block));
        state.bad.extend(&found.bad);
        if state.bad.len() > BAD_BLOCKS_MAX {
            state.bad.clear();
            let story =
                format!("it cannot read more than {BAD_BLOCKS_MAX} blocks of 4096 bytes; is it in order?");
            return Err(Error::Source(IoError::new(IoErrorKind::Other, story)));
        }
        Ok(())
    }
}

pub(super) fn parts_of(blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let Range { start, end } = blocks;
    (start..end).step_by(PART_BLOCKS as usize).map(move |first| first..(first + PART_BLOCKS).min(end))
}

/// True for an error that passes with time, or once somebody has done something about it.
fn passes(error: &Error) -> bool {
    match error {
        Error::Source(error) => !matches!(error.kind(), IoErrorKind::WrongType | IoErrorKind::OutOfRange),
        Error::Full | Error::OutOfSpace(_) | Error::LimitReached(_) | Error::Reserved(_) => true,
        _ => false,
    }
}
