//! The thread of events: conditions once a second, the journal once a second if anything is new, and all notifiers.
//!
//! Invariants:
//!
//! 1. Events, conditions and places reach the journal together, with one commit a second at most.
//! 2. While the journal cannot be written, everything goes on in memory, and that is a condition.

use super::{
    composing::plain_message,
    delivery::{DeliveryFailure, deliver},
    digest::run_digest,
    lane::{Lane, NotifierContext, run_lane},
    place::TestRequest,
    wanted::WantedNotifier,
};
use crate::{
    conditions::{ConditionClaim, ConditionEvaluator, DrWatch, condition_id},
    dr::LinkHandle,
    events::DaemonEventLog,
    journal::{DaemonJournal, JournalError},
    notice::NoticeSender,
    portal::{NetworkMaker, no_thread},
    site::handle::SiteHandle,
    watched::WatchedSite,
};
use futures_util::{
    StreamExt,
    future::join_all,
    stream::{self, FuturesUnordered},
};
use report::Refusal;
use std::{cell::RefCell, collections::BTreeMap, pin::Pin, rc::Rc, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot, watch};
use world::{JoinHandle, LocalFuture, Moment, Network, ThreadStarter, World, with_deadline};

const TICK: Duration = Duration::from_secs(1);
/// Pause after a journal that could not be written.
const JOURNAL_PAUSE: Duration = Duration::from_secs(15);

/// Tests that are under way at the same time.
const TESTS_AT_ONCE: usize = 8;
/// Time for the outcome of a test: a person waits for it.
const TESTED_WITHIN: Duration = Duration::from_secs(12);

