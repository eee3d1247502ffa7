//! The flow of the schedules: looks at the clock and at the pools, orders what is due, notes the answers.

use super::{
    progress::{ScheduleLine, ScheduleProgress, SeenPools},
    round::{RoundAnswer, perform_round},
    schedule_view::ScheduleView,
    wanted::WantedSchedule,
};
use crate::{
    conditions::{ConditionClaim, condition_id},
    notice::NoticeSender,
    order::OrderRefusal,
    site::handle::{SiteHandle, SiteView},
};
use std::{cell::RefCell, rc::Rc, sync::Arc};
use tokio::sync::{Notify, watch};
use world::{JoinHandle, World, with_deadline};

/// Runs the schedules of a site.
pub(crate) struct ScheduleKeeper {
    wanted: watch::Sender<Arc<Vec<WantedSchedule>>>,
    shown: watch::Sender<Arc<Vec<ScheduleView>>>,
    running: Option<JoinHandle<()>>,
}

impl ScheduleKeeper {
    pub fn new() -> Self {
        Self { wanted: watch::Sender::default(), shown: watch::Sender::default(), running: None }
    }

    /// Runs these schedules from now on, once the flow is started.
    pub fn set(&self, schedules: Vec<WantedSchedule>) {
        self.wanted.send_replace(Arc::new(schedules));
    }

    /// The progress of the schedules, for other threads.
    pub fn progress(&self) -> watch::Receiver<Arc<Vec<ScheduleView>>> {
        self.shown.subscribe()
    }

    /// Starts the flow, unless it runs.
    pub fn start(&mut self, world: &World, site: SiteHandle, notices: &NoticeSender) {
        let flow = Flow {
            world: world.clone(),
            site,
            notices: notices.clone(),
            progress: RefCell::default(),
            shown: self.shown.clone(),
            answered: Notify::new(),
        };
        let wanted = self.wanted.subscribe();
        self.running.get_or_insert_with(|| world.spawn("schedules", keep(Rc::new(flow), wanted)));
    }

    /// Ends the flow. Orders that were given are done, as far as their pools go on.
    pub async fn stop(self) {
        let Self { wanted, running, .. } = self;
        drop(wanted);
        if let Some(running) = running {
            running.await;
        }
    }
}

struct Flow {
    world: World,
    site: SiteHandle,
    notices: NoticeSender,
    progress: RefCell<ScheduleProgress>,
    shown: watch::Sender<Arc<Vec<ScheduleView>>>,
    answered: Notify,
}

async fn keep(flow: Rc<Flow>, mut wanted: watch::Receiver<Arc<Vec<WantedSchedule>>>) {
    loop {
        flow.progress.borrow_mut().set(&wanted.borrow_and_update());
        let wait = Flow::give_rounds(&flow);
        flow.show();
        let sooner = async {
            // Whichever comes first.
            with_deadline(flow.world.sleep(wait), flow.answered.notified()).await;
        };
        if let Some(Err(_)) = with_deadline(sooner, wanted.changed()).await {
            // Its keeper was stopped.
            flow.progress.borrow_mut().end();
            return;
        }
    }
}

impl Flow {
    /// Gives the orders that are due, and returns the time to look again.
    fn give_rounds(self: &Rc<Self>) -> std::time::Duration {
        let site = self.site.look();
        let (wall, now) = (self.world.wall(), self.world.now());
        let due = self.progress.borrow_mut().rounds(&seen(&site), wall, now);
        self.say(due.lines);
        for (name, round) in due.rounds {
            let pool = &site.pools[&name];
            match pool.begin("schedules", move |served| Box::pin(perform_round(served, round))) {
                Err(refusal) => self.note_answer(&name, Err(refusal)),
                Ok(pending) => {
                    let flow = Rc::clone(self);
                    // Each pool in its own time.
                    self.world.spawn("schedule round", async move {
                        flow.note_answer(&name, pending.await);
                        flow.answered.notify_one();
                    });
                }
            }
        }
        due.wait
    }

    /// Shows others the progress.
    fn show(&self) {
        let views = self.progress.borrow().views(&seen(&self.site.look()), self.world.wall());
        self.shown.send_if_modified(|last| {
            let is_new = **last != views;
            if is_new {
                *last = Arc::new(views);
            }
            is_new
        });
    }

    fn note_answer(&self, pool: &str, answer: Result<RoundAnswer, OrderRefusal>) {
        let well = answer.iter().flat_map(|answer| &answer.schedules).filter(|one| one.failure.is_none());
        // Also those that failed before a restart, or before they were changed.
        let mut over: Vec<String> = well.map(|one| condition_id("schedule", pool, &one.name)).collect();
        over.extend(answer.iter().map(|_| condition_id("schedule", pool, "")));
        let lines = self.progress.borrow_mut().note_answer(pool, answer, self.world.now());
        self.say(lines);
        over.iter().for_each(|id| self.notices.clear(id, self.world.wall()));
    }

    fn say(&self, lines: Vec<ScheduleLine>) {
        for ScheduleLine { pool, is_warning, text, lasting } in lines {
            let notices = self.notices.of(&pool);
            let claim = lasting
                .map(|schedule| ConditionClaim::new("schedule_missed", &pool, text.as_str()).of(schedule));
            match (is_warning, claim) {
                (true, Some(claim)) => notices.raise(&claim, self.world.wall()),
                (true, None) => notices.warn(text),
                (false, _) => notices.note(text),
            }
        }
    }
}

/// The volumes of the pools that are open.
fn seen(site: &SiteView) -> SeenPools {
    let volumes = |(name, pool): (&String, &crate::site::handle::PoolHandle)| {
        Some((name.clone(), Arc::clone(&pool.view()?.volumes)))
    };
    site.pools.iter().filter_map(volumes).collect()
}
