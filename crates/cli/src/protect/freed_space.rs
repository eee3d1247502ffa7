//! Space that the deletion of each backup of a set would free, counted in the pools.

use super::backup_points::SetPoints;
use crate::server::connection::ServerConnection;
use control::web::rows::SnapshotPage;
use report::Refusal;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use world::ByteCount;

/// Bytes of the volumes' data that go with each backup alone, by its number. Backups that go together free what only they have
/// besides.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct FreedSpace(BTreeMap<u64, u64>);

impl FreedSpace {
    /// Has the server count it for all backups of a set; it reads the maps of their volumes.
    ///
    /// # Errors
    ///
    /// It does not answer, or counts a volume for more than 30 s.
    pub async fn count(server: &ServerConnection, set: &str) -> Result<Self, Refusal> {
        let known = SetPoints::ask(server, set).await?;
        let volumes: BTreeSet<&str> =
            known.backups().flat_map(|backup| &backup.points).map(|point| point.volume_id.as_str()).collect();
        let mut by_snapshot = BTreeMap::new();
        for volume in volumes {
            by_snapshot.append(&mut of_volume(server, volume).await?);
        }
        let freed = known.backups().filter_map(|backup| {
            let points = backup.points.iter().map(|point| by_snapshot.get(&point.snapshot_id).copied());
            Some((backup.note.sequence, points.sum::<Option<u64>>()?))
        });
        Ok(Self(freed.collect()))
    }

    /// `; frees 12 MiB`; nothing if a snapshot of the backup went meanwhile.
    pub fn text(&self, number: u64) -> String {
        self.0.get(&number).map(|&bytes| format!("; frees {}", ByteCount(bytes))).unwrap_or_default()
    }
}

/// Bytes that go with each snapshot of a volume, by its UUID.
async fn of_volume(server: &ServerConnection, volume: &str) -> Result<BTreeMap<String, u64>, Refusal> {
    let (mut freed, mut after) = (BTreeMap::new(), String::new());
    loop {
        let path = format!("/v1/volumes/{volume}/snapshots?exact_space=true&limit=5000{after}");
        let page: SnapshotPage = server.get(&path).await?;
        freed.extend(page.snapshots.into_iter().filter_map(|one| Some((one.id, one.reclaimable_bytes?))));
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(freed),
        }
    }
}
