//! One drill: a backup restored beside the live volumes, as clones, proven, and dropped.
//!
//! The names of its clones and exports are those of [`temporary_clones`](super::temporary_clones): what one that was killed left is
//! deleted once its time has passed.

use super::{
    backup_exports::{begin_export_of, delete_export},
    backup_points::{PointsOfBackup, SetPoints},
    restore::points_to_restore,
    temporary_clones::{OF_DRILL, delete_clone, delete_overdue, first_bytes, make_clone, name_end},
    verification::{BackupVerifier, DeviceCheck},
};
use crate::{
    check_command,
    server::{connection::ServerConnection, place::ServerPlace},
};
use ::verify::running::{RunVerdict, VerifyLevel};
use control::web::client::{BackupPointRow, DrillBody, Method, in_uri};
use report::Refusal;
use std::time::Duration;
use world::{ByteCount, World};

/// Bytes of a volume's name in that of its clone: a name has 128 at most.
const VOLUME_BYTES_MAX: usize = 64;
/// A drill has ended after so long, however large its volumes are.
const ENDED_WITHIN_S: i64 = 2 * 86_400;

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

/// Good or not, findings, and output of a command.
type DrillProof = (bool, Vec<String>, Option<String>);

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
        let backup = known.meant(backup)?;
        let now_s = self.world.wall().seconds;
        delete_overdue(self.server, now_s, self.console).await?;
        let points = points_to_restore(&known, backup)?;
        // That of the newest point: logs bring an older full backup forward.
        let rpo_s = points.iter().map(|point| point.age_seconds).min().unwrap_or_default();
        let clones = clones_of(points, backup, now_s);
        let proven = self.prove(&clones, (set, check)).await;
        let rto = self.world.now().since(began);
        let dropped = drop_clones(self.server, &clones).await;
        let (is_good, mut findings, output) = match proven {
            Ok(Some(proven)) => proven,
            Ok(None) => {
                dropped?;
                return Err(Refusal::new("the drill was interrupted: it has no answer", "hold it again"));
            }
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

    /// Makes the clones and proves them; `None` if that was interrupted.
    async fn prove(
        &self,
        clones: &[DrillClone],
        (set, check): (&str, DrillCheck<'_>),
    ) -> Result<Option<DrillProof>, Refusal> {
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
                let DeviceCheck { verdict, findings, is_interrupted } =
                    self.check(named, (VerifyLevel::Recover, throttle)).await?;
                Ok((!is_interrupted).then_some((verdict == RunVerdict::Clean, findings, None)))
            }
            DrillCheck::Command { command, within } => {
                let checked = check_command::run((command, within), ("SPINDLE_SET", set), &uris).await?;
                let findings = if checked.has_passed { Vec::new() } else { vec![checked.headline] };
                Ok(Some((checked.has_passed, findings, checked.output)))
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
    let end = format!("{OF_DRILL}-{}", name_end(backup.note.sequence, now_s + ENDED_WITHIN_S));
    let clone = |(index, point): (usize, BackupPointRow)| {
        let clone = format!("{}{end}", first_bytes(&point.volume, VOLUME_BYTES_MAX));
        let export = format!("{}-{index}{end}", first_bytes(&point.volume, VOLUME_BYTES_MAX));
        DrillClone { point, clone, export }
    };
    points.into_iter().enumerate().map(clone).collect()
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
        make_clone(server, &point.volume_id, (Some(&point.name), clone)).await?;
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
