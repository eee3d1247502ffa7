//! The checkpoint: the tables in RAM are merged into the trees, and a replay begins after it.
//!
//! 1. Freeze: the active table, the changed rows, and the position in the log. No await in this step.
//! 2. Merge the frozen table into head and history; nodes are written beside the old ones.
//! 3. Condemn what is no longer referenced, and merge all changed rows into the catalogue.
//! 4. Flush, then write a superblock with the new roots. The checkpoint is complete.
//! 5. Condemned segments become free, once readers that began earlier are done.
//!
//! After a crash before step 4, the previous checkpoint and the log since are used. An error stops the pool,
//! since the tables in RAM and the trees may disagree; reopening restores everything that was acknowledged.

use super::{
    MapReader, Nodes, OpenSetting, Shared, TaskOwner, Throttle, UsageCounter, events::BackgroundTask,
    row_features::ROW_FEATURES,
};
use crate::{
    error::Result,
    format::{
        Checkpoint, CheckpointNumber, LogStart, Roots, RowKey, SegmentKind, SegmentNumber, Stamp,
        features::{INCOMPATIBLE_PIVOTS, INCOMPATIBLE_SCRUB},
        row::{SegmentRow, SegmentState},
    },
    log::LogWriter,
    map::{Branches, Budget, MapTable, Merge, MergeOutcome, Points, ReclaimPlan},
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes, UnderWay},
    },
    tree::Trees,
};
use std::{cell::Cell, rc::Rc, time::Duration};
use world::{BoxedFuture, Moment};

/// While hosts are idle, checkpoints continue to reclaim deleted snapshots, deleted volumes and discards at
/// this interval, or after a pause of so many times the duration of the last one.
const LEFTOVERS_EVERY: Duration = Duration::from_secs(1);
const LEFTOVERS_REST: u32 = 4;

/// The input of one checkpoint.
struct Frozen {
    number: CheckpointNumber,
    log: LogStart,
    roots: Roots,
    table: Rc<MapTable>,
    points: Rc<Points>,
    branches: Rc<Branches>,
    rows: Vec<(RowKey, Option<Vec<u8>>)>,
    /// The features that the rows need.
    row_features: u64,
    reclaim: ReclaimPlan,
    stamp_next: Stamp,
    /// Data segments all of whose moves are in the table.
    filled: Vec<SegmentNumber>,
    /// Discards and deletions applied so far.
    deletions: u64,
}

/// Makes the checkpoints of a pool.
pub(crate) struct Checkpoints {
    pub(super) shared: Rc<Shared>,
    nodes: Rc<Nodes>,
    pub(super) trees: Rc<Trees>,
    log: Rc<LogWriter>,
    usage: Rc<UsageCounter>,
    throttle: Rc<Throttle>,
    setting: OpenSetting,
    /// Held during a checkpoint.
    making: tokio::sync::Mutex<()>,
    /// Checkpoints begun since the pool was opened.
    begun: Cell<u64>,
}

/// The last checkpoint that was due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastCheckpoint {
    ended: Moment,
    took: Duration,
}

impl LastCheckpoint {
    pub fn at(moment: Moment) -> Self {
        Self { ended: moment, took: Duration::ZERO }
    }
}

impl TaskOwner for Checkpoints {
    fn shared(&self) -> &Rc<Shared> {
        &self.shared
    }
}

impl Checkpoints {
    pub fn new(
        (nodes, log): (Rc<Nodes>, Rc<LogWriter>),
        usage: &Rc<UsageCounter>,
        throttle: &Rc<Throttle>,
        setting: OpenSetting,
    ) -> Rc<Self> {
        let MapReader { shared, trees } = usage.map.clone();
        let (usage, throttle) = (Rc::clone(usage), Rc::clone(throttle));
        let (making, begun) = (Default::default(), Cell::new(0));
        Rc::new(Self { shared, nodes, trees, log, usage, throttle, setting, making, begun })
    }

    /// Blocks that one round of cleaning may move: it leaves room in the tables for hosts.
    pub fn moves_max(&self) -> usize {
        self.setting.table_entries / 2
    }

