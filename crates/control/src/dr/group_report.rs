//! Figures of a DR group for people: since when it is as it is, what was sent, and what a merge has left to do.
//!
//! Invariants:
//!
//! 1. Nothing is decided by them.
//! 2. Times are of this server: what began before its start is since its first look.

use super::{
    group_view::{DrGroupView, DrRole},
    held_views::HeldDrSnapshot,
};
use replication::{
    merge_gate::MergeStandstill,
    merge_plan::MergePlan,
    secondary::ForkVolume,
    session::{ReplicationMode, SuspensionReason},
    transfer_meter::TransferMeter,
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    time::Duration,
};
use world::{Moment, WallTime};

/// Times at which the rate of a merge is looked at: it is that of the last ten seconds.
const RATE_EVERY: Duration = Duration::from_secs(1);
const RATE_LOOKS: usize = 11;
/// The other site says what it is about to send: a time beyond this is none that anybody waits for.
const TIME_LEFT_MAX: Duration = Duration::from_secs(365 * 86_400);

/// Beside its state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrGroupReport {
    /// In sync mode: hosts have been answered without the peer since then.
    pub alone_since: Option<WallTime>,
    /// Of a primary: hosts have not been served since then.
    pub unserved_since: Option<WallTime>,
    /// This side sends or gets a first copy, and the secondary does not have it whole yet.
    pub is_first_copy_lacking: bool,
    pub merge: Option<DrMerge>,
    pub last_merge: Option<EndedDrMerge>,
    /// Of a primary: log that is kept for the peer, in bytes. `None` if it became too much: passes find in the map what the
    /// peer lacks.
    pub kept_log_bytes: Option<u64>,
    /// Bytes of blocks since the pool was opened, in both roles.
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Of a secondary: the last time at which its primary said how it is.
    pub last_word: Option<WallTime>,
    /// Volumes with what this side once gave up, until they are deleted.
    pub forks: Vec<ForkVolume>,
    /// Of a secondary: locked snapshots that its primary has deleted.
    pub held: Vec<HeldDrSnapshot>,
    /// Of a primary that sends nothing to its peer.
    pub suspended: Option<(SuspensionReason, WallTime)>,
    /// Of a secondary: when the primary said last that it is suspended, or this side that it has no room, and the words.
    pub stopped: Option<(WallTime, String)>,
    /// The rule for its passes as primary.
    pub merge_plan: MergePlan,
    /// The reason for which the next pass does not begin, or the one under way stands still.
    pub standstill: Option<MergeStandstill>,
}

/// Passes that bring one side what it lacks, until the stream goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct DrMerge {
    pub is_first_copy: bool,
    pub since: WallTime,
    /// Bytes of all its passes so far.
    pub done_bytes: u64,
    /// Of the pass under way. What hosts write meanwhile is the next one.
    pub remaining_bytes: u64,
    /// Bytes a second in the last seconds; 0 before it is known.
    pub rate: u64,
}

/// A merge that has come to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedDrMerge {
    /// Counted up from the opening of the pool.
    pub number: u64,
    pub is_first_copy: bool,
    pub bytes: u64,
    /// Without the times at which there was no connection.
    pub took: Duration,
}

impl DrMerge {
    /// Time that the pass under way still takes at the rate of the last seconds.
    pub fn time_left(&self) -> Option<Duration> {
        let seconds = self.remaining_bytes.checked_div(self.rate)?;
        Some(Duration::from_secs(seconds).min(TIME_LEFT_MAX))
    }
}

/// Watches one group. It looks whenever the group is shown.
#[derive(Default)]
pub(super) struct GroupReporter {
    alone_since: Cell<Option<WallTime>>,
    unserved_since: Cell<Option<WallTime>>,
    merging: RefCell<Option<RunningMerge>>,
    last_merge: RefCell<Option<EndedDrMerge>>,
    /// Revision of the catalogue in which forks were looked for.
    forks: RefCell<(Option<u64>, Vec<ForkVolume>)>,
}

/// A merge from its beginning, over losses of the connection.
struct RunningMerge {
    role: DrRole,
    is_first_copy: bool,
    since: WallTime,
    bytes_before: u64,
    took: Duration,
    /// The last look, if it was under way.
    active_at: Option<Moment>,
    /// Bytes of passes at times of the last seconds.
    looks: VecDeque<(Moment, u64)>,
}

