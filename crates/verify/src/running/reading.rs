//! Reads large chunks ahead and has them checked on worker threads.
//!
//! Invariants:
//!
//! 1. Results are delivered in file order, whichever worker finishes first: everything before the last result
//!    is done, and a later run can resume behind it.
//! 2. At most [`READS_AHEAD`] chunks are being read and [`JUDGED_AHEAD`] per worker are being checked,
//!    whatever the size of the file. Their buffers are reused: the kernel clears fresh memory, which takes as
//!    long as a check.
//! 3. An unreadable unit (a page, a sector) is reported on its own, and its neighbours are checked all the
//!    same.

use super::{rate_limiter::RateLimiter, source::Source};
use std::{collections::VecDeque, future::Future, ops::Range, pin::Pin, sync::Arc};
use world::{Buffer, ByteOffset, IoError, IoErrorKind, IoResult, real::Workers};

pub const READS_AHEAD: usize = 8;
/// Chunks given to workers at once, per worker.
pub const JUDGED_AHEAD: usize = 2;
pub const CHUNK_BYTES: usize = 1 << 20;
/// Unreadable units reported one by one; beyond that the device counts as failed.
const UNREADABLE_MAX: u64 = 10_000;

/// The result for a part of a file.
#[derive(Debug)]
pub enum ChunkResult<T> {
    /// The check's result.
    Judged(T),
    /// The read error.
    Unreadable(IoError),
}

/// A range to read and check.
pub struct ReadPlan<'a> {
    pub source: &'a Source,
    /// Bytes of the source to read, starting at a sector.
    pub range: Range<u64>,
    /// Bytes behind each chunk that its check sees too: a structure that begins in a chunk may end in the
    /// next.
    pub overlap: usize,
    /// Bytes checked as one: failed reads are retried in such units. Chunks are whole units.
    pub unit: usize,
    pub workers: &'a Workers,
    pub limiter: &'a RateLimiter,
}

/// Checks the bytes at an offset.
pub type ChunkCheck<T> = Arc<dyn Fn(ByteOffset, &[u8]) -> T + Send + Sync>;

type Pending<T> = Pin<Box<dyn Future<Output = T>>>;

/// Reads the range to its end, or until stopped. Calls `tell` for each part in file order with its offset,
/// its length and the result. Returns the offset up to which all results were delivered.
///
/// Fails if the device cannot be read any more.
pub async fn each_chunk<T: Send + 'static>(
    plan: ReadPlan<'_>,
    judge: ChunkCheck<T>,
    tell: &mut dyn FnMut(ByteOffset, usize, ChunkResult<T>),
) -> IoResult<u64> {
    assert!(CHUNK_BYTES.is_multiple_of(plan.unit), "a chunk of whole units");
    let (workers, limiter) = (plan.workers, plan.limiter);
    let mut ahead = ReadAhead::new(&plan);
    let mut judged: VecDeque<(ByteOffset, Pending<(Buffer, T)>)> = VecDeque::new();
    let mut told_to = plan.range.start;
    let mut unreadable = 0;
    loop {
        let next = ahead.next().await;
        let is_last = next.is_none();
        let (mut bad, mut room) = (None, workers.count() * JUDGED_AHEAD);
        match next {
            Some((at, _, Ok(buffer))) => {
                let judge = Arc::clone(&judge);
                let work = workers.run(move || {
                    let answer = judge(at, &buffer);
                    (buffer, answer)
                });
                judged.push_back((at, Box::pin(work)));
            }
            // Deliver all earlier results first.
            Some((at, length, Err(error))) => (bad, room) = (Some((at, length, error)), 0),
            None => room = 0,
        }
        while judged.len() > room
            && let Some((at, work)) = judged.pop_front()
        {
            let (buffer, answer) = work.await;
            let length = buffer.len().min(CHUNK_BYTES);
            ahead.give_back(buffer);
            limiter.done(length as u64);
            tell(at, length, ChunkResult::Judged(answer));
            told_to = at.0 + length as u64;
        }
        if let Some((at, length, error)) = bad {
            if !is_local(&error) {
                return Err(error);
            }
            unreadable += in_units(&plan, at, length, &judge, tell).await?;
            if unreadable > UNREADABLE_MAX {
                return Err(error);
            }
            limiter.done(length as u64);
            told_to = at.0 + length as u64;
        }
        if is_last {
            return Ok(told_to);
        }
    }
}

