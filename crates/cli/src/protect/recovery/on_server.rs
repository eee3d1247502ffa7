//! The part of an open backup on the server: exports of its snapshots, clones, and exports of these.
//!
//! Invariants:
//!
//! 1. All names are those of [`temporary_clones`](crate::protect::temporary_clones): they say when they end.
//! 2. While a backup is open its snapshots are exported, hence it is in use, and no rule deletes it.

use crate::{
    protect::{
        backup_exports::{begin_export_of, delete_export},
        temporary_clones::{
            OF_OPEN, OF_OPENED_CLONE, OF_OPENED_SNAPSHOT, delete_clone, first_bytes, make_clone, name_end,
        },
    },
    server::{connection::ServerConnection, place::ServerPlace},
};
use control::web::client::BackupPointRow;
use recovery::opening::{Opening, OpeningClone};
use report::Refusal;

/// Bytes of a volume's name in that of its clone: a name has 128 at most.
const VOLUME_BYTES_MAX: usize = 64;

/// The names for one volume of a backup.
pub(super) struct VolumeNames {
    pub point: BackupPointRow,
    /// Of the export of the snapshot.
    pub export: String,
    /// Of the clone and of its export, if it is cloned.
    pub clone: Option<(OpeningClone, String)>,
}

/// Chooses the names for all volumes of a backup, in the order of their names.
pub(super) fn names(
    mut points: Vec<BackupPointRow>,
    number: u64,
    until: i64,
    with_clones: bool,
) -> Vec<VolumeNames> {
    let end = name_end(number, until);
    let name = |point: BackupPointRow| {
        let short = first_bytes(&point.volume, VOLUME_BYTES_MAX);
        let (pool, volume) = (first_bytes(&point.pool, 24), format!("{short}{OF_OPEN}-{end}"));
        let clone = with_clones.then(|| {
            let clone = OpeningClone { pool: point.pool.clone(), volume };
            (clone, format!("{OF_OPENED_CLONE}{pool}-{}-{end}", first_bytes(&point.volume, 48)))
        });
        let export = format!("{OF_OPENED_SNAPSHOT}{pool}-{}-{end}", first_bytes(&point.volume, 48));
        VolumeNames { point, export, clone }
    };
    points.sort_by(|one, other| (&one.pool, &one.volume).cmp(&(&other.pool, &other.volume)));
    points.into_iter().map(name).collect()
}

/// Exports a snapshot, and returns the URI.
pub(super) async fn export_snapshot(
    world: &world::World,
    server: &ServerConnection,
    names: &VolumeNames,
    place: &ServerPlace,
) -> Result<String, Refusal> {
    let point = &names.point;
    let volume = format!("{}/{}@{}", point.pool, point.volume, point.name);
    begin_export_of(world, server, (&names.export, volume, true), place).await
}

/// Clones a snapshot and exports the clone; the URI.
pub(super) async fn export_clone(
    world: &world::World,
    server: &ServerConnection,
    (point, clone, export): (&BackupPointRow, &OpeningClone, &str),
    place: &ServerPlace,
) -> Result<String, Refusal> {
    make_clone(server, &point.volume_id, (Some(&point.name), &clone.volume)).await?;
    let volume = format!("{}/{}", clone.pool, clone.volume);
    begin_export_of(world, server, (export, volume, false), place).await
}

/// Deletes the exports and the clones of an open backup. What is gone already is no error.
///
/// # Errors
///
/// The server does not answer, or something is still there; the rest is gone.
pub(super) async fn delete(server: &ServerConnection, opening: &Opening) -> Result<(), Refusal> {
    let mut first = Ok(());
    for export in &opening.exports {
        first = first.and(delete_export(server, export).await);
    }
    for clone in &opening.clones {
        first = first.and(delete_clone(server, &clone.pool, &clone.volume).await);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protect::temporary_clones::{OVERDUE_AFTER_S, is_overdue};

    fn point(volume: &str) -> BackupPointRow {
        BackupPointRow {
            pool: "p".repeat(128),
            volume: volume.to_owned(),
            volume_id: String::new(),
            snapshot_id: String::new(),
            name: String::new(),
            age_seconds: 0,
            note: String::new(),
            services: Vec::new(),
        }
    }

    #[test]
    fn names_of_openings_are_known_by_their_ends_and_others_never() {
        let now = 1_795_298_700;
        for volume in ["store", &"ä".repeat(64), "open-7-until-", "x-open"] {
            let [names] = &names(vec![point(volume)], 17, now, true)[..] else { panic!("one volume") };
            let (clone, clone_export) = names.clone.as_ref().unwrap();
            for name in [&names.export, &clone.volume, clone_export] {
                assert!(name.len() <= 128, "{name}");
                assert!(!is_overdue(name, now + OVERDUE_AFTER_S), "{name}");
                assert!(is_overdue(name, now + OVERDUE_AFTER_S + 1), "{name}");
            }
        }
    }
}
