//! Large reads ahead of the judges, who work on threads of their own.
//!
//! Invariants:
//!
//! 1. What was judged is told in the order of the file, whichever thread was done first: what lies before the last
//!    thing told is done, and a later run can go on behind it.
//! 2. At most [`READS_AHEAD`] chunks are being read and [`JUDGED_AHEAD`] a thread are being judged, whatever the size
//!    of the file. Their buffers go round: memory fresh from the kernel has to be cleared first, which takes as long as a check.
//! 3. What cannot be read is told by its unit (a page, a sector), and what is around it is judged all the same.

use super::{pace::Pace, source::Source};
use std::{collections::VecDeque, future::Future, ops::Range, pin::Pin, sync::Arc};
use world::{Buffer, ByteOffset, IoError, IoErrorKind, IoResult, real::Workers};

/// Chunks being read at once.
pub const READS_AHEAD: usize = 8;
/// Chunks handed to judges at once, for each of their threads.
pub const JUDGED_AHEAD: usize = 2;
/// Bytes of a chunk.
pub const CHUNK_BYTES: usize = 1 << 20;
/// So many units that cannot be read are told one by one; then the device is taken for gone.
const UNREADABLE_MAX: u64 = 10_000;

/// What became of a part of a file.
#[derive(Debug)]
pub enum Part<T> {
    /// A judge has seen it.
    Judged(T),
    /// It could not be read, for this reason.
    Unreadable(IoError),
}

/// Where a range is read from, and how.
pub struct Plan<'a> {
    /// What to read.
    pub source: &'a Source,
    /// Which of its bytes; they begin with a sector.
    pub range: Range<u64>,
    /// Bytes behind each chunk that its judge sees too: what begins in a chunk may end in the next.
    pub overlap: usize,
    /// What is judged as one: reads that fail are tried again in such units. Chunks are whole units.
    pub unit: usize,
    /// Who judges.
    pub workers: &'a Workers,
    /// How fast.
    pub pace: &'a Pace,
}

/// Says what it makes of the bytes at an offset.
pub type Judge<T> = Arc<dyn Fn(ByteOffset, &[u8]) -> T + Send + Sync>;

type Pending<T> = Pin<Box<dyn Future<Output = T>>>;

/// Reads the range to its end, or until it is asked to stop; `tell` is told of each part in its order, where it lies,
/// and how many bytes it has. Gives the byte up to which all was told.
///
/// Fails if the device cannot be read at all any more.
pub async fn each_chunk<T: Send + 'static>(
    plan: Plan<'_>,
    judge: Judge<T>,
    tell: &mut dyn FnMut(ByteOffset, usize, Part<T>),
) -> IoResult<u64> {
    assert!(CHUNK_BYTES.is_multiple_of(plan.unit), "a chunk of whole units");
    let (workers, pace) = (plan.workers, plan.pace);
    let mut ahead = Ahead::new(&plan);
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
            // All before it is told first.
            Some((at, length, Err(error))) => (bad, room) = (Some((at, length, error)), 0),
            None => room = 0,
        }
        while judged.len() > room
            && let Some((at, work)) = judged.pop_front()
        {
            let (buffer, answer) = work.await;
            let length = buffer.len().min(CHUNK_BYTES);
            ahead.give_back(buffer);
            pace.done(length as u64);
            tell(at, length, Part::Judged(answer));
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
            pace.done(length as u64);
            told_to = at.0 + length as u64;
        }
        if is_last {
            return Ok(told_to);
        }
    }
}

/// Whether a failure is of a place on the medium, and others may be read all the same.
fn is_local(error: &IoError) -> bool {
    error.kind() == IoErrorKind::Medium
}

