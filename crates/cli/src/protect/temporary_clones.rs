//! Clones and exports that are made on a server for a while: of open backups, of drills, and of logs while they are joined.
//!
//! Invariants:
//!
//! 1. Each name has the numbers of the backup and of the process, and says when it ends: anyone can delete what is overdue.
//! 2. Only a volume with such a name is deleted, and a clone whose restore has not changed anything.
//! 3. An overdue clone or export that a client uses is left alone.

use super::backup_exports::delete_export;
use crate::{console::Console, server::connection::ServerConnection};
use control::web::{
    client::{ExportRow, Method, NewCloneBody, in_uri},
    rows::{VolumeEntry, VolumePage},
};
use report::{Refusal, calendar::file_stamp};
use std::process;

/// Before the end in a name.
const UNTIL: &str = "-until-";
/// Begin the names of exports of open backups.
pub const OF_OPENED_SNAPSHOT: &str = "opened-";
pub const OF_OPENED_CLONE: &str = "open-";
/// Between the name of a volume and the numbers in the name of a clone.
pub const OF_OPEN: &str = "-open";
pub const OF_DRILL: &str = "-drill";
pub const OF_RESTORE: &str = "-restore";
/// Time after its end at which something is overdue: clocks differ.
pub const OVERDUE_AFTER_S: i64 = 600;
const NOT_FOUND: u16 = 404;

/// The end of a name: `17-812-until-2026-11-29-184100`. Two of one second, by two processes, differ.
pub fn name_end(number: u64, until_s: i64) -> String {
    format!("{number}-{}{UNTIL}{}", process::id(), file_stamp(until_s))
}

/// The first bytes of a name, for names that have it within.
pub fn first_bytes(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    &text[..end]
}

/// Clones a snapshot of a volume, or the volume as it is now.
///
/// # Errors
///
/// The server does not answer, or refuses.
pub async fn make_clone(
    server: &ServerConnection,
    volume_id: &str,
    (snapshot, name): (Option<&str>, &str),
) -> Result<VolumeEntry, Refusal> {
    let path = format!("/v1/volumes/{}/clones", in_uri(volume_id));
    let (name, snapshot) = (name.to_owned(), snapshot.map(str::to_owned));
    let body = NewCloneBody { name, snapshot, independent: false };
    server.change_to_its_end(Method::POST, &path, Some(&body)).await?.parsed()
}

/// All volumes of a server.
///
/// # Errors
///
/// The server does not answer.
pub async fn all_volumes(server: &ServerConnection) -> Result<Vec<VolumeEntry>, Refusal> {
    let mut all = Vec::new();
    let mut path = "/v1/volumes".to_owned();
    loop {
        let page: VolumePage = server.get(&path).await?;
        all.extend(page.volumes);
        match page.next {
            Some(next) => path = format!("/v1/volumes?after={}", in_uri(&next)),
            None => return Ok(all),
        }
    }
}

/// Deletes a clone; one that is gone is no error.
///
/// # Errors
///
/// The server does not answer, or refuses; or its pool is closed.
///
/// # Panics
///
/// If the name does not say when it ends.
pub async fn delete_clone(server: &ServerConnection, pool: &str, name: &str) -> Result<(), Refusal> {
    assert!(name.contains(UNTIL), "only what was made for a while is deleted: {name}");
    delete_volume(server, pool, name).await
}

/// Deletes a volume that a restore has made; one that is gone is no error.
///
/// # Errors
///
/// The server does not answer, or refuses; or its pool is closed.
pub async fn delete_volume(server: &ServerConnection, pool: &str, name: &str) -> Result<(), Refusal> {
    let page: VolumePage = server.get(&format!("/v1/volumes?name={}", in_uri(name))).await?;
    let Some(known) = page.volumes.iter().find(|known| known.pool == pool && known.name == name) else {
        return match page.is_incomplete {
            false => Ok(()),
            true => Err(Refusal::new(
                format!("whether {pool}/{name} is still there is not known: a pool is closed"),
                "bring the pool back; then 'spindle protect close --all'",
            )),
        };
    };
    let path = format!("/v1/volumes/{}", in_uri(&known.id));
    let reply = server.change_to_its_end(Method::DELETE, &path, None::<&()>).await?;
    if reply.status == NOT_FOUND { Ok(()) } else { reply.checked().map(drop) }
}

/// True if a name is that of an export or a clone whose end has passed.
pub fn is_overdue(name: &str, now_s: i64) -> bool {
    let Some((before, end)) = name.rsplit_once(UNTIL) else { return false };
    let number_end = |text: &'_ str| -> Option<usize> {
        let (rest, number) = text.rsplit_once('-')?;
        (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(rest.len())
    };
    // Behind the kind are the numbers of the backup and of the process.
    let kind = number_end(before).and_then(|at| Some(&before[..number_end(&before[..at])?]));
    let has_kind = kind.is_some_and(|kind| {
        [OF_OPENED_SNAPSHOT, OF_OPENED_CLONE].iter().any(|begin| kind.starts_with(begin))
            || [OF_OPEN, OF_DRILL, OF_RESTORE].iter().any(|end| kind.ends_with(end))
    });
    // Stamps sort like their times.
    let latest = file_stamp(now_s - OVERDUE_AFTER_S);
    has_kind && end.len() == latest.len() && end < latest.as_str()
}

/// Deletes all overdue clones and exports, of this host or another: one that died took nothing away. It says so if something
/// cannot be deleted.
///
/// # Errors
///
/// The server does not answer.
pub async fn delete_overdue(server: &ServerConnection, now_s: i64, console: &Console) -> Result<(), Refusal> {
    let exports: Vec<ExportRow> = server.get("/v1/exports").await?;
    for export in exports.iter().filter(|export| is_overdue(&export.name, now_s) && export.clients == 0) {
        match delete_export(server, &export.name).await {
            Ok(()) => console.say_progress(&format!("{}: overdue export deleted", export.name)),
            Err(refusal) => console.warn(&format!("{}: overdue, and not deleted: {refusal}", export.name)),
        }
    }
    let used: Vec<&str> =
        exports.iter().filter(|one| one.clients > 0).map(|export| export.volume.as_str()).collect();
    for volume in all_volumes(server).await?.iter().filter(|volume| is_overdue(&volume.name, now_s)) {
        let shown = format!("{}/{}", volume.pool, volume.name);
        if used.contains(&shown.as_str()) {
            continue;
        }
        match delete_clone(server, &volume.pool, &volume.name).await {
            Ok(()) => console.say_progress(&format!("{shown}: overdue clone deleted")),
            Err(refusal) => console.warn(&format!("{shown}: overdue, and not deleted: {refusal}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_are_never_overdue() {
        let now_s = 1_795_824_000;
        let drill = format!("store{OF_DRILL}-{}", name_end(17, now_s));
        assert!(!is_overdue(&drill, now_s + OVERDUE_AFTER_S));
        assert!(is_overdue(&drill, now_s + OVERDUE_AFTER_S + 1), "{drill}");
        for other in [
            "store",
            "store-open-17",
            "store-open-17-until-2020-01-01-000000",
            "store-drill-17-until-2020-01-01-000000",
            "open-until-2020-01-01-000000",
            "a-17-until-2020-01-01-000000",
            "until",
        ] {
            assert!(!is_overdue(other, i64::from(i32::MAX)), "{other}");
        }
    }
}
