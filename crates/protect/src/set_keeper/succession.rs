//! A keeper that takes its set over from another site, whose points travelled with the volumes.
//!
//! Invariants:
//!
//! 1. Nothing goes because this catalogue lacked a line: a backup that it does not know is written down, and a deletion that
//!    this site had begun before the other one kept the set is not repeated.
//! 2. While the other site may have noted what did not arrive here (a hold, a lock, damage), each backup of before is held,
//!    until that catalogue was seen at rest, or a person releases the hold.
//! 3. Numbers go on above all that the other site gave, as far as that is known; else [`NUMBERS_GAP`] above those.

use super::SetKeeper;
use crate::{
    UnixSecond,
    backup_schedule::{BackupKind, backup_name},
    catalogue::{
        BackupHold, BackupLock, BackupRow, BackupStage, BackupStart, BackupVerification, CatalogueEntry,
        CatalogueExtract, CatalogueFileError, ExtractedBackup, FailedBackup, FoundBackup, LostBackup,
        rebuild,
    },
    planted_keeping::{self, KeepingBug},
};

/// Numbers that are left out if the other site may have given more than it told: a backup a minute for 16 hours.
pub const NUMBERS_GAP: u64 = 1_000;

/// The site that kept the set before.
#[derive(Clone, Copy, Debug)]
pub struct PredecessorSite<'p> {
    pub name: &'p str,
    /// The last extract of its catalogue that came.
    pub told: Option<&'p CatalogueExtract>,
    /// Nothing came to that catalogue since.
    pub is_final: bool,
}

/// Name of the hold of backups about which a site may know more.
pub fn unseen_hold(site: &str) -> String {
    format!("catalogue of {site} not seen")
}

impl SetKeeper {
    /// Takes the set over, before anything else is done here. Returns the reason if a pool does not answer: then it is to be
    /// repeated, and so it may be after a crash.
    ///
    /// # Errors
    ///
    /// The catalogue cannot be written.
    pub async fn take_over(
        &mut self,
        from: PredecessorSite<'_>,
    ) -> Result<Result<(), String>, CatalogueFileError> {
        let id = self.catalogue().header().id.clone();
        let answer = self.pools.points(&id).await;
        if let Some((pool, why)) = answer.silent.iter().next() {
            return Ok(Err(format!("pool {pool} does not answer ({why})")));
        }
        let told = from.told.filter(|told| told.id.as_ref() == Some(&id));
        // Without a point, or with notes of a newer program, nothing is found: comparing says what is wrong.
        let found = rebuild(&answer.found, &self.settings.name, Some(&id));
        let found = found.map(|rebuilt| rebuilt.backups).unwrap_or_default();
        self.end_rows_of_before(from.name, &found, told)?;
        for backup in found {
            if self.catalogue().row(backup.backup).is_none() {
                let known = told.and_then(|told| told.backup(backup.backup));
                self.append(CatalogueEntry::Found(arrived(backup, from.name, known)))?;
            }
        }
        if self.catalogue().begun().is_some() {
            self.settle().await?;
            if let Some(begun) = self.catalogue().begun() {
                return Ok(Err(format!("backup {begun} has begun and not ended")));
            }
        }
        let is_final = from.is_final && told.is_some();
        self.note_given_numbers(from.name, told, is_final)?;
        if let Some(told) = told {
            self.learn(from.name, told, false)?;
        }
        if !is_final && !planted_keeping::is(KeepingBug::TakenOverBlindly) {
            self.hold_all(from.name)?;
        }
        let count = self.catalogue().live().count();
        self.said.note(match is_final {
            true => format!("this site keeps the set now; {count} backups came from site {}", from.name),
            false => format!(
                "this site keeps the set now, with {count} backups. Site {} may have noted what did not arrive: none of them is \
                 deleted before its catalogue was seen, or 'spindle protect release' releases {:?}",
                from.name,
                unseen_hold(from.name)
            ),
        });
        self.note_settled(false);
        Ok(Ok(()))
    }

    /// Notes what another site's catalogue has, and this one lacks: holds, longer locks, later verifications. If that catalogue
    /// is at rest (`is_seen`), the backups that waited for it are released.
    ///
    /// # Errors
    ///
    /// The catalogue cannot be written.
    pub fn learn(
        &mut self,
        site: &str,
        told: &CatalogueExtract,
        is_seen: bool,
    ) -> Result<(), CatalogueFileError> {
        if told.id.as_ref() != Some(&self.catalogue().header().id) {
            return Ok(());
        }
        for number in self.live_numbers() {
            if let Some(backup) = told.backup(number) {
                self.learn_backup(site, backup)?;
            }
        }
        if is_seen {
            let (hold, mut count) = (unseen_hold(site), 0);
            for number in self.live_numbers() {
                if self.row_of(number).holds.contains(&hold) {
                    let entry = BackupHold { backup: number, hold: hold.clone(), by: format!("site {site}") };
                    self.append(CatalogueEntry::Released(entry))?;
                    count += 1;
                }
            }
            self.said.note(format!("the catalogue of site {site} was seen; {count} backups waited for it"));
        }
        Ok(())
    }

