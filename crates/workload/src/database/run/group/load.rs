//! A group's load while it runs: sessions, arrivals and background scan.

use super::{
    context::GroupContext,
    counters::{MeasuredCounters, RecentThroughput, SessionShortage},
    files::GroupFiles,
    watchdog::Watchdog,
};
use crate::{
    database::{
        load::{
            answer_gap::AnswerGap,
            create::CreationOutcome,
            operation::OperationMeter,
            scan::BackgroundScan,
            session::{SessionContext, Store, run_session},
        },
        measure::sample::{Sample, Sampler},
        plan::LoadPlan,
        results::outcome::DatabaseOutcome,
        run::progress::LiveFigures,
    },
    meter::{IoTallies, VolumeRole},
    pacing::Pacer,
};
use maildb::Instance;
use std::{cell::Cell, rc::Rc};
use world::JoinHandle;

/// The sessions of a group at work, with the counters of their measured time.
pub(super) struct RunningLoad {
    pub(super) context: GroupContext,
    pub(super) group: Rc<SessionContext>,
    pub(super) sessions: Vec<JoinHandle<()>>,
    pub(super) arrivals: Option<JoinHandle<()>>,
    pub(super) scan: Option<BackgroundScan>,
    pub(super) tally: MeasuredCounters,
    pub(super) recent: Cell<RecentThroughput>,
    /// Since the current trial began.
    pub(super) seconds: Cell<SessionShortage>,
    /// True if the storage stopped answering; waits for it are abandoned.
    pub(super) frozen: bool,
}

impl RunningLoad {
    /// Starts sessions, arrivals and scan over `stores`.
    pub(super) fn start(
        context: GroupContext,
        files: &GroupFiles,
        instance: &Instance,
        stores: Vec<Store>,
    ) -> Self {
        let (plan, world) = (Rc::clone(&context.plan), context.world.clone());
        let (profile, world) = (&plan.profile, &world);
        let pacer = match plan.load {
            LoadPlan::Threads { .. } => Pacer::closed(world),
            LoadPlan::Mailboxes { .. } => {
                let target = plan.load.target_iops().expect("mailboxes have a rate");
                let random = world.random(&format!("arrivals of group {}", context.number));
                Pacer::held(world, target / f64::from(plan.groups), random)
            }
            LoadPlan::Maximum { .. } | LoadPlan::TunedThreads { .. } => {
                let pacer = Pacer::closed(world);
                pacer.let_work(profile.threads_per_group());
                pacer
            }
        };
        let scan = profile.scan().map(|(rate, batch)| {
            let targets = stores.iter().zip(&files.storage.databases).map(|(store, (_, _, volume))| {
                (store.mail.database.clone(), Rc::clone(files.database_meter(volume)))
            });
            BackgroundScan::start(world, targets.collect(), rate, batch, profile.page_size())
        });
        let group = Rc::new(SessionContext {
            world: world.clone(),
            stores,
            pacer: Rc::clone(&pacer),
            mix: profile.mix(),
            lazy_commit_percent: profile.lazy_commit_percent(),
            operations_per_transaction: profile.operations_per_transaction(),
            meter: OperationMeter::default(),
            failures: Rc::default(),
            gap: AnswerGap::default(),
        });
        let sessions = (0..plan.sessions())
            .map(|number| {
                let random = world.random(&format!("session {number} of group {}", context.number));
                world.spawn("session", run_session(Rc::clone(&group), number, instance.session(), random))
            })
            .collect();
        let is_held = plan.load.target_iops().is_some();
        let arrivals = is_held.then(|| world.spawn("arrivals", async move { pacer.run_arrivals().await }));
        let (tally, recent, seconds) = Default::default();
        Self { context, group, sessions, arrivals, scan, tally, recent, seconds, frozen: false }
    }

    pub(super) fn outcomes(&self, files: &GroupFiles, created: &[CreationOutcome]) -> Vec<DatabaseOutcome> {
        let databases = self.group.stores.iter().zip(&files.storage.databases).zip(created).enumerate();
        databases
            .map(|(index, ((store, (_, name, volume)), created))| {
                let bytes_after = store.mail.database.size().0;
                DatabaseOutcome {
                    name: name.clone(),
                    volume: volume.clone(),
                    created: *created,
                    bytes_before: self.tally.bytes_before.get(index).copied().unwrap_or(bytes_after),
                    bytes_after,
                    records: store.keys.borrow().existing(),
                    became_full: store.is_full(),
                }
            })
            .collect()
    }

    pub(super) fn sampler(&self, instance: &Instance) -> Sampler {
        let operations = &self.group.meter;
        Sampler::new(self.context.meters.clone(), operations, self.context.world.now(), instance.statistics())
    }

    pub(super) fn is_ended(&self) -> bool {
        self.context.state.ending() || self.group.pacer.is_stopped()
    }

    pub(super) fn tick(&self, instance: &Instance, sampler: &mut Sampler) -> Sample {
        sampler.tick(self.context.world.now(), instance.statistics(), &self.group.meter, &self.group.pacer)
    }

    /// Reports a sample to the pacer and the progress display, and notices full databases.
    pub(super) fn observe(&self, sample: &Sample) {
        let (mut database, mut log) = (IoTallies::default(), IoTallies::default());
        for (meter, tallies) in self.context.meters.iter().zip(&sample.volumes) {
            match meter.role() {
                VolumeRole::Database => database.merge(tallies),
                VolumeRole::Log => log.merge(tallies),
            }
        }
        let io = database.read.count + database.write.count;
        self.group.pacer.observe(io, sample.operations.count, self.group.meter.outstanding());
        let recent = self.recent.get();
        self.recent.set(recent.followed_by(io, sample.operations.count, sample.span_s));
        let SessionShortage { all, without_sessions } = self.seconds.get();
        let lacking = u32::from(self.group.pacer.lacks_sessions());
        self.seconds.set(SessionShortage { all: all + 1, without_sessions: without_sessions + lacking });
        let span_s = sample.span_s.max(1e-9);
        let live = LiveFigures {
            database_iops: io as f64 / span_s,
            database_read_ms: database.read.average_ms(),
            database_write_ms: database.write.average_ms(),
            log_write_ms: log.write.average_ms(),
            operations_per_second: sample.operations.count as f64 / span_s,
            backlog: sample.backlog,
        };
        self.context.progress(|progress| progress.live = Some(live));
        for store in self.group.stores.iter().filter(|store| store.became_full()) {
            let (name, size) = (store.mail.database.name(), store.mail.database.size());
            self.context.say(format!(
                "{name} is full with {size}: from now on as many records are deleted as inserted"
            ));
        }
    }

    /// Stops sessions, arrivals and scan. Their operations complete if the storage answers.
    pub(super) async fn stop(&mut self, watchdog: &Watchdog) {
        self.group.pacer.stop();
        if let Some(scan) = &self.scan {
            scan.stop();
        }
        let sessions = std::mem::take(&mut self.sessions);
        let (arrivals, scan) = (self.arrivals.take(), self.scan.take());
        let failures = Rc::clone(&self.group.failures);
        let ending = async {
            for session in sessions {
                session.await;
            }
            if let Some(arrivals) = arrivals {
                arrivals.await;
            }
            if let Some(scan) = scan {
                for damage in scan.join().await {
                    failures.note(damage);
                }
            }
        };
        self.frozen = watchdog.within_limit(ending).await.is_none();
        if self.frozen {
            watchdog.note_frozen(&self.group.failures);
        }
    }
}
