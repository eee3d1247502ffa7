//! The thread of events: conditions once a second, the journal once a second if anything is new, and all notifiers.
//!
//! Invariants:
//!
//! 1. Events, conditions and places reach the journal together, with one commit a second at most.
//! 2. While the journal cannot be written, everything goes on in memory, and that is a condition.

use super::{
    composing::plain_message,
    digest::run_digest,
    lane::{Lane, NotifierContext, deliver, run_lane},
    place::TestRequest,
};
use crate::{
    conditions::{ConditionClaim, ConditionEvaluator, condition_id},
    events::DaemonEventLog,
    journal::{DaemonJournal, JournalError},
    notice::NoticeSender,
    portal::{NetworkMaker, no_thread},
    site::handle::SiteHandle,
    watched::WatchedSite,
};
use futures_util::future::join_all;
use report::Refusal;
use std::{cell::RefCell, pin::Pin, rc::Rc, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot, watch};
use world::{JoinHandle, LocalFuture, Moment, Network, ThreadStarter, World, with_deadline};

const TICK: Duration = Duration::from_secs(1);
/// Pause after a journal that could not be written.
const JOURNAL_PAUSE: Duration = Duration::from_secs(15);

/// Surroundings of the thread.
pub struct EventThreadSetting {
    pub network: NetworkMaker,
    pub site: SiteHandle,
    pub watched: watch::Receiver<Option<Arc<WatchedSite>>>,
    pub journal: Arc<DaemonJournal>,
    pub log: DaemonEventLog,
}

/// The thread of events, seen from another one.
pub struct EventThread {
    stop: oneshot::Sender<()>,
    end: JoinHandle<Result<(), String>>,
}

impl EventThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// There is no thread left.
    pub fn start(
        world: &World,
        threads: &dyn ThreadStarter,
        setting: EventThreadSetting,
        notices: NoticeSender,
    ) -> Result<Self, Refusal> {
        let (stop, stopped) = oneshot::channel::<()>();
        let own = notices.clone();
        let main = move |world: World| -> LocalFuture<()> { Box::pin(run(world, setting, stopped, own)) };
        let ended = threads.start("events", Box::new(main)).map_err(|error| no_thread(&error))?;
        let end = world.spawn("events watch", async move {
            let end = ended.await;
            if let Err(panic) = &end {
                notices.warn(format!(
                    "events are not kept and nobody is notified, by an error of the program: {panic}; hosts are served on; \
                     start again to have them back"
                ));
            }
            end
        });
        Ok(Self { stop, end })
    }

    /// Records the end of the server, and ends the thread. The error is the message of a panic.
    pub async fn stop(self) -> Result<(), String> {
        let Self { stop, end } = self;
        // The thread may have ended.
        let _ = stop.send(());
        end.await
    }
}

