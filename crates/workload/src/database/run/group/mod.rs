//! One storage group from opening to verification, on one thread of one world.
//!
//! Its world, directories and plan are parameters. So the same code runs on real storage on a thread,
//! together with other groups on one thread, and in a simulated world.

mod ending;
mod fill;
mod measuring;
mod recording;
mod running;
mod search;
mod watchdog;

use crate::database::results::outcome::{DatabaseOutcome, GroupOutcome};
use crate::database::run::group::running::{JudgingState, MeasuredCounters, RunningLoad, SessionShortage};
use crate::{
    database::{
        load::{
            create::{CreationObserver, CreationOutcome, create},
            error::Error,
            key_space::KeySpace,
            mail_table::MailDatabase,
            operation::OperationMeter,
            scan::BackgroundScan,
            session::{GroupLoad, Store, run_session},
        },
        measure::pools::{PoolFacts, PoolSet, results_of},
        plan::{LoadPlan, RunPlan},
        results::{EngineCounters, test_log::Phase},
        run::progress::RunState,
    },
    meter::{Meter, MeteredDirectory, VolumeRole},
    pacing::Pacer,
    verdict::limits::{LimitSet, WatchLimits},
};
use maildb::{DatabaseLocation, Instance, InstanceConfig};
use report::prose::counted;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use world::{ByteCount, Directory, World};

/// Minimum growth of a database file, in pages (open ESE source: 256).
const EXTENSION_PAGES: u32 = 256;
/// Interval between samples of the load.
const TICK: Duration = Duration::from_secs(1);

/// Storage of one group. Volumes are names; groups that share a volume use the same name.
pub struct GroupStorage {
    /// Directory, file name and volume of each database.
    pub databases: Vec<(Rc<dyn Directory>, String, String)>,
    /// Directory and volume of the transaction log.
    pub log: (Rc<dyn Directory>, String),
    /// Pools below the files, if their statistics are wanted.
    pub pools: Option<Rc<dyn PoolSet>>,
}

pub struct GroupRun {
    world: World,
    plan: Rc<RunPlan>,
    number: u32,
    shared: RunState,
    storage: GroupStorage,
    /// Thresholds of slow I/O.
    limits: WatchLimits,
    /// Lines about slow operations so far.
    slow_lines: Cell<u32>,
    /// The meter of the log, then those of the volumes with databases.
    meters: Vec<Rc<Meter>>,
}

impl GroupRun {
    /// Group `number` of a run by a checked `plan`.
    pub fn new(world: &World, plan: RunPlan, number: u32, shared: RunState, storage: GroupStorage) -> Self {
        assert_eq!(storage.databases.len(), plan.databases_per_group as usize, "storage as planned");
        let limits =
            LimitSet::load(&plan.profile.limits).expect("a plan that was checked names known limits");
        let limits = limits.watch().clone();
        let mut meters = vec![Meter::new(world, storage.log.1.clone(), VolumeRole::Log, &limits)];
        for (_, _, volume) in &storage.databases {
            let known =
                meters.iter().any(|meter| meter.role() == VolumeRole::Database && meter.volume() == volume);
            if !known {
                meters.push(Meter::new(world, volume.clone(), VolumeRole::Database, &limits));
            }
        }
        Self {
            world: world.clone(),
            plan: Rc::new(plan),
            number,
            shared,
            storage,
            limits,
            slow_lines: Cell::new(0),
            meters,
        }
    }

    /// Creates or completes the databases and shuts them down cleanly; false if the run was stopped before.
    /// An error ends the other groups too.
    pub async fn prepare(self) -> Result<bool, Error> {
        let outcome = self.under_watch(self.create_only()).await;
        if outcome.is_err() {
            self.shared.abort();
        }
        self.shared.update(self.number, |progress| progress.phase = Phase::Done);
        outcome
    }

    async fn create_only(&self) -> Result<bool, Error> {
        let instance = self.or_unanswered(self.open()).await?;
        let (stores, created) = self.or_unanswered(self.create(&instance)).await?;
        drop(stores);
        self.or_unanswered(async { Ok(instance.close().await?) }).await?;
        self.or_unanswered(async { Ok(self.close_pools().await?) }).await?;
        Ok(created.iter().all(|created| created.complete))
    }

    /// Creates, fills, measures and verifies. An error ends the other groups too.
    pub async fn run(self) -> Result<GroupOutcome, Error> {
        let outcome = self.under_watch(self.phases()).await;
        if outcome.is_err() {
            self.shared.abort();
        }
        self.shared.update(self.number, |progress| progress.phase = Phase::Done);
        outcome
    }

