//! Copies to a vault that are due, and results of copies, which others make.

use super::{
    SetKeeper, SetProblem,
    people::{FollowResult, wrong},
    proving::PutOff,
};
use crate::{
    byte_rate::ByteRate,
    catalogue::{BackupCopy, BackupRow, CatalogueEntry},
};
use std::path::PathBuf;

/// Longest place or identity of a copy, in bytes.
const COPY_TEXT_BYTES_MAX: usize = 1024;

/// A copy that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyDue {
    pub number: u64,
    pub name: String,
    /// The vault: an absolute path, or `s3://BUCKET/PREFIX`.
    pub to: String,
    /// Copies by the clock that stay there.
    pub count: u32,
    pub password_file: Option<PathBuf>,
    pub throttle: Option<ByteRate>,
}

/// A copy of a backup that others made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyResult {
    /// The vault, without secrets.
    pub to: String,
    /// Identity of the copy there.
    pub id: String,
    /// Bytes that it added there.
    pub bytes: u64,
    /// Numbers of all backups of the set that have a copy there now, as far as that was looked at.
    pub copies: Option<Vec<u64>>,
}

impl SetKeeper {
    /// The copy to the vault that is due now, if the set has one.
    pub fn copy_due(&self) -> Option<CopyDue> {
        let policy = self.settings.vault.as_ref()?;
        let (zone, only_proven) = (self.settings.schedules.zone(), self.settings.keep.only_verified());
        if self.copy_put_off.as_ref().is_some_and(|put_off| !put_off.is_over(self.world.now())) {
            return None;
        }
        let number = policy.due(zone, self.catalogue(), only_proven)?;
        Some(CopyDue {
            number,
            name: self.catalogue().row(number).expect("it is live").start.name.clone(),
            to: policy.to().to_owned(),
            count: policy.count(),
            password_file: policy.password_file().cloned(),
            throttle: policy.throttle(),
        })
    }

    /// The reason why the last copy did not end.
    pub(super) fn not_copied(&self) -> Option<String> {
        self.copy_put_off.as_ref().map(|put_off| put_off.why.clone())
    }

    /// Says when a backup waits for its copy for a day, and when that is over.
    pub(super) fn look_for_copy(&mut self) {
        let (zone, only_proven) = (self.settings.schedules.zone(), self.settings.keep.only_verified());
        let policy = self.settings.vault.as_ref();
        let late = policy.and_then(|policy| policy.late(zone, self.catalogue(), only_proven, self.age_s()));
        let text = late.map(|number| {
            let name = &self.catalogue().row(number).expect("it is live").start.name;
            let reason = match &self.copy_put_off {
                Some(put_off) => format!("; the last copy did not end: {}", put_off.why),
                None => String::new(),
            };
            format!("{name} waits for its copy in the vault for more than 24 h{reason}")
        });
        self.said.set(SetProblem::Uncopied, text);
    }

    pub(super) fn note_copy(&mut self, number: u64, row: &BackupRow, copy: &CopyResult) -> FollowResult {
        let CopyResult { to, id, bytes, copies } = copy.clone();
        for text in [&to, &id] {
            if text.is_empty() || text.len() > COPY_TEXT_BYTES_MAX || text.chars().any(char::is_control) {
                let reason = format!("cannot be copied to {text:?}; say 1 to {COPY_TEXT_BYTES_MAX} bytes");
                return Err(wrong(number, reason));
            }
        }
        let has_copy_no_more = |known: &Vec<u64>| -> Vec<u64> {
            let copied = self.catalogue().live().filter(|(_, row)| row.copies.contains(&to));
            copied.map(|(one, _)| one).filter(|one| *one != number && !known.contains(one)).collect()
        };
        let removed: Vec<u64> = copies.as_ref().map(has_copy_no_more).unwrap_or_default();
        let mut text = format!("{} is copied to {to}", row.start.name);
        if !removed.is_empty() {
            let numbers: Vec<String> = removed.iter().map(u64::to_string).collect();
            text = format!("{text}; copies that are not there any more: {}", numbers.join(", "));
        }
        self.append(CatalogueEntry::Copied(BackupCopy { backup: number, to, id, bytes, removed }))?;
        self.copy_put_off = None;
        self.said.note(text);
        self.look_for_copy();
        Ok(())
    }

    pub(super) fn note_failed_copy(&mut self, row: &BackupRow, why: &str) {
        let put_off = PutOff::after(self.copy_put_off.as_ref(), self.world.now(), why.to_owned());
        self.copy_put_off = Some(put_off);
        self.said.warn(format!("{} is not copied to the vault: {why}", row.start.name));
    }
}
