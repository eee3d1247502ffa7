//! Freezes from outside: while a group is under load, those who cut its volumes freeze it over a socket.

use super::{
    context::GroupContext,
    frozen_sessions::{FrozenSessions, answer_gap},
};
use crate::database::load::session::SessionContext;
use maildb::Instance;
use protect::backup::control_socket::{FreezeService, ServedFreeze};
use std::{cell::Cell, rc::Rc};
use world::{
    IoResult,
    network::{Address, Network},
};

/// The place at which a group is frozen.
#[derive(Clone)]
pub struct ControlPlace {
    pub network: Rc<dyn Network>,
    pub at: Address,
}

/// A group that is frozen by others.
pub(super) struct RunningControl {
    service: FreezeService,
    ends: Rc<Cell<bool>>,
}

impl RunningControl {
    /// Listens at the place, if there is one.
    ///
    /// # Errors
    ///
    /// The place is taken, or cannot be made.
    pub(super) async fn start(
        context: &GroupContext,
        load: &Rc<SessionContext>,
        (instance, place): (&Instance, Option<&ControlPlace>),
    ) -> IoResult<Option<Self>> {
        let Some(place) = place else { return Ok(None) };
        let listener = place.network.listen(&place.at).await?;
        context.say(format!("it can be frozen at {}", place.at));
        let group = Rc::new(FrozenSessions::new(context, load, instance));
        let ends = Rc::<Cell<bool>>::default();
        let log = FreezeLog { context: context.clone(), load: Rc::clone(load), ends: Rc::clone(&ends) };
        let tell = move |ended| log.clone().add(ended);
        Ok(Some(Self { service: FreezeService::start(&context.world, listener, group, tell), ends }))
    }

    /// Ends it; what is frozen is thawed.
    pub(super) async fn stop(self) {
        self.ends.set(true);
        self.service.stop().await;
    }
}

#[derive(Clone)]
struct FreezeLog {
    context: GroupContext,
    load: Rc<SessionContext>,
    ends: Rc<Cell<bool>>,
}

impl FreezeLog {
    /// Adds a line to the test log, once the first commit is answered.
    fn add(self, ended: ServedFreeze) {
        let world = self.context.world.clone();
        world.spawn("freeze line", async move {
            let gap = answer_gap(&self.context.world, &self.load, || self.ends.get()).await;
            let window = gap.map(|gap| format!(", commits waited {:.1} ms", gap.as_secs_f64() * 1e3));
            let held = if ended.was_held { "" } else { "; it had thawed before it was asked to" };
            self.context.say(format!(
                "{}: frozen from outside for {:.1} ms{}{held}",
                ended.name,
                ended.length.as_secs_f64() * 1e3,
                window.unwrap_or_default()
            ));
        });
    }
}
