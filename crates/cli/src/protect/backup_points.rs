//! Backups as the pools of a server have them: by the notes of their points. The server or an agent keeps the set.

use crate::server::connection::ServerConnection;
use control::web::client::{BackupPointList, BackupPointRow, in_uri};
use protect::{backup_schedule::BackupKind, catalogue::PointNote};
use report::Refusal;
use std::collections::BTreeMap;

/// The points of one backup.
#[derive(Clone, Debug)]
pub struct PointsOfBackup {
    pub name: String,
    pub note: PointNote,
    pub points: Vec<BackupPointRow>,
}

/// The backups of a set in the pools that answered.
#[derive(Debug)]
pub struct SetPoints {
    set: String,
    /// By catalogue and number.
    backups: BTreeMap<(String, u64), PointsOfBackup>,
    /// Pools that did not answer, with the reasons.
    silent: BTreeMap<String, String>,
}

impl SetPoints {
    /// Asks a server.
    ///
    /// # Errors
    ///
    /// It does not answer.
    pub async fn ask(server: &ServerConnection, set: &str) -> Result<Self, Refusal> {
        let list: BackupPointList = server.get(&format!("/v1/points?set={}", in_uri(set))).await?;
        let mut backups: BTreeMap<(String, u64), PointsOfBackup> = BTreeMap::new();
        for row in list.points {
            let Ok(Some(note)) = PointNote::decode(row.note.as_bytes()) else { continue };
            let key = (note.set.to_string(), note.sequence);
            let new = || PointsOfBackup { name: row.name.clone(), note, points: Vec::new() };
            backups.entry(key).or_insert_with(new).points.push(row);
        }
        Ok(Self { set: set.to_owned(), backups, silent: list.silent })
    }

    /// Backups in the order of their numbers.
    pub fn backups(&self) -> impl DoubleEndedIterator<Item = &PointsOfBackup> {
        self.backups.values()
    }

    /// The backup that `meant`, a number or a name, names, with all its points.
    ///
    /// # Errors
    ///
    /// There is none, or several, or points of it are missing.
    pub fn whole(&self, meant: &str) -> Result<&PointsOfBackup, Refusal> {
        let is_meant = |backup: &&PointsOfBackup| {
            backup.name == meant || meant.parse::<u64>().is_ok_and(|number| backup.note.sequence == number)
        };
        let found: Vec<&PointsOfBackup> = self.backups().filter(is_meant).collect();
        let silent = self.silent_text();
        let [backup] = found[..] else {
            let problem = match found.is_empty() {
                true => format!("there is no backup {meant} of {}{silent}", self.set),
                false => format!("{} catalogues have a backup {meant} of {}", found.len(), self.set),
            };
            let names: Vec<&str> = found.iter().map(|backup| backup.name.as_str()).collect();
            let remedy = match found.is_empty() {
                true => format!("see 'spindle protect list {}'", self.set),
                false => format!("say its name: {}", names.join(", ")),
            };
            return Err(Refusal::new(problem, remedy));
        };
        if backup.points.len() != backup.note.points as usize {
            let (there, all) = (backup.points.len(), backup.note.points);
            return Err(Refusal::new(
                format!("{} has {there} of {all} points{silent}", backup.name),
                "bring its pools back, or choose another backup",
            ));
        }
        Ok(backup)
    }

    /// The backup that is meant: the newest full one, if none is named.
    ///
    /// # Errors
    ///
    /// As of [`Self::whole`]; or there is no full backup.
    pub fn meant(&self, named: Option<&str>) -> Result<&PointsOfBackup, Refusal> {
        if let Some(named) = named {
            return self.whole(named);
        }
        let full = self.backups().filter(|backup| backup.note.kind == BackupKind::Full);
        match full.max_by_key(|backup| backup.note.sequence) {
            Some(newest) => self.whole(&newest.name),
            None => {
                let problem = format!("{} has no full backup{}", self.set, self.silent_text());
                Err(Refusal::new(problem, "see 'spindle protect list'"))
            }
        }
    }

    /// The full backup that the logs of another bring forward.
    ///
    /// # Errors
    ///
    /// As of [`Self::whole`].
    pub fn base_of(&self, logs: &PointsOfBackup) -> Result<&PointsOfBackup, Refusal> {
        let base = logs.note.needs.and_then(|number| self.backups.get(&(logs.note.set.to_string(), number)));
        match base {
            Some(base) => self.whole(&base.name),
            None => Err(Refusal::new(
                format!(
                    "{} holds logs alone, and the full backup that they bring forward is gone",
                    logs.name
                ),
                "choose another backup",
            )),
        }
    }

    /// The backup itself if it has all volumes, else the full one that its logs bring forward.
    ///
    /// # Errors
    ///
    /// As of [`Self::base_of`].
    pub fn full_of<'k>(&'k self, backup: &'k PointsOfBackup) -> Result<&'k PointsOfBackup, Refusal> {
        match backup.note.kind {
            BackupKind::InterimLogs => self.base_of(backup),
            BackupKind::Full | BackupKind::InterimCrash => Ok(backup),
        }
    }

    /// `; pool east does not answer (it is closed)`, or nothing.
    pub fn silent_text(&self) -> String {
        self.silent.iter().map(|(pool, why)| format!("; pool {pool} does not answer ({why})")).collect()
    }
}

impl PointsOfBackup {
    /// The label in words. Points are cut before the thaw, which the catalogue alone knows.
    pub fn label_text(&self) -> String {
        let label = self.note.label.word();
        let doubt = if self.note.is_confirmed { "" } else { ", if its freeze held" };
        match self.note.kind {
            BackupKind::Full => format!("{label}{doubt}"),
            BackupKind::InterimLogs => "logs alone".to_owned(),
            BackupKind::InterimCrash => "crash, between two freezes".to_owned(),
        }
    }
}

/// `SET`, or `SET@BACKUP` by number or name.
pub fn set_and_backup(text: &str) -> (&str, Option<&str>) {
    match text.split_once('@') {
        Some((set, backup)) => (set, Some(backup)),
        None => (text, None),
    }
}
