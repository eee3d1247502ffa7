//! One storage group from opening to verification, on one thread of one world.
//!
//! Its world, directories and plan are parameters. So the same code runs on real storage on a thread,
//! together with other groups on one thread, and in a simulated world.

mod cache_fill;
mod context;
mod control;
mod counters;
mod creation;
mod files;
mod frozen_sessions;
mod load;
mod mailboxes;
mod measurement;
mod protection;
mod recording;
mod trials;
mod watchdog;

use crate::{
    database::{
        load::error::Error,
        measure::pools::results_of,
        plan::RunPlan,
        record::{DatabasesReady, RunEvent},
        results::{EngineCounters, outcome::GroupOutcome, test_log::Phase},
        run::progress::RunState,
    },
    verdict::limits::LimitSet,
};
use cache_fill::fill_cache;
use context::GroupContext;
use control::RunningControl;
use creation::create_databases;
use files::GroupFiles;
use load::RunningLoad;
use measurement::Measurement;
use protection::RunningProtection;
use std::{rc::Rc, time::Duration};
use trials::TrialRunner;
use watchdog::Watchdog;
use world::World;

pub use control::ControlPlace;
pub use files::GroupStorage;
pub use protection::BACKUP_PREFIX;

/// Interval between samples of the load.
const TICK: Duration = Duration::from_secs(1);

/// The flow of one group's run.
pub struct GroupRun {
    context: GroupContext,
    files: GroupFiles,
    watchdog: Watchdog,
}

impl GroupRun {
    /// Group `number` of a run by a checked `plan`.
    pub fn new(world: &World, plan: RunPlan, number: u32, state: RunState, storage: GroupStorage) -> Self {
        assert_eq!(storage.databases.len(), plan.databases_per_group as usize, "storage as planned");
        let limits =
            LimitSet::load(&plan.profile.limits).expect("a plan that was checked names known limits");
        let meters = storage.meters(world, limits.watch());
        let context = GroupContext {
            world: world.clone(),
            plan: Rc::new(plan),
            number,
            state,
            meters,
            pools: storage.pools.clone(),
        };
        Self {
            files: GroupFiles::new(context.clone(), storage),
            watchdog: Watchdog::new(context.clone(), limits.watch().slow.clone()),
            context,
        }
    }

    /// Creates or completes the databases and shuts them down cleanly; false if the run was stopped before.
    /// An error ends the other groups too.
    pub async fn prepare(self) -> Result<bool, Error> {
        let outcome = self.watchdog.guard(self.create_only()).await;
        if outcome.is_err() {
            self.context.state.abort();
        }
        self.context.progress(|progress| progress.phase = Phase::Done);
        outcome
    }

    async fn create_only(&self) -> Result<bool, Error> {
        let instance = self.watchdog.or_fail(self.files.open()).await?;
        let (stores, created) =
            self.watchdog.or_fail(create_databases(&self.context, &self.files, &instance)).await?;
        drop(stores);
        self.watchdog.or_fail(async { Ok(instance.close().await?) }).await?;
        self.watchdog.or_fail(async { Ok(self.files.close_pools().await?) }).await?;
        Ok(created.iter().all(|created| created.complete))
    }

    /// Creates, fills, measures and verifies. An error ends the other groups too.
    pub async fn run(self) -> Result<GroupOutcome, Error> {
        let outcome = self.watchdog.guard(self.phases()).await;
        if outcome.is_err() {
            self.context.state.abort();
        }
        self.context.progress(|progress| progress.phase = Phase::Done);
        outcome
    }

    async fn phases(&self) -> Result<GroupOutcome, Error> {
        let began = self.context.world.now();
        let instance = self.watchdog.or_fail(self.files.open()).await?;
        let recovered = !instance.recovery().clean;
        if recovered {
            self.context.say("a run that was cut short was recovered from its log");
        }
        let (stores, created) =
            self.watchdog.or_fail(create_databases(&self.context, &self.files, &instance)).await?;
        let complete = created.iter().all(|created| created.complete);
        let create_s = self.context.world.now().since(began).as_secs_f64();
        self.context.meet(1).await;

        let mut load = RunningLoad::start(self.context.clone(), &self.files, &instance, stores);
        let outside = (&instance, self.files.control());
        let control = RunningControl::start(&self.context, &load.group, outside).await?;
        let databases = load.outcomes(&self.files, &created);
        self.context.record(|| {
            RunEvent::Made(DatabasesReady { group: self.context.number, recovered, create_s, databases })
        });
        if complete && !self.context.state.ending() {
            fill_cache(&mut load, &instance).await;
            self.context.meet(2).await;
        }
        let mut backups = Vec::new();
        if complete && !self.context.state.ending() {
            if self.context.plan.load.probe().is_some() {
                TrialRunner { instance: &instance, load: &mut load }.run(&self.watchdog).await;
            } else {
                let protection = RunningProtection::start(&self.context, &load.group, &instance);
                let mut measurement = Measurement { instance: &instance, load: &mut load };
                let mut sampler = measurement.run().await;
                if let Some(protection) = protection {
                    // A backup waits for the storage too.
                    backups = self.watchdog.within_limit(protection.stop()).await.unwrap_or_default();
                }
                measurement.settle(&self.watchdog, &mut sampler).await;
                load.record_end();
            }
        }
        if let Some(control) = control {
            self.watchdog.within_limit(control.stop()).await;
        }
        load.stop(&self.watchdog).await;
        let databases = load.outcomes(&self.files, &created);
        let failures = Rc::clone(&load.group.failures);
        let RunningLoad { group, tally, frozen, .. } = load;
        drop(group);
        let frozen = frozen || !self.files.close(instance, &self.watchdog, &failures).await;
        if let Some(error) = failures.no_space() {
            return Err(error.into());
        }
        let (_, counts) = failures.reading();
        if counts.io + counts.engine > 0
            && let Some(error) = self.context.meters.iter().find_map(|meter| meter.no_space())
        {
            // The engine reports only that it has stopped; the meters know the cause.
            return Err(error.into());
        }
        let verified = if frozen || self.context.state.ending() {
            Vec::new()
        } else {
            self.files.verify(&self.watchdog, &failures).await
        };
        let last = if frozen { Vec::new() } else { self.files.end_pools(&self.watchdog, &failures).await };
        self.watchdog.look();
        let interrupted = self.context.state.ending();
        let thread_cpu_s = tally.thread_cpu_s();
        Ok(GroupOutcome {
            group: self.context.number,
            recovered,
            databases,
            create_s,
            fill: tally.fill,
            measured_s: tally.measured_s,
            load_s: tally.load_s,
            interrupted,
            meters: tally.meters,
            operations: tally.operations,
            late: tally.late,
            slow: self.context.slow(),
            samples: tally.samples,
            engine: EngineCounters::between(&tally.statistics.0, &tally.statistics.1),
            thread_cpu_s,
            pacing: tally.pacing,
            scan: tally.scan,
            failures: failures.reading(),
            verified,
            pools: results_of(self.context.number, &tally.pools, last),
            backups,
        })
    }
}