    /// Backups of this catalogue that are not as it says: those that the other site deleted, and deletions that had begun here.
    fn end_rows_of_before(
        &mut self,
        site: &str,
        found: &[FoundBackup],
        told: Option<&CatalogueExtract>,
    ) -> Result<(), CatalogueFileError> {
        let is_there = |number: u64| found.iter().any(|backup| backup.backup == number);
        let rows: Vec<(u64, BackupRow)> =
            self.catalogue().rows().map(|(number, row)| (number, row.clone())).collect();
        for (number, row) in rows {
            match row.stage {
                BackupStage::Deleting if is_there(number) => {
                    let deletion = row.deletion.expect("a deletion under way was ordered");
                    self.append(CatalogueEntry::Deleted(deletion))?;
                }
                BackupStage::Cut
                    if !is_there(number) && told.is_some_and(|told| told.has_dropped(number)) =>
                {
                    let why = format!("site {site}, which kept the set since, has it no more");
                    self.append(CatalogueEntry::Lost(LostBackup { backup: number, why }))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Has the next number be above all that the other site gave.
    fn note_given_numbers(
        &mut self,
        site: &str,
        told: Option<&CatalogueExtract>,
        is_final: bool,
    ) -> Result<(), CatalogueFileError> {
        if planted_keeping::is(KeepingBug::NumbersOfOtherSiteForgotten) {
            return Ok(());
        }
        let next = self.catalogue().next_sequence().max(told.map_or(1, |told| told.next_number));
        let first_free = if is_final { next } else { next + NUMBERS_GAP };
        if first_free <= self.catalogue().next_sequence() {
            return Ok(());
        }
        let last = first_free - 1;
        let name = backup_name(&self.settings.name, UnixSecond(self.world.wall().seconds), last);
        // Without volumes and slots: a number that is given, and of which nothing exists.
        self.append(CatalogueEntry::Begun(BackupStart {
            backup: last,
            name,
            kind: BackupKind::InterimCrash,
            slots: Vec::new(),
            volumes: Vec::new(),
            by: format!("site {site}"),
            holds: Vec::new(),
            lock_s: None,
            needs: None,
        }))?;
        let problem = format!("site {site} kept the set before, and numbers up to this one may be its");
        self.append(CatalogueEntry::Failed(FailedBackup { backup: last, problems: vec![problem] }))
    }

    fn hold_all(&mut self, site: &str) -> Result<(), CatalogueFileError> {
        let hold = unseen_hold(site);
        for number in self.live_numbers() {
            if !self.row_of(number).holds.contains(&hold) {
                let by = format!("failover from {site}");
                self.append(CatalogueEntry::Held(BackupHold { backup: number, hold: hold.clone(), by }))?;
            }
        }
        Ok(())
    }

    fn learn_backup(&mut self, site: &str, told: &ExtractedBackup) -> Result<(), CatalogueFileError> {
        let (number, by) = (told.backup, format!("site {site}"));
        for hold in &told.holds {
            if !self.row_of(number).holds.contains(hold) {
                let entry = BackupHold { backup: number, hold: hold.clone(), by: by.clone() };
                self.append(CatalogueEntry::Held(entry))?;
            }
        }
        if let Some(for_s) =
            told.lock_s.filter(|told| self.row_of(number).locked_s.is_none_or(|own| own < *told))
        {
            self.append(CatalogueEntry::Locked(BackupLock { backup: number, for_s, by: by.clone() }))?;
        }
        let Some(verified) = &told.verified else { return Ok(()) };
        let is_known = |(at_s, own): &(i64, BackupVerification)| {
            let is_same = own.level == verified.level
                && own.version == verified.version
                && own.is_good == verified.is_good;
            is_same || *at_s >= verified.at_s
        };
        if self.row_of(number).verifications.last().is_some_and(is_known) {
            return Ok(());
        }
        let (level, version, is_good) = (verified.level.clone(), verified.version.clone(), verified.is_good);
        // It names its site already if it came from there.
        let by = match verified.by.starts_with("site ") {
            true => verified.by.clone(),
            false => format!("{by}: {}", verified.by),
        };
        let findings = if is_good { Vec::new() } else { vec![format!("see the catalogue of site {site}")] };
        let entry = BackupVerification { backup: number, level, by, version, is_good, findings };
        self.append(CatalogueEntry::Verified(entry))
    }

    fn live_numbers(&self) -> Vec<u64> {
        self.catalogue().live().map(|(number, _)| number).collect()
    }

    fn row_of(&self, number: u64) -> &BackupRow {
        self.catalogue().row(number).expect("it is live")
    }
}

/// A backup that came with the volumes, with its label as the other site's catalogue has it.
fn arrived(found: FoundBackup, site: &str, told: Option<&ExtractedBackup>) -> FoundBackup {
    let reason = format!("it came from site {site}");
    match told {
        Some(told) => FoundBackup { label: told.label, reason, ..found },
        None => FoundBackup { reason: format!("{reason}; {}", found.reason), ..found },
    }
}
