//! Orders of people: a backup now, holds, locks, deletions.

use super::{
    SetKeeper,
    copying::CopyResult,
    making::{BackupOrder, MadeBackup},
    proving::{DrillResult, RestoreResult, VerificationResult},
};
use crate::{
    catalogue::{BackupHold, BackupLock, BackupRow, CatalogueEntry, CatalogueFileError},
    retention::{DeletionRule, KeepReason, policy::KeepSpan},
};
use thiserror::Error;

/// Longest name of a hold, in bytes.
const HOLD_BYTES_MAX: usize = 128;

/// An order about one backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PersonOrder {
    /// It stays until the hold of this name is released.
    Hold {
        hold: String,
    },
    Release {
        hold: String,
    },
    /// It stays locked for so many seconds from its cut, for everyone.
    Lock {
        for_s: i64,
    },
    /// `may_be_last`: also if no other full backup is left.
    Delete {
        may_be_last: bool,
    },
    NoteVerification(VerificationResult),
    NoteRestore(RestoreResult),
    NoteDrill(DrillResult),
    NoteCopy(CopyResult),
    /// A copy that ended early.
    NoteFailedCopy {
        why: String,
    },
}

/// The reason why an order is not followed. Nothing was changed.
#[derive(Debug, Error)]
pub enum PersonRefusal {
    #[error("there is no backup {0}; see 'spindle protect list'")]
    Unknown(u64),
    #[error("backup {number} {reason}")]
    Wrong { number: u64, reason: String },
    #[error("backup {0} has begun and not ended; try again when it has")]
    UnderWay(u64),
    #[error(transparent)]
    Catalogue(#[from] CatalogueFileError),
}

pub(super) type FollowResult = Result<(), PersonRefusal>;

impl SetKeeper {
    /// Makes a backup now, with holds from its cut on.
    ///
    /// # Errors
    ///
    /// One before it has not ended, a hold has no such name, or the catalogue cannot be written.
    pub async fn back_up(&mut self, by: &str, holds: &[String]) -> Result<MadeBackup, PersonRefusal> {
        holds.iter().try_for_each(|hold| check_hold(self.catalogue().next_sequence(), hold))?;
        if !self.is_settled {
            self.settle().await?;
        }
        if let Some(begun) = self.catalogue().begun() {
            return Err(PersonRefusal::UnderWay(begun));
        }
        let order = BackupOrder { by: by.to_owned(), holds: holds.to_vec(), due: Vec::new() };
        Ok(self.make(order).await?)
    }

    /// Follows an order about one backup.
    ///
    /// # Errors
    ///
    /// It cannot be followed, or the catalogue cannot be written.
    pub async fn follow(&mut self, number: u64, order: &PersonOrder, by: &str) -> FollowResult {
        if !self.is_settled {
            self.settle().await?;
        }
        let row = self.live(number)?.clone();
        match order {
            PersonOrder::Hold { hold } => self.hold(number, &row, hold, by),
            PersonOrder::Release { hold } => self.release(number, &row, hold, by),
            PersonOrder::Lock { for_s } => self.lock(number, &row, *for_s, by),
            PersonOrder::NoteVerification(result) => self.note_verification(number, &row, result, by),
            PersonOrder::NoteRestore(result) => self.note_restore(number, &row, result, by),
            PersonOrder::NoteDrill(result) => self.note_drill(number, &row, result, by),
            PersonOrder::NoteCopy(copy) => self.note_copy(number, &row, copy),
            PersonOrder::NoteFailedCopy { why } => {
                self.note_failed_copy(&row, why);
                Ok(())
            }
            PersonOrder::Delete { may_be_last } => self.delete_for_person(number, *may_be_last, by).await,
        }
    }

    fn live(&self, number: u64) -> Result<&BackupRow, PersonRefusal> {
        let mut live = self.catalogue().live();
        live.find(|(known, _)| *known == number).map(|(_, row)| row).ok_or(PersonRefusal::Unknown(number))
    }

