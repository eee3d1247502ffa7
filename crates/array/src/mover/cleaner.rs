//! Cleaning: the live blocks of several partly dead segments are moved into fewer segments, so that the
//! victims become free.
//!
//! A round first destages blocks of raid0 volumes (`destage`), which frees the most room for the least work.
//!
//! It reads several victims concurrently and fills one target segment after another with their live blocks.
//! The next checkpoint makes the moves count; until then targets and victims both occupy segments.

use super::{
    Mover,
    data_segment::DataSegment,
    victim::{LiveBlocks, PIECES_WAITING_MAX, Selection, VICTIMS_AT_ONCE},
};
use crate::{
    engine::Permit,
    error::{Error, Result},
    format::{BlockLocation, BranchNumber, Move, RedundancyClass, RowKey, SegmentNumber, SegmentUse},
    log::LogItem,
    simulation::sometimes::{self, Sometimes, UnderWay},
};
use futures_util::{StreamExt, TryStreamExt, future::join3, stream};
use std::cell::{Cell, RefCell};
use tokio::sync::mpsc;

/// Result of a round of cleaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleaningResult {
    /// Segments that the next checkpoint frees.
    pub segments: u64,
    /// Blocks that were moved.
    pub blocks: u64,
}

/// Full segments that wait to be sealed, at most.
const SEGMENTS_WAITING_MAX: usize = 1;

/// Segments sealed at the same time: each waits for its writes, a flush and a record of the log.
const SEALED_AT_ONCE: usize = 4;

/// A full segment, and the moves into it.
type FullSegment = (DataSegment, Vec<Move>);

/// The segment under construction for blocks of each class, and the moves into it.
#[derive(Default)]
struct Targets([Option<FullSegment>; 2]);

impl Targets {
    fn of(&mut self, class: RedundancyClass) -> &mut Option<FullSegment> {
        &mut self.0[usize::from(class == RedundancyClass::Raid0)]
    }
}

impl Mover {
    /// Runs one round of cleaning. `None` if no segment can be gained.
    ///
    /// # Errors
    ///
    /// A block of a victim cannot be read, or no segment can be written. No data is lost.
    pub async fn clean(&self) -> Result<Option<CleaningResult>> {
        let _one_round_at_a_time = self.cleaning.lock().await;
        self.shared.check_runs()?;
        if let Some(done) = self.destage_round(SegmentUse(u64::MAX), 1).await? {
            return Ok(Some(done));
        }
        let victims = self.victims();
        if victims.len() < 2 {
            return Ok(None);
        }
        self.empty(&victims, Selection::All).await.map(Some)
    }

    /// Moves the live blocks of `victims`, or those that `selection` selects, into new segments.
    pub(super) async fn empty(
        &self,
        victims: &[SegmentNumber],
        selection: Selection,
    ) -> Result<CleaningResult> {
        let under_way = UnderWay::begin(Sometimes::CutWhileCleaning);
        let begun = self.shared.world.now();
        let (pieces, waiting) = mpsc::channel(PIECES_WAITING_MAX);
        let emptied = Cell::new(0);
        let reading = async {
            // Dropped with this future: the receiver ends after the last piece.
            let pieces = pieces;
            let victims = stream::iter(victims.iter().map(Ok::<_, Error>));
            let read = victims.try_for_each_concurrent(VICTIMS_AT_ONCE, async |&victim| {
                let is_emptied = self.read_victim(victim, selection, &pieces).await?;
                emptied.set(emptied.get() + u64::from(is_emptied));
                Ok(())
            });
            read.await
        };
        let (full, finishing) = mpsc::channel(SEGMENTS_WAITING_MAX);
        // None of the three is dropped midway: if one fails, its channels close and the others end.
        let (read, filled, finished) =
            join3(reading, self.fill_segments(waiting, full), self.finish_segments(finishing)).await;
        finished?;
        let blocks = filled?;
        read?;
        under_way.end();
        let took = self.shared.world.now().since(begun);
        self.moving_rate.update(|rate| rate.after(blocks, took));
        sometimes::reached(Sometimes::SegmentsCleaned);
        Ok(CleaningResult { segments: emptied.get(), blocks })
    }

    /// True if a round of cleaning may gain segments.
    pub(crate) fn can_be_cleaned(&self) -> bool {
        !self.victims().is_empty() || self.has_destage_victims()
    }

    pub(super) fn has_destage_victims(&self) -> bool {
        !self.destage_victims(SegmentUse(u64::MAX)).is_empty()
    }

