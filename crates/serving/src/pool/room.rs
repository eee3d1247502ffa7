//! Room of a pool: what takes it, when it is full, and what would give some back.

use super::{
    growth::grown_of,
    room_history::{RoomGrowth, RoomHistory, RoomSample},
    snapshot_room::SnapshotRoomStatus,
    sparing::SparingStatus,
    status::DriveStatuses,
};
use array::{
    error::{Error, Result},
    pool::{Pool, is_incomplete_copy},
};
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, collections::BTreeMap};

/// Room of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoomStatus {
    /// Seconds since 1970, UTC.
    pub counted_unix_s: i64,
    pub usable_bytes: u64,
    pub used_bytes: u64,
    /// Over the last week; none before a day of history is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<RoomGrowth>,
    /// Begin of the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_since: Option<String>,
    /// Those that use most come first. What clones share with their sources counts there.
    pub volumes: Vec<VolumeRoom>,
    /// About: segments in use beyond the data: map, log, and overwritten blocks that cleaning frees when room is wanted.
    pub overhead_bytes: u64,
    /// Most bytes first.
    pub gains: Vec<RoomGain>,
}

/// Room that a volume uses with its snapshots and what its rollbacks left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRoom {
    pub volume: String,
    pub used_bytes: u64,
    pub snapshots: usize,
    /// The part that its snapshots keep: deleting all of them would free it.
    pub snapshots_bytes: u64,
}

/// Room that one step would give back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomGain {
    #[serde(flatten)]
    pub step: RoomStep,
    pub bytes: u64,
    /// False: at most so many.
    pub is_exact: bool,
}

/// A step that gives room back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "step")]
pub enum RoomStep {
    DeleteSnapshot {
        volume: String,
        snapshot: String,
    },
    /// Of all its snapshots together.
    DeleteSnapshots {
        volume: String,
        snapshots: usize,
    },
    /// Of one that a rollback left, or an incomplete copy.
    DeleteVolume {
        volume: String,
    },
    /// Gives up the room that is kept for lost drives.
    StopSparing,
    /// Uses all of a drive that has become larger. `drive` is its UUID.
    Grow {
        drive: String,
    },
}

impl RoomStatus {
    /// Counts the room of a pool. The first time, that reads the whole map.
    ///
    /// # Errors
    ///
    /// A part of the map cannot be read, or the pool has stopped.
    pub async fn count(
        pool: &Pool,
        (drives, history): (&DriveStatuses, &RoomHistory),
        now_unix_s: i64,
    ) -> Result<Self> {
        let rooms: Vec<_> = pool.snapshot_room().await?.iter().map(SnapshotRoomStatus::of).collect();
        let mut kept: BTreeMap<&str, u64> = BTreeMap::new();
        for room in &rooms {
            let most = kept.entry(&room.volume).or_default();
            *most = room.bytes.max(*most);
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let mut gains = Vec::new();
        let mut volumes = Vec::new();
        for info in pool.volumes() {
            let is_left = info.left_by.is_some();
            if is_left || is_incomplete_copy(&info.name) {
                // It may be gone since it was listed.
                let Some(bytes) = unless_gone(pool.deletion_bytes(info.volume).await)? else { continue };
                let step = RoomStep::DeleteVolume { volume: info.name.clone() };
                gains.push(RoomGain { step, bytes, is_exact: true });
            }
            if is_left {
                // Its room counts to the volume that was rolled back.
                continue;
            }
            let Some(used_bytes) = unless_gone(pool.used_by(info.volume).await)? else { continue };
            counts.insert(info.name.clone(), info.snapshots);
            volumes.push(VolumeRoom {
                used_bytes,
                snapshots: info.snapshots,
                snapshots_bytes: kept.get(&*info.name).copied().unwrap_or(0),
                volume: info.name,
            });
        }
        for SnapshotRoomStatus { volume, snapshot, bytes } in rooms {
            let snapshots = counts.get(&volume).copied().unwrap_or(0);
            let step = match snapshot {
                Some(snapshot) => RoomStep::DeleteSnapshot { volume, snapshot },
                None => RoomStep::DeleteSnapshots { volume, snapshots },
            };
            gains.push(RoomGain { step, bytes, is_exact: true });
        }
        let copies = u64::from(pool.redundancy().copies.max(1));
        let spared = SparingStatus::of(pool).kept_bytes;
        gains.push(RoomGain { step: RoomStep::StopSparing, bytes: spared, is_exact: false });
        gains.extend(grown_of(pool, drives).into_iter().map(|grown| RoomGain {
            step: RoomStep::Grow { drive: grown.drive },
            bytes: grown.unused_bytes / copies,
            is_exact: false,
        }));
        gains.retain(|gain| gain.bytes > 0);
        gains.sort_by_key(|gain| Reverse(gain.bytes));
        volumes.sort_by_key(|room| Reverse(room.used_bytes));
        let space = pool.space();
        let slots: u64 = pool.fills().iter().map(|fill| fill.used_bytes).sum();
        let now = RoomSample { unix_s: now_unix_s, used_bytes: space.used_bytes };
        Ok(Self {
            counted_unix_s: now_unix_s,
            usable_bytes: space.usable_bytes,
            used_bytes: space.used_bytes,
            growth: history.growth(now, space.usable_bytes),
            history_since: history.since(),
            volumes,
            overhead_bytes: (slots / copies).saturating_sub(space.used_bytes),
            gains,
        })
    }
}

/// A count of a volume; `None` if the volume is gone.
fn unless_gone(counted: Result<u64>) -> Result<Option<u64>> {
    match counted {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Error::NoVolume(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
