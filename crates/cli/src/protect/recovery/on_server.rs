//! The part of an open backup on the server: exports of its snapshots, clones, and exports of these.
//!
//! Invariants:
//!
//! 1. Every name says when it ends, so that anyone can delete what is overdue.
//! 2. While a backup is open its snapshots are exported, hence it is in use, and no rule deletes it.
//! 3. An overdue clone or export that a client uses is left alone.

use crate::{
    console::Console,
    protect::backup_exports::{begin_export_of, delete_export},
    server::{connection::ServerConnection, place::ServerPlace},
};
use control::web::{
    client::{BackupPointRow, ExportRow, Method, NewCloneBody, in_uri},
    rows::VolumePage,
};
use recovery::opening::{Opening, OpeningClone};
use report::{Refusal, calendar::file_stamp};
use std::process;

/// Between the number of a backup and the end of its opening in the names.
const UNTIL: &str = "-until-";
/// Before the names of exports of snapshots, and of clones.
const OF_SNAPSHOT: &str = "opened-";
const OF_CLONE: &str = "open-";
/// Bytes of a volume's name in that of its clone: a name has 128 at most.
const VOLUME_BYTES_MAX: usize = 64;
/// Time after its end at which something is overdue: clocks differ.
const OVERDUE_AFTER_S: i64 = 600;
const NOT_FOUND: u16 = 404;

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
    // Two openings in one second have different names.
    let end = format!("{number}-{}{UNTIL}{}", process::id(), file_stamp(until));
    let name = |point: BackupPointRow| {
        let short = first_bytes(&point.volume, VOLUME_BYTES_MAX);
        let (pool, volume) = (first_bytes(&point.pool, 24), format!("{short}-{OF_CLONE}{end}"));
        let clone = with_clones.then(|| {
            let clone = OpeningClone { pool: point.pool.clone(), volume };
            (clone, format!("{OF_CLONE}{pool}-{}-{end}", first_bytes(&point.volume, 48)))
        });
        let export = format!("{OF_SNAPSHOT}{pool}-{}-{end}", first_bytes(&point.volume, 48));
        VolumeNames { point, export, clone }
    };
    points.sort_by(|one, other| (&one.pool, &one.volume).cmp(&(&other.pool, &other.volume)));
    points.into_iter().map(name).collect()
}

fn first_bytes(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    &text[..end]
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
    let path = format!("/v1/volumes/{}/clones", in_uri(&point.volume_id));
    let snapshot = Some(point.name.clone());
    let body = NewCloneBody { name: clone.volume.clone(), snapshot, independent: false };
    server.change_to_its_end(Method::POST, &path, Some(&body)).await?.checked()?;
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
        first = first.and(delete_clone(server, clone).await);
    }
    first
}

async fn delete_clone(server: &ServerConnection, clone: &OpeningClone) -> Result<(), Refusal> {
    assert!(clone.volume.contains(UNTIL), "only what was made for an opening is deleted: {}", clone.volume);
    let page: VolumePage = server.get(&format!("/v1/volumes?name={}", in_uri(&clone.volume))).await?;
    let known = page.volumes.iter().find(|known| known.pool == clone.pool && known.name == clone.volume);
    let Some(known) = known else {
        return match page.is_incomplete {
            false => Ok(()),
            true => Err(Refusal::new(
                format!(
                    "whether {}/{} is still there is not known: a pool is closed",
                    clone.pool, clone.volume
                ),
                "bring the pool back; then 'spindle protect close --all'",
            )),
        };
    };
    let path = format!("/v1/volumes/{}", in_uri(&known.id));
    let reply = server.change_to_its_end(Method::DELETE, &path, None::<&()>).await?;
    if reply.status == NOT_FOUND { Ok(()) } else { reply.checked().map(drop) }
}

/// True if a name is that of an export or a clone of an opening whose end has passed.
fn is_overdue(name: &str, now: i64) -> bool {
    let Some((before, end)) = name.rsplit_once(UNTIL) else { return false };
    let number_end = |text: &'_ str| -> Option<usize> {
        let (rest, number) = text.rsplit_once('-')?;
        (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(rest.len())
    };
    // Behind the kind are the numbers of the backup and of the process.
    let kind = number_end(before).and_then(|at| Some(&before[..number_end(&before[..at])?]));
    let has_kind = kind.is_some_and(|kind| {
        kind.starts_with(OF_SNAPSHOT) || kind.starts_with(OF_CLONE) || kind.ends_with("-open")
    });
    // Stamps sort like their times.
    let latest = file_stamp(now - OVERDUE_AFTER_S);
    has_kind && end.len() == latest.len() && end < latest.as_str()
}

/// Deletes what openings left on the server whose ends have passed, of this host or another: one that died took nothing away.
/// It says so if something cannot be deleted.
///
/// # Errors
///
/// The server does not answer.
pub(super) async fn delete_overdue(
    server: &ServerConnection,
    now: i64,
    console: &Console,
) -> Result<(), Refusal> {
    let exports: Vec<ExportRow> = server.get("/v1/exports").await?;
    for export in exports.iter().filter(|export| is_overdue(&export.name, now) && export.clients == 0) {
        match delete_export(server, &export.name).await {
            Ok(()) => console.say_progress(&format!("{}: overdue export deleted", export.name)),
            Err(refusal) => console.warn(&format!("{}: overdue, and not deleted: {refusal}", export.name)),
        }
    }
    let used: Vec<&str> =
        exports.iter().filter(|one| one.clients > 0).map(|export| export.volume.as_str()).collect();
    let mut path = "/v1/volumes".to_owned();
    loop {
        let page: VolumePage = server.get(&path).await?;
        for volume in page.volumes.iter().filter(|volume| is_overdue(&volume.name, now)) {
            let clone = OpeningClone { pool: volume.pool.clone(), volume: volume.name.clone() };
            let shown = format!("{}/{}", clone.pool, clone.volume);
            if used.contains(&shown.as_str()) {
                continue;
            }
            match delete_clone(server, &clone).await {
                Ok(()) => console.say_progress(&format!("{shown}: overdue clone deleted")),
                Err(refusal) => console.warn(&format!("{shown}: overdue, and not deleted: {refusal}")),
            }
        }
        match page.next {
            Some(next) => path = format!("/v1/volumes?after={}", in_uri(&next)),
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let late = i64::from(i32::MAX);
        for other in [
            "store",
            "store-open-17",
            "store-open-17-until-2020-01-01-000000",
            "open-until-2020-01-01-000000",
            "a-17-until-2020-01-01-000000",
            "until",
        ] {
            assert!(!is_overdue(other, late), "{other}");
        }
    }
}
