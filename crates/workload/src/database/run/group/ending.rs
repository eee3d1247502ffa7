//! End of a group's run: outstanding I/O is counted, the load stops, and the files are verified.
//!
//! Storage that stops answering must neither pass nor hang the run. Every wait here ends when an operation
//! exceeds the run's hung limit, or [`INTERRUPTED_MAX`] if the user ended the run; then the wait is abandoned
//! and the run has failed.

use crate::measure::windows::TimedSample;
use crate::{
    database::{
        load::{
            error::Error,
            operation::{FailureKind, FailureLog, RunFailure},
        },
        measure::{
            pools::PoolFacts,
            sample::Sampler,
            verify::{VerifiedFile, verify_group_logs, verify_one_database},
        },
        results::LateResults,
        run::group::{GroupRun, JudgingState, RunningLoad},
    },
    meter::{Backlog, Meter},
};
use maildb::Instance;
use report::prose::counted;
use std::{
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};
use world::{ByteCount, IoResult};

/// Maximum wait for a device operation after the user ended the run: twice the 30 s after which Linux's SCSI
/// layer considers a command lost.
pub const INTERRUPTED_MAX: Duration = Duration::from_secs(60);
/// Interval between checks for outstanding operations.
const ANSWER_POLL: Duration = Duration::from_millis(10);
/// Interval between checks of the time limit.
const PATIENCE_POLL: Duration = Duration::from_millis(200);
/// Waits of this length are reported in the test log.
const LINE_AFTER: Duration = Duration::from_secs(1);

impl GroupRun {
    fn backlog(&self, of: impl Fn(&Meter) -> Backlog) -> Backlog {
        self.meters.iter().map(|meter| of(meter)).fold(Backlog::default(), Backlog::and)
    }

    /// Waits for the I/O that is outstanding when measurement ends, and counts it with its latency or, after
    /// the time limit, its age. Counts the sessions' operations likewise.
    pub(super) async fn settle(&self, running: &mut RunningLoad, sampler: &mut Sampler) {
        let ended = self.world.now();
        for meter in &self.meters {
            meter.close();
        }
        let pacer = &running.load.pacer;
        // Queued operations will not start; their age counts as latency.
        let waiting = pacer.waiting();
        pacer.stop();
        let at_end = self.backlog(Meter::unsettled);
        loop {
            let waited = self.world.now().since(ended);
            let unanswered = self.backlog(Meter::unsettled).count;
            running.tally.late = LateResults {
                count: at_end.count,
                oldest_s: at_end.age(ended).as_secs_f64(),
                unanswered,
                waited_s: waited.as_secs_f64(),
            };
            if unanswered == 0 || self.backlog(Meter::unsettled).age(self.world.now()) > self.patience() {
                break;
            }
            self.world.sleep(ANSWER_POLL).await;
        }
        for meter in &self.meters {
            meter.settle();
        }
        running.load.meter.settle(&waiting, self.world.now());
        // I/O that started in the measured time belongs to its last sample.
        let late = sampler.late(&running.load.meter, &running.load.pacer);
        if let Some(last) = running.tally.samples.pop() {
            running.tally.samples.push(last.followed_by(&late));
        }
        // A run that ended before the judged part has no counts of it.
        if running.tally.judging != JudgingState::Before {
            running.tally.meters = self.meters.iter().map(|meter| meter.reading()).collect();
            running.tally.operations = running.load.meter.reading();
        }
        let late = running.tally.late;
        if late.longest_s() >= LINE_AFTER.as_secs_f64() {
            self.say(format!(
                "{} under way when measuring ended, the oldest for {:.1} s; {:.1} s later {} unanswered",
                counted(late.count, "device operation"),
                late.oldest_s,
                late.waited_s,
                late.unanswered
            ));
        }
    }

    /// Stops sessions, arrivals and scan. Their operations complete if the storage answers.
    pub(super) async fn stop_load(&self, running: &mut RunningLoad) {
        running.load.pacer.stop();
        if let Some(scan) = &running.scan {
            scan.stop();
        }
        let sessions = std::mem::take(&mut running.sessions);
        let (arrivals, scan) = (running.arrivals.take(), running.scan.take());
        let load = Rc::clone(&running.load);
        let ending = async {
            for session in sessions {
                session.await;
            }
            if let Some(arrivals) = arrivals {
                arrivals.await;
            }
            if let Some(scan) = scan {
                for damage in scan.join().await {
                    load.failures.note(damage);
                }
            }
        };
        running.frozen = self.patiently(ending).await.is_none();
        if running.frozen {
            self.note_frozen(&running.load.failures);
        }
    }