impl GroupReporter {
    /// Facts beside a view of the group, with times by both clocks.
    pub fn report(
        &self,
        (view, meter): (&DrGroupView, &TransferMeter),
        kept_log_bytes: Option<u64>,
        (now, wall): (Moment, WallTime),
    ) -> DrGroupReport {
        let since = |cell: &Cell<Option<WallTime>>, is_so: bool| {
            cell.set(is_so.then(|| cell.get().unwrap_or(wall)));
            cell.get()
        };
        let is_sync = matches!(view.mode, ReplicationMode::Sync { .. });
        let is_primary = view.role == DrRole::Primary;
        let is_first_copy_lacking = match view.role {
            DrRole::Primary => meter.is_first_copy_lacking(),
            DrRole::Secondary => !view.is_complete,
        };
        let merge = self.look_at_merge(view, meter, (now, wall));
        DrGroupReport {
            alone_since: since(&self.alone_since, is_primary && is_sync && view.is_alone),
            unserved_since: since(&self.unserved_since, is_primary && !view.serves),
            is_first_copy_lacking,
            merge,
            last_merge: self.last_merge.borrow().clone(),
            kept_log_bytes,
            sent_bytes: meter.sent_bytes(),
            received_bytes: meter.received_bytes(),
            last_word: meter.word_at().map(|at| earlier(wall, now.since(at))),
            forks: self.forks.borrow().1.clone(),
            ..DrGroupReport::default()
        }
    }

    /// Looks for forks, if the catalogue has changed.
    pub fn note_forks(&self, revision: u64, find: impl FnOnce() -> Vec<ForkVolume>) {
        let mut known = self.forks.borrow_mut();
        if known.0 != Some(revision) {
            *known = (Some(revision), find());
        }
    }

    fn look_at_merge(
        &self,
        view: &DrGroupView,
        meter: &TransferMeter,
        (now, wall): (Moment, WallTime),
    ) -> Option<DrMerge> {
        let mut merging = self.merging.borrow_mut();
        let is_under_way = matches!(view.state, "merging" | "first copy" | "fetching what was lost here");
        let has_ended = matches!(view.state, "streaming" | "following" | "waiting");
        let pass = meter.pass();
        if is_under_way && merging.as_ref().is_none_or(|merge| merge.role != view.role) {
            // It may have begun since the last look.
            let begun_bytes = pass.map_or(0, |pass| pass.done_bytes);
            *merging = Some(RunningMerge {
                role: view.role,
                is_first_copy: false,
                since: wall,
                bytes_before: meter.pass_bytes() - begun_bytes,
                took: Duration::ZERO,
                active_at: None,
                looks: VecDeque::new(),
            });
        }
        let merge = merging.as_mut()?;
        if let Some(last) = merge.active_at.take() {
            merge.took += now.since(last);
        }
        let done_bytes = meter.pass_bytes() - merge.bytes_before;
        if has_ended {
            let before = self.last_merge.borrow().as_ref().map_or(0, |last| last.number);
            let (is_first_copy, took) = (merge.is_first_copy, merge.took);
            *merging = None;
            let ended = EndedDrMerge { number: before + 1, is_first_copy, bytes: done_bytes, took };
            // Passes by the clock are no news.
            let is_news = is_first_copy || !matches!(view.mode, ReplicationMode::Periodic { .. });
            if done_bytes > 0 && is_news {
                *self.last_merge.borrow_mut() = Some(ended);
            }
            return None;
        }
        if !is_under_way {
            merge.looks.clear();
            return None;
        }
        merge.active_at = Some(now);
        merge.is_first_copy |= view.state == "first copy" || pass.is_some_and(|pass| pass.is_first_copy);
        Some(DrMerge {
            is_first_copy: merge.is_first_copy,
            since: merge.since,
            done_bytes,
            remaining_bytes: pass.map_or(0, |pass| pass.expected_bytes.saturating_sub(pass.done_bytes)),
            rate: merge.rate(done_bytes, now),
        })
    }
}

impl RunningMerge {
    fn rate(&mut self, done_bytes: u64, now: Moment) -> u64 {
        if self.looks.back().is_none_or(|(last, _)| now.since(*last) >= RATE_EVERY) {
            self.looks.push_back((now, done_bytes));
            if self.looks.len() > RATE_LOOKS {
                self.looks.pop_front();
            }
        }
        let Some(&(first, bytes)) = self.looks.front() else { return 0 };
        let time = now.since(first).as_secs_f64();
        if time < RATE_EVERY.as_secs_f64() { 0 } else { ((done_bytes - bytes) as f64 / time) as u64 }
    }
}

fn earlier(wall: WallTime, by: Duration) -> WallTime {
    let nanos = i128::from(wall.seconds) * 1_000_000_000 + i128::from(wall.nanos) - by.as_nanos() as i128;
    WallTime {
        seconds: nanos.div_euclid(1_000_000_000) as i64,
        nanos: nanos.rem_euclid(1_000_000_000) as u32,
    }
}
