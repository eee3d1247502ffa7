//! Health of a pool: usage and redundancy. Each change is an event.
//!
//! Segments are counted only when members change, and every second while copies are missing.

use super::snapshot_room::snapshot_room;
use crate::{
    engine::{
        Alarm, MapReader, Phase, PoolSpace, Purpose, Shared,
        events::{EventKind, RedundancyStatus},
    },
    error::Result,
    format::MemberIndex,
    redundancy::SegmentLayout,
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use world::Moment;

/// An alarm ends when usage is below its level by this, in percent of the usable space: at the level itself
/// it would begin and end with every write.
const ALARM_END_MARGIN: u64 = 1;

/// Interval of the count while copies are missing.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Interval of the count while segments lie in one failure domain, or across failure sets.
const PLACES_EVERY: Duration = Duration::from_secs(10);

/// Time limit for computing what snapshots would free, before a refusal is reported without it.
const ROOM_LOOKED_UP_WITHIN: Duration = Duration::from_secs(5);

/// Writes count as admitted again after so long without a refusal.
const REFUSAL_END: Duration = Duration::from_secs(10);

/// The state last reported.
#[derive(Clone, Debug, Default)]
struct Reported {
    alarm: Option<Alarm>,
    /// Total of refused writes at the last check.
    refused: u64,
    /// Time of the last refusal; `None` while writes are admitted.
    refusing_since: Option<Moment>,
    /// Members at the last count.
    members: Vec<MemberIndex>,
    counted_at: Moment,
    lacks_copies: bool,
    lost_raid0_segments: u64,
    /// Segments lie in one failure domain.
    shares_domains: bool,
    domains_counted_at: Moment,
    /// Segments lie across failure sets.
    spans_sets: bool,
    sets_counted_at: Moment,
}

/// Detects changes of usage and redundancy.
pub(super) struct Health {
    shared: Rc<Shared>,
    map: MapReader,
    reported: RefCell<Reported>,
}

impl Shared {
    /// Time for which drives that are away are still waited for before copies are made.
    pub fn copies_wait(&self) -> Duration {
        let now = self.world.now();
        self.absences.wait_until(now).map_or(Duration::ZERO, |until| until.since(now))
    }

    /// Data with fewer copies than configured. Reads the rows of all segments.
    pub fn redundancy(&self) -> RedundancyStatus {
        let drives = &self.drives;
        let geometry = drives.geometry();
        let mut redundancy = RedundancyStatus {
            copies: drives.copies().most() as u8,
            drives: drives.count(),
            copies_wait: self.copies_wait(),
            ..RedundancyStatus::default()
        };
        for (_, row) in self.state.borrow().segments.iter() {
            let there = drives.copies_there(&row.slots);
            let segment = SegmentLayout::of(row);
            if !segment.scheme().is_redundant() {
                redundancy.lost_raid0_segments += u64::from(segment.is_lost(there));
            } else if segment.missing(there, drives.copies().of_kind(row.kind)) > 0 {
                redundancy.segments += 1;
                redundancy.bytes += u64::from(geometry.slot_bytes);
                redundancy.single_copy_bytes += u64::from(there == 1) * u64::from(geometry.slot_bytes);
            }
        }
        redundancy
    }
}

impl Health {
    pub fn new(map: &MapReader) -> Self {
        Self { shared: Rc::clone(&map.shared), map: map.clone(), reported: RefCell::default() }
    }

    /// Reports changes since the last check.
    pub fn check(&self) {
        let space = self.shared.space();
        self.look_at_alarm(space);
        self.look_at_refusals();
        self.look_at_redundancy();
        self.look_at_domains();
        self.look_at_sets();
    }

    fn look_at_alarm(&self, space: PoolSpace) {
        let mut health = self.reported.borrow_mut();
        let (before, now) = (health.alarm, alarm_after(health.alarm, space));
        if before != now {
            health.alarm = now;
            self.shared.events.report(EventKind::Alarm { before, now, space });
        }
    }

    fn look_at_refusals(&self) {
        match self.change_of_refusals() {
            // In a task of its own: it reads, and this task must keep removing drives that do not answer.
            Some(true) if self.shared.check_runs().is_ok() => {
                let map = self.map.clone();
                drop(self.shared.world.spawn("array refusal", async move { report_refusal(&map).await }));
            }
            Some(true) => {
                let space = self.shared.space();
                self.shared.events.report(EventKind::WriteRefusal { space, snapshots: None });
            }
            Some(false) => {
                self.shared.events.report(EventKind::WriteAdmission { space: self.shared.space() })
            }
            None => {}
        }
    }

    /// The time after which the next check is due, if something is amiss.
    pub fn check_within(&self) -> Option<Duration> {
        let health = self.reported.borrow();
        let is_soon = health.lacks_copies || health.refusing_since.is_some();
        let pause = (health.shares_domains || health.spans_sets).then_some(PLACES_EVERY);
        if is_soon { Some(COUNT_EVERY) } else { pause }
    }

    /// True if writes came to be refused, false if they are admitted again, `None` for no change.
    fn change_of_refusals(&self) -> Option<bool> {
        let mut health = self.reported.borrow_mut();
        let (refused, now) = (self.shared.demand.refused(), self.shared.world.now());
        if refused > health.refused {
            health.refused = refused;
            return health.refusing_since.replace(now).is_none().then_some(true);
        }
        let have_ended = health.refusing_since.is_some_and(|since| now.since(since) > REFUSAL_END)
            && self.shared.space().free_for(Purpose::Hosts) > 0
            && !self.shared.space().is_full();
        have_ended.then(|| {
            health.refusing_since = None;
            false
        })
    }

    fn look_at_domains(&self) {
        let mut health = self.reported.borrow_mut();
        let now = self.shared.world.now();
        let is_due = now.since(health.domains_counted_at) >= PLACES_EVERY;
        if health.shares_domains && !is_due && self.shared.phase.get() != Phase::Closing {
            return;
        }
        // Without any, this reads no rows until slots are placed so.
        let segments = self.shared.segments_in_one_domain();
        let shares_domains = segments > 0;
        if shares_domains && !health.shares_domains {
            let bytes = segments * u64::from(self.shared.drives.geometry().slot_bytes);
            self.shared.events.report(EventKind::DomainsShared { segments, bytes });
        } else if health.shares_domains && !shares_domains {
            self.shared.events.report(EventKind::DomainsApart);
        }
        health.shares_domains = shares_domains;
        health.domains_counted_at = now;
    }

    fn look_at_sets(&self) {
        let mut health = self.reported.borrow_mut();
        let now = self.shared.world.now();
        let is_due = now.since(health.sets_counted_at) >= PLACES_EVERY;
        if health.spans_sets && !is_due && self.shared.phase.get() != Phase::Closing {
            return;
        }
        // Without any, this reads no rows until slots are placed so.
        let segments = self.shared.segments_across_sets();
        let spans_sets = segments > 0;
        if spans_sets && !health.spans_sets {
            let bytes = segments * u64::from(self.shared.drives.geometry().slot_bytes);
            self.shared.events.report(EventKind::SetsSpanned { segments, bytes });
        } else if health.spans_sets && !spans_sets {
            self.shared.events.report(EventKind::SetsKept);
        }
        health.spans_sets = spans_sets;
        health.sets_counted_at = now;
    }

    fn look_at_redundancy(&self) {
        let mut health = self.reported.borrow_mut();
        let (members, now) = (self.shared.drives.members(), self.shared.world.now());
        let have_changed = health.members != members;
        // A pool that is being closed has no later check.
        let is_last = self.shared.phase.get() == Phase::Closing;
        let is_due = health.lacks_copies && (is_last || now.since(health.counted_at) >= COUNT_EVERY);
        if !have_changed && !is_due {
            return;
        }
        let are_fewer = health.members.is_empty() || health.members.iter().any(|one| !members.contains(one));
        // Readers of that event wait for the end, and all copies may have been made before this look.
        let is_lost = |one: &MemberIndex| !members.contains(one) && self.shared.events.is_lost(*one);
        let has_lost = health.members.iter().any(is_lost);
        let redundancy = self.shared.redundancy();
        let lacks_copies = redundancy.segments > 0;
        let loses_raid0 = redundancy.lost_raid0_segments > health.lost_raid0_segments;
        if (lacks_copies && are_fewer) || loses_raid0 {
            self.shared.events.report(EventKind::RedundancyLoss(redundancy));
        } else if !lacks_copies && (health.lacks_copies || has_lost) {
            self.shared.events.report(EventKind::FullRedundancy(redundancy));
        }
        health.members = members;
        health.counted_at = now;
        health.lacks_copies = lacks_copies;
        health.lost_raid0_segments = redundancy.lost_raid0_segments;
    }
}

/// Reports that writes are refused, with what deleting snapshots would free, if that is found in time.
async fn report_refusal(map: &MapReader) {
    let shared = &map.shared;
    let space = shared.space();
    let deadline = shared.world.sleep(ROOM_LOOKED_UP_WITHIN);
    let snapshots = world::with_deadline(deadline, snapshot_room(map)).await.and_then(Result::ok);
    shared.events.report(EventKind::WriteRefusal { space, snapshots });
}

/// The alarm after `before` for the current usage.
fn alarm_after(before: Option<Alarm>, space: PoolSpace) -> Option<Alarm> {
    let now = space.alarm();
    let used_bytes = space.used_bytes + space.usable_bytes * ALARM_END_MARGIN / 100;
    now.max(before.min(PoolSpace { used_bytes, ..space }.alarm()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_ends_one_percent_below_its_level() {
        let space = |used_bytes| PoolSpace {
            segments: 0,
            free: 0,
            spare: 0,
            rebuild: 0,
            reserve: 0,
            usable_bytes: 1000,
            used_bytes,
        };
        let (mut alarm, mut alarms) = (None, Vec::new());
        for used in [799, 800, 799, 791, 790, 789, 905, 895, 889, 1000, 995, 985, 100] {
            alarm = alarm_after(alarm, space(used));
            alarms.push(alarm.map_or(0, |alarm| alarm as u8));
        }
        assert_eq!(alarms, [0, 80, 80, 80, 80, 0, 90, 90, 80, 100, 100, 95, 0]);
    }
}
