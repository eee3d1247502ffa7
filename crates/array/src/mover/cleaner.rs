//! Cleaning: segments that are partly dead are emptied into fewer that are full, and come free.
//!
//! Before that, blocks of raid0 volumes come to rest (`rest`): what gives room for the least.
//!
//! Victims are those with the least alive: as many as fit into one segment of data, if they are at least two; else the
//! fewest that come free for less, and others like them. What a round moved counts when the next checkpoint is made; until
//! then its segments are taken beside those of its victims, so there may be no more than half of what is free for it.

use super::{
    data_segment::DataSegment,
    pace::{LANES_MAX, Permit},
};
use crate::{
    error::{Error, Result},
    format::{
        BLOCK_GRAINS, BlockChecksum, BlockKey, BranchNumber, Location, Move, RedundancyClass, RowKey,
        SegmentBlock, SegmentKind, SegmentNumber, SegmentUse, Stored, row::SegmentState,
    },
    log::{Part, log_shape, summary_blocks},
    pool::{Pool, Purpose, StoredRun},
    simulation::sometimes::{self, Sometimes, UnderWay},
};
use futures_util::{StreamExt, stream};
use std::{pin::pin, sync::Arc};
use world::Buffer;

/// Victims of one round at most: each has to be read through.
pub(super) const VICTIMS_MAX: usize = 32;

/// Others are like a victim if they have more alive by a segment's room by this.
const ALIKE: u32 = 16;

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

/// What goes from a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    All,
    /// Blocks of raid0 volumes.
    Raid0,
}

/// The segment in the making for blocks of each class, and the moves into it.
#[derive(Default)]
struct Targets([Option<(DataSegment, Vec<Move>)>; 2]);

