//! Exact space of a volume in front of people and programs.

use array::pool::{SnapshotSpace, VolumeSpace};
use serde::Serialize;
use world::ByteCount;

/// Space of a volume in bytes: data of one copy, without the map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VolumeSpaceStatus {
    /// Time of the count, if that is not now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
    /// The sum of the three below.
    pub used_bytes: u64,
    pub volume_bytes: u64,
    pub snapshots_bytes: u64,
    pub others_bytes: u64,
    /// Freed by deleting the volume with its snapshots.
    pub reclaimable_bytes: u64,
    /// Oldest first.
    pub snapshots: Vec<SnapshotSpaceStatus>,
}

/// Space of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SnapshotSpaceStatus {
    pub name: String,
    /// Freed by deleting this snapshot alone.
    pub reclaimable_bytes: u64,
}

impl VolumeSpaceStatus {
    pub fn of(space: VolumeSpace) -> Self {
        let VolumeSpace {
            used_bytes,
            volume_bytes,
            snapshots_bytes,
            others_bytes,
            reclaimable_bytes,
            snapshots,
        } = space;
        let snapshot =
            |SnapshotSpace { name, reclaimable_bytes, .. }| SnapshotSpaceStatus { name, reclaimable_bytes };
        Self {
            as_of: None,
            used_bytes,
            volume_bytes,
            snapshots_bytes,
            others_bytes,
            reclaimable_bytes,
            snapshots: snapshots.into_iter().map(snapshot).collect(),
        }
    }

    /// Lines about the volume `path`.
    pub fn lines(&self, path: &str) -> Vec<String> {
        let size = ByteCount;
        let as_of = self.as_of.as_ref().map_or(String::new(), |time| format!(", as of {time}"));
        let mut lines = vec![
            format!("{path}: {} used{as_of}", size(self.used_bytes)),
            format!("  {} by the volume itself", size(self.volume_bytes)),
            format!("  {} kept by its snapshots beyond it", size(self.snapshots_bytes)),
            format!("  {} kept by clones and by what rollbacks left", size(self.others_bytes)),
            format!("deleting it with its snapshots frees {}", size(self.reclaimable_bytes)),
        ];
        lines.extend(self.snapshots.iter().map(|snapshot| {
            format!("deleting {path}@{} frees {}", snapshot.name, size(snapshot.reclaimable_bytes))
        }));
        let alone: u64 = self.snapshots.iter().map(|snapshot| snapshot.reclaimable_bytes).sum();
        if self.snapshots.len() > 1 && alone < self.snapshots_bytes {
            let shared = size(self.snapshots_bytes - alone);
            lines.push(format!(
                "{shared} are kept by several snapshots: only deleting all that keep them frees them"
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_snapshots_keep_is_told_apart() {
        let snapshot =
            |name: &str, reclaimable_bytes| SnapshotSpaceStatus { name: name.to_owned(), reclaimable_bytes };
        let status = VolumeSpaceStatus {
            as_of: Some("2026-11-27T03:00:00Z".to_owned()),
            used_bytes: 8 << 20,
            volume_bytes: 4 << 20,
            snapshots_bytes: 4 << 20,
            others_bytes: 0,
            reclaimable_bytes: 8 << 20,
            snapshots: vec![snapshot("monday", 1 << 20), snapshot("tuesday", 0)],
        };
        assert_eq!(
            status.lines("mail/store"),
            [
                "mail/store: 8.00 MiB used, as of 2026-11-27T03:00:00Z",
                "  4.00 MiB by the volume itself",
                "  4.00 MiB kept by its snapshots beyond it",
                "  0 B kept by clones and by what rollbacks left",
                "deleting it with its snapshots frees 8.00 MiB",
                "deleting mail/store@monday frees 1.00 MiB",
                "deleting mail/store@tuesday frees 0 B",
                "3.00 MiB are kept by several snapshots: only deleting all that keep them frees them",
            ]
        );
    }
}
