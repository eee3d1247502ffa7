//! The files of a group: opening, closing and verification.

use super::{context::GroupContext, watchdog::Watchdog};
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
use maildb::{DatabaseLocation, Instance, InstanceConfig};
use report::prose::counted;
use std::rc::Rc;
use world::{ByteCount, Directory, IoResult, World};

/// Minimum growth of a database file, in pages (open ESE source: 256).
const EXTENSION_PAGES: u32 = 256;

/// Storage of one group. Volumes are names; groups that share a volume use the same name.
pub struct GroupStorage {
    /// Directory, file name and volume of each database.
    pub databases: Vec<(Rc<dyn Directory>, String, String)>,
    /// Directory and volume of the transaction log.
    pub log: (Rc<dyn Directory>, String),
    /// Pools below the files, if their statistics are wanted.
    pub pools: Option<Rc<dyn PoolSet>>,
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
        let config = InstanceConfig {
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

    /// Verifies every file, databases first, until the run must end. A read error fails the run but does not
    /// end it.
    pub(super) async fn verify(&self, watchdog: &Watchdog, failures: &FailureLog) -> Vec<VerifiedFile> {
        let total: u64 = self.storage.databases.len() as u64 + 1;
        let mut verified = Vec::new();
        for index in 0..total as usize {
            let context = self.context.clone();
            let mut on_progress = move |done: ByteCount, all: ByteCount| {
                let within = done.0 as f64 / all.0.max(1) as f64;
                context.progress(|progress| {
                    progress.phase = Phase::Verify;
                    progress.fraction = (index as f64 + within) / total as f64;
                    progress.bytes = Some((done.0, all.0));
                    progress.live = None;
                });
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
            match watchdog.unless(checking, || self.context.state.ending() || watchdog.limit_exceeded()).await
            {
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
                    self.context.say(format!("verification ends after {index} of {total} files"));
                    break;
                }
            }
        }
        verified
    }
}