impl Targets {
    fn of(&mut self, class: RedundancyClass) -> &mut Option<(DataSegment, Vec<Move>)> {
        &mut self.0[usize::from(class == RedundancyClass::Raid0)]
    }
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
        if let Some(done) = self.rest_some(SegmentUse(u64::MAX), 1).await? {
            return Ok(Some(done));
        }
        let victims = self.victims();
        if victims.len() < 2 {
            return Ok(None);
        }
        self.empty(&victims, Leaving::All).await.map(Some)
    }

    /// Moves what is alive in some segments, or a part of it, to where it is to rest.
    pub(super) async fn empty(&self, victims: &[SegmentNumber], leaving: Leaving) -> Result<Cleaned> {
        let _reading = self.begin_reading();
        let under_way = UnderWay::begin(Sometimes::CutWhileCleaning);
        let mut done = Cleaned::default();
        let mut targets = Targets::default();
        for &victim in victims {
            let Some(alive) = self.read_victim(victim, leaving).await? else { continue };
            for (run, data) in alive {
                for (alive, bytes) in run.iter().zip(data.chunks_exact(crate::format::BLOCK_BYTES)) {
                    let class = self.class_of(alive.key.branch);
                    let target = targets.of(class);
                    if target.as_ref().is_some_and(|(target, _)| !target.has_room()) {
                        let (full, moves) = target.take().expect("looked at");
                        self.finish_segment(full, moves).await?;
                    }
                    let (into, moves) = match target {
                        Some(target) => target,
                        None => target.insert((DataSegment::begin(self, class)?, Vec::new())),
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
        for (target, moves) in targets.0.into_iter().flatten() {
            self.finish_segment(target, moves).await?;
        }
        under_way.end();
        sometimes::reached(Sometimes::SegmentsCleaned);
        Ok(done)
    }

    fn class_of(&self, branch: BranchNumber) -> RedundancyClass {
        self.shared.state.borrow().catalogue.class_of(branch)
    }

    /// Whether there is something to gain.
    pub(crate) fn can_be_cleaned(&self) -> bool {
        !self.victims().is_empty() || !self.not_at_rest(SegmentUse(u64::MAX)).is_empty()
    }

    /// Leave to read or write a piece. How much depends on cleaning may change from one to the next.
    pub(super) async fn cleaning_permit(&self) -> Result<Permit> {
        self.pace.permit(self.space().cleaning_urgency()).await
    }

    /// Segments to empty: mirrors, or such of one copy.
    fn victims(&self) -> Vec<SegmentNumber> {
        let mirrors = self.victims_among(true);
        if mirrors.is_empty() { self.victims_among(false) } else { mirrors }
    }

    fn victims_among(&self, mirrors: bool) -> Vec<SegmentNumber> {
        // What a round takes must be there beside what it gives back, which is more.
        let targets_max = self.space().free_for(Purpose::Upkeep).div_ceil(2);
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
                    && row.shape.is_mirror() == mirrors
                    && row.live_grains > 0
                    && self.shared.drives.copies_there(&row.slots) > 0
                    && !state.unreadable.contains(number)
            })
            .map(|(number, row)| (row.live_grains, number))
            .collect();
        candidates.sort_unstable();
        let live: Vec<u32> = candidates.iter().map(|(live, _)| *live).collect();
        let count = victims_of(&live, room_grains, u32::try_from(targets_max).unwrap_or(u32::MAX));
        candidates.into_iter().take(count).map(|(_, number)| number).collect()
    }

    /// What is alive in a victim, with its data. None: it cannot be read through, and is left as it is.
    async fn read_victim(
        &self,
        victim: SegmentNumber,
        leaving: Leaving,
    ) -> Result<Option<Vec<(Vec<Alive>, Buffer)>>> {
        let mut read = Vec::new();
        let alive = match self.alive_in(victim, leaving).await {
            Err(Error::Damaged { .. } | Error::Drive { .. } | Error::TooFewDrives { .. }) => {
                return Ok(self.set_aside(victim));
            }
            // A checkpoint found nothing alive there any more, and gave it away.
            Err(Error::NoSegment(_)) => return Ok(None),
            alive => alive?,
        };
        let reads = runs(alive).into_iter().map(async |run| {
            let permit = self.cleaning_permit().await?;
            permit.moves(run.len() * crate::format::BLOCK_BYTES);
            let data = self.shared.read_run(&stored(victim, &run)).await?;
            Ok((run, data))
        });
        let mut reads = pin!(stream::iter(reads).buffered(LANES_MAX));
        while let Some(done) = reads.next().await {
            match done {
                Err(Error::Unreadable { .. } | Error::Drive { .. } | Error::TooFewDrives { .. }) => {
                    return Ok(self.set_aside(victim));
                }
                done => read.push(done?),
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
    async fn alive_in(&self, victim: SegmentNumber, leaving: Leaving) -> Result<Vec<Alive>> {
        let mut alive = Vec::new();
        for entry in self.shared.contents_of(victim).await? {
            if leaving == Leaving::Raid0 && self.class_of(entry.key.branch) != RedundancyClass::Raid0 {
                continue;
            }
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

/// How many of the segments with the least alive are emptied, into `targets_max` at most: of `live`, which ascends.
fn victims_of(live: &[u32], room: u32, targets_max: u32) -> usize {
    let (mut sum, mut count) = (0_u64, 0);
    // The last one that had to be taken for a segment to be gained.
    let mut dearest: Option<u32> = None;
    for &alive in live.iter().take(VICTIMS_MAX) {
        let targets = (sum + u64::from(alive)).div_ceil(u64::from(room));
        let fits_into_one = sum <= u64::from(room);
        let is_worth_it = match dearest {
            // What fits into one is the cheapest there is.
            Some(dearest) => targets == 1 || (!fits_into_one && alive <= dearest + room / ALIKE),
            None => true,
        };
        if targets > u64::from(targets_max) || !is_worth_it {
            break;
        }
        sum += u64::from(alive);
        count += 1;
        if targets < count as u64 {
            dearest.get_or_insert(alive);
        }
    }
    if dearest.is_some() { count } else { 0 }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_into_one_segment_is_emptied_first() {
        assert_eq!(victims_of(&[10, 20, 30, 90], 100, 8), 3);
        assert_eq!(victims_of(&[40, 60, 61], 100, 8), 2);
    }

    #[test]
    fn where_no_two_fit_into_one_more_fit_into_fewer() {
        assert_eq!(victims_of(&[60; 3], 100, 8), 3);
        assert_eq!(victims_of(&[75; 4], 100, 8), 4);
        assert_eq!(victims_of(&[60; 100], 100, 100), VICTIMS_MAX);
        // And only those that are as good.
        assert_eq!(victims_of(&[60, 60, 60, 90, 90, 90], 100, 8), 3);
    }

    #[test]
    fn nothing_is_gained_from_full_segments_or_without_room_to_write_to() {
        assert_eq!(victims_of(&[100; 50], 100, 8), 0);
        assert_eq!(victims_of(&[75; 50], 100, 2), 0);
        assert_eq!(victims_of(&[10], 100, 8), 0);
        assert_eq!(victims_of(&[], 100, 8), 0);
    }
}
