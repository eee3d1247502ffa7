//! Recovery of a storage group as after a crash, with a check of everything before and after: for copies that show whether
//! the original could be recovered. It writes to them.

use super::verify::{VerifiedFile, verify_group_logs, verify_one_database};
use crate::database::{load::error::Error, plan::profile::ServerProfile};
use maildb::{DatabaseLocation, Instance, InstanceConfig, PageSize, RecoverySummary, log::LogNames};
use std::rc::Rc;
use verify::in_world::{LogFileReport, verify_logs};
use world::{ByteCount, Directory, IoErrorKind, World};

/// Page cache of the recovery.
const CACHE: ByteCount = ByteCount::mib(64);

/// The files of a storage group.
pub struct RecoveredGroup {
    /// Prefix of its log files.
    pub base_name: String,
    pub log: Rc<dyn Directory>,
    /// Directory and file name of each database, in their order.
    pub databases: Vec<(Rc<dyn Directory>, String)>,
    pub page_size: PageSize,
    /// Built-in profile of the run that made it; unknown ones take the defaults of the engine.
    pub profile: String,
}

/// The end of a recovery.
#[derive(Clone, Debug)]
pub enum GroupRecovery {
    /// The databases have every committed transaction, and were shut down cleanly.
    Recovered(RecoverySummary),
    /// One sentence for each problem.
    Failed(Vec<String>),
}

impl RecoveredGroup {
    /// Checks the log and recovers the databases.
    ///
    /// # Errors
    ///
    /// The connection to the storage was lost.
    pub async fn recover(&self, world: &World) -> Result<GroupRecovery, Error> {
        let missing = self.missing_files().await?;
        if !missing.is_empty() {
            return Ok(GroupRecovery::Failed(missing));
        }
        // Before the recovery: its checkpoint may remove a damaged file that it did not need.
        let damaged = match self.log_damage().await {
            Ok(damaged) => damaged,
            Err(error) => vec![problem_of(error)?],
        };
        if !damaged.is_empty() {
            return Ok(GroupRecovery::Failed(damaged));
        }
        match self.replay(world).await {
            Ok(summary) => Ok(GroupRecovery::Recovered(summary)),
            Err(error) => Ok(GroupRecovery::Failed(vec![problem_of(error.into())?])),
        }
    }

    /// Checks every page of the databases and the log, after the recovery. `on_file` gets each file's name before it is read.
    ///
    /// # Errors
    ///
    /// The connection to the storage was lost.
    pub async fn verify(
        &self,
        world: &World,
        on_file: &mut dyn FnMut(&str),
    ) -> Result<Vec<VerifiedFile>, Error> {
        let mut files = Vec::new();
        for (directory, name) in &self.databases {
            on_file(name);
            let verified = verify_one_database(world, directory, name, &mut |_, _| {}).await;
            files.push(verified.or_else(|error| unread(name, error))?);
        }
        let logs = format!("log files {}*", self.base_name);
        on_file(&logs);
        let verified = verify_group_logs(world, &self.log, &self.base_name, &mut |_, _| {}).await;
        files.push(verified.or_else(|error| unread(&logs, error))?);
        Ok(files)
    }

    /// An engine would make them.
    async fn missing_files(&self) -> Result<Vec<String>, Error> {
        let mut missing = Vec::new();
        for (directory, name) in &self.databases {
            match directory.open(name).await {
                Ok(_) => {}
                Err(error) if error.kind() == IoErrorKind::NotFound => {
                    missing.push(format!("{name} is missing"));
                }
                Err(error) => missing.push(format!("{name}: {}", problem_of(error.into())?)),
            }
        }
        let names = LogNames::new(&self.base_name);
        let entries = self.log.list().await?;
        if !entries.iter().any(|entry| names.owns(&entry.name) && entry.name.ends_with(".log")) {
            missing.push(format!("{} has no log file", self.base_name));
        }
        Ok(missing)
    }

    /// The damage of the log but for its last file: what a crash tore there, the recovery tells from damage.
    async fn log_damage(&self) -> Result<Vec<String>, Error> {
        let report = verify_logs(&self.log, &self.base_name, &mut |_, _| {}).await?;
        let has_successor = |file: &&LogFileReport| file.recorded_end.is_some();
        let damaged = report.files.iter().filter(has_successor).filter(|file| !file.is_clean());
        let mut damaged: Vec<String> = damaged.map(|file| format!("{}: it is damaged", file.name)).collect();
        damaged.extend(report.broken.iter().map(|broken| format!("the log is damaged: {broken}")));
        Ok(damaged)
    }

    async fn replay(&self, world: &World) -> maildb::Result<RecoverySummary> {
        let plain = InstanceConfig::new(self.page_size, CACHE);
        let config = match ServerProfile::load(&self.profile) {
            Ok(profile) => InstanceConfig {
                torn_page_protection: profile.torn_page_protection(),
                page_stamps: profile.page_stamps(),
                log_file: profile.log_file(),
                checkpoint_depth: profile.checkpoint_depth(),
                ..plain
            },
            Err(_) => plain,
        };
        let config = InstanceConfig { base_name: self.base_name.clone(), ..config };
        let location = |(directory, name): &(Rc<dyn Directory>, String)| DatabaseLocation {
            directory: Rc::clone(directory),
            file_name: name.clone(),
        };
        let locations = self.databases.iter().map(location).collect();
        let instance = Instance::open(world, Rc::clone(&self.log), locations, config).await?;
        let summary = instance.recovery();
        instance.close().await?;
        Ok(summary)
    }
}

/// The sentence about damage. A connection that was lost says nothing about the copy and stays an error.
fn problem_of(error: Error) -> Result<String, Error> {
    match error.storage_kind() {
        Some(IoErrorKind::Disconnected | IoErrorKind::CacheLost) => Err(error),
        _ => Ok(error.to_string()),
    }
}

/// A file that is so damaged that it could not be checked.
fn unread(name: &str, error: Error) -> Result<VerifiedFile, Error> {
    Ok(VerifiedFile {
        name: name.to_owned(),
        bytes: 0,
        seconds: 0.0,
        good: 0,
        empty: 0,
        blank_unjudged: false,
        damaged: vec![problem_of(error)?],
    })
}
