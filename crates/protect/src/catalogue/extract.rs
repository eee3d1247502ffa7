//! The extract of a catalogue that a site sends to the other site of a DR group: what the notes of points do not say.
//!
//! Points travel with their notes; verifications, holds and labels that a thaw has confirmed are in the catalogue alone.
//! Turns order the extracts of two sites: the number grows with each site that takes the set over.

use super::{
    entry::{LabelWord, SetId},
    state::{BackupCatalogue, BackupRow},
};
use crate::backup_schedule::BackupKind;
use serde::{Deserialize, Serialize};

/// Backups of an extract at most.
const BACKUPS_MAX: usize = 100_000;

/// A catalogue as its site told it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueExtract {
    pub set: String,
    /// `None` of a site without a catalogue.
    pub id: Option<SetId>,
    /// Every number that was given is lower.
    pub next_number: u64,
    /// The turn in which the site kept the set last; 0 if it never did.
    pub turn: u64,
    /// The site does not keep the set now: nothing comes to the catalogue in this turn.
    pub is_at_rest: bool,
    /// Of the catalogue, oldest first.
    pub backups: Vec<ExtractedBackup>,
    /// Numbers of the backups of which the site has all points.
    pub here: Vec<u64>,
}

/// A backup that may be restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractedBackup {
    pub backup: u64,
    pub name: String,
    pub kind: BackupKind,
    /// Civil time of its cut.
    pub at_s: i64,
    pub label: LabelWord,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Its last verification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<ExtractedVerification>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// Seconds from its cut for which it is locked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_s: Option<i64>,
    /// Vaults that have a copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractedVerification {
    /// Civil time.
    pub at_s: i64,
    pub level: String,
    pub by: String,
    pub version: String,
    pub is_good: bool,
}

impl CatalogueExtract {
    /// The extract of a catalogue; `here` has the numbers of the backups of which this site has all points.
    pub fn of(catalogue: &BackupCatalogue, (turn, is_at_rest): (u64, bool), here: Vec<u64>) -> Self {
        Self {
            set: catalogue.header().set.clone(),
            id: Some(catalogue.header().id.clone()),
            next_number: catalogue.next_sequence(),
            turn,
            is_at_rest,
            backups: catalogue.live().map(|(number, row)| ExtractedBackup::of(number, row)).collect(),
            here,
        }
    }

    /// The extract of a site without a catalogue.
    pub fn without_catalogue(set: &str, turn: u64, here: Vec<u64>) -> Self {
        let set = set.to_owned();
        Self { set, id: None, next_number: 1, turn, is_at_rest: true, backups: Vec::new(), here }
    }

    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("plain fields")
    }

    /// Reads the text of another site.
    ///
    /// # Errors
    ///
    /// It is no extract, or longer than one may be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let extract: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match extract.backups.len().max(extract.here.len()) {
            count if count > BACKUPS_MAX => Err(format!("{count} backups of one set are too many")),
            _ => Ok(extract),
        }
    }

    /// A backup of the catalogue.
    pub fn backup(&self, number: u64) -> Option<&ExtractedBackup> {
        self.backups.iter().find(|backup| backup.backup == number)
    }

    /// True if the catalogue had this backup once, and has it no more.
    pub fn has_dropped(&self, number: u64) -> bool {
        self.id.is_some() && number < self.next_number && self.backup(number).is_none()
    }
}

impl ExtractedBackup {
    fn of(number: u64, row: &BackupRow) -> Self {
        let verified = row.verifications.last().map(|(at_s, last)| ExtractedVerification {
            at_s: *at_s,
            level: last.level.clone(),
            by: last.by.clone(),
            version: last.version.clone(),
            is_good: last.is_good,
        });
        Self {
            backup: number,
            name: row.start.name.clone(),
            kind: row.start.kind,
            at_s: row.at_s,
            label: row.label.unwrap_or(LabelWord::Crash),
            reasons: row.reasons.clone(),
            verified,
            holds: row.holds.iter().cloned().collect(),
            lock_s: row.locked_s,
            copies: row.copies.iter().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extract_is_read_as_it_was_written() {
        let extract = CatalogueExtract::without_catalogue("mail", 3, vec![7, 9]);
        let golden = r#"{"set":"mail","id":null,"next_number":1,"turn":3,"is_at_rest":true,"backups":[],"here":[7,9]}"#;
        assert_eq!(extract.text(), golden);
        assert_eq!(CatalogueExtract::parse(golden), Ok(extract.clone()));
        assert!(!extract.has_dropped(0), "a site without a catalogue has dropped nothing");
        assert!(CatalogueExtract::parse(&golden[1..]).is_err());
    }
}