/// Surroundings of the thread.
pub struct EventThreadSetting {
    pub network: NetworkMaker,
    pub site: SiteHandle,
    pub watched: watch::Receiver<Arc<WatchedSite>>,
    /// To other sites, if this one listens for them.
    pub link: Option<LinkHandle>,
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
        // Whoever asks from now on finds them.
        begin_notifiers(&setting.log, &setting.watched.borrow());
        let (stop, stopped) = oneshot::channel::<()>();
        let (own, log) = (notices.clone(), setting.log.clone());
        let main = move |world: World| -> LocalFuture<()> { Box::pin(run(world, setting, stopped, own)) };
        let ended = threads.start("events", Box::new(main)).map_err(|error| no_thread(&error))?;
        let end = world.spawn("events watch", async move {
            let end = ended.await;
            if let Err(panic) = &end {
                log.note_failed();
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
    let EventThreadSetting { network, site, watched, link, journal, log } = setting;
    let tests = log.take_tests();
    let keeper = Rc::new(EventKeeper {
        world: world.clone(),
        network: network(),
        site,
        watched,
        link,
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

/// A notifier whose flow goes on until this is dropped.
struct RunningNotifier {
    wanted: WantedNotifier,
    fallback: Option<WantedNotifier>,
    _stop: oneshot::Sender<()>,
}

async fn run_notifier(context: NotifierContext, site: SiteHandle, stopped: oneshot::Receiver<()>) {
    let notifier = &context.notifier;
    let lanes = Lane::of(notifier);
    // It may have been corrected.
    let mut state = context.log.notifier_state(&notifier.name);
    state.failing.clear();
    context.log.set_notifier_state(&notifier.name, state);
    let mut all: Vec<LocalFuture<()>> = Vec::new();
    for lane in lanes {
        all.push(Box::pin(run_lane(context.clone(), lane)));
    }
    if let Some(time) = notifier.digest {
        all.push(Box::pin(run_digest(context.clone(), site, time)));
    }
    let running = async {
        join_all(all).await;
    };
    // One that is stopped begins nothing more.
    with_deadline(running, async { drop(stopped.await) }).await;
}

/// Gives each notifier its place, which is what happens next for one that is new, and forgets the others.
fn begin_notifiers(log: &DaemonEventLog, site: &WatchedSite) {
    log.keep_places(|name| site.notifiers.iter().any(|one| one.name == name));
    for notifier in &site.notifiers {
        let lanes: Vec<&str> = Lane::of(notifier).into_iter().map(Lane::name).collect();
        log.begin_lanes(&notifier.name, &lanes);
    }
}

fn fallback_of(site: &WatchedSite, notifier: &WantedNotifier) -> Option<WantedNotifier> {
    let name = notifier.fallback.as_ref()?;
    site.notifiers.iter().find(|one| one.name == *name).cloned()
}

struct EventKeeper {
    world: World,
    network: Rc<dyn Network>,
    site: SiteHandle,
    watched: watch::Receiver<Arc<WatchedSite>>,
    link: Option<LinkHandle>,
    journal: Arc<DaemonJournal>,
    log: DaemonEventLog,
    notices: NoticeSender,
    /// Of the journal.
    retry_at: RefCell<Moment>,
}

impl EventKeeper {
    /// A server that was stopped for low power is started when that is back.
    fn begin(&self) {
        let power = condition_id("power", "power", "");
        if self.log.condition(&power).is_some_and(|open| open.kind != "on_battery") {
            self.notices.clear(&power, self.world.wall());
        }
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
        let mut dr = DrWatch::default();
        loop {
            let (watched, site) = (Arc::clone(&self.watched.borrow()), self.site.look());
            let times = (self.world.now(), self.world.wall());
            let link = self.link.as_ref().map(|link| link.look());
            for event in evaluator.evaluate(&self.log, (&site, &watched, link.as_deref()), times) {
                self.notices.print(&event);
            }
            for news in dr.look(&site, link.as_deref()) {
                self.notices.of(&news.pool).occurred(news.kind, news.text);
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

    /// Runs the notifiers of the site file that was applied last. Those that an apply leaves as they were go on with what they do.
    async fn notify(&self) {
        let mut watched = self.watched.clone();
        let mut running = BTreeMap::<String, RunningNotifier>::new();
        let mut flows = FuturesUnordered::<LocalFuture<()>>::new();
        loop {
            let wanted = Arc::clone(&watched.borrow_and_update());
            begin_notifiers(&self.log, &wanted);
            running.retain(|name, one| {
                let still = wanted.notifiers.iter().find(|still| still.name == *name);
                still.is_some_and(|still| *still == one.wanted && fallback_of(&wanted, still) == one.fallback)
            });
            for notifier in &wanted.notifiers {
                if running.contains_key(&notifier.name) {
                    continue;
                }
                let (stop, stopped) = oneshot::channel();
                let context = self.context(&wanted, notifier);
                let fallback = context.fallback.clone();
                flows.push(Box::pin(run_notifier(context, self.site.clone(), stopped)));
                let one = RunningNotifier { wanted: notifier.clone(), fallback, _stop: stop };
                running.insert(notifier.name.clone(), one);
            }
            let flowing = async {
                while flows.next().await.is_some() {}
                std::future::pending::<()>().await;
            };
            let changed = async {
                if watched.changed().await.is_err() {
                    // The server has ended; this thread is stopped next.
                    std::future::pending::<()>().await;
                }
            };
            with_deadline(changed, flowing).await;
        }
    }

    fn context(&self, site: &WatchedSite, notifier: &WantedNotifier) -> NotifierContext {
        NotifierContext {
            world: self.world.clone(),
            network: Rc::clone(&self.network),
            log: self.log.clone(),
            notices: self.notices.clone(),
            notifier: notifier.clone(),
            fallback: fallback_of(site, notifier),
        }
    }

    async fn answer_tests(&self, mut tests: mpsc::Receiver<TestRequest>) {
        // A receiver that is silent keeps no other test waiting.
        let all = stream::poll_fn(move |context| tests.poll_recv(context));
        all.for_each_concurrent(TESTS_AT_ONCE, async |TestRequest { notifier, outcome }| {
            // The caller may have given up.
            let _ = outcome.send(self.test(&notifier).await);
        })
        .await;
    }

    async fn test(&self, name: &str) -> Option<Result<(), String>> {
        let site = Arc::clone(&self.watched.borrow());
        let notifier = site.notifiers.iter().find(|one| one.name == name)?;
        let now = self.world.wall().seconds;
        let text = format!(
            "This is a test of the notifier {name}, sent on request. {} It tells events from {} on.\n",
            "Mail is not affected, and there is nothing to do.",
            notifier.severity.word()
        );
        let message = plain_message("test", format!("test-{now}"), "test", text, now);
        let context = self.context(&site, notifier);
        let sending = deliver(&context, notifier, &message);
        let timeout = || Err(format!("no answer within {} s", TESTED_WITHIN.as_secs()).into());
        let sent = with_deadline(self.world.sleep(TESTED_WITHIN), sending).await.unwrap_or_else(timeout);
        Some(match sent {
            Ok(receipt) if receipt.refused.is_empty() => Ok(()),
            Ok(receipt) => Err(format!("to some alone: {}", receipt.refused.join("; "))),
            Err(DeliveryFailure { why, .. }) => Err(why),
        })
    }
}