    async fn phases(&self) -> Result<GroupOutcome, Error> {
        let began = self.world.now();
        let instance = self.or_unanswered(self.open()).await?;
        let recovered = !instance.recovery().clean;
        if recovered {
            self.say("a run that was cut short was recovered from its log");
        }
        let (stores, created) = self.or_unanswered(self.create(&instance)).await?;
        let complete = created.iter().all(|created| created.complete);
        let create_s = self.world.now().since(began).as_secs_f64();
        self.shared.meet(&self.world, 1).await;

        let mut running = self.start_load(&instance, stores);
        self.record_made(
            recovered,
            create_s,
            self.database_outcomes(&running.load, &running.tally, &created),
        );
        if complete && !self.shared.ending() {
            self.fill_cache(&instance, &mut running).await;
            self.shared.meet(&self.world, 2).await;
        }
        if complete && !self.shared.ending() {
            if self.plan.load.probe().is_some() {
                self.seek(&instance, &mut running).await;
            } else {
                let mut sampler = self.measure(&instance, &mut running).await;
                self.settle(&mut running, &mut sampler).await;
                self.record_last(&mut running);
            }
        }
        self.stop_load(&mut running).await;
        let databases = self.database_outcomes(&running.load, &running.tally, &created);
        let failures = Rc::clone(&running.load.failures);
        let RunningLoad { load, tally, frozen, .. } = running;
        drop(load);
        let frozen = frozen || !self.close(instance, &failures).await;
        if let Some(error) = failures.no_space() {
            return Err(error.into());
        }
        let (_, counts) = failures.reading();
        if counts.io + counts.engine > 0
            && let Some(error) = self.meters.iter().find_map(|meter| meter.no_space())
        {
            // The engine reports only that it has stopped; the meters know the cause.
            return Err(error.into());
        }
        let verified = if frozen || self.shared.ending() { Vec::new() } else { self.verify(&failures).await };
        let last = if frozen { Vec::new() } else { self.end_pools(&failures).await };
        self.look();
        let interrupted = self.shared.ending();
        let thread_cpu_s = tally.thread_cpu_s();
        Ok(GroupOutcome {
            group: self.number,
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
            slow: self.slow(),
            samples: tally.samples,
            engine: EngineCounters::between(&tally.statistics.0, &tally.statistics.1),
            thread_cpu_s,
            pacing: tally.pacing,
            scan: tally.scan,
            failures: failures.reading(),
            verified,
            pools: results_of(self.number, &tally.pools, last),
        })
    }

    fn say(&self, text: impl Into<String>) {
        let text: String = text.into();
        let text = if self.plan.groups > 1 { format!("group {}: {text}", self.number + 1) } else { text };
        self.shared.line(self.world.wall(), text);
    }

    /// Snapshots of the pools below.
    fn pool_facts(&self) -> Vec<PoolFacts> {
        self.storage.pools.as_ref().map(|pools| pools.facts()).unwrap_or_default()
    }

    fn base_name(&self) -> String {
        format!("E{:02}", self.number)
    }

    /// Minimum growth of a database file.
    fn extension(&self) -> ByteCount {
        ByteCount(u64::from(EXTENSION_PAGES) * self.plan.profile.page_size().bytes() as u64)
    }