    /// A permit to read or write one piece. The urgency is looked up each time, as it changes during a round.
    pub(super) async fn cleaning_permit(&self) -> Result<Permit> {
        self.throttle.permit(self.shared.space().cleaning_urgency()).await
    }

    pub(super) fn class_of(&self, branch: BranchNumber) -> RedundancyClass {
        self.shared.state.borrow().catalogue.class_of(branch)
    }

    /// Writes the pieces into segments, one after another. Returns the number of blocks.
    async fn fill_segments(
        &self,
        pieces: mpsc::Receiver<LiveBlocks>,
        full: mpsc::Sender<FullSegment>,
    ) -> Result<u64> {
        let mut targets = Targets::default();
        let filled = self.fill(&mut targets, pieces, full).await;
        for (left, _) in targets.0.into_iter().flatten() {
            self.give_up(left).await;
        }
        filled
    }

    async fn fill(
        &self,
        targets: &mut Targets,
        mut pieces: mpsc::Receiver<LiveBlocks>,
        full: mpsc::Sender<FullSegment>,
    ) -> Result<u64> {
        let mut blocks = 0;
        while let Some(piece) = pieces.recv().await {
            for (alive, data) in piece {
                let class = self.class_of(alive.key.branch);
                let target = targets.of(class);
                let (into, moves) = match target {
                    Some(target) => target,
                    None => target.insert((DataSegment::begin(self, class)?, Vec::new())),
                };
                let at = into.add(self, alive.key, data, alive.checksum).await?;
                moves.push(Move {
                    key: alive.key,
                    from: BlockLocation::plain(alive.victim, alive.at.first_grain()),
                    to: BlockLocation::plain(into.segment.number, at.first_grain()),
                    checksum: alive.checksum,
                });
                blocks += 1;
                if let Some(is_full) = target.take_if(|(target, _)| !target.has_room()) {
                    self.hand_on(is_full, &full).await?;
                }
            }
        }
        for last in &mut targets.0 {
            if let Some(last) = last.take() {
                self.hand_on(last, &full).await?;
            }
        }
        Ok(blocks)
    }

    /// Passes a full segment on to be sealed.
    async fn hand_on(&self, target: FullSegment, full: &mpsc::Sender<FullSegment>) -> Result<()> {
        let Err(refused) = full.send(target).await else { return Ok(()) };
        self.give_up(refused.0.0).await;
        Err(Error::Stopped("what was moved cannot be finished".to_owned()))
    }

    /// Seals full segments while others are filled. After a failure all others are given up.
    async fn finish_segments(&self, waiting: mpsc::Receiver<FullSegment>) -> Result<()> {
        let failure: RefCell<Option<Error>> = RefCell::default();
        let segments = stream::unfold(waiting, async |mut waiting| {
            if failure.borrow().is_some() {
                waiting.close();
            }
            let full = waiting.recv().await?;
            Some((full, waiting))
        });
        // None is dropped midway, as its slots would be used again while they are written.
        let finish = async |(full, moves): FullSegment| {
            if failure.borrow().is_some() {
                self.give_up(full).await;
            } else if let Err(error) = self.finish_segment(full, moves).await {
                failure.borrow_mut().get_or_insert(error);
            }
        };
        segments.for_each_concurrent(SEALED_AT_ONCE, finish).await;
        failure.into_inner().map_or(Ok(()), Err)
    }

    /// Makes a segment stable, then logs its row and its moves.
    async fn finish_segment(&self, mut full: DataSegment, moves: Vec<Move>) -> Result<()> {
        let number = full.segment.number;
        if let Err(error) = full.seal(self).await {
            self.give_up(full).await;
            return Err(error);
        }
        let row = self.shared.state.borrow().segments.row(number).expect("it was allocated").encode();
        let announced = LogItem::Put { row: RowKey::of_segment(number), bytes: row };
        let parts = std::iter::once(announced).chain(moves.into_iter().map(LogItem::Move)).collect();
        self.log.append(parts).await?;
        self.shared.state.borrow_mut().filled.push(number);
        Ok(())
    }

    /// Gives up a segment that nothing refers to: the next checkpoint frees it.
    async fn give_up(&self, mut target: DataSegment) {
        sometimes::reached(Sometimes::TargetGivenUp);
        target.abandon().await;
        self.shared.state.borrow_mut().segments.seal(target.segment.number);
    }
}
