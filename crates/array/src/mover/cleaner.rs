//! Cleaning: segments that are mostly dead are emptied into one that is full, and come free.
//!
//! Victims are those with the least alive. A round takes as many as fit into one segment of data, and pays if they are
//! at least two; what it moved counts when the next checkpoint is made.

use super::{data_segment::DataSegment, pace::Permit};
use crate::{
    error::{Error, Result},
    format::{
        BLOCK_GRAINS, BlockChecksum, BlockKey, Location, Move, RowKey, SegmentBlock, SegmentKind,
        SegmentNumber, Stored, row::SegmentState,
    },
    log::{Part, log_shape, summary_blocks},
    pool::{Pool, StoredRun},
    simulation::sometimes::{self, Sometimes, UnderWay},
};
use std::sync::Arc;
use world::Buffer;

/// Victims of one round at most: each has to be read through.
const VICTIMS_MAX: usize = 32;

/// Blocks read at once at most.
const RUN_BLOCKS: usize = 64;

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Segments that come free with the next checkpoint.
    pub segments: u64,
    /// Blocks that were moved out of them.
    pub blocks: u64,
}

/// A block that is alive in a victim.
struct Alive {
    key: BlockKey,
    at: SegmentBlock,
    checksum: BlockChecksum,
}

impl Pool {
    /// Empties some segments into one. None: there is nothing to gain.
    ///
    /// # Errors
    ///
    /// A block of a victim cannot be read, or no segment can be written; nothing is lost by it.
    pub async fn clean(&self) -> Result<Option<Cleaned>> {
        let _one_round_at_a_time = self.cleaning.lock().await;
        self.shared.check_runs()?;
        let victims = self.victims();
        if victims.len() < 2 {
            return Ok(None);
        }
        let _reading = self.begin_reading();
        let under_way = UnderWay::begin(Sometimes::CutWhileCleaning);
        let mut done = Cleaned::default();
        let mut target: Option<DataSegment> = None;
        let mut moves = Vec::new();
        for &victim in &victims {
            let Some(alive) = self.read_victim(victim).await? else { continue };
            for (run, data) in alive {
                for (alive, bytes) in run.iter().zip(data.chunks_exact(crate::format::BLOCK_BYTES)) {
                    if target.as_ref().is_some_and(|target| !target.has_room()) {
                        let full = target.take().expect("looked at");
                        self.finish_segment(full, std::mem::take(&mut moves)).await?;
                    }
                    let into = match &mut target {
                        Some(target) => target,
                        None => target.insert(DataSegment::begin(self)?),
                    };
                    let block = Arc::new(Buffer::copy_of(bytes));
                    let at = into.add(self, alive.key, block, alive.checksum).await?;
                    moves.push(Move {
                        key: alive.key,
                        from: Location::plain(victim, alive.at.first_grain()),
                        to: Location::plain(into.segment.number, at.first_grain()),
                        checksum: alive.checksum,
                    });
                    done.blocks += 1;
                }
            }
            done.segments += 1;
        }
        if let Some(target) = target {
            self.finish_segment(target, moves).await?;
        }
        under_way.end();
        sometimes::reached(Sometimes::SegmentsCleaned);
        Ok(Some(done))
    }

    /// Leave to read or write a piece. How much depends on cleaning may change from one to the next.
    pub(super) async fn cleaning_permit(&self) -> Result<Permit> {
        self.pace.permit(self.space().cleaning_urgency()).await
    }

    /// Segments to empty: together they fit into one.
    fn victims(&self) -> Vec<SegmentNumber> {
        let state = self.shared.state.borrow();
        let geometry = self.shared.drives.geometry();
        let shape = log_shape(geometry.slot_blocks(), usize::from(geometry.log_copies));
        let room_grains = (shape.data_blocks() - summary_blocks(shape)) * BLOCK_GRAINS as u32;
        let mut candidates: Vec<(u32, SegmentNumber)> = state
            .segments
            .iter()
            .filter(|(number, row)| {
                row.state == SegmentState::Sealed
                    && row.kind != SegmentKind::Nodes
                    && row.live_grains > 0
                    && !state.unreadable.contains(number)
            })
            .map(|(number, row)| (row.live_grains, number))
            .collect();
        candidates.sort_unstable();
        let mut sum = 0;
        let fit = candidates.into_iter().take_while(|(live, _)| {
            sum += live;
            sum <= room_grains
        });
        fit.map(|(_, number)| number).take(VICTIMS_MAX).collect()
    }

