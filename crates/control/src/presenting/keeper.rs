//! The flow that ends presentations at their time, and what a crash left of them.

use super::{
    presentation::{EndReason, Presentation, PresentationStage, WARNED_SECONDS},
    presenter::{PresentationFailure, Presenter},
};
use crate::{
    journal::DaemonJournal,
    planted::{self, PresentBug},
    site::handle::PoolHandle,
};
use report::calendar::utc_time;
use std::{cell::RefCell, collections::BTreeSet, rc::Rc, sync::Arc, time::Duration};
use tokio::sync::oneshot;
use world::{JoinHandle, World, with_deadline};

/// Interval of looking at the clock.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Keeps the presentations of a site.
#[derive(Default)]
pub(crate) struct PresentationKeeper(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl PresentationKeeper {
    /// Starts the flow, unless it runs.
    pub fn start(&mut self, world: &World, presenter: Presenter, journal: &Arc<DaemonJournal>) {
        if self.0.is_some() {
            return;
        }
        let (end, ended) = oneshot::channel::<()>();
        let flow = Rc::new(Flow {
            world: world.clone(),
            presenter,
            journal: Arc::clone(journal),
            failed: RefCell::default(),
        });
        let running = world.spawn("presentations", async move {
            let mut ended = std::pin::pin!(async move { drop(ended.await) });
            loop {
                flow.look();
                if with_deadline(&mut ended, flow.world.sleep(LOOK_EVERY)).await.is_none() {
                    return;
                }
            }
        });
        self.0 = Some((end, running));
    }

    /// Ends the flow. Orders that were given are done, as far as their pools go on.
    pub async fn stop(&mut self) {
        if let Some((end, running)) = self.0.take() {
            drop(end);
            running.await;
        }
    }
}

struct Flow {
    world: World,
    presenter: Presenter,
    journal: Arc<DaemonJournal>,
    /// Those whose end failed, which was said.
    failed: RefCell<BTreeSet<[u8; 16]>>,
}

impl Flow {
    /// Does what is due, each presentation beside the others: a pool that does not answer keeps no other waiting.
    fn look(self: &Rc<Self>) {
        let now = self.world.wall().seconds;
        for one in self.presenter.board.all() {
            let Some(step) = self.due(&one, now) else { continue };
            let flow = Rc::clone(self);
            self.world.spawn("presentation", async move { flow.take(&one, step, now).await });
        }
    }

    fn pool(&self, one: &Presentation) -> Option<PoolHandle> {
        let site = self.presenter.site.look();
        let pool = site.pool_of(one.pool_id())?;
        pool.view().map(|_| pool.clone())
    }

    fn due(&self, one: &Presentation, now: i64) -> Option<Due> {
        let pool = self.pool(one);
        match one.stage {
            _ if pool.is_none() => self.is_forgotten(one).then_some(Due::Forget),
            PresentationStage::Beginning if planted::is_in_presenting(PresentBug::HalfBegunStays) => None,
            PresentationStage::Beginning => Some(Due::Undo),
            PresentationStage::Ending(reason) => Some(Due::End(reason)),
            PresentationStage::Presented if now >= one.ends_unix_s => Some(Due::End(EndReason::Time)),
            PresentationStage::Presented => {
                let view = pool?.view()?;
                let is_gone = view.presentation_problems.get(&one.id).is_some_and(|problem| problem.is_gone);
                if is_gone {
                    return Some(Due::End(EndReason::Gone));
                }
                let hosts = one.hosts_among(&view.sessions);
                let is_near = one.ends_unix_s - now <= WARNED_SECONDS && !one.is_warned;
                (is_near && !hosts.is_empty()).then_some(Due::Warn(hosts))
            }
        }
    }

    /// True if the server does not know the pool any more.
    fn is_forgotten(&self, one: &Presentation) -> bool {
        // A journal that cannot be read has said so.
        self.journal.pools().is_ok_and(|pools| !pools.contains_key(one.pool_name_then()))
            && now_is_over(one, self.world.wall().seconds)
    }

    async fn take(&self, one: &Presentation, step: Due, now: i64) {
        let done = match step {
            Due::Forget => self.forget(one),
            Due::Undo => match self.pool(one) {
                Some(pool) => self.presenter.undo(&pool, one).await,
                None => Ok(()),
            },
            Due::End(reason) => self.presenter.end(one.id, (reason, now), false).await.map(|_| ()),
            Due::Warn(hosts) => self.warn(one, &hosts),
        };
        match done {
            Ok(()) => drop(self.failed.borrow_mut().remove(&one.id)),
            // Somebody ends it, or its caller waits for its beginning.
            Err(PresentationFailure::Busy) => {}
            Err(failure) => {
                if self.failed.borrow_mut().insert(one.id) {
                    let problem = failure.refusal();
                    self.presenter.notices.warn(format!(
                        "the presentation of {} to {} cannot be ended yet: {problem}; it is tried again",
                        one.path, one.initiator
                    ));
                }
            }
        }
    }

    fn forget(&self, one: &Presentation) -> Result<(), PresentationFailure> {
        self.presenter.board.forget(one.id)?;
        let text = format!(
            "{} is not presented to {} any more: its pool is none of this server any more",
            one.path, one.initiator
        );
        self.presenter.notices.occurred("presentation_cut_off", text);
        Ok(())
    }

    fn warn(&self, one: &Presentation, hosts: &[String]) -> Result<(), PresentationFailure> {
        let _work = self.presenter.board.begin_work(one.id).ok_or(PresentationFailure::Busy)?;
        let Some(known) = self.presenter.board.get(one.id).filter(|known| **known == *one) else {
            return Ok(());
        };
        self.presenter.board.put(&Presentation { is_warned: true, ..(*known).clone() })?;
        let fate = match &one.clone {
            Some(clone) if !clone.is_kept => {
                format!("; its clone {} and what was written to it are removed then", clone.name)
            }
            _ => String::new(),
        };
        let text = format!(
            "{} is presented to {} until {}, and {} will be logged out then{fate}",
            one.path,
            one.initiator,
            utc_time(one.ends_unix_s),
            hosts.join(", ")
        );
        self.presenter.notices.of(one.pool_name_then()).occurred("presentation_ends_soon", text);
        Ok(())
    }
}

/// A step that is due.
enum Due {
    Undo,
    End(EndReason),
    Warn(Vec<String>),
    /// Its pool is gone for good.
    Forget,
}

fn now_is_over(one: &Presentation, now: i64) -> bool {
    one.stage != PresentationStage::Presented || now >= one.ends_unix_s
}
