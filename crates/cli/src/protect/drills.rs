//! One drill: a backup restored beside the live volumes, as clones, proven, and dropped.
//!
//! Invariants:
//!
//! 1. The names of clones and exports say when the drill ends at the latest: what one that was killed left is deleted by the
//!    next one, once that time has passed and no client uses it.
//! 2. Only what such a name says is deleted.

use super::{
    backup_exports::{begin_export_of, delete_export},
    backup_points::{PointsOfBackup, SetPoints},
    restore::points_to_restore,
    verification::{BackupVerifier, newest},
};
use crate::{
    check_command,
    server::{connection::ServerConnection, place::ServerPlace},
};
use ::verify::running::{RunVerdict, VerifyLevel};
use control::web::{
    client::{BackupPointRow, DrillBody, ExportRow, Method, NewCloneBody, in_uri},
    rows::VolumePage,
};
use report::{Refusal, calendar::file_stamp};
use std::time::Duration;
use world::{ByteCount, World};

/// Between the number of a backup and the latest end of its drill in the names.
const UNTIL: &str = "-until-";
const OF_DRILL: &str = "-drill-";
/// Bytes of a volume's name in that of its clone: a name has 128 at most.
const VOLUME_BYTES_MAX: usize = 64;
/// A drill has ended after so long, however large its volumes are.
const ENDED_WITHIN_S: i64 = 2 * 86_400;
const NOT_FOUND: u16 = 404;

/// The way in which a drill proves what it restored.
#[derive(Clone, Copy)]
pub enum DrillCheck<'c> {
    /// The databases on the volumes come up in memory, and every record is read.
    Databases { throttle: Option<ByteCount> },
    /// A command of this machine, which gets the URIs of the clones.
    Command { command: &'c str, within: Duration },
}

/// A drill that was held.
pub struct HeldDrill {
    pub name: String,
    pub number: u64,
    pub is_good: bool,
    /// From the order to the proof.
    pub rto: Duration,
    /// Age of the backup at the order: work that would have been lost.
    pub rpo_s: u64,
    pub findings: Vec<String>,
    /// The end of a command's output.
    pub output: Option<String>,
}

/// A volume of a drill.
struct DrillClone {
    point: BackupPointRow,
    /// Name of the clone, and of its export.
    clone: String,
    export: String,
}

impl BackupVerifier<'_> {
    /// Holds a drill with a backup; the newest full one if none is named.
    ///
    /// # Errors
    ///
    /// There is no such backup, or the server does not answer. That a backup cannot be cloned or read is a drill that is bad.
    pub async fn hold_drill(
        &self,
        set: &str,
        backup: Option<&str>,
        check: DrillCheck<'_>,
    ) -> Result<HeldDrill, Refusal> {
        let began = self.world.now();
        let known = SetPoints::ask(self.server, set).await?;
        let backup = match backup {
            Some(meant) => known.whole(meant)?,
            None => newest(&known, set)?,
        };
        let now_s = self.world.wall().seconds;
        delete_overdue(self.server, now_s).await?;
        let points = points_to_restore(&known, backup)?;
        // That of the newest point: logs bring an older full backup forward.
        let rpo_s = points.iter().map(|point| point.age_seconds).min().unwrap_or_default();
        let clones = clones_of(points, backup, now_s);
        let proven = self.prove(&clones, (set, check)).await;
        let rto = self.world.now().since(began);
        let dropped = drop_clones(self.server, &clones).await;
        let (is_good, mut findings, output) = match proven {
            Ok(proven) => proven,
            Err(refusal) => (false, vec![refusal.to_string()], None),
        };
        if let Err(refusal) = dropped {
            findings.push(format!("clones of the drill are left: {refusal}"));
        }
        Ok(HeldDrill {
            name: backup.name.clone(),
            number: backup.note.sequence,
            is_good,
            rto,
            rpo_s,
            findings,
            output,
        })
    }

    async fn prove(
        &self,
        clones: &[DrillClone],
        (set, check): (&str, DrillCheck<'_>),
    ) -> Result<(bool, Vec<String>, Option<String>), Refusal> {
        let mut uris = Vec::new();
        for clone in clones {
            uris.push(clone.make(self.world, self.server, self.place).await?);
            self.console.say_progress(&format!("{}/{}: cloned", clone.point.pool, clone.point.volume));
        }
        match check {
            DrillCheck::Databases { throttle } => {
                let volumes =
                    clones.iter().map(|clone| format!("{}/{}", clone.point.pool, clone.point.volume));
                let named = uris.into_iter().zip(volumes).collect();
                let (verdict, findings) = self.check(named, (VerifyLevel::Recover, throttle)).await?;
                Ok((verdict == RunVerdict::Clean, findings, None))
            }
            DrillCheck::Command { command, within } => {
                let checked = check_command::run((command, within), ("SPINDLE_SET", set), &uris).await?;
                let findings = if checked.has_passed { Vec::new() } else { vec![checked.headline] };
                Ok((checked.has_passed, findings, checked.output))
            }
        }
    }
}

