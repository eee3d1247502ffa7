//! The verification of one backup: its snapshots exported, and its databases checked on this machine.
//!
//! The verb, the server's own thread and the agent of a mail host run it.

use super::{
    backup_exports::{BackupExports, in_names},
    backup_points::{PointsOfBackup, SetPoints},
    restore::points_to_restore,
};
use crate::{
    console::Console,
    server::{connection::ServerConnection, place::ServerPlace},
    verify::{
        Watching,
        arguments::{VerifyArguments, parse_level},
        checked,
    },
};
use ::verify::{
    answer::finding_lines,
    running::{RunVerdict, VerifyLevel},
};
use control::web::client::{Method, SetRow, VerificationBody, VerificationResultName, in_uri};
use report::Refusal;
use std::{num::NonZeroUsize, path::PathBuf};
use world::{ByteCount, World};

/// Verifies backups of a server.
pub struct BackupVerifier<'v> {
    pub world: &'v World,
    pub server: &'v ServerConnection,
    pub place: &'v ServerPlace,
    pub console: &'v Console,
    pub watching: &'v Watching,
}

/// Depth and rate of a verification.
#[derive(Clone, Copy)]
pub struct VerifyingWay {
    /// Begins the names of the exports: two purposes do not disturb each other.
    pub purpose: &'static str,
    pub level: VerifyLevel,
    pub throttle: Option<ByteCount>,
}

/// A backup that was verified.
pub struct VerifiedBackup {
    pub name: String,
    pub number: u64,
    pub level: VerifyLevel,
    pub verdict: RunVerdict,
    /// Damage, or what was not looked at.
    pub findings: Vec<String>,
    /// Identities of the points that were looked at.
    pub points: Vec<String>,
    /// It was ended early: it says nothing about the backup.
    pub is_interrupted: bool,
}

/// A check of what lies on devices.
pub(super) struct DeviceCheck {
    pub verdict: RunVerdict,
    pub findings: Vec<String>,
    pub is_interrupted: bool,
}

/// A backup that its set wants verified now.
pub struct DueBackup {
    pub set: String,
    pub number: u64,
    pub level: VerifyLevel,
    pub throttle: Option<ByteCount>,
    /// Another machine is to do it.
    pub is_elsewhere: bool,
}

impl BackupVerifier<'_> {
    /// Checks what the snapshots of a backup hold; of logs alone, those of the full backup before them as well.
    ///
    /// # Errors
    ///
    /// The server cannot export them, or nothing to check is there.
    pub async fn verify(
        &self,
        known: &SetPoints,
        backup: &PointsOfBackup,
        way: VerifyingWay,
    ) -> Result<VerifiedBackup, Refusal> {
        let points = points_to_restore(known, backup)?;
        let ids = points.iter().map(|point| format!("{}/{}", point.volume_id, point.snapshot_id)).collect();
        let exports = BackupExports::of(way.purpose, backup, points);
        let checking = async {
            let uris = exports.begin(self.world, self.server, self.place).await?;
            let named = uris.into_iter().zip(exports.snapshots()).collect();
            self.check(named, (way.level, way.throttle)).await
        };
        let checked = checking.await;
        exports.delete(self.server).await?;
        let DeviceCheck { verdict, findings, is_interrupted } = checked?;
        let (name, number) = (backup.name.clone(), backup.note.sequence);
        Ok(VerifiedBackup { name, number, level: way.level, verdict, findings, points: ids, is_interrupted })
    }

    /// Checks what lies on devices; each is a URI, with its name for people.
    ///
    /// # Errors
    ///
    /// One cannot be read, or nothing to check is there.
    pub(super) async fn check(
        &self,
        named: Vec<(String, String)>,
        (level, throttle): (VerifyLevel, Option<ByteCount>),
    ) -> Result<DeviceCheck, Refusal> {
        let in_names = |text: &str| in_names(&named, text);
        let is_beside_work = matches!(self.watching, Watching::Thread(_));
        let wanted = VerifyArguments {
            // Beside other work one processor is enough.
            jobs: is_beside_work.then_some(NonZeroUsize::MIN),
            throttle,
            json: self.console.is_for_programs(),
            ..VerifyArguments::of(named.iter().map(|(uri, _)| PathBuf::from(uri)).collect(), level)
        };
        let checked = checked(self.world, &wanted, self.console, self.watching).await;
        let report = checked
            .map_err(|refusal| Refusal::new(in_names(refusal.problem()), in_names(refusal.remedy())))?;
        let findings = finding_lines(&report).iter().map(|line| in_names(line)).collect();
        let verdict = report.outcome.verdict();
        let is_interrupted = report.outcome.is_stopped && verdict == RunVerdict::Unfinished;
        Ok(DeviceCheck { verdict, findings, is_interrupted })
    }
}

/// The backup of a set that is due now; none of a set that an agent keeps.
pub fn due_in(row: &SetRow) -> Option<DueBackup> {
    let verification = row.verification.as_ref()?;
    Some(DueBackup {
        set: row.name.clone(),
        number: verification.due?,
        // A server that is newer may know more levels: its own verifier has them.
        level: parse_level(&verification.level).ok()?,
        throttle: verification.throttle_bytes.map(ByteCount),
        is_elsewhere: verification.is_elsewhere,
    })
}

/// Verifies a backup that is due, and notes the result, also that it could not be verified.
///
/// # Errors
///
/// The server does not answer.
pub async fn verify_due(
    verifier: &BackupVerifier<'_>,
    due: &DueBackup,
    purpose: &'static str,
) -> Result<VerifiedBackup, Refusal> {
    let known = SetPoints::ask(verifier.server, &due.set).await?;
    let way = VerifyingWay { purpose, level: due.level, throttle: due.throttle };
    let verifying = async { verifier.verify(&known, known.whole(&due.number.to_string())?, way).await };
    let verified = verifying.await.unwrap_or_else(|refusal| {
        let backup = known.backups().find(|backup| backup.note.sequence == due.number);
        let name = backup.map_or_else(|| format!("backup {}", due.number), |backup| backup.name.clone());
        VerifiedBackup::without_answer(name, due, &refusal)
    });
    // The one after it begins from its start.
    if !verified.is_interrupted {
        note(verifier.server, &due.set, &verified).await?;
    }
    Ok(verified)
}

/// Notes a result in the catalogue of a set that the server keeps.
///
/// # Errors
///
/// The server does not answer, or refuses.
pub async fn note(server: &ServerConnection, set: &str, verified: &VerifiedBackup) -> Result<(), Refusal> {
    let body = VerificationBody {
        level: verified.level.name().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        result: match verified.verdict {
            RunVerdict::Clean => VerificationResultName::Proven,
            RunVerdict::Damaged => VerificationResultName::Damaged,
            RunVerdict::Unfinished => VerificationResultName::Unfinished,
        },
        findings: verified.findings.clone(),
        points: verified.points.clone(),
    };
    let path = format!("/v1/sets/{}/backups/{}/verifications", in_uri(set), verified.number);
    server.change_to_its_end(Method::POST, &path, Some(&body)).await?.checked().map(drop)
}

impl VerifiedBackup {
    fn without_answer(name: String, due: &DueBackup, refusal: &Refusal) -> Self {
        let DueBackup { number, level, .. } = *due;
        Self {
            name,
            number,
            level,
            verdict: RunVerdict::Unfinished,
            findings: vec![refusal.to_string()],
            points: Vec::new(),
            is_interrupted: false,
        }
    }
}