/// Reads again, unit by unit, what could not be read in one; gives how many units could not be.
async fn in_units<T>(
    plan: &Plan<'_>,
    at: ByteOffset,
    length: usize,
    judge: &Judge<T>,
    tell: &mut dyn FnMut(ByteOffset, usize, Part<T>),
) -> IoResult<u64> {
    let unit = plan.unit.max(plan.source.sector() as usize);
    let mut unreadable = 0;
    for start in (0..length).step_by(unit) {
        let (at, length) = (ByteOffset(at.0 + start as u64), unit.min(length - start));
        match plan.source.read(at, length, None).await {
            Ok(buffer) => tell(at, length, Part::Judged(judge(at, &buffer))),
            Err(error) if is_local(&error) => {
                unreadable += 1;
                tell(at, length, Part::Unreadable(error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(unreadable)
}

type Read = (ByteOffset, usize, Pending<IoResult<Buffer>>);

/// The chunks of a range in their order.
struct Ahead<'a> {
    source: &'a Source,
    pace: &'a Pace,
    /// Where the next read begins, and where the last ends.
    at: u64,
    end: u64,
    overlap: u64,
    under_way: VecDeque<Read>,
    spare: Vec<Buffer>,
}

impl<'a> Ahead<'a> {
    fn new(plan: &Plan<'a>) -> Self {
        let (at, end) = (plan.range.start, plan.range.end.min(plan.source.size().0));
        let (source, pace) = (plan.source, plan.pace);
        let overlap = plan.overlap as u64;
        Self { source, pace, at, end, overlap, under_way: VecDeque::new(), spare: Vec::new() }
    }

    /// The next chunk with where it lies and what it has; none at the end, or if it is to stop.
    async fn next(&mut self) -> Option<(ByteOffset, usize, IoResult<Buffer>)> {
        self.fill();
        if self.under_way.is_empty() && self.at < self.end {
            self.pace.wait().await;
            self.fill();
        }
        let (at, length, read) = self.under_way.pop_front()?;
        Some((at, length, read.await))
    }

    fn fill(&mut self) {
        while self.under_way.len() < READS_AHEAD && self.at < self.end && self.pace.allows() {
            let length = (self.end - self.at).min(CHUNK_BYTES as u64) as usize;
            let at = ByteOffset(self.at);
            let with_overlap = (self.end - self.at).min(length as u64 + self.overlap) as usize;
            let read = self.source.read(at, with_overlap, self.spare.pop());
            self.pace.take(length as u64);
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

    /// A device whose every sector says its number, and on which some cannot be read.
    struct Numbered {
        sectors: u64,
        bad: Vec<u64>,
        under_way: Rc<Cell<usize>>,
        under_way_max: Rc<Cell<usize>>,
    }

    impl Numbered {
        fn new(bytes: u64, bad: &[u64]) -> Self {
            Self {
                sectors: bytes / 4096,
                bad: bad.to_vec(),
                under_way: Rc::default(),
                under_way_max: Rc::default(),
            }
        }
    }

    impl BlockDevice for Numbered {
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
                match is_bad {
                    true => Err(IoError::new(IoErrorKind::Medium, "a bad sector")),
                    false => Ok(into),
                }
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

    /// What is told of a device: where, how long, the first sector's number or none where it cannot be read; where it ended.
    fn told(device: Numbered, most: Option<u64>) -> (Vec<(u64, usize, Option<u64>)>, u64) {
        run(1, RealOptions::default(), async |world| {
            let source = Source::of(Rc::new(device));
            let workers = Workers::new(NonZeroUsize::new(3).unwrap());
            let pace = Pace::new(&world, None, most.map(ByteCount));
            let range = 0..source.size().0;
            let plan =
                Plan { source: &source, range, overlap: 0, unit: 8192, workers: &workers, pace: &pace };
            let judge: Judge<u64> = Arc::new(|_, bytes| u64::from_le_bytes(*bytes.first_chunk().unwrap()));
            let mut told = Vec::new();
            let mut tell = |at: ByteOffset, length, part| {
                let number = match part {
                    Part::Judged(number) => Some(number),
                    Part::Unreadable(_) => None,
                };
                told.push((at.0, length, number));
            };
            let end = each_chunk(plan, judge, &mut tell).await.expect("the device is there");
            (told, end)
        })
    }

    #[test]
    fn parts_are_told_in_their_order_whoever_judges_them() {
        let device = Numbered::new(40 * MIB + 8192, &[]);
        let most = Rc::clone(&device.under_way_max);
        let (told, end) = told(device, None);
        let expected = (0..40).map(|index| (index * MIB, CHUNK_BYTES, Some(index * 256)));
        let expected: Vec<_> = expected.chain([(40 * MIB, 8192, Some(40 * 256))]).collect();
        assert_eq!((told, end), (expected, 40 * MIB + 8192));
        assert_eq!(most.get(), READS_AHEAD, "read ahead, and no further");
    }

    #[test]
    fn around_what_cannot_be_read_all_is_judged() {
        let (told, end) = told(Numbered::new(3 * MIB, &[256 + 5]), None);
        assert_eq!(end, 3 * MIB);
        let unreadable: Vec<_> = told.iter().filter(|(_, _, number)| number.is_none()).collect();
        assert_eq!(unreadable, [&(MIB + 4 * 4096, 8192, None)], "the unit with the sector");
        let judged: usize = told.iter().filter(|one| one.2.is_some()).map(|one| one.1).sum();
        assert_eq!(judged as u64, 3 * MIB - 8192);
        assert!(told.is_sorted(), "in their order");
    }

    #[test]
    fn what_was_told_when_it_is_to_stop_is_all_before_a_place() {
        let (told, end) = told(Numbered::new(40 * MIB, &[]), Some(3 * MIB));
        assert_eq!((told.len(), end), (3, 3 * MIB));
    }
}