async fn run(
    world: World,
    setting: EventThreadSetting,
    stopped: oneshot::Receiver<()>,
    notices: NoticeSender,
) {
    let EventThreadSetting { network, site, watched, journal, log } = setting;
    let tests = log.take_tests();
    let keeper = Rc::new(EventKeeper {
        world: world.clone(),
        network: network(),
        site,
        watched,
        journal,
        log,
        notices,
        retry_at: RefCell::new(Moment(0)),
    });
    keeper.begin();
    let work = async {
        let answering = async {
            if let Some(tests) = tests {
                keeper.answer_tests(tests).await;
            }
        };
        let all: [Pin<Box<dyn Future<Output = ()> + '_>>; 3] =
            [Box::pin(keeper.tick()), Box::pin(keeper.notify()), Box::pin(answering)];
        join_all(all).await;
    };
    let ended = async {
        // The sender is dropped with its server: that is a stop too.
        let _ = stopped.await;
    };
    with_deadline(ended, work).await;
    keeper.end();
}

struct EventKeeper {
    world: World,
    network: Rc<dyn Network>,
    site: SiteHandle,
    watched: watch::Receiver<Option<Arc<WatchedSite>>>,
    journal: Arc<DaemonJournal>,
    log: DaemonEventLog,
    notices: NoticeSender,
    /// Of the journal.
    retry_at: RefCell<Moment>,
}

impl EventKeeper {
    /// A server that starts takes the power as being there, until somebody says otherwise.
    fn begin(&self) {
        self.notices.clear(&condition_id("power", "power", ""), self.world.wall());
        match self.journal.set_running(true) {
            Ok(false) => self.notices.occurred("server_started", "the server has started"),
            Ok(true) => {
                let text = "the server has started; it had not ended in order before (killed, crashed, or a power cut)";
                self.notices.occurred("server_killed", text);
            }
            Err(error) => self.note_unwritten(&error),
        }
    }

    fn end(&self) {
        *self.retry_at.borrow_mut() = Moment(0);
        self.flush();
        // A journal that cannot be written has said so.
        let _ = self.journal.set_running(false);
    }

    /// Evaluates and flushes.
    async fn tick(&self) {
        let mut evaluator = ConditionEvaluator::new(&self.log, self.world.now());
        loop {
            let watched = self.watched.borrow().clone();
            if let Some(watched) = watched {
                let site = self.site.look();
                let times = (self.world.now(), self.world.wall());
                for event in evaluator.evaluate(&self.log, (&site, &watched), times) {
                    self.notices.print(&event);
                }
            }
            self.flush();
            self.world.sleep(TICK).await;
        }
    }

    fn flush(&self) {
        if self.world.now() < *self.retry_at.borrow() {
            return;
        }
        let Some((changes, revision)) = self.log.pending() else { return };
        match self.journal.put_events(&changes) {
            Ok(()) => {
                self.log.note_flushed(&changes, revision);
                self.notices.clear(&condition_id("journal", "serve", ""), self.world.wall());
            }
            Err(error) => self.note_unwritten(&error),
        }
    }

    fn note_unwritten(&self, error: &JournalError) {
        *self.retry_at.borrow_mut() = self.world.now() + JOURNAL_PAUSE;
        let refusal = error.refusal();
        let text = format!("events are kept in memory alone: {}", refusal.problem());
        let claim = ConditionClaim::new("events_not_kept", "serve", text).with_next(refusal.remedy());
        self.notices.raise(&claim, self.world.wall());
    }

    /// Runs the notifiers of the site file that was applied last.
    async fn notify(&self) {
        let mut watched = self.watched.clone();
        loop {
            let wanted = watched.borrow_and_update().clone();
            let running = async {
                if let Some(wanted) = &wanted {
                    self.log.keep_places(|name| wanted.notifiers.iter().any(|one| one.name == name));
                    self.run_all(wanted).await;
                }
                std::future::pending::<()>().await;
            };
            let changed = async {
                if watched.changed().await.is_err() {
                    // The server has ended; this thread is stopped next.
                    std::future::pending::<()>().await;
                }
            };
            with_deadline(changed, running).await;
        }
    }

    async fn run_all(&self, site: &WatchedSite) {
        let mut all: Vec<LocalFuture<()>> = Vec::new();
        for notifier in &site.notifiers {
            let context = self.context(site, notifier);
            // It begins with what happens next, also if nothing is delivered to it yet.
            self.log.place(&notifier.name);
            for lane in Lane::of(notifier) {
                all.push(Box::pin(run_lane(context.clone(), lane)));
            }
            if let Some(time) = notifier.digest {
                all.push(Box::pin(run_digest(context, self.site.clone(), time)));
            }
        }
        join_all(all).await;
    }

    fn context(&self, site: &WatchedSite, notifier: &super::WantedNotifier) -> NotifierContext {
        let fallback = notifier.fallback.as_ref();
        NotifierContext {
            world: self.world.clone(),
            network: Rc::clone(&self.network),
            log: self.log.clone(),
            notices: self.notices.clone(),
            notifier: notifier.clone(),
            fallback: fallback.and_then(|name| site.notifiers.iter().find(|one| one.name == *name)).cloned(),
        }
    }

    async fn answer_tests(&self, mut tests: mpsc::Receiver<TestRequest>) {
        while let Some(TestRequest { notifier: name, outcome }) = tests.recv().await {
            let site = self.watched.borrow().clone().unwrap_or_default();
            let answer = match site.notifiers.iter().find(|one| one.name == name) {
                None => None,
                Some(notifier) => {
                    let now = self.world.wall().seconds;
                    let text = format!(
                        "This is a test of the notifier {name}, sent on request. {} It tells events from {} on.\n",
                        "Mail is not affected, and there is nothing to do.",
                        super::wanted::severity_word(notifier.severity)
                    );
                    let message = plain_message("test", format!("test-{now}"), "test", text, now);
                    Some(deliver(&self.context(&site, notifier), notifier, &message).await)
                }
            };
            // The caller may have given up.
            let _ = outcome.send(answer);
        }
    }
}