/// True if an error concerns one place on the medium and other reads may still succeed.
fn is_local(error: &IoError) -> bool {
    error.kind() == IoErrorKind::Medium
}

/// Reads an unreadable chunk again, unit by unit; returns the number of unreadable units.
async fn in_units<T>(
    plan: &ReadPlan<'_>,
    at: ByteOffset,
    length: usize,
    judge: &ChunkCheck<T>,
    tell: &mut dyn FnMut(ByteOffset, usize, ChunkResult<T>),
) -> IoResult<u64> {
    let unit = plan.unit.max(plan.source.sector() as usize);
    let mut unreadable = 0;
    for start in (0..length).step_by(unit) {
        let (at, length) = (ByteOffset(at.0 + start as u64), unit.min(length - start));
        match plan.source.read(at, length, None).await {
            Ok(buffer) => tell(at, length, ChunkResult::Judged(judge(at, &buffer))),
            Err(error) if is_local(&error) => {
                unreadable += 1;
                tell(at, length, ChunkResult::Unreadable(error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(unreadable)
}

type Read = (ByteOffset, usize, Pending<IoResult<Buffer>>);

/// The chunks of a range, read ahead and delivered in order.
struct ReadAhead<'a> {
    source: &'a Source,
    limiter: &'a RateLimiter,
    /// Offsets of the next read, and of the end.
    at: u64,
    end: u64,
    overlap: u64,
    under_way: VecDeque<Read>,
    spare: Vec<Buffer>,
}

impl<'a> ReadAhead<'a> {
    fn new(plan: &ReadPlan<'a>) -> Self {
        let (at, end) = (plan.range.start, plan.range.end.min(plan.source.size().0));
        let (source, limiter) = (plan.source, plan.limiter);
        let overlap = plan.overlap as u64;
        Self { source, limiter, at, end, overlap, under_way: VecDeque::new(), spare: Vec::new() }
    }

    /// The next chunk with its offset and length; `None` at the end or after a stop.
    async fn next(&mut self) -> Option<(ByteOffset, usize, IoResult<Buffer>)> {
        self.fill();
        if self.under_way.is_empty() && self.at < self.end {
            self.limiter.wait().await;
            self.fill();
        }
        let (at, length, read) = self.under_way.pop_front()?;
        Some((at, length, read.await))
    }

    fn fill(&mut self) {
        while self.under_way.len() < READS_AHEAD && self.at < self.end && self.limiter.allows() {
            let length = (self.end - self.at).min(CHUNK_BYTES as u64) as usize;
            let at = ByteOffset(self.at);
            let with_overlap = (self.end - self.at).min(length as u64 + self.overlap) as usize;
            let read = self.source.read(at, with_overlap, self.spare.pop());
            self.limiter.take(length as u64);
            self.under_way.push_back((at, length, Box::pin(read)));
            self.at += length as u64;
        }
    }

    fn give_back(&mut self, buffer: Buffer) {
        self.spare.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::Cell, num::NonZeroUsize, rc::Rc};
    use world::{
        BlockDevice, ByteCount, Geometry, LocalFuture, Stability,
        real::{RealOptions, run},
        yield_now,
    };

    const MIB: u64 = 1 << 20;

    /// A device whose sectors store their numbers, some of them unreadable.
    struct NumberedDevice {
        sectors: u64,
        bad: Vec<u64>,
        under_way: Rc<Cell<usize>>,
        under_way_max: Rc<Cell<usize>>,
    }

    impl NumberedDevice {
        fn new(bytes: u64, bad: &[u64]) -> Self {
            Self {
                sectors: bytes / 4096,
                bad: bad.to_vec(),
                under_way: Rc::default(),
                under_way_max: Rc::default(),
            }
        }
    }

    impl BlockDevice for NumberedDevice {
        fn geometry(&self) -> Geometry {
            Geometry { size: ByteCount(self.sectors * 4096), sector: 4096 }
        }

        fn read(&self, at: ByteOffset, mut into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
            let first = at.0 / 4096;
            for (number, sector) in (first..).zip(into[0].chunks_exact_mut(4096)) {
                sector[..8].copy_from_slice(&number.to_le_bytes());
            }
            let sectors = first..first + into[0].len() as u64 / 4096;
            let is_bad = self.bad.iter().any(|bad| sectors.contains(bad));
            let under_way = Rc::clone(&self.under_way);
            under_way.set(under_way.get() + 1);
            self.under_way_max.set(self.under_way_max.get().max(under_way.get()));
            Box::pin(async move {
                yield_now().await;
                under_way.set(under_way.get() - 1);
                if is_bad { Err(IoError::new(IoErrorKind::Medium, "a bad sector")) } else { Ok(into) }
            })
        }

        fn write(&self, _: ByteOffset, _: Vec<Arc<Buffer>>, _: Stability) -> LocalFuture<IoResult<()>> {
            unreachable!("nothing is written")
        }

        fn flush(&self) -> LocalFuture<IoResult<()>> {
            unreachable!("nothing is written")
        }

        fn discard(&self, _: ByteOffset, _: ByteCount) -> LocalFuture<IoResult<()>> {
            unreachable!("nothing is written")
        }
    }

    /// The results for a device: offset, length, and the first sector's number or `None` where unreadable;
    /// and the end.
    fn told(device: NumberedDevice, most: Option<u64>) -> (Vec<(u64, usize, Option<u64>)>, u64) {
        run(1, RealOptions::default(), async |world| {
            let source = Source::of(Rc::new(device));
            let workers = Workers::new(NonZeroUsize::new(3).unwrap());
            let limiter = RateLimiter::new(&world, None, most.map(ByteCount));
            let range = 0..source.size().0;
            let plan = ReadPlan {
                source: &source,
                range,
                overlap: 0,
                unit: 8192,
                workers: &workers,
                limiter: &limiter,
            };
            let judge: ChunkCheck<u64> =
                Arc::new(|_, bytes| u64::from_le_bytes(*bytes.first_chunk().unwrap()));
            let mut told = Vec::new();
            let mut tell = |at: ByteOffset, length, part| {
                let number = match part {
                    ChunkResult::Judged(number) => Some(number),
                    ChunkResult::Unreadable(_) => None,
                };
                told.push((at.0, length, number));
            };
            let end = each_chunk(plan, judge, &mut tell).await.expect("the device is there");
            (told, end)
        })
    }

    #[test]
    fn results_are_delivered_in_file_order_whichever_worker_finishes_first() {
        let device = NumberedDevice::new(40 * MIB + 8192, &[]);
        let most = Rc::clone(&device.under_way_max);
        let (told, end) = told(device, None);
        let expected = (0..40).map(|index| (index * MIB, CHUNK_BYTES, Some(index * 256)));
        let expected: Vec<_> = expected.chain([(40 * MIB, 8192, Some(40 * 256))]).collect();
        assert_eq!((told, end), (expected, 40 * MIB + 8192));
        assert_eq!(most.get(), READS_AHEAD, "read ahead, and no further");
    }

    #[test]
    fn the_neighbours_of_an_unreadable_unit_are_checked() {
        let (told, end) = told(NumberedDevice::new(3 * MIB, &[256 + 5]), None);
        assert_eq!(end, 3 * MIB);
        let unreadable: Vec<_> = told.iter().filter(|(_, _, number)| number.is_none()).collect();
        assert_eq!(unreadable, [&(MIB + 4 * 4096, 8192, None)], "the unit with the sector");
        let judged: usize = told.iter().filter(|one| one.2.is_some()).map(|one| one.1).sum();
        assert_eq!(judged as u64, 3 * MIB - 8192);
        assert!(told.is_sorted(), "in their order");
    }

    #[test]
    fn after_a_stop_all_results_before_one_offset_were_delivered() {
        let (told, end) = told(NumberedDevice::new(40 * MIB, &[]), Some(3 * MIB));
        assert_eq!((told.len(), end), (3, 3 * MIB));
    }
}