    async fn open(&self) -> Result<Instance, Error> {
        let profile = &self.plan.profile;
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
            ..InstanceConfig::new(profile.page_size(), ByteCount(self.plan.cache_bytes_per_group))
        };
        let mut locations = Vec::new();
        for (directory, file_name, volume) in &self.storage.databases {
            let directory = self.metered_databases(directory, volume);
            locations.push(DatabaseLocation { directory, file_name: file_name.clone() });
        }
        Ok(Instance::open(&self.world, self.metered_log(), locations, config).await?)
    }

    fn database_meter(&self, volume: &str) -> &Rc<Meter> {
        let on = |meter: &&Rc<Meter>| meter.role() == VolumeRole::Database && meter.volume() == volume;
        self.meters.iter().find(on).expect("every volume got its meter")
    }

    fn metered_databases(&self, directory: &Rc<dyn Directory>, volume: &str) -> Rc<dyn Directory> {
        MeteredDirectory::new(Rc::clone(directory), self.database_meter(volume))
    }

    fn metered_log(&self) -> Rc<dyn Directory> {
        MeteredDirectory::new(Rc::clone(&self.storage.log.0), &self.meters[0])
    }

    /// Creates all databases concurrently.
    async fn create(&self, instance: &Instance) -> Result<(Vec<Store>, Vec<CreationOutcome>), Error> {
        let done: Rc<RefCell<Vec<(u64, u64)>>> =
            Rc::new(RefCell::new(vec![(0, self.plan.database_bytes); self.storage.databases.len()]));
        let tasks: Vec<_> = instance
            .databases()
            .into_iter()
            .enumerate()
            .map(|(index, database)| {
                let watch = GroupCreationObserver {
                    group: self.number,
                    index,
                    done: Rc::clone(&done),
                    shared: self.shared.clone(),
                };
                let mut session = instance.session();
                let extension = self.extension();
                let plan = Rc::clone(&self.plan);
                // Databases of a run differ in content.
                let seed = plan.seed ^ (u64::from(self.number) << 32 | index as u64) << 8;
                self.world.spawn("create", async move {
                    let form = plan.profile.record_form();
                    let mail = MailDatabase::attach(database, &mut session, seed, form).await?;
                    let mut keys = KeySpace::new(plan.profile.skew());
                    let wanted = ByteCount(plan.database_bytes);
                    let created = create(&mail, &mut session, &mut keys, wanted, &watch).await?;
                    let size_max = ByteCount(plan.database_bytes_max);
                    let store = Store::new(mail, keys, size_max, extension);
                    Ok::<_, Error>((store, created))
                })
            })
            .collect();
        let mut stores = Vec::new();
        let mut created = Vec::new();
        let mut failed = None;
        for task in tasks {
            match task.await {
                Ok((store, made)) => {
                    stores.push(store);
                    created.push(made);
                }
                Err(error) => {
                    self.shared.abort();
                    failed.get_or_insert(error);
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        instance.checkpoint().await?;
        for (store, made) in stores.iter().zip(&created) {
            let (name, size) = (store.mail.database.name(), store.mail.database.size());
            let records = |count| counted(count, "record");
            self.say(match (made.found, made.inserted) {
                (found, inserted) if !made.complete => {
                    let wanted = ByteCount(self.plan.database_bytes);
                    format!("{name}: ended at {size} of {wanted}, {}", records(found + inserted))
                }
                (found, 0) => format!("{name}: attached, {size}, {} read and checked", records(found)),
                (0, inserted) => format!("{name}: created, {size}, {}", records(inserted)),
                (found, inserted) => {
                    format!(
                        "{name}: {} found and checked, {} added, {size}",
                        records(found),
                        records(inserted)
                    )
                }
            });
        }
        Ok((stores, created))
    }

    fn start_load(&self, instance: &Instance, stores: Vec<Store>) -> RunningLoad {
        let (profile, world) = (&self.plan.profile, &self.world);
        let pacer = match self.plan.load {
            LoadPlan::Threads { .. } => Pacer::closed(world),
            LoadPlan::Mailboxes { .. } => {
                let target = self.plan.load.target_iops().expect("mailboxes have a rate");
                let random = world.random(&format!("arrivals of group {}", self.number));
                Pacer::held(world, target / f64::from(self.plan.groups), random)
            }
            LoadPlan::Maximum { .. } | LoadPlan::TunedThreads { .. } => {
                let pacer = Pacer::closed(world);
                pacer.let_work(profile.threads_per_group());
                pacer
            }
        };
        let scan = profile.scan().map(|(rate, batch)| {
            let targets = stores.iter().zip(&self.storage.databases).map(|(store, (_, _, volume))| {
                (store.mail.database.clone(), Rc::clone(self.database_meter(volume)))
            });
            BackgroundScan::start(world, targets.collect(), rate, batch, profile.page_size())
        });
        let load = Rc::new(GroupLoad {
            world: world.clone(),
            stores,
            pacer: Rc::clone(&pacer),
            mix: profile.mix(),
            lazy_commit_percent: profile.lazy_commit_percent(),
            operations_per_transaction: profile.operations_per_transaction(),
            meter: OperationMeter::default(),
            failures: Rc::default(),
        });
        let sessions = (0..self.plan.sessions())
            .map(|number| {
                let random = world.random(&format!("session {number} of group {}", self.number));
                world.spawn("session", run_session(Rc::clone(&load), number, instance.session(), random))
            })
            .collect();
        let is_held = self.plan.load.target_iops().is_some();
        let arrivals = is_held.then(|| world.spawn("arrivals", async move { pacer.run_arrivals().await }));
        let (tally, recent, seconds) = Default::default();
        RunningLoad { load, sessions, arrivals, scan, tally, recent, seconds, frozen: false }
    }

    fn database_outcomes(
        &self,
        load: &GroupLoad,
        tally: &MeasuredCounters,
        created: &[CreationOutcome],
    ) -> Vec<DatabaseOutcome> {
        let databases = load.stores.iter().zip(&self.storage.databases).zip(created).enumerate();
        databases
            .map(|(index, ((store, (_, name, volume)), created))| {
                let bytes_after = store.mail.database.size().0;
                DatabaseOutcome {
                    name: name.clone(),
                    volume: volume.clone(),
                    created: *created,
                    bytes_before: tally.bytes_before.get(index).copied().unwrap_or(bytes_after),
                    bytes_after,
                    records: store.keys.borrow().existing(),
                    became_full: store.is_full(),
                }
            })
            .collect()
    }
}

struct GroupCreationObserver {
    group: u32,
    index: usize,
    done: Rc<RefCell<Vec<(u64, u64)>>>,
    shared: RunState,
}

impl CreationObserver for GroupCreationObserver {
    fn progress(&self, done: ByteCount, total: ByteCount) {
        let mut all = self.done.borrow_mut();
        all[self.index] = (done.0.min(total.0), total.0);
        let sum = all.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        self.shared.update(self.group, |progress| {
            progress.phase = Phase::Create;
            progress.fraction = sum.0 as f64 / sum.1.max(1) as f64;
            progress.bytes = Some(sum);
        });
    }

    fn stopped(&self) -> bool {
        self.shared.ending()
    }
}
