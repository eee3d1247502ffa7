//! Rows of the API's answers. Sizes are bytes, times are UTC as `2026-11-21T22:05:00Z`, 0 is no limit.

use super::{expected_tags::tagged, health_rows::PoolHealthRow};
use crate::{
    row_tag::row_tag,
    site::{
        changes::SiteChange,
        handle::{PoolHandle, SiteAnswer},
    },
    view::{PoolView, VolumeView},
};
use array::{
    format::{RedundancyClass, row::WriteCache},
    pool::Snapshot,
};
use axum::{http::StatusCode, response::Response};
use report::calendar::utc_time;
use serde::{Deserialize, Serialize};
use serving::pool::note::NoteStatus;
use utoipa::ToSchema;

/// A pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolRow {
    /// UUID; none for a pool that did not open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub name: String,
    /// Folder on the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    pub state: PoolState,
    /// The reason for which it is stopped, with the next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub used_bytes: u64,
    pub usable_bytes: u64,
    pub drives_in_use: usize,
    /// Its copies, and what threatens them, at most 10 s old; none for a pool that did not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<PoolHealthRow>,
    /// The change of its drives or settings that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_under_way: Option<String>,
    /// Number of volumes.
    pub volumes: usize,
    /// Orders that were done since it was opened.
    pub orders_done: u64,
    /// The order that is being done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_under_way: Option<String>,
}

/// State of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PoolState {
    Open,
    Stopped,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeEntry {
    /// UUID.
    pub id: String,
    pub name: String,
    /// Name of its pool.
    pub pool: String,
    /// UUID of its pool.
    pub pool_id: String,
    pub size_bytes: u64,
    /// Number of its present branch: another one after each rollback.
    pub branch: u32,
    pub write_cache: bool,
    /// Older data has one copy.
    pub raid0: bool,
    pub limit_bytes: u64,
    pub reserve_bytes: u64,
    pub iops_max: u32,
    pub kib_per_second_max: u32,
    /// Number of snapshots.
    pub snapshots: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Name of the volume whose rollback left it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_by: Option<String>,
    /// Name of the volume of a DR group whose replica somebody reads: this one is a clone that the server keeps for that. Lists say
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shows_replica_of: Option<String>,
    /// Of a change that was just made: what it means for clients, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A page of volumes, by pool and name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumePage {
    pub volumes: Vec<VolumeEntry>,
    /// A pool is stopped: volumes that lie in it may be missing.
    pub is_incomplete: bool,
    /// `after` of the next page; none if this is the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotRow {
    /// UUID; the same for all volumes that were snapshotted together.
    pub id: String,
    pub name: String,
    /// UUID of the volume.
    pub volume_id: String,
    /// Size of the volume at that time.
    pub size_bytes: u64,
    pub taken_at: String,
    /// A note in UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// A note that is not text, two digits a byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note_hex: Option<String>,
    /// It is part of a snapshot of several pools that is not settled, and cannot be used.
    pub is_pending: bool,
    /// With `exact_space`: what deleting this snapshot alone would free of its volume's data, as of the page's `space_as_of`;
    /// nothing if a clone or a rollback began at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaimable_bytes: Option<u64>,
}

/// A page of snapshots, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotPage {
    pub snapshots: Vec<SnapshotRow>,
    /// With `exact_space`: when it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_as_of: Option<String>,
    /// `after` of the next page; none if this is the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A rollback that was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RollbackRow {
    /// The volume as it is now.
    pub volume: VolumeEntry,
    pub size_before_bytes: u64,
    /// The volume with the state of before: roll back to it to undo this.
    pub left: String,
    /// UUID of that volume.
    pub left_id: String,
    /// iSCSI names of initiators from which the volume is withheld until they have logged out.
    pub withheld_from: Vec<String>,
    /// It is withheld from all NBD clients until they are readmitted.
    pub withheld_from_nbd: bool,
}

/// Changes of a site, or those that there would be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SitePlan {
    pub changes: Vec<SiteChange>,
    /// Pools and volumes that the file lacks: they stay.
    pub kept: Vec<String>,
    /// Parts of the file that are not served, and dangers.
    pub notes: Vec<String>,
    /// An apply waits or is under way: what it has done. Of a plan that is made beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_under_way: Option<String>,
}

