//! The logs that bring the databases of a backup forward: proven on copies, then joined where the databases are restored.
//!
//! Invariants:
//!
//! 1. The proof reads alone. What it needs on the server is gone when it ends, however it ends.
//! 2. What is joined was proven again against the volumes that get it: copies cannot have changed, those may have.
//! 3. The engine that recovers keeps all generations: a restore deletes no log.

use super::{
    backup_groups::{BackupGroup, BackupGroups},
    devices::{DirectoryAccess, open_directory},
    later_logs::{LaterLogs, end_of_names, temporary_name},
    log_arguments::LogWish,
    proof::{prove, refusal},
};
use crate::{
    console::Console,
    protect::{
        backup_exports::{BackupExports, begin_export_of, delete_export},
        backup_points::{PointsOfBackup, SetPoints},
    },
    server::{connection::ServerConnection, place::ServerPlace},
};
use control::web::client::BackupPointRow;
use maildb::{
    DatabaseLocation, Instance, InstanceConfig, LogRetention,
    log::{JoinSummary, JoinedLog, LogFolder},
};
use report::Refusal;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    rc::Rc,
};
use world::{Directory, World};

/// Everything that a chain is found with.
#[derive(Clone, Copy)]
pub struct ChainedLogs<'c> {
    pub world: &'c World,
    pub server: &'c ServerConnection,
    pub place: &'c ServerPlace,
    pub console: &'c Console,
    pub known: &'c SetPoints,
    pub base: &'c PointsOfBackup,
    /// The volumes of the backup.
    pub points: &'c [BackupPointRow],
    /// The only databases that are brought forward, if not all come back; otherwise none.
    pub databases: &'c [String],
}

/// Proven chains of the storage groups of a backup.
pub struct LogPlan {
    pub(super) groups: Vec<(BackupGroup, JoinSummary)>,
    pub(super) later: BTreeMap<usize, LaterLogs>,
    /// The only databases that come back, as they were named; none if all do.
    databases: Vec<String>,
    /// Reasons why databases, or all of them, are not brought forward.
    pub problems: Vec<String>,
}

/// A storage group that was brought forward, or would be.
#[derive(Clone, Debug, Serialize)]
pub struct BroughtForwardRow {
    pub databases: Vec<String>,
    /// Time (UTC) of the last records.
    pub time: String,
    /// The log generation in which they are.
    pub generation: String,
    /// Transactions behind the backup.
    pub commits: u64,
    /// Generations that the backup lacks, by the copy of the log that has them.
    pub logs: Vec<JoinedPartRow>,
}

/// Generations of one copy of the log.
#[derive(Clone, Debug, Serialize)]
pub struct JoinedPartRow {
    /// `POOL/VOLUME`, or `POOL/VOLUME@SNAPSHOT`.
    pub from: String,
    pub first: String,
    pub last: String,
}

