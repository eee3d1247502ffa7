//! Backups of a group while its load is measured: taken on a schedule, labelled, and the oldest removed once a
//! new one is there.

use super::{
    context::GroupContext,
    frozen_sessions::{FrozenSessions, answer_gap},
};
use crate::database::{
    load::session::SessionContext, plan::protection::ProtectionPlan, results::backups::BackupResults,
};
use maildb::{GroupFreezer, Instance};
use protect::backup::{BackupCutter, BackupLabel, BackupOutcome, BackupPolicy, BackupSet, start_backup};
use std::{cell::Cell, collections::VecDeque, rc::Rc, time::Duration};
use world::{JoinHandle, Moment};

/// Names of a run's backups begin so.
pub const BACKUP_PREFIX: &str = "backup-";
/// Interval between checks for the end of the load.
const POLL: Duration = Duration::from_millis(5);

/// Backups being taken.
pub(super) struct RunningProtection {
    task: JoinHandle<Vec<BackupResults>>,
    stops: Rc<Cell<bool>>,
}

impl RunningProtection {
    /// Starts to take backups, if the plan says so and the storage can cut.
    pub(super) fn start(
        context: &GroupContext,
        load: &Rc<SessionContext>,
        instance: &Instance,
    ) -> Option<Self> {
        let (plan, cutter) = context.backup_cutter()?;
        let stops = Rc::<Cell<bool>>::default();
        let group = FrozenSessions::new(context, load, instance);
        let logs = KeptLogs { freezer: instance.freezer(), frozen_at: Rc::clone(group.generation()) };
        let keeper = BackupKeeper {
            context: context.clone(),
            load: Rc::clone(load),
            plan,
            set: BackupSet { things: vec![Rc::new(group)], cutter: Rc::clone(&cutter) },
            cutter,
            logs: plan.keeps_logs.then_some(logs),
            stops: Rc::clone(&stops),
            began: context.world.now(),
            kept: VecDeque::new(),
            taken: Vec::new(),
        };
        let task = context.world.spawn("backups", keeper.work());
        Some(Self { task, stops })
    }

    /// Ends it after the backup that is being taken.
    pub(super) async fn stop(self) -> Vec<BackupResults> {
        self.stops.set(true);
        self.task.await
    }
}

/// Log generations that stay until a backup has them.
struct KeptLogs {
    freezer: GroupFreezer,
    /// The generation that began with the last freeze: a backup has all before it.
    frozen_at: Rc<Cell<Option<u32>>>,
}

impl KeptLogs {
    async fn release(&self) -> maildb::Result<()> {
        match self.frozen_at.take() {
            Some(generation) => self.freezer.release_logs(generation).await.map(drop),
            None => Ok(()),
        }
    }
}

struct BackupKeeper {
    context: GroupContext,
    load: Rc<SessionContext>,
    plan: ProtectionPlan,
    set: BackupSet,
    cutter: Rc<dyn BackupCutter>,
    /// `None` if logs go with the checkpoint.
    logs: Option<KeptLogs>,
    stops: Rc<Cell<bool>>,
    began: Moment,
    /// Names of the backups that are there, oldest first.
    kept: VecDeque<String>,
    taken: Vec<BackupResults>,
}

impl BackupKeeper {
    async fn work(mut self) -> Vec<BackupResults> {
        let run = self.context.world.wall().seconds;
        for number in 1.. {
            // One that took longer than the interval delays those that follow.
            let due = (self.began + self.plan.every() * number).max(self.context.world.now());
            while self.context.world.now() < due && !self.stops.get() {
                self.context.world.sleep(POLL).await;
            }
            if self.stops.get() {
                break;
            }
            self.take(&format!("{BACKUP_PREFIX}{run}-{number}")).await;
        }
        self.taken
    }

    async fn take(&mut self, name: &str) {
        let at_s = self.context.world.now().since(self.began).as_secs_f64();
        let policy = BackupPolicy::default();
        let outcome = start_backup(&self.context.world, self.set.clone(), policy, name).await;
        let window = self.window(&outcome).await;
        let mut problems = outcome.problems.clone();
        let mut deleted = Vec::new();
        if outcome.label.is_some() {
            self.kept.push_back(name.to_owned());
            while self.kept.len() > self.plan.keep as usize {
                let oldest = self.kept.pop_front().expect("more than are kept");
                match self.cutter.remove(&oldest).await {
                    Ok(()) => deleted.push(oldest),
                    Err(error) => problems.push(format!("{oldest} was not removed: {error}")),
                }
            }
        }
        // Of others it is not known that they have all logs before the freeze.
        if let Some(logs) = &self.logs
            && outcome.label == Some(BackupLabel::Application)
            && let Err(problem) = logs.release().await
        {
            problems.push(format!("its logs were not released: {problem}"));
        }
        let freeze = outcome.freeze_began.zip(outcome.thawed).map(|(began, thawed)| thawed.since(began));
        let milliseconds = |span: Duration| span.as_secs_f64() * 1e3;
        let results = BackupResults {
            group: self.context.number + 1,
            name: name.to_owned(),
            at_s,
            label: outcome.label.as_ref().map(ToString::to_string),
            problems,
            window_ms: window.map(milliseconds),
            freeze_ms: freeze.map(milliseconds),
            kept: self.kept.len() as u32,
            deleted,
        };
        self.context.say(in_a_line(&results, outcome.label.as_ref()));
        self.taken.push(results);
    }

    /// The freeze as the load saw it.
    async fn window(&self, outcome: &BackupOutcome) -> Option<Duration> {
        outcome.thawed?;
        answer_gap(&self.context.world, &self.load, || self.stops.get()).await
    }
}

/// A line of the test log.
fn in_a_line(results: &BackupResults, label: Option<&BackupLabel>) -> String {
    let what = match label {
        Some(BackupLabel::Crash(reason)) => format!("crash ({reason})"),
        Some(label) => label.to_string(),
        None => format!("not taken: {}", results.problems.join("; ")),
    };
    let window = results.window_ms.map(|ms| format!(", commits waited {ms:.1} ms")).unwrap_or_default();
    let deleted = match &results.deleted[..] {
        [] => String::new(),
        names => format!(", {} deleted", names.join(" and ")),
    };
    format!("{}: {what}{window}, {} kept{deleted}", results.name, results.kept)
}
