//! Orders from outside: while a group is under load, those who cut its volumes freeze it over a socket, and messages of its
//! backups come back.

use super::{
    context::GroupContext,
    frozen_sessions::{FrozenSessions, answer_gap},
    mailboxes::GroupMailboxes,
};
use crate::database::load::session::SessionContext;
use maildb::{GroupFreezer, Instance};
use protect::backup::{
    StepError,
    control_socket::{FreezeService, KeptLogs, LiveMailboxes, ServedFreeze, ServedThing},
};
use std::{cell::Cell, rc::Rc};
use world::{
    IoResult, LocalFuture,
    network::{Address, Network},
};

/// The place at which a group is frozen.
#[derive(Clone)]
pub struct ControlPlace {
    pub network: Rc<dyn Network>,
    pub at: Address,
    /// Log generations stay until those who freeze the group say that a backup with them is proven. Otherwise they go with the
    /// checkpoint.
    pub keeps_logs: bool,
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
        let logs = if place.keeps_logs { "; its logs stay until a proven backup has them" } else { "" };
        context.say(format!("it can be frozen at {}{logs}", place.at));
        let group = Rc::new(FrozenSessions::new(context, load, instance));
        let logs = place.keeps_logs.then(|| {
            let (context, freezer) = (context.clone(), instance.freezer());
            Rc::new(GroupLogs { context, freezer, frozen_at: Rc::clone(group.generation()) })
                as Rc<dyn KeptLogs>
        });
        let ends = Rc::<Cell<bool>>::default();
        let log = FreezeLog { context: context.clone(), load: Rc::clone(load), ends: Rc::clone(&ends) };
        let tell = move |ended| log.clone().add(ended);
        let mailboxes = Some(Rc::new(GroupMailboxes::new(context, load, instance)) as Rc<dyn LiveMailboxes>);
        let thing = ServedThing { frozen: group, logs, mailboxes };
        Ok(Some(Self { service: FreezeService::start(&context.world, listener, thing, tell), ends }))
    }

    /// Ends it; what is frozen is thawed.
    pub(super) async fn stop(self) {
        self.ends.set(true);
        self.service.stop().await;
    }
}

/// The log of a group, whose generations stay until they are released.
struct GroupLogs {
    context: GroupContext,
    freezer: GroupFreezer,
    /// The generation that began with the last freeze.
    frozen_at: Rc<Cell<Option<u32>>>,
}

impl KeptLogs for GroupLogs {
    fn frozen_at(&self) -> Option<u32> {
        self.frozen_at.get()
    }

    fn release(&self, generation: u32, name: &str) -> LocalFuture<Result<u32, StepError>> {
        let (context, freezer, name) = (self.context.clone(), self.freezer.clone(), name.to_owned());
        let world = context.world.clone();
        // It goes on if its caller leaves: a checkpoint that is given up half-way would stay so.
        Box::pin(world.spawn("release of logs", async move {
            let released = freezer.release_logs(generation).await;
            let oldest = released.map_err(|error| StepError(error.to_string()))?;
            context.say(format!("{name} is proven; the logs from generation {oldest} on stay"));
            Ok(oldest)
        }))
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
