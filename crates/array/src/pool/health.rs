//! Health of a pool: how full it is and whether data has all of its copies. Looked at every 50 ms; a change is an event.
//!
//! Segments are counted only when drives came or went, and every second while copies are missing.

use super::{
    Alarm, Pool, Space,
    events::{EventKind, Redundancy},
};
use crate::format::MemberIndex;
use std::time::Duration;
use world::Moment;

/// An alarm ends when the pool is less full than its level by this, in percent of what is usable: at the level itself it
/// would come and go with every write.
const ALARM_END_MARGIN: u64 = 1;

/// While copies are missing they are counted so often.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// What deletions of snapshots would free is looked up for so long, before a refusal is reported without it.
const ROOM_LOOKED_UP_WITHIN: Duration = Duration::from_secs(5);

/// Writes count as admitted again when none was refused for so long.
const REFUSAL_END: Duration = Duration::from_secs(10);

/// What was last reported.
#[derive(Clone, Debug, Default)]
pub(super) struct Health {
    alarm: Option<Alarm>,
    /// Writes that had been refused for want of room.
    refused: u64,
    /// When a write was refused last; none: writes are admitted.
    refusing_since: Option<Moment>,
    /// Members when segments were counted.
    members: Vec<MemberIndex>,
    counted_at: Moment,
    lacks_copies: bool,
    lost_raid0_segments: u64,
}

impl Pool {
    /// Data that has fewer copies than the pool keeps. Reads the rows of all segments.
    pub fn redundancy(&self) -> Redundancy {
        let drives = &self.shared.drives;
        let geometry = drives.geometry();
        let mut redundancy =
            Redundancy { copies: geometry.log_copies, drives: drives.count(), ..Redundancy::default() };
        for (_, row) in self.shared.state.borrow().segments.iter() {
            let there = drives.copies_there(&row.slots);
            if !row.shape.is_mirror() {
                redundancy.lost_raid0_segments += u64::from(there < row.slots.len());
            } else if there < usize::from(geometry.log_copies) {
                redundancy.segments += 1;
                redundancy.bytes += u64::from(geometry.slot_bytes);
                redundancy.single_copy_bytes += u64::from(there == 1) * u64::from(geometry.slot_bytes);
            }
        }
        redundancy
    }

    /// Reports what changed since the last look.
    pub(super) fn look_at_health(&self) {
        let space = self.space();
        self.look_at_alarm(space);
        self.look_at_refusals();
        self.look_at_redundancy();
    }

    fn look_at_alarm(&self, space: Space) {
        let mut health = self.health.borrow_mut();
        let (before, now) = (health.alarm, alarm_after(health.alarm, space));
        if before != now {
            health.alarm = now;
            self.shared.events.report(EventKind::Alarm { before, now, space });
        }
    }

    fn look_at_refusals(&self) {
        match self.change_of_refusals() {
            // By itself: it reads, and whoever looks at health leaves drives that do not answer.
            Some(true) => match self.shared.pool_itself.borrow().upgrade() {
                Some(pool) if self.shared.check_runs().is_ok() => {
                    drop(
                        self.shared.world.spawn("array refusal", async move { pool.report_refusal().await }),
                    );
                }
                _ => self
                    .shared
                    .events
                    .report(EventKind::WriteRefusal { space: self.space(), snapshots: None }),
            },
            Some(false) => self.shared.events.report(EventKind::WriteAdmission { space: self.space() }),
            None => {}
        }
    }

    /// Reports that writes are refused, with what the deletion of snapshots would free, if that is found soon.
    async fn report_refusal(&self) {
        let space = self.space();
        let deadline = self.shared.world.sleep(ROOM_LOOKED_UP_WITHIN);
        let snapshots = world::with_deadline(deadline, self.snapshot_room()).await.and_then(Result::ok);
        self.shared.events.report(EventKind::WriteRefusal { space, snapshots });
    }

    /// Whether writes have come to be refused, or have not been for a while.
    fn change_of_refusals(&self) -> Option<bool> {
        let mut health = self.health.borrow_mut();
        let (refused, now) = (self.admission.refused(), self.shared.world.now());
        if refused > health.refused {
            health.refused = refused;
            return health.refusing_since.replace(now).is_none().then_some(true);
        }
        let have_ended = health.refusing_since.is_some_and(|since| now.since(since) > REFUSAL_END)
            && self.has_room(1)
            && !self.space().is_full();
        have_ended.then(|| {
            health.refusing_since = None;
            false
        })
    }

    fn look_at_redundancy(&self) {
        let mut health = self.health.borrow_mut();
        let (members, now) = (self.shared.drives.members(), self.shared.world.now());
        let have_changed = health.members != members;
        let is_due = health.lacks_copies && now.since(health.counted_at) >= COUNT_EVERY;
        if !have_changed && !is_due {
            return;
        }
        let are_fewer = health.members.is_empty() || health.members.iter().any(|one| !members.contains(one));
        let redundancy = self.redundancy();
        let lacks_copies = redundancy.segments > 0;
        let loses_raid0 = redundancy.lost_raid0_segments > health.lost_raid0_segments;
        if (lacks_copies && are_fewer) || loses_raid0 {
            self.shared.events.report(EventKind::RedundancyLoss(redundancy));
        } else if health.lacks_copies && !lacks_copies {
            self.shared.events.report(EventKind::FullRedundancy(redundancy));
        }
        health.members = members;
        health.counted_at = now;
        health.lacks_copies = lacks_copies;
        health.lost_raid0_segments = redundancy.lost_raid0_segments;
    }
}

/// The alarm of a pool that is so full, where there was another before.
fn alarm_after(before: Option<Alarm>, space: Space) -> Option<Alarm> {
    let now = space.alarm();
    let used_bytes = space.used_bytes + space.usable_bytes * ALARM_END_MARGIN / 100;
    now.max(before.min(Space { used_bytes, ..space }.alarm()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_ends_one_percent_below_its_level() {
        let space = |used_bytes| Space { segments: 0, free: 0, reserve: 0, usable_bytes: 1000, used_bytes };
        let (mut alarm, mut alarms) = (None, Vec::new());
        for used in [799, 800, 799, 791, 790, 789, 905, 895, 889, 1000, 995, 985, 100] {
            alarm = alarm_after(alarm, space(used));
            alarms.push(alarm.map_or(0, |alarm| alarm as u8));
        }
        assert_eq!(alarms, [0, 80, 80, 80, 80, 0, 90, 90, 80, 100, 100, 95, 0]);
    }
}