    /// A hold that is there already is enough.
    fn hold(&mut self, number: u64, row: &BackupRow, hold: &str, by: &str) -> FollowResult {
        check_hold(number, hold)?;
        if row.holds.contains(hold) {
            return Ok(());
        }
        let entry = BackupHold { backup: number, hold: hold.to_owned(), by: by.to_owned() };
        self.append(CatalogueEntry::Held(entry))?;
        self.said.note(format!("{} is held by {by}: {hold}", row.start.name));
        Ok(())
    }

    fn release(&mut self, number: u64, row: &BackupRow, hold: &str, by: &str) -> FollowResult {
        if !row.holds.contains(hold) {
            let holds: Vec<&str> = row.holds.iter().map(String::as_str).collect();
            let known = if holds.is_empty() { "nothing does".to_owned() } else { holds.join(", ") };
            return Err(wrong(number, format!("is not held by {hold:?}; held by: {known}")));
        }
        let entry = BackupHold { backup: number, hold: hold.to_owned(), by: by.to_owned() };
        self.append(CatalogueEntry::Released(entry))?;
        self.said.note(format!("{} is no longer held: {hold}, released by {by}", row.start.name));
        Ok(())
    }

    fn lock(&mut self, number: u64, row: &BackupRow, for_s: i64, by: &str) -> FollowResult {
        if for_s <= 0 {
            return Err(wrong(number, "cannot be locked for no time; say a span such as 14d".to_owned()));
        }
        if let Some(before) = row.locked_s.filter(|before| for_s < *before) {
            let before = KeepSpan(before);
            return Err(wrong(
                number,
                format!("is locked for {before} from its cut; only longer is possible"),
            ));
        }
        if let Some(at_most) = self.settings.keep.at_most_s().filter(|at_most| for_s > *at_most) {
            let at_most = KeepSpan(at_most);
            return Err(wrong(number, format!("must go after {at_most} (at_most); say no longer lock")));
        }
        self.append(CatalogueEntry::Locked(BackupLock { backup: number, for_s, by: by.to_owned() }))?;
        let span = KeepSpan(for_s);
        self.said.note(format!("{} is locked by {by} for {span} from its cut", row.start.name));
        Ok(())
    }

    async fn delete_for_person(&mut self, number: u64, may_be_last: bool, by: &str) -> FollowResult {
        // Only the pools know which points are in use.
        self.settle().await?;
        self.live(number)?;
        let reasons = self.reasons().into_iter().find(|(known, _)| *known == number);
        let reasons = reasons.map(|(_, reasons)| reasons).unwrap_or_default();
        let is_bar =
            |reason: &&KeepReason| reason.is_absolute() || matches!(reason, KeepReason::NeededBy { .. });
        if let Some(reason) = reasons.iter().find(is_bar) {
            return Err(wrong(number, format!("stays: {reason}")));
        }
        if reasons.contains(&KeepReason::Newest) && !may_be_last {
            let full = self.catalogue().live().filter(|(_, row)| row.start.kind.is_full()).count();
            if full == 1 {
                let reason = "is the last full one of its set; say --last to delete it all the same";
                return Err(wrong(number, reason.to_owned()));
            }
        }
        self.delete(number, DeletionRule::Person, by, &format!("{by} ordered it")).await?;
        Ok(())
    }
}

pub(super) fn wrong(number: u64, reason: String) -> PersonRefusal {
    PersonRefusal::Wrong { number, reason }
}

fn check_hold(number: u64, hold: &str) -> FollowResult {
    let is_allowed = !hold.is_empty() && hold.len() <= HOLD_BYTES_MAX && !hold.chars().any(char::is_control);
    match is_allowed {
        true => Ok(()),
        false => Err(wrong(
            number,
            format!("cannot be held by {hold:?}; say a name of 1 to {HOLD_BYTES_MAX} bytes"),
        )),
    }
}
