//! A storage group under load as a thing that is frozen: its sessions wait meanwhile.

use super::context::GroupContext;
use crate::database::load::session::SessionContext;
use maildb::{FrozenGroup, GroupFreezer, Instance};
use protect::backup::{Consistency, Freezable, StepError, StepResult};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use world::{LocalFuture, Moment, World};

/// Interval between checks for the first answer after a freeze.
const POLL: Duration = Duration::from_millis(5);
/// Longest wait for that answer.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(30);

pub(super) struct FrozenSessions {
    name: String,
    freezer: GroupFreezer,
    frozen: Rc<RefCell<Option<FrozenGroup>>>,
    /// The log generation that began with the last freeze.
    generation: Rc<Cell<Option<u32>>>,
    load: Rc<SessionContext>,
}

impl FrozenSessions {
    pub(super) fn new(context: &GroupContext, load: &Rc<SessionContext>, instance: &Instance) -> Self {
        Self {
            name: format!("storage group {}", context.number + 1),
            freezer: instance.freezer(),
            frozen: Rc::default(),
            generation: Rc::default(),
            load: Rc::clone(load),
        }
    }

    /// The log generation that began with the last freeze, as it will be.
    pub(super) fn generation(&self) -> &Rc<Cell<Option<u32>>> {
        &self.generation
    }
}

/// The time from the last answer before a freeze to the first one after it, once it is known; `None` if nothing is answered for
/// long, or `ends` is true before.
pub(super) async fn answer_gap(
    world: &World,
    load: &SessionContext,
    ends: impl Fn() -> bool,
) -> Option<Duration> {
    let until = world.now() + FIRST_ANSWER_MAX;
    while load.gap.length().is_none() && !ends() && world.now() < until {
        world.sleep(POLL).await;
    }
    load.gap.length()
}

impl Freezable for FrozenSessions {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn consistency(&self) -> Consistency {
        Consistency::Application
    }

    fn prepare(&self) -> LocalFuture<StepResult> {
        let freezer = self.freezer.clone();
        Box::pin(async move { freezer.prepare().await.map_err(|error| StepError(error.to_string())) })
    }

    fn freeze(&self, deadline: Moment) -> LocalFuture<StepResult> {
        let (freezer, slot) = (self.freezer.clone(), Rc::clone(&self.frozen));
        let (load, generation) = (Rc::clone(&self.load), Rc::clone(&self.generation));
        Box::pin(async move {
            generation.set(None);
            let frozen = freezer.freeze(deadline).await.map_err(|error| StepError(error.to_string()))?;
            load.gap.begin();
            generation.set(Some(frozen.generation()));
            *slot.borrow_mut() = Some(frozen);
            Ok(())
        })
    }

    fn thaw(&self) -> LocalFuture<Result<bool, StepError>> {
        let was_first = self.frozen.take().is_some_and(FrozenGroup::thaw);
        Box::pin(std::future::ready(Ok(was_first)))
    }

    fn after(&self) -> LocalFuture<StepResult> {
        Box::pin(std::future::ready(Ok(())))
    }
}