    /// What is alive in a victim, with its data. None: it cannot be read through, and is left as it is.
    async fn read_victim(&self, victim: SegmentNumber) -> Result<Option<Vec<(Vec<Alive>, Buffer)>>> {
        let mut read = Vec::new();
        let alive = match self.alive_in(victim).await {
            Err(Error::Damaged { .. }) => return Ok(self.set_aside(victim)),
            alive => alive?,
        };
        for run in runs(alive) {
            let permit = self.cleaning_permit().await?;
            permit.moves(run.len() * crate::format::BLOCK_BYTES);
            match self.shared.read_run(&stored(victim, &run)).await {
                Err(Error::Unreadable { .. } | Error::Drive { .. }) => return Ok(self.set_aside(victim)),
                data => read.push((run, data?)),
            }
        }
        Ok(Some(read))
    }

    /// A segment is not cleaned again before the pool is opened the next time.
    fn set_aside<T>(&self, victim: SegmentNumber) -> Option<T> {
        sometimes::reached(Sometimes::VictimSetAside);
        self.shared.state.borrow_mut().unreadable.insert(victim);
        None
    }

    /// Blocks of a segment that the map points to there, in the order of their places.
    async fn alive_in(&self, victim: SegmentNumber) -> Result<Vec<Alive>> {
        let mut alive = Vec::new();
        for entry in self.shared.contents_of(victim).await? {
            if entry.stored != Stored::PLAIN {
                return Err(Error::NotYet("a block that is not stored plain"));
            }
            let (key, here) = (entry.key, Location::plain(victim, entry.at));
            let mapped = self.map_of(key.branch, key.block, 1, Some(key.stamp)).await?;
            let Some(mapped) = mapped[0].filter(|mapped| mapped.branch == key.branch) else { continue };
            let mapped = self.shared.state.borrow().sources().relocated(key.block, mapped);
            if mapped.version.birth == key.stamp && mapped.version.location == here {
                alive.push(Alive { key, at: entry.at.block(), checksum: entry.checksum });
            }
        }
        Ok(alive)
    }

    /// Makes a segment stable, then says in the log what lies in it now.
    async fn finish_segment(&self, mut full: DataSegment, moves: Vec<Move>) -> Result<()> {
        let number = full.segment.number;
        let sealed = full.seal(self).await;
        if let Err(error) = sealed {
            sometimes::reached(Sometimes::TargetGivenUp);
            // Nothing refers to it: it comes free with the next checkpoint.
            self.shared.state.borrow_mut().segments.seal(number);
            return Err(error);
        }
        let row = self.shared.state.borrow().segments.row(number).expect("it was allocated").encode();
        let announced = Part::Put { row: RowKey::of_segment(number), bytes: row };
        let parts = std::iter::once(announced).chain(moves.into_iter().map(Part::Move)).collect();
        self.lane.append(parts).await?;
        self.shared.state.borrow_mut().filled.push(number);
        Ok(())
    }
}

/// Blocks that lie one behind the other.
fn runs(alive: Vec<Alive>) -> Vec<Vec<Alive>> {
    let mut runs: Vec<Vec<Alive>> = Vec::new();
    for block in alive {
        match runs.last_mut() {
            Some(run) if run[0].at.0 + run.len() as u32 == block.at.0 && run.len() < RUN_BLOCKS => {
                run.push(block);
            }
            _ => runs.push(vec![block]),
        }
    }
    runs
}

fn stored(segment: SegmentNumber, run: &[Alive]) -> StoredRun {
    let blocks = run.iter().map(|alive| (alive.key, alive.checksum)).collect();
    StoredRun { segment, at: run[0].at, blocks }
}