    /// Entries of the table and blocks of log that make a checkpoint due.
    pub fn thresholds(&self) -> (usize, u64) {
        (self.setting.table_entries, self.setting.log_blocks)
    }

    /// Makes a checkpoint if one is due, and updates `last`. Returns the moment at which the next one is due,
    /// unless the thresholds are passed before; `None` if nothing is unsaved.
    ///
    /// # Errors
    ///
    /// Any error of a step; the pool has stopped.
    pub async fn make_if_due(&self, last: &mut LastCheckpoint) -> Result<Option<Moment>> {
        let begun = self.shared.world.now();
        if self.is_full() || self.due(last).is_some_and(|due| due <= begun) {
            // A failure has stopped the pool; the next write returns it.
            self.make().await?;
            let ended = self.shared.world.now();
            *last = LastCheckpoint { ended, took: ended.since(begun) };
        }
        Ok(self.due(last))
    }

    fn is_full(&self) -> bool {
        let state = self.shared.state.borrow();
        let (table_entries, log_blocks) = self.thresholds();
        state.table.len() >= table_entries || state.log_blocks >= log_blocks
    }

    fn due(&self, last: &LastCheckpoint) -> Option<Moment> {
        let state = self.shared.state.borrow();
        let has_unsaved = state.log_blocks > 0 || self.shared.has_unsaved_rows.get();
        let for_unsaved = has_unsaved.then_some(last.ended + self.setting.interval);
        let for_leftovers = state.has_leftovers().then(|| {
            let when_idle = last.ended + LEFTOVERS_EVERY.max(LEFTOVERS_REST * last.took);
            let idle_from = self.throttle.idle_from();
            idle_from.max(when_idle).min(last.ended + self.setting.interval)
        });
        for_unsaved.into_iter().chain(for_leftovers).min()
    }

    /// Makes a checkpoint of everything applied so far. The caller stays until its end.
    ///
    /// # Errors
    ///
    /// Any error of a step; the pool has stopped.
    pub async fn make(&self) -> Result<()> {
        let _one_at_a_time = self.making.lock().await;
        self.make_alone().await
    }

    /// As [`Self::make`], for a caller that may be dropped.
    pub async fn make_to_its_end(self: &Rc<Self>) -> Result<()> {
        let checkpoints = Rc::clone(self);
        self.to_its_end(async move { checkpoints.make().await }).await
    }

    /// As [`Self::make_to_its_end`], but does nothing if another caller began one after this call.
    pub async fn make_of_now(self: &Rc<Self>) -> Result<()> {
        let (checkpoints, begun) = (Rc::clone(self), self.begun.get());
        let work = async move {
            let _one_at_a_time = checkpoints.making.lock().await;
            match checkpoints.begun.get() > begun {
                true => checkpoints.shared.check_runs(),
                false => checkpoints.make_alone().await,
            }
        };
        self.to_its_end(work).await
    }

    /// Does work on checkpoints whether the caller is still there or not: a client may be gone, and a line lost. Half a
    /// checkpoint leaves the tables as no other one can begin.
    async fn to_its_end(&self, work: impl Future<Output = Result<()>> + 'static) -> Result<()> {
        self.shared.world.spawn("a checkpoint", work).await
    }

    async fn make_alone(&self) -> Result<()> {
        self.shared.check_runs()?;
        let done = self.run().await;
        match &done {
            Err(error) if self.shared.check_runs().is_ok() => {
                self.shared.events.report_failure(BackgroundTask::Checkpoint, error, false);
                self.shared.stop(error);
            }
            _ => {}
        }
        done
    }