impl ChainedLogs<'_> {
    /// Finds the storage groups of the backup, and proves the chain of each. What it opened stays open until [`LogPlan::end`].
    ///
    /// # Errors
    ///
    /// A chain has a gap or a fork; or a person wants logs, and the backup has no storage group of Spindle's.
    pub async fn prove(&self, wish: &LogWish) -> Result<LogPlan, Refusal> {
        let exports = BackupExports::of("restore", self.base, self.points.to_vec());
        let mut later = BTreeMap::new();
        let proving = async {
            let uris = match exports.begin(self.world, self.server, self.place).await {
                Ok(uris) => uris,
                // Nobody asked for logs: the backup alone can be restored.
                Err(refusal) if !wish.is_said => return Ok((Vec::new(), vec![refusal.to_string()])),
                Err(refusal) => return Err(refusal),
            };
            let named: Vec<(String, String)> = uris.into_iter().zip(exports.snapshots()).collect();
            let found = Box::pin(BackupGroups::find(self.world, &named, self.console)).await?;
            let mut groups = Vec::new();
            for group in self.wanted_groups(found.groups, &found.problems)? {
                let (uri, name) = &named[group.log];
                let base = LogFolder {
                    directory: open_directory(self.world, (uri, name), DirectoryAccess::Read).await?,
                    name: name.clone(),
                };
                let summary = self.prove_one((&group, &base), &mut later, wish).await?.summary().clone();
                groups.push((group, summary));
            }
            Ok((groups, found.problems))
        };
        let proven = proving.await;
        let deleted = exports.delete(self.server).await;
        let refused = match proven {
            Ok((groups, problems)) if !groups.is_empty() || !wish.is_said => {
                return match deleted {
                    Ok(()) => {
                        let databases = self.databases.to_vec();
                        Ok(LogPlan { groups, later, databases, problems })
                    }
                    Err(refusal) => Err(end_all(later, self.server).await.err().unwrap_or(refusal)),
                };
            }
            Ok((_, problems)) => Refusal::new(
                format!(
                    "{} has no databases of Spindle to bring forward: {}",
                    self.base.name,
                    problems.join("; ")
                ),
                "leave out ⟨logs⟩, ⟨to-time⟩ and ⟨to-log⟩",
            ),
            Err(refusal) => refusal,
        };
        // The first reason is the one that helps.
        let _ = end_all(later, self.server).await;
        Err(refused)
    }

    /// All groups, or those of the only databases that come back.
    fn wanted_groups(
        &self,
        groups: Vec<BackupGroup>,
        problems: &[String],
    ) -> Result<Vec<BackupGroup>, Refusal> {
        if self.databases.is_empty() {
            return Ok(groups);
        }
        let has = |group: &BackupGroup, database: &String| group.place_of(database).is_some();
        let backup = &self.base.name;
        for database in self.databases {
            let names: Vec<String> = groups.iter().map(BackupGroup::names).collect();
            match groups.iter().filter(|group| has(group, database)).count() {
                1 => {}
                0 if problems.is_empty() => {
                    return Err(Refusal::new(
                        format!("{backup} has no database {database}"),
                        format!("it has {}", names.join(" and ")),
                    ));
                }
                0 => {
                    return Err(Refusal::new(
                        format!(
                            "{backup} has no database {database} that can be read: {}",
                            problems.join("; ")
                        ),
                        "choose another backup",
                    ));
                }
                count => {
                    return Err(Refusal::new(
                        format!("{count} storage groups of {backup} have a database {database}"),
                        "restore the whole set, or beside it with ⟨as⟩ NAME",
                    ));
                }
            }
        }
        let is_wanted = |group: &BackupGroup| self.databases.iter().any(|database| has(group, database));
        Ok(groups.into_iter().filter(is_wanted).collect())
    }

    pub(super) async fn prove_one(
        &self,
        (group, base): (&BackupGroup, &LogFolder),
        later: &mut BTreeMap<usize, LaterLogs>,
        wish: &LogWish,
    ) -> Result<JoinedLog, Refusal> {
        let of_log = match later.remove(&group.log) {
            Some(known) => known,
            None => {
                let of = (&self.points[group.log], &wish.newest);
                LaterLogs::of(self.world, self.server, (self.known, self.base), of).await?
            }
        };
        let of_log = later.entry(group.log).or_insert(of_log);
        prove(self.world, (self.server, self.place), (group, base), of_log, wish.end).await
    }

    /// Joins the proven logs into restored volumes, and recovers the databases. `volumes` has the paths of those of the groups,
    /// by their points.
    ///
    /// # Errors
    ///
    /// A volume cannot be written, or is not as the backup. The volumes can be restored and joined again.
    pub async fn join(
        &self,
        plan: &mut LogPlan,
        volumes: &BTreeMap<usize, String>,
        wish: &LogWish,
    ) -> Result<(), Refusal> {
        let end = end_of_names(self.world, self.base);
        let name = |(index, point): (usize, &BackupPointRow)| {
            temporary_name(&point.volume, &format!("-w{index}"), &end)
        };
        let exports: Vec<String> = self.points.iter().enumerate().map(name).collect();
        let joining = async {
            let mut folders = BTreeMap::new();
            let LogPlan { groups, later, .. } = plan;
            for index in groups.iter().flat_map(|(group, _)| group.volumes()) {
                if let Entry::Vacant(free) = folders.entry(index) {
                    free.insert(self.writable((&exports[index], &volumes[&index])).await?);
                }
            }
            for (group, summary) in groups.iter_mut() {
                let folder = LogFolder {
                    directory: Rc::clone(&folders[&group.log]),
                    name: volumes[&group.log].clone(),
                };
                let joined = self.prove_one((group, &folder), later, wish).await?;
                *summary = joined.summary().clone();
                self.console.say_progress(&format!("{}: {} transactions", group.names(), summary.commits));
                joined.join().await.map_err(|error| refusal(group, &error))?;
                Box::pin(self.recover(group, &folders)).await?;
            }
            Ok(())
        };
        let joined = joining.await;
        let mut deleted = Ok(());
        for export in &exports {
            deleted = deleted.and(delete_export(self.server, export).await);
        }
        joined.and(deleted)
    }

    pub(super) async fn writable(
        &self,
        (export, volume): (&str, &str),
    ) -> Result<Rc<dyn Directory>, Refusal> {
        let of = (export, volume.to_owned(), false);
        let uri = begin_export_of(self.world, self.server, of, self.place).await?;
        open_directory(self.world, (&uri, volume), DirectoryAccess::Write).await
    }

    /// Recovers a group with the whole chain, and shuts it down.
    pub(super) async fn recover(
        &self,
        group: &BackupGroup,
        folders: &BTreeMap<usize, Rc<dyn Directory>>,
    ) -> Result<(), Refusal> {
        let location = |(index, name): &(usize, String)| DatabaseLocation {
            directory: Rc::clone(&folders[index]),
            file_name: name.clone(),
        };
        let locations = group.databases.iter().map(location).collect();
        let config = InstanceConfig { log_retention: LogRetention::UntilReleased, ..group.config.clone() };
        let refused = |error: maildb::Error| {
            let problem = format!("{}: the recovery with the joined log failed: {error}", group.names());
            Refusal::new(
                problem,
                "⟨logs⟩ none restores the backup alone; an earlier backup may reach further",
            )
        };
        let instance = Instance::open(self.world, Rc::clone(&folders[&group.log]), locations, config).await;
        instance.map_err(refused)?.close().await.map_err(refused)
    }
}

