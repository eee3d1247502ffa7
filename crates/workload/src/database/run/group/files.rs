//! The files of a group: opening, closing and verification.

use super::{context::GroupContext, control::ControlPlace, watchdog::Watchdog};
use crate::{
    database::{
        load::{
            error::Error,
            operation::{FailureKind, FailureLog, RunFailure},
        },
        measure::{
            pools::{PoolFacts, PoolSet},
            verify::{VerifiedFile, verify_group_logs, verify_one_database},
        },
        record::RunEvent,
        results::test_log::Phase,
    },
    meter::{Meter, MeteredDirectory, VolumeRole},
    verdict::limits::WatchLimits,
};
use maildb::{DatabaseLocation, Instance, InstanceConfig, LogRetention, log::LogNames};
use report::prose::counted;
use std::rc::Rc;
use world::{ByteCount, Directory, IoResult, World};

/// Minimum growth of a database file, in pages (open ESE source: 256).
const EXTENSION_PAGES: u32 = 256;
const LOG_FILE_EXTENSION: &str = ".log";

/// Storage of one group. Volumes are names; groups that share a volume use the same name.
pub struct GroupStorage {
    /// Directory, file name and volume of each database.
    pub databases: Vec<(Rc<dyn Directory>, String, String)>,
    /// Directory and volume of the transaction log.
    pub log: (Rc<dyn Directory>, String),
    /// Pools below the files, if their statistics are wanted.
    pub pools: Option<Rc<dyn PoolSet>>,
    /// The place at which others freeze the group while it is under load.
    pub control: Option<ControlPlace>,
}

impl GroupStorage {
    /// The meter of the log, then one for each volume with databases.
    pub(super) fn meters(&self, world: &World, limits: &WatchLimits) -> Vec<Rc<Meter>> {
        let mut meters = vec![Meter::new(world, self.log.1.clone(), VolumeRole::Log, limits)];
        for (_, _, volume) in &self.databases {
            let known =
                meters.iter().any(|meter| meter.role() == VolumeRole::Database && meter.volume() == volume);
            if !known {
                meters.push(Meter::new(world, volume.clone(), VolumeRole::Database, limits));
            }
        }
        meters
    }
}

/// The metered files of one group.
pub(super) struct GroupFiles {
    context: GroupContext,
    pub(super) storage: GroupStorage,
}

impl GroupFiles {
    pub(super) fn new(context: GroupContext, storage: GroupStorage) -> Self {
        Self { context, storage }
    }

    pub(super) fn control(&self) -> Option<&ControlPlace> {
        self.storage.control.as_ref()
    }

    fn base_name(&self) -> String {
        format!("E{:02}", self.context.number)
    }

    /// Minimum growth of a database file.
    pub(super) fn extension(&self) -> ByteCount {
        ByteCount(u64::from(EXTENSION_PAGES) * self.context.plan.profile.page_size().bytes() as u64)
    }

    pub(super) async fn open(&self) -> Result<Instance, Error> {
        let profile = &self.context.plan.profile;
        let (start_flush_percent, stop_flush_percent) = profile.flush_thresholds_percent();
        let of_backups = self.context.backup_cutter().is_some_and(|(plan, _)| plan.keeps_logs);
        let keeps_logs = of_backups || self.control().is_some_and(|place| place.keeps_logs);
        let config = InstanceConfig {
            log_retention: if keeps_logs { LogRetention::UntilReleased } else { LogRetention::Circular },
            base_name: self.base_name(),
            start_flush_percent,
            stop_flush_percent,
            checkpoint_depth: profile.checkpoint_depth(),
            coalesce: profile.coalesce(),
            torn_page_protection: profile.torn_page_protection(),
            page_stamps: profile.page_stamps(),
            log_buffer: profile.log_buffer(),
            log_file: profile.log_file(),
            lazy_commit_delay: profile.lazy_commit_delay(),
            extension_pages: EXTENSION_PAGES,
            ..InstanceConfig::new(profile.page_size(), ByteCount(self.context.plan.cache_bytes_per_group))
        };
        let mut locations = Vec::new();
        for (directory, file_name, volume) in &self.storage.databases {
            let directory = self.metered_databases(directory, volume);
            locations.push(DatabaseLocation { directory, file_name: file_name.clone() });
        }
        Ok(Instance::open(&self.context.world, self.metered_log(), locations, config).await?)
    }

    pub(super) fn database_meter(&self, volume: &str) -> &Rc<Meter> {
        let on = |meter: &&Rc<Meter>| meter.role() == VolumeRole::Database && meter.volume() == volume;
        self.context.meters.iter().find(on).expect("every volume got its meter")
    }