    fn run(&self) -> BoxedFuture<'_, Result<()>> {
        Box::pin(self.run_phases())
    }

    async fn run_phases(&self) -> Result<()> {
        self.begun.set(self.begun.get() + 1);
        self.nodes.leave_degraded();
        let frozen = self.freeze();
        let mut under_way = UnderWay::begin(Sometimes::CutWhileMerging);
        let at_once = self.setting.reclaimed_at_once;
        let merge = Merge {
            checkpoint: frozen.number,
            frozen: &frozen.table,
            roots: frozen.roots,
            points: &frozen.points,
            branches: &frozen.branches,
            reclaim: &frozen.reclaim,
            // Reclaiming is deferrable, so it is done in parts.
            budget: Budget { discarded: 4 * at_once, reclaimed: at_once },
            stamp_next: frozen.stamp_next,
        };
        let mut merged = merge.run(&self.trees).await?;
        merged.roots = self.clean_nodes(frozen.number, merged.roots).await?;
        let roots = merged.roots;
        self.adopt(merged, frozen.deletions);
        let rows = self.rows_for(&frozen);
        if canary::is(Canary::SegmentReusedBeforeCheckpoint) {
            self.release(frozen.number);
        }
        under_way.goes_on(Sometimes::CutWhileMergingRows);
        let catalogue = self.trees.merge_rows(frozen.number, roots.catalogue, rows).await?;
        self.shared.state.borrow_mut().roots.catalogue = catalogue;
        self.trees.forget_replaced();
        under_way.goes_on(Sometimes::CutWhileFlushing);
        self.nodes.flush().await?;
        under_way.goes_on(Sometimes::CutWhilePublishing);
        self.publish_checkpoint(&frozen, Roots { catalogue, ..roots }).await?;
        under_way.end();
        self.shared.state.borrow_mut().checkpoint = frozen.number;
        sometimes::reached_if(self.shared.state.borrow().log_blocks > 0, Sometimes::TakenMeanwhile);
        self.release(frozen.number);
        self.shared.note_checkpoint();
        Ok(())
    }

    /// Frees segments that checkpoints up to `complete` do not need, except those that a reader may still
    /// use.
    fn release(&self, complete: CheckpointNumber) {
        let oldest_reader = self.shared.readers.oldest().filter(|_| !canary::is(Canary::ReadersNotWaitedFor));
        self.shared.state.borrow_mut().segments.release(complete, oldest_reader);
        self.shared.demand.note_change();
    }

    /// Frees segments whose readers are done. True if readers still hold others.
    pub fn release_held(&self) -> bool {
        let complete = self.shared.state.borrow().checkpoint;
        self.release(complete);
        self.shared.state.borrow().segments.is_held(complete)
    }

    fn freeze(&self) -> Frozen {
        self.shared.has_unsaved_rows.set(false);
        let mut state = self.shared.state.borrow_mut();
        assert!(state.merging.is_none(), "one checkpoint is made at a time");
        let table = Rc::new(std::mem::take(&mut state.table));
        state.merging = Some(Rc::clone(&table));
        state.log_blocks = 0;
        Frozen {
            number: CheckpointNumber(state.checkpoint.0 + 1),
            log: state.log_taken.clone(),
            roots: state.roots,
            table,
            points: Rc::clone(state.catalogue.points()),
            branches: Rc::clone(state.catalogue.branches()),
            rows: state.catalogue.take_changes(),
            row_features: state.catalogue.features_needed(),
            reclaim: state.reclaim.begin(),
            stamp_next: state.stamp_next,
            filled: std::mem::take(&mut state.filled),
            deletions: state.deletions_taken,
        }
    }

    /// Replaces the frozen table by the merged trees.
    fn adopt(&self, merged: MergeOutcome, deletions: u64) {
        let span = self.shared.space().near();
        let mut state = self.shared.state.borrow_mut();
        state.roots = merged.roots;
        state.merging = None;
        state.deletions_merged = deletions;
        state.catalogue.set_discards(&merged.unfinished);
        state.table.set_unfinished(&merged.unfinished);
        self.usage.merged(&merged.live);
        merged.dead.iter().for_each(|&location| state.reverse_map.remove(location));
        state.segments.note_heat(span);
        for (segment, grains) in merged.live.iter() {
            state.segments.add_live(segment, grains);
        }
        for (branch, point) in state.reclaim.finish(merged.reclaimed) {
            state.catalogue.forget(branch, point);
        }
        state.catalogue.forget_volumes();
        state.catalogue.forget_groups();
        self.shared.demand.note_change();
    }

    /// A replay begins in segment `first` from now on: only pins keep segments of the log before it.
    fn leave_log_before(&self, first: SegmentNumber) {
        let in_use = self.log.segments_in_use();
        {
            let mut state = self.shared.state.borrow_mut();
            let before = state.log_segments.iter().position(|&number| number == first);
            state.log_segments.drain(..before.unwrap_or(0));
            let behind =
                state.log_segments.iter().skip_while(|number| **number != state.log_taken.segment.number);
            sometimes::reached_if(behind.count() > 2, Sometimes::PassedSegmentKept);
            let kept: Vec<SegmentNumber> = state.log_segments.iter().copied().chain(in_use).collect();
            let is_left = |number, row: &SegmentRow| {
                row.kind == SegmentKind::Log && row.state == SegmentState::Open && !kept.contains(&number)
            };
            let left = state.segments.iter().filter(|&(number, row)| is_left(number, row));
            let left: Vec<SegmentNumber> = left.map(|(number, _)| number).collect();
            left.into_iter().for_each(|number| state.segments.seal(number));
        }
        self.shared.give_up_pins_if_short();
        self.shared.subscribers.pins.trim(&self.shared.state.borrow().log_segments);
    }

    /// Condemns unreferenced segments. Returns all rows to merge into the catalogue.
    fn rows_for(&self, frozen: &Frozen) -> Vec<(RowKey, Option<Vec<u8>>)> {
        self.leave_log_before(frozen.log.segment.number);
        frozen.filled.iter().for_each(|&number| self.shared.state.borrow_mut().segments.seal(number));
        let idle = self.shared.idle_segments();
        let mut state = self.shared.state.borrow_mut();
        state.reverse_map.forget(&idle);
        idle.into_iter().for_each(|number| state.segments.condemn(number, frozen.number));
        let segments = state.segments.take_changes().into_iter();
        let segments = segments.map(|(number, row)| {
            let row = row.map(|row| {
                if self.nodes.is_of_catalogue(number) { SegmentRow { live_grains: 0, ..row } } else { row }
            });
            (RowKey::of_segment(number), row.map(|row| row.encode()))
        });
        let segments: Vec<_> = segments.collect();
        let discards = state.catalogue.take_discard_changes();
        let mut rows: Vec<_> = frozen.rows.iter().cloned().chain(segments).chain(discards).collect();
        rows.sort_by_key(|(key, _)| *key);
        rows
    }

    async fn publish_checkpoint(&self, frozen: &Frozen, roots: Roots) -> Result<()> {
        let (number, log) = (frozen.number, frozen.log.clone());
        let catalogue_segments = self.nodes.catalogue_segments();
        let (stamp_next, segment_use_next) = {
            let state = self.shared.state.borrow();
            (state.stamp_next, state.segments.use_next())
        };
        assert!(self.log.has_stable_header(&log.segment), "a replay begins behind a header that is there");
        let tail = self.log.tail();
        let is_too_far = canary::is(Canary::CheckpointTooFar);
        let log = if is_too_far { self.shared.state.borrow().log_taken.clone() } else { log };
        let checkpoint = Checkpoint {
            pool: self.shared.pool,
            number,
            incarnation: tail.incarnation,
            log,
            acknowledged_below: tail.acknowledged_below(),
            position_next: tail.position_next(),
            stamp_next,
            segment_use_next,
            fence: tail.fence,
            written_at: self.shared.wall_now(),
            roots,
            catalogue_segments,
        };
        let has_history = checkpoint.roots.history.is_some();
        let has_scrub = self.shared.state.borrow().catalogue.scrub().is_some();
        self.shared
            .publish(|superblock| {
                superblock.checkpoint = checkpoint;
                if has_history {
                    superblock.features.incompatible |= INCOMPATIBLE_PIVOTS;
                }
                if has_scrub {
                    superblock.features.incompatible |= INCOMPATIBLE_SCRUB;
                }
                superblock.features.incompatible &= !ROW_FEATURES;
                let needed = frozen.row_features | self.shared.row_features_needed(superblock);
                superblock.features.incompatible |= needed;
            })
            .await
    }
}
