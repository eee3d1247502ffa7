//! Reads of a volume or a snapshot: look up the version of each block, then read adjacent blocks of one
//! segment together.

use super::{HostPath, check_range, device::Volume, io_error, pieces};
use crate::{
    engine::{HostCommand, StageClock, StoredRun},
    error::{Error, Result},
    format::{BLOCK_BYTES, BlockIndex, BlockLocation, BranchNumber, Stamp, Stored},
    map::BlockMapping,
};
use std::{ops::Deref, rc::Rc};
use world::{Buffer, ByteOffset, IoResult, LocalFuture};

impl Volume {
    pub(super) async fn read_range(&self, at: ByteOffset, into: Vec<Buffer>) -> IoResult<Vec<Buffer>> {
        let length: usize = into.iter().map(|buffer| buffer.len()).sum();
        self.check_exists().map_err(|error| io_error("read", &error))?;
        check_range("read", at, length as u64, self.size_bytes())?;
        let clock = self.host.stages.begin();
        self.wait_for_rate(length).await;
        // Reads elsewhere say nothing of the pool's own pace.
        let is_timed = !self.is_importing();
        let _timed = is_timed.then(|| self.host.throttle.begin(HostCommand::Read, length));
        // The volume may have been deleted or shrunk while the command waited. From here on no segment that
        // is read is reused.
        let branch = self.branch().map_err(|error| io_error("read", &error))?;
        check_range("read", at, length as u64, self.size_bytes())?;
        let reader = Reader { host: &self.host, branch, as_of: None };
        let read = reader.read_timed(at, into, clock.as_ref()).await;
        let read = read.map_err(|error| io_error("read", &error))?;
        if let Some(clock) = clock {
            clock.end_read();
        }
        Ok(read)
    }

    /// Reads the current version of one block.
    pub(super) async fn read_block(&self, block: BlockIndex) -> Result<Buffer> {
        let reader = Reader { host: &self.host, branch: self.branch()?, as_of: None };
        let at = ByteOffset(block.0 * BLOCK_BYTES as u64);
        let read = reader.read(at, vec![Buffer::zeroed(BLOCK_BYTES)]).await?;
        Ok(read.into_iter().next().expect("a buffer for a buffer"))
    }
}

/// A reader of one branch, at its head or at a point.
pub(super) struct Reader<'a> {
    pub host: &'a Rc<HostPath>,
    pub branch: BranchNumber,
    pub as_of: Option<Stamp>,
}

impl Reader<'_> {
    /// Fills `into` from byte `at`. Blocks without a version read as zeroes.
    pub async fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> Result<Vec<Buffer>> {
        self.read_timed(at, into, None).await
    }

    async fn read_timed(
        &self,
        at: ByteOffset,
        mut into: Vec<Buffer>,
        clock: Option<&StageClock>,
    ) -> Result<Vec<Buffer>> {
        let length: usize = into.iter().map(|buffer| buffer.len()).sum();
        if length == 0 {
            return Ok(into);
        }
        if self.as_of.is_none()
            && let Some(source) = self.host.source_of(self.branch)?
        {
            return self.host.read_importing((self.branch, &source), at, into).await;
        }
        let _reading = self.host.shared.begin_reading();
        let block_bytes = BLOCK_BYTES as u64;
        let first = BlockIndex(at.0 / block_bytes);
        let count = (at.0 + length as u64).div_ceil(block_bytes) - first.0;
        let mapped = self.host.map.map_of(self.branch, first, count, self.as_of).await?;
        if let Some(clock) = clock {
            clock.leave_queue();
        }
        let mut runs = runs(first, &mapped)?;
        let last = runs.pop();
        if let Some((0, run)) = &last
            && is_all_of(run, at, &into)
        {
            return Ok(vec![self.host.shared.read_run(run).await?]);
        }
        // The last run is read by this task, the others beside it.
        let reads: Vec<LocalFuture<Result<(usize, Buffer)>>> = runs
            .into_iter()
            .map(|(index, run)| {
                let shared = Rc::clone(&self.host.shared);
                let world = shared.world.clone();
                let reading = async move { shared.read_run(&run).await.map(|data| (index, data)) };
                Box::pin(world.spawn("run read", reading)) as LocalFuture<_>
            })
            .collect();
        let last = match last {
            Some((index, run)) => Some((index, self.host.shared.read_run(&run).await?)),
            None => None,
        };
        let mut blocks: Vec<Option<(Rc<Buffer>, usize)>> = vec![None; count as usize];
        let mut read: Vec<(usize, Buffer)> = last.into_iter().collect();
        for reading in reads {
            read.push(reading.await?);
        }
        for (index, data) in read {
            let data = Rc::new(data);
            for block in 0..data.len() / BLOCK_BYTES {
                blocks[index + block] = Some((Rc::clone(&data), block));
            }
        }
        fill(at, &blocks, &mut into);
        Ok(into)
    }
}

/// True if the run is exactly the command, in one buffer.
fn is_all_of(run: &StoredRun, at: ByteOffset, into: &[Buffer]) -> bool {
    let bytes = run.blocks.len() * BLOCK_BYTES;
    at.0.is_multiple_of(BLOCK_BYTES as u64) && into.len() == 1 && into[0].len() == bytes
}

/// Copies blocks into the buffers of the command. Each block has its place in what was read, in blocks.
pub(crate) fn fill<D: Deref<Target = Buffer>>(
    at: ByteOffset,
    blocks: &[Option<(D, usize)>],
    into: &mut [Buffer],
) {
    let first = at.0 / BLOCK_BYTES as u64;
    let mut place = at;
    for buffer in into {
        let cut: Vec<_> = pieces(place, buffer.len()).collect();
        for piece in cut {
            let target = &mut buffer[piece.at..piece.at + piece.length];
            match &blocks[(piece.block - first) as usize] {
                Some((data, block)) => {
                    let from = block * BLOCK_BYTES + piece.start;
                    target.copy_from_slice(&data[from..from + piece.length]);
                }
                None => target.fill(0),
            }
        }
        place = ByteOffset(place.0 + buffer.len() as u64);
    }
}

/// Groups adjacent blocks of one segment into runs. Each has the index of its first block in the command.
pub(crate) fn runs(first: BlockIndex, mapped: &[Option<BlockMapping>]) -> Result<Vec<(usize, StoredRun)>> {
    let mut runs: Vec<(usize, StoredRun)> = Vec::new();
    for (index, mapped) in mapped.iter().enumerate() {
        let Some(BlockMapping { branch, version }) = mapped else { continue };
        let (segment, at) = match version.location {
            BlockLocation::Direct { segment, at, stored } if stored == Stored::PLAIN => (segment, at.block()),
            BlockLocation::Zero => continue,
            // This program writes no such block, and a pool with an unknown feature is not opened.
            _ => return Err(Error::NotYet("a block that is not stored plain")),
        };
        let key = version.key(*branch, BlockIndex(first.0 + index as u64));
        let checksum = version.checksum.expect("what is stored in a segment has a checksum");
        let goes_on = runs
            .last()
            .is_some_and(|(begun, run)| begun + run.blocks.len() == index && run.is_followed_by(segment, at));
        if !goes_on {
            runs.push((index, StoredRun { segment, at, blocks: Vec::new() }));
        }
        runs.last_mut().expect("there is one").1.blocks.push((key, checksum));
    }
    Ok(runs)
}