    fn metered_databases(&self, directory: &Rc<dyn Directory>, volume: &str) -> Rc<dyn Directory> {
        MeteredDirectory::new(Rc::clone(directory), self.database_meter(volume))
    }

    fn metered_log(&self) -> Rc<dyn Directory> {
        MeteredDirectory::new(Rc::clone(&self.storage.log.0), &self.context.meters[0])
    }

    /// Writes back the cache and closes the files; false if the storage does not answer.
    pub(super) async fn close(&self, instance: Instance, watchdog: &Watchdog, failures: &FailureLog) -> bool {
        match watchdog.within_limit(instance.close()).await {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                failures.note_engine(&error);
                true
            }
            None => {
                watchdog.note_frozen(failures);
                false
            }
        }
    }

    /// Takes the last snapshots of the pools and closes them. An error fails the run.
    pub(super) async fn end_pools(&self, watchdog: &Watchdog, failures: &FailureLog) -> Vec<PoolFacts> {
        let last = self.context.pool_facts();
        match watchdog.within_limit(self.close_pools()).await {
            Some(Ok(())) => {}
            Some(Err(error)) => failures.note(RunFailure { kind: FailureKind::Io, text: error.to_string() }),
            None => watchdog.note_frozen(failures),
        }
        last
    }

    pub(super) async fn close_pools(&self) -> IoResult<()> {
        match &self.context.pools {
            Some(pools) => pools.close().await,
            None => Ok(()),
        }
    }

    /// Sizes of all databases, then of the log.
    async fn sizes(&self) -> IoResult<Vec<u64>> {
        let mut sizes = Vec::new();
        for (directory, name, volume) in &self.storage.databases {
            let directory = self.metered_databases(directory, volume);
            sizes.push(directory.open(name).await?.geometry().size.0);
        }
        let (base_name, entries) = (self.base_name(), self.metered_log().list().await?);
        // The file that is prepared for the next generation is not verified.
        let prepared = LogNames::new(&base_name).temporary();
        let logs = entries
            .iter()
            .filter(|entry| entry.name.starts_with(&base_name) && entry.name.ends_with(LOG_FILE_EXTENSION));
        let logs = logs.filter(|entry| entry.name != prepared);
        sizes.push(logs.map(|entry| entry.size.0).sum());
        Ok(sizes)
    }

    /// Verifies every file, databases first, until the run must end. A read error fails the run but does not
    /// end it.
    pub(super) async fn verify(&self, watchdog: &Watchdog, failures: &FailureLog) -> Vec<VerifiedFile> {
        let given_up = || self.context.state.ending() || watchdog.limit_exceeded();
        // Without the sizes, which only the display needs, the total grows from file to file.
        let sizes = watchdog.unless(self.sizes(), given_up).await.and_then(Result::ok).unwrap_or_default();
        let total_bytes = sizes.iter().sum();
        self.context.progress(|progress| progress.live = None);
        self.context.reach(Phase::Verify, 0, total_bytes);
        let files = self.storage.databases.len() + 1;
        let mut verified = Vec::new();
        for index in 0..files {
            let (context, earlier_bytes) = (&self.context, sizes.iter().take(index).sum::<u64>());
            let mut on_progress = |done: ByteCount, all: ByteCount| {
                let total_bytes = total_bytes.max(earlier_bytes + all.0);
                context.reach(Phase::Verify, earlier_bytes + done.0, total_bytes);
            };
            let checking = async {
                match self.storage.databases.get(index) {
                    Some((directory, name, volume)) => {
                        let directory = self.metered_databases(directory, volume);
                        verify_one_database(&self.context.world, &directory, name, &mut on_progress).await
                    }
                    None => {
                        let (log, base_name) = (self.metered_log(), self.base_name());
                        verify_group_logs(&self.context.world, &log, &base_name, &mut on_progress).await
                    }
                }
            };
            match watchdog.unless(checking, given_up).await {
                Some(Ok(file)) => {
                    file.failures().for_each(|failure| failures.note(failure));
                    let (size, damaged) = (ByteCount(file.bytes), file.damaged.len());
                    let unjudged = if file.blank_unjudged {
                        format!(", {} not judged", counted(file.empty, "blank page"))
                    } else {
                        String::new()
                    };
                    self.context.say(format!("{}: {size} verified, {damaged} damaged{unjudged}", file.name));
                    self.context
                        .record(|| RunEvent::Verified { group: self.context.number, file: file.clone() });
                    verified.push(file);
                }
                Some(Err(error)) => {
                    failures.note(RunFailure { kind: FailureKind::Io, text: error.to_string() });
                }
                None => {
                    if watchdog.limit_exceeded() {
                        watchdog.note_frozen(failures);
                    }
                    self.context.say(format!("verification ends after {index} of {files} files"));
                    break;
                }
            }
        }
        verified
    }
}