    /// Writes back the cache and closes the files; false if the storage does not answer.
    pub(super) async fn close(&self, instance: Instance, failures: &FailureLog) -> bool {
        match self.patiently(instance.close()).await {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                failures.note_engine(&error);
                true
            }
            None => {
                self.note_frozen(failures);
                false
            }
        }
    }

    /// Takes the last snapshots of the pools and closes them. An error fails the run.
    pub(super) async fn end_pools(&self, failures: &FailureLog) -> Vec<PoolFacts> {
        let last = self.pool_facts();
        match self.patiently(self.close_pools()).await {
            Some(Ok(())) => {}
            Some(Err(error)) => failures.note(RunFailure { kind: FailureKind::Io, text: error.to_string() }),
            None => self.note_frozen(failures),
        }
        last
    }

    pub(super) async fn close_pools(&self) -> IoResult<()> {
        match &self.storage.pools {
            Some(pools) => pools.close().await,
            None => Ok(()),
        }
    }

    fn note_frozen(&self, failures: &FailureLog) {
        let waiting = self.backlog(Meter::outstanding);
        let age = waiting.age(self.world.now()).as_secs_f64();
        let text = format!(
            "{} unanswered, the oldest for {age:.0} s; the run ends anyway",
            counted(waiting.count, "device operation")
        );
        self.say(text.clone());
        failures.note(RunFailure { kind: FailureKind::Io, text });
    }

    /// Runs `work`; None if a device operation exceeds the time limit.
    async fn patiently<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.unless(work, || self.is_given_up()).await
    }

    /// Time limit of a device operation.
    fn patience(&self) -> Duration {
        let hung = Duration::from_secs_f64(self.limits.slow.hung_s);
        if self.shared.interrupted() { hung.min(INTERRUPTED_MAX) } else { hung }
    }

    /// True if a device operation has exceeded the time limit.
    fn is_given_up(&self) -> bool {
        self.backlog(Meter::outstanding).age(self.world.now()) > self.patience()
    }

    /// Runs `work`; an error if a device operation exceeds the time limit: before measurement there is
    /// nothing to report.
    pub(super) async fn or_unanswered<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match self.patiently(work).await {
            Some(outcome) => outcome,
            None => {
                self.look();
                let oldest = self.slow().operations.into_iter().find(|operation| !operation.answered);
                Err(Error::Unanswered(match oldest {
                    Some(oldest) => format!("{oldest} was not answered in {:.0} s", oldest.took_s),
                    None => format!(
                        "a device operation was not answered in {:.0} s",
                        self.patience().as_secs_f64()
                    ),
                }))
            }
        }
    }

    /// Runs `work`; drops it and returns None once `given_up` is true.
    async fn unless<T>(&self, work: impl Future<Output = T>, given_up: impl Fn() -> bool) -> Option<T> {
        let mut work = pin!(work);
        let mut nap = self.world.sleep(PATIENCE_POLL);
        poll_fn(|context| {
            if let Poll::Ready(value) = work.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            if given_up() {
                return Poll::Ready(None);
            }
            while nap.as_mut().poll(context).is_ready() {
                nap = self.world.sleep(PATIENCE_POLL);
            }
            Poll::Pending
        })
        .await
    }

    /// Verifies every file, databases first, until the run must end. A read error fails the run but does not
    /// end it.
    pub(super) async fn verify(&self, failures: &FailureLog) -> Vec<VerifiedFile> {
        let total: u64 = self.storage.databases.len() as u64 + 1;
        let mut verified = Vec::new();
        for index in 0..total as usize {
            let (shared, number) = (self.shared.clone(), self.number);
            let mut on_progress = move |done: ByteCount, all: ByteCount| {
                let within = done.0 as f64 / all.0.max(1) as f64;
                shared.update(number, |progress| {
                    progress.phase = crate::database::run::group::Phase::Verify;
                    progress.fraction = (index as f64 + within) / total as f64;
                    progress.bytes = Some((done.0, all.0));
                    progress.live = None;
                });
            };
            let checking = async {
                match self.storage.databases.get(index) {
                    Some((directory, name, volume)) => {
                        let directory = self.metered_databases(directory, volume);
                        verify_one_database(&self.world, &directory, name, &mut on_progress).await
                    }
                    None => {
                        let (log, base_name) = (self.metered_log(), self.base_name());
                        verify_group_logs(&self.world, &log, &base_name, &mut on_progress).await
                    }
                }
            };
            match self.unless(checking, || self.shared.ending() || self.is_given_up()).await {
                Some(Ok(file)) => {
                    file.failures().for_each(|failure| failures.note(failure));
                    let (size, damaged) = (ByteCount(file.bytes), file.damaged.len());
                    let unjudged = if file.blank_unjudged {
                        format!(", {} not judged", counted(file.empty, "blank page"))
                    } else {
                        String::new()
                    };
                    self.say(format!("{}: {size} verified, {damaged} damaged{unjudged}", file.name));
                    self.record_verified(&file);
                    verified.push(file);
                }
                Some(Err(error)) => {
                    failures.note(RunFailure { kind: FailureKind::Io, text: error.to_string() });
                }
                None => {
                    if self.is_given_up() {
                        self.note_frozen(failures);
                    }
                    self.say(format!("verification ends after {index} of {total} files"));
                    break;
                }
            }
        }
        verified
    }
}