/// Notes a drill in the catalogue of a set that the server keeps.
///
/// # Errors
///
/// The server does not answer, or refuses.
pub async fn note_drill(server: &ServerConnection, set: &str, held: &HeldDrill) -> Result<(), Refusal> {
    let body = DrillBody {
        is_good: held.is_good,
        rto_seconds: held.rto.as_secs_f64().ceil() as u64,
        rpo_seconds: held.rpo_s,
        findings: held.findings.clone(),
    };
    let path = format!("/v1/sets/{}/backups/{}/drills", in_uri(set), held.number);
    server.change_to_its_end(Method::POST, &path, Some(&body)).await?.checked().map(drop)
}

fn clones_of(points: Vec<BackupPointRow>, backup: &PointsOfBackup, now_s: i64) -> Vec<DrillClone> {
    let end = format!("{OF_DRILL}{}{UNTIL}{}", backup.note.sequence, file_stamp(now_s + ENDED_WITHIN_S));
    let clone = |(index, point): (usize, BackupPointRow)| {
        let clone = format!("{}{end}", first_bytes(&point.volume, VOLUME_BYTES_MAX));
        let export = format!("{}-{index}{end}", first_bytes(&point.volume, VOLUME_BYTES_MAX));
        DrillClone { point, clone, export }
    };
    points.into_iter().enumerate().map(clone).collect()
}

fn first_bytes(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    &text[..end]
}

impl DrillClone {
    /// Clones the snapshot and exports the clone; the URI.
    async fn make(
        &self,
        world: &World,
        server: &ServerConnection,
        place: &ServerPlace,
    ) -> Result<String, Refusal> {
        let Self { point, clone, export } = self;
        let path = format!("/v1/volumes/{}/clones", in_uri(&point.volume_id));
        let snapshot = Some(point.name.clone());
        let body = NewCloneBody { name: clone.clone(), snapshot, independent: false };
        server.change_to_its_end(Method::POST, &path, Some(&body)).await?.checked()?;
        let volume = format!("{}/{clone}", point.pool);
        begin_export_of(world, server, (export, volume, false), place).await
    }
}

/// Deletes the exports and the clones of a drill. The rest is deleted also if something is not.
async fn drop_clones(server: &ServerConnection, clones: &[DrillClone]) -> Result<(), Refusal> {
    let mut first = Ok(());
    for DrillClone { point, clone, export } in clones {
        first = first.and(delete_export(server, export).await);
        first = first.and(delete_clone(server, &point.pool, clone).await);
    }
    first
}

async fn delete_clone(server: &ServerConnection, pool: &str, name: &str) -> Result<(), Refusal> {
    assert!(name.contains(OF_DRILL) && name.contains(UNTIL), "only a drill's clone is deleted: {name}");
    let page: VolumePage = server.get(&format!("/v1/volumes?name={}", in_uri(name))).await?;
    let Some(known) = page.volumes.iter().find(|known| known.pool == pool && known.name == name) else {
        return Ok(());
    };
    let path = format!("/v1/volumes/{}", in_uri(&known.id));
    let reply = server.change_to_its_end(Method::DELETE, &path, None::<&()>).await?;
    if reply.status == NOT_FOUND { Ok(()) } else { reply.checked().map(drop) }
}

/// True if a name is that of a clone or an export of a drill whose latest end has passed.
fn is_overdue(name: &str, now_s: i64) -> bool {
    let Some((before, end)) = name.rsplit_once(UNTIL) else { return false };
    let number = before.rsplit_once(OF_DRILL).map(|(_, number)| number);
    let is_number =
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    // Stamps sort like their times.
    let latest = file_stamp(now_s);
    is_number && end.len() == latest.len() && end < latest.as_str()
}

/// Deletes what drills left that were killed.
async fn delete_overdue(server: &ServerConnection, now_s: i64) -> Result<(), Refusal> {
    let exports: Vec<ExportRow> = server.get("/v1/exports").await?;
    for export in exports.iter().filter(|export| is_overdue(&export.name, now_s) && export.clients == 0) {
        delete_export(server, &export.name).await?;
    }
    let mut path = "/v1/volumes".to_owned();
    loop {
        let page: VolumePage = server.get(&path).await?;
        for volume in page.volumes.iter().filter(|volume| is_overdue(&volume.name, now_s)) {
            // One that is used yet is left, and looked at again by the next drill.
            let _ = delete_clone(server, &volume.pool, &volume.name).await;
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

    #[test]
    fn what_a_drill_left_is_known_by_its_end_and_nothing_else_is() {
        let now_s = 1_795_824_000;
        let name = format!("store{OF_DRILL}17{UNTIL}{}", file_stamp(now_s));
        assert!(!is_overdue(&name, now_s));
        assert!(is_overdue(&name, now_s + 1), "{name}");
        for other in
            ["store-drill-17", "store-drill-x-until-2020-01-01-000000", "store-until-2020-01-01-000000"]
        {
            assert!(!is_overdue(other, i64::from(i32::MAX)), "{other}");
        }
    }
}