impl SitePlan {
    /// The version of this plan: another one if an apply would change something else.
    pub fn tag(&self) -> String {
        row_tag(self)
    }
}

impl PoolRow {
    pub(super) fn of(pool: &PoolHandle) -> Self {
        let (view, is_running) = (pool.last_view(), pool.view().is_some());
        let PoolView { used, usable, failure, drives_in_use, orders_done, order_under_way, volumes, .. } =
            &*view;
        let panicked = (!is_running).then(|| "its thread has stopped; start the server again".to_owned());
        let reason = panicked.or_else(|| failure.clone());
        Self {
            id: Some(pool.id.to_string()),
            name: pool.name.clone(),
            folder: Some(pool.folder.display().to_string()),
            state: if reason.is_none() { PoolState::Open } else { PoolState::Stopped },
            reason,
            used_bytes: used.0,
            usable_bytes: usable.0,
            drives_in_use: *drives_in_use,
            health: view.health.as_deref().map(PoolHealthRow::of),
            change_under_way: view.change_under_way.map(str::to_owned),
            volumes: volumes.len(),
            orders_done: *orders_done,
            order_under_way: order_under_way.map(str::to_owned),
        }
    }

    /// A pool that did not open.
    pub(super) fn stopped(name: &str, reason: String) -> Self {
        Self {
            id: None,
            name: name.to_owned(),
            folder: None,
            state: PoolState::Stopped,
            reason: Some(reason),
            used_bytes: 0,
            usable_bytes: 0,
            drives_in_use: 0,
            health: None,
            change_under_way: None,
            volumes: 0,
            orders_done: 0,
            order_under_way: None,
        }
    }
}

impl VolumeEntry {
    pub(super) fn of((pool, pool_id): (&str, &str), view: &VolumeView) -> Self {
        let VolumeView { name, volume, size, branch, setting, snapshots, group, left_by } = view;
        Self {
            id: volume.to_string(),
            name: name.clone(),
            pool: pool.to_owned(),
            pool_id: pool_id.to_owned(),
            size_bytes: size.0,
            branch: *branch,
            write_cache: setting.write_cache == WriteCache::On,
            raid0: setting.class == RedundancyClass::Raid0,
            limit_bytes: setting.bounds.limit_bytes,
            reserve_bytes: setting.bounds.reserve_bytes,
            iops_max: setting.rates.iops_max,
            kib_per_second_max: setting.rates.kib_per_second_max,
            snapshots: *snapshots,
            group: group.clone(),
            left_by: left_by.clone(),
            shows_replica_of: None,
            notes: Vec::new(),
        }
    }

    /// The version of this row, as `ETag` and `If-Match` have it.
    pub fn tag(&self) -> String {
        let bare = Self { notes: Vec::new(), shows_replica_of: None, ..self.clone() };
        row_tag(&bare)
    }

    /// An answer with the row and its version.
    pub(super) fn tagged(&self, status: StatusCode) -> Response {
        tagged(status, &self.tag(), self)
    }
}

impl SnapshotRow {
    pub(super) fn of(volume_id: &str, snapshot: &Snapshot) -> Self {
        let Snapshot { name, snapshot: id, created_at, size_bytes, note, cut } = snapshot;
        let status = NoteStatus::of(name, note);
        let (note, note_hex) = status.map_or((None, None), |status| (status.note, status.note_hex));
        Self {
            id: id.to_string(),
            name: name.clone(),
            volume_id: volume_id.to_owned(),
            size_bytes: *size_bytes,
            taken_at: utc_time((created_at.0 / 1_000_000_000) as i64),
            note,
            note_hex,
            is_pending: cut.is_some(),
            reclaimable_bytes: None,
        }
    }
}

impl From<SiteAnswer> for SitePlan {
    fn from(SiteAnswer { changes, kept, notes, apply_under_way, .. }: SiteAnswer) -> Self {
        Self { changes, kept, notes, apply_under_way }
    }
}
