//! Verifications at the site that follows a set: what its keeper asks for, and the verdict that comes back.
//!
//! Invariants:
//!
//! 1. A verdict counts only if the points that were looked at are those of the backup in this catalogue: all of them, and no
//!    other. The point of a clone has another volume, and a point that was cut later another identity.
//! 2. Nothing is verified at the keeper's own site in place of the other one: while that is away, what is due waits.

use super::{SetKeeper, VerificationResult, VerificationVerdict, proving::PutOff};
use crate::{
    byte_rate::ByteRate,
    catalogue::{BackupRow, CatalogueFileError, CutPoint, SetId},
    planted_keeping::{self, KeepingBug},
    set_keeper::people::PersonRefusal,
    verification::waits,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Findings that a verdict carries to the other site.
pub const FINDINGS_MAX: usize = 20;

/// The site that follows a set, as its keeper knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSite {
    pub name: String,
    /// Numbers of the backups of which it has all points.
    pub here: BTreeSet<u64>,
    /// The reason why it verifies nothing now.
    pub away: Option<String>,
}

/// A verification that the keeper wants from the other site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaVerification {
    /// Drawn for this request: the verdict of an earlier one is not its verdict.
    pub request: String,
    /// Identity of the catalogue.
    pub id: SetId,
    pub backup: u64,
    /// Identities of its points, sorted.
    pub points: Vec<String>,
    pub level: String,
    /// Bytes a second that it may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<u64>,
}

/// The verdict of the other site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaVerdict {
    /// That of its [`ReplicaVerification`].
    pub request: String,
    pub id: SetId,
    pub backup: u64,
    /// Identities of the points that were looked at, sorted; of one that did not end, those of the request.
    pub points: Vec<String>,
    pub level: String,
    /// Version of the verifier.
    pub version: String,
    /// The program or person there.
    pub by: String,
    pub verdict: VerificationVerdict,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

/// Identities of points, sorted.
pub fn point_identities(points: &[CutPoint]) -> Vec<String> {
    let ids: BTreeSet<&String> = points.iter().map(|point| &point.id).collect();
    ids.into_iter().cloned().collect()
}

impl ReplicaVerification {
    /// True if a verdict about these points answers it.
    fn is_answered_by(&self, verdict: &ReplicaVerdict, row: &BackupRow) -> bool {
        let is_same_request = self.request == verdict.request && self.level == verdict.level;
        let is_same_backup = self.id == verdict.id && self.backup == verdict.backup;
        let are_its_points = verdict.points == point_identities(&row.points)
            || planted_keeping::is(KeepingBug::VerdictOfAnotherClone);
        is_same_request && is_same_backup && are_its_points
    }
}

impl SetKeeper {
    /// Names the site that verifies; `None` if there is no other site now.
    pub fn set_replica(&mut self, replica: Option<ReplicaSite>) {
        self.replica = replica;
    }

    /// The verification that the other site is to carry out now. Its request is drawn.
    pub fn replica_verification_due(&self) -> Option<ReplicaVerification> {
        let due = self.verification_due().filter(|due| due.is_at_replica)?;
        let row = self.catalogue().row(due.number)?;
        let mut request = [0; 8];
        self.world.fill_secret(&mut request);
        Some(ReplicaVerification {
            request: format!("{:016x}", u64::from_le_bytes(request)),
            id: self.catalogue().header().id.clone(),
            backup: due.number,
            points: point_identities(&row.points),
            level: due.level.to_owned(),
            throttle: due.throttle.map(|ByteRate(rate)| rate),
        })
    }

    /// True if a verification that the other site was asked for is wanted yet: nobody has verified the backup since, its points
    /// are there, and the rules are the same.
    pub fn still_wants(&self, asked: &ReplicaVerification) -> bool {
        let Some(policy) = self.settings.verification.as_ref().filter(|policy| policy.is_at_replica()) else {
            return false;
        };
        let is_same = |(number, row): (u64, &BackupRow)| {
            number == asked.backup && waits(row) && point_identities(&row.points) == asked.points
        };
        policy.level() == asked.level
            && policy.throttle().map(|ByteRate(rate)| rate) == asked.throttle
            && asked.id == self.catalogue().header().id
            && self.is_at_replica(asked.backup)
            && self.catalogue().live().any(is_same)
    }

    /// Notes the verdict of the other site, if it is about the points of the backup that was asked for; another one counts as a
    /// verification that did not end.
    ///
    /// # Errors
    ///
    /// The catalogue cannot be written.
    pub fn note_replica_verdict(
        &mut self,
        site: &str,
        asked: &ReplicaVerification,
        verdict: &ReplicaVerdict,
    ) -> Result<(), CatalogueFileError> {
        let number = asked.backup;
        let Some(row) =
            self.catalogue().live().find(|(known, _)| *known == number).map(|(_, row)| row.clone())
        else {
            return Ok(());
        };
        if !waits(&row) {
            return Ok(());
        }
        let ReplicaVerdict { level, version, by, .. } = verdict.clone();
        let by = format!("site {site}: {by}");
        let result = match asked.is_answered_by(verdict, &row) {
            true => VerificationResult {
                level,
                version,
                verdict: verdict.verdict,
                findings: verdict.findings.clone(),
                points: verdict.points.clone(),
            },
            false => VerificationResult {
                level: asked.level.clone(),
                version,
                verdict: VerificationVerdict::Unfinished,
                findings: vec![format!("the verdict of site {site} is not about the points of this backup")],
                points: Vec::new(),
            },
        };
        match self.note_verification(number, &row, &result, &by) {
            Err(PersonRefusal::Catalogue(error)) => Err(error),
            // It names a level that is none.
            Err(refusal) => {
                let put_off = PutOff::after(self.put_off.get(&number), self.world.now(), refusal.to_string());
                self.put_off.insert(number, put_off);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// The reason why a backup that waits is not verified at the other site now.
    pub(super) fn replica_wait(&self, number: u64, row: &BackupRow) -> Option<String> {
        let policy = self.settings.verification.as_ref()?;
        if !policy.is_at_replica() || !waits(row) {
            return None;
        }
        match &self.replica {
            None => {
                Some("no other site has its points; 'spindle protect verify' verifies it here".to_owned())
            }
            Some(ReplicaSite { away: Some(away), .. }) => Some(away.clone()),
            Some(site) if !site.here.contains(&number) => {
                Some(format!("its points are not at site {} yet", site.name))
            }
            Some(_) => None,
        }
    }

    /// True if the other site can verify this backup now.
    pub(super) fn is_at_replica(&self, number: u64) -> bool {
        let is_whole = |site: &ReplicaSite| site.away.is_none() && site.here.contains(&number);
        self.replica.as_ref().is_some_and(is_whole)
    }
}
