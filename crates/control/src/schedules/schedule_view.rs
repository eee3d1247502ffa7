//! The progress of schedules, as other threads see it.

use super::progress::{ScheduleInPool, ScheduleProgress, SeenPools};
use crate::view::VolumeView;
use array::format::VolumeId;
use protect::UnixSecond;
use std::{collections::BTreeMap, sync::Arc};
use world::WallTime;

/// A schedule in one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleView {
    /// Its name.
    pub schedule: String,
    pub pool: String,
    pub volumes: Vec<ScheduledVolume>,
    /// The reason for which none are taken or pruned now, if there is one.
    pub problem: Option<String>,
}

/// A volume in a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledVolume {
    pub volume: String,
    /// Time of the schedule's newest snapshot, if there is one.
    pub last: Option<UnixSecond>,
    /// Time of the next one; `None` while the pool has not been asked, or lacks the volume.
    pub next: Option<UnixSecond>,
    /// The schedule's own snapshots.
    pub kept: usize,
    /// Times since the oldest of them at which none was taken.
    pub missed: u64,
}

impl ScheduleProgress {
    /// All schedules in all pools, as they are known now.
    pub fn views(&self, seen: &SeenPools, wall: WallTime) -> Vec<ScheduleView> {
        let now = UnixSecond(wall.seconds);
        let mut views = Vec::new();
        let by_name = |volumes: &'_ Arc<Vec<VolumeView>>| -> BTreeMap<String, Option<VolumeId>> {
            let named = |volume: &VolumeView| {
                (volume.name.clone(), volume.left_by.is_none().then_some(volume.volume))
            };
            volumes.iter().map(named).collect()
        };
        // Of a volume that a rollback left, no identity: no schedule takes its snapshots.
        let seen: BTreeMap<&String, _> = seen.iter().map(|(pool, all)| (pool, by_name(all))).collect();
        for wanted in self.schedules.iter() {
            for (pool, names) in &wanted.volumes {
                let known = self.pools.get(pool);
                let progress = known.and_then(|known| known.schedules.get(&wanted.name));
                let ids = seen.get(pool);
                let volume = |name: &String| {
                    let id = ids.and_then(|ids| ids.get(name).copied().flatten());
                    let found = id.zip(progress).map(|(id, progress)| progress.volume(name, id, now));
                    found.unwrap_or_else(|| ScheduledVolume::unknown(name))
                };
                let volumes: Vec<_> = names.iter().map(volume).collect();
                let missing = match ids {
                    None => Some(format!("pool {pool} is not open")),
                    Some(volumes) => names
                        .iter()
                        .find(|name| !volumes.contains_key(*name))
                        .map(|name| format!("there is no volume {name}")),
                };
                let problem = known.and_then(|known| known.problem.text());
                let problem = problem.or_else(|| progress.and_then(ScheduleInPool::problem)).or(missing);
                let (schedule, pool) = (wanted.name.clone(), pool.clone());
                views.push(ScheduleView { schedule, pool, volumes, problem });
            }
        }
        views
    }
}

impl ScheduledVolume {
    fn unknown(name: &str) -> Self {
        Self { volume: name.to_owned(), last: None, next: None, kept: 0, missed: 0 }
    }
}

impl ScheduleInPool {
    fn volume(&self, name: &str, id: array::format::VolumeId, now: UnixSecond) -> ScheduledVolume {
        let Some(&last) = self.lasts.get(&id) else { return ScheduledVolume::unknown(name) };
        let (kept, missed) = self.counts.get(&id).copied().unwrap_or_default();
        let next = Some(self.schedule.due_at(last, now));
        ScheduledVolume { volume: name.to_owned(), last, next, kept, missed }
    }

    /// Snapshots that are not taken, or not pruned.
    fn problem(&self) -> Option<String> {
        let left = self.left.first().map(|name| format!("{name} is not pruned"));
        self.problem.text().or(left)
    }
}