impl LogPlan {
    /// True if logs are to be joined.
    pub fn goes_further(&self) -> bool {
        self.groups.iter().any(|(_, summary)| summary.end > summary.base_end)
    }

    /// The volumes of all groups, by their points.
    pub fn volumes(&self) -> BTreeSet<usize> {
        self.groups.iter().flat_map(|(group, _)| group.volumes()).collect()
    }

    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    pub fn rows(&self) -> Vec<BroughtForwardRow> {
        let row = |(group, summary): &(BackupGroup, JoinSummary)| {
            BroughtForwardRow::of(group, summary, &self.databases)
        };
        self.groups.iter().map(row).collect()
    }

    /// The names of the files of the only databases that come back.
    pub fn database_files(&self) -> Vec<String> {
        let files = self.groups.iter().flat_map(|(group, _)| {
            group.places_of(&self.databases).into_iter().map(|place| group.databases[place].1.clone())
        });
        files.collect()
    }

    /// Deletes what was opened on the server.
    ///
    /// # Errors
    ///
    /// The server does not answer, or refuses.
    pub async fn end(self, server: &ServerConnection) -> Result<(), Refusal> {
        end_all(self.later, server).await
    }
}

async fn end_all(later: BTreeMap<usize, LaterLogs>, server: &ServerConnection) -> Result<(), Refusal> {
    let mut first = Ok(());
    for later in later.into_values() {
        first = first.and(later.delete(server).await);
    }
    first
}

impl BroughtForwardRow {
    fn of(group: &BackupGroup, summary: &JoinSummary, wanted: &[String]) -> Self {
        let places = match wanted.is_empty() {
            true => (0..group.databases.len()).collect(),
            false => group.places_of(wanted),
        };
        let hexadecimal = |generation: u32| format!("{generation:X}");
        let parts = summary.parts.iter().map(|part| JoinedPartRow {
            from: part.folder.clone(),
            first: hexadecimal(part.first),
            last: hexadecimal(part.last),
        });
        Self {
            databases: places.into_iter().map(|place| group.databases[place].1.clone()).collect(),
            time: summary.time.to_string(),
            generation: hexadecimal(summary.end.generation),
            commits: summary.commits,
            logs: parts.collect(),
        }
    }

    /// True if logs bring it further than the backup.
    pub fn goes_further(&self) -> bool {
        !self.logs.is_empty()
    }

    /// A line for a person.
    pub fn text(&self) -> String {
        let databases = self.databases.join(" and ");
        if !self.goes_further() {
            return format!("{databases}: the logs reach no further than the backup, {}", self.time);
        }
        let from: Vec<String> = self
            .logs
            .iter()
            .map(|part| match part.first == part.last {
                true => format!("{} of {}", part.first, part.from),
                false => format!("{} to {} of {}", part.first, part.last, part.from),
            })
            .collect();
        format!(
            "{databases}: {} transactions further, to {} (log generations {})",
            self.commits,
            self.time,
            from.join(", ")
        )
    }
}
