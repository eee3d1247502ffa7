//! A round of schedules in one pool: one order, which decides by the pool's own snapshots.

use crate::pool_thread::ServedPool;
use array::{
    format::{VolumeId, record::ENTRIES_MAX},
    pool::Snapshot,
};
use protect::{ScheduleMark, SnapshotSchedule, UnixSecond};
use report::Refusal;
use serving::pool::volume_change::{VolumeChange, VolumeRef, perform};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// Snapshots that a round prunes for one schedule; then other orders go first.
pub(crate) const PRUNED_AT_ONCE: usize = 64;

/// A schedule's part of a round.
#[derive(Clone, Debug)]
pub(crate) struct ScheduleRound {
    pub name: String,
    pub schedule: SnapshotSchedule,
    /// With their names.
    pub volumes: BTreeMap<VolumeId, String>,
}

/// The order to a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolRound {
    pub schedules: Vec<ScheduleRound>,
    /// Schedules and volumes of the site file, if the snapshots of others are to be looked for.
    pub known: Option<BTreeSet<(String, VolumeId)>>,
}

/// Answer of one schedule.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScheduleAnswer {
    pub name: String,
    /// Time of the last snapshot of each volume.
    pub lasts: BTreeMap<VolumeId, Option<UnixSecond>>,
    /// Number of its own snapshots of each volume, and of times since the oldest at which none was taken.
    pub counts: BTreeMap<VolumeId, (usize, u64)>,
    /// Names of the snapshots that were taken.
    pub taken: Vec<String>,
    /// One was due, and was not taken.
    pub failure: Option<Refusal>,
    /// Snapshots that are too many and were not pruned, with the reasons.
    pub left: BTreeMap<String, Refusal>,
    /// More is to be pruned.
    pub has_more: bool,
}

/// Answer of a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundAnswer {
    pub schedules: Vec<ScheduleAnswer>,
    /// Number of snapshots of each schedule that the site file does not have for their volumes.
    pub strays: BTreeMap<String, usize>,
    pub strays_were_sought: bool,
}

/// Does a round.
pub(crate) async fn perform_round(pool: Rc<ServedPool>, round: PoolRound) -> RoundAnswer {
    let mut answer = RoundAnswer::default();
    for schedule in &round.schedules {
        answer.schedules.push(perform_schedule(&pool, schedule).await);
    }
    if let Some(known) = &round.known {
        answer.strays = strays(&pool, known).await;
        answer.strays_were_sought = true;
    }
    answer
}

async fn perform_schedule(pool: &ServedPool, round: &ScheduleRound) -> ScheduleAnswer {
    let mark = ScheduleMark { schedule: &round.name };
    let mut answer = ScheduleAnswer { name: round.name.clone(), ..ScheduleAnswer::default() };
    let now = UnixSecond(pool.world.wall().seconds);
    let mut due = Vec::new();
    for &volume in round.volumes.keys() {
        // One that is gone meanwhile is missing in the next view.
        let Ok(snapshots) = pool.pool.snapshots(volume) else { continue };
        if round.schedule.is_due(last_of(&own(&mark, snapshots)), now) {
            due.push(volume);
        }
        pool.world.yield_now().await;
    }
    // More than a snapshot can have are taken one after the other.
    for volumes in due.chunks(ENTRIES_MAX) {
        match take(pool, &mark, volumes, now).await {
            Ok(name) => answer.taken.push(name),
            Err(refusal) => answer.failure = Some(refusal),
        }
    }
    let mut room = PRUNED_AT_ONCE;
    for &volume in round.volumes.keys() {
        prune(pool, round, volume, &mut room, &mut answer).await;
        if let Ok(snapshots) = pool.pool.snapshots(volume) {
            let own = own(&mark, snapshots);
            answer.lasts.insert(volume, last_of(&own));
            let taken: Vec<UnixSecond> = own.iter().map(taken_at).collect();
            answer.counts.insert(volume, (own.len(), round.schedule.missed(&taken)));
        }
    }
    if !answer.taken.is_empty() || room < PRUNED_AT_ONCE {
        pool.show_changes();
    }
    answer
}

/// Takes one snapshot of all the volumes, and returns its name.
async fn take(
    pool: &ServedPool,
    mark: &ScheduleMark<'_>,
    volumes: &[VolumeId],
    now: UnixSecond,
) -> Result<String, Refusal> {
    let mut names = BTreeSet::new();
    for &volume in volumes {
        let snapshots = pool.pool.snapshots(volume).unwrap_or_default();
        names.extend(snapshots.into_iter().map(|snapshot| snapshot.name));
    }
    let name = mark.free_name(now, |name| names.contains(name));
    let volumes = volumes.iter().map(|&volume| VolumeRef::Id(volume)).collect();
    let change = VolumeChange::Snapshot { volumes, name: name.clone(), note: mark.note() };
    perform(&change, &pool.exports.changeable()).await?;
    Ok(name)
}

/// Prunes the oldest of a volume's own snapshots, `room` at most.
async fn prune(
    pool: &ServedPool,
    round: &ScheduleRound,
    volume: VolumeId,
    room: &mut usize,
    answer: &mut ScheduleAnswer,
) {
    // A stopped pool has said why, and deletes nothing.
    if pool.pool.failure().is_some() {
        return;
    }
    let mark = ScheduleMark { schedule: &round.name };
    let own = own(&mark, pool.pool.snapshots(volume).unwrap_or_default());
    let surplus = round.schedule.surplus(own.len());
    for snapshot in own.into_iter().take(surplus) {
        if *room == 0 {
            answer.has_more = true;
            return;
        }
        let change =
            VolumeChange::DeleteSnapshot { volume: volume.into(), snapshot: snapshot.snapshot.into() };
        match perform(&change, &pool.exports.changeable()).await {
            Ok(_) => *room -= 1,
            Err(refusal) => {
                drop(answer.left.insert(format!("{}@{}", round.volumes[&volume], snapshot.name), refusal))
            }
        }
    }
}

/// A schedule's own snapshots, in the order in which they were taken.
fn own(mark: &ScheduleMark<'_>, snapshots: Vec<Snapshot>) -> Vec<Snapshot> {
    snapshots.into_iter().filter(|snapshot| mark.is_on(&snapshot.note)).collect()
}

fn last_of(own: &[Snapshot]) -> Option<UnixSecond> {
    own.last().map(taken_at)
}

fn taken_at(snapshot: &Snapshot) -> UnixSecond {
    UnixSecond((snapshot.created_at.0 / 1_000_000_000) as i64)
}

/// Counts the snapshots of schedules and volumes that are not `known`, by schedule.
async fn strays(pool: &ServedPool, known: &BTreeSet<(String, VolumeId)>) -> BTreeMap<String, usize> {
    let mut strays = BTreeMap::new();
    for volume in pool.pool.volumes() {
        for snapshot in pool.pool.snapshots(volume.volume).unwrap_or_default() {
            let Some(mark) = ScheduleMark::of_note(&snapshot.note) else { continue };
            let key = (mark.schedule.to_owned(), volume.volume);
            if !known.contains(&key) {
                *strays.entry(key.0).or_insert(0) += 1;
            }
        }
        pool.world.yield_now().await;
    }
    strays
}
