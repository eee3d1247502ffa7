//! The things that a set freezes around a full backup.

use crate::backup::{
    Freezable, StepError,
    control_socket::{LogRelease, SocketFreeze, release_logs},
    hooks::HookRun,
};
use std::{future::ready, path::PathBuf, rc::Rc};
use world::{
    LocalFuture, World,
    network::{Address, Network},
};

/// Brings the things that a set freezes, new ones for each round.
pub trait SetFreezing {
    /// The things to freeze for the cut that will be called `point`.
    fn round(&self, point: &str) -> RoundFreeze;

    /// Says that the backup whose cut is called `point` is proven, to everything whose logs wait for that; a result for each.
    fn release_logs(&self, _point: &str) -> LocalFuture<Vec<ReleasedLogs>> {
        Box::pin(ready(Vec::new()))
    }
}

/// The logs of one thing after a backup was proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleasedLogs {
    /// The socket.
    pub of: String,
    pub result: Result<LogRelease, StepError>,
}

/// The things of one round.
pub struct RoundFreeze {
    /// In this order: applications before the filesystems under them.
    pub things: Vec<Rc<dyn Freezable>>,
    /// The hooks that ran, to be asked after the round.
    pub hook_runs: Box<dyn Fn() -> Vec<HookRun>>,
}

/// A set that freezes nothing: its backups are as after a power cut.
pub struct NothingFrozen;

/// Databases that are frozen at sockets of this host.
pub struct DatabasesFrozen {
    pub world: World,
    pub network: Rc<dyn Network>,
    /// In this order.
    pub sockets: Vec<PathBuf>,
}

impl DatabasesFrozen {
    /// The things to freeze for the cut that will be called `point`.
    pub fn things(&self, point: &str) -> Vec<Rc<dyn Freezable>> {
        let thing = |socket: &PathBuf| -> Rc<dyn Freezable> {
            let at = Address::Unix(socket.clone());
            Rc::new(SocketFreeze::new(&self.world, Rc::clone(&self.network), at, point))
        };
        self.sockets.iter().map(thing).collect()
    }

    /// As [`SetFreezing::release_logs`].
    pub fn release(&self, point: &str) -> LocalFuture<Vec<ReleasedLogs>> {
        let Self { world, network, sockets } = self;
        let (world, network, point) = (world.clone(), Rc::clone(network), point.to_owned());
        let places: Vec<Address> = sockets.iter().cloned().map(Address::Unix).collect();
        Box::pin(async move {
            let mut released = Vec::new();
            for at in &places {
                let result = release_logs(&world, &*network, at, &point).await;
                released.push(ReleasedLogs { of: at.to_string(), result });
            }
            released
        })
    }
}

impl SetFreezing for DatabasesFrozen {
    fn round(&self, point: &str) -> RoundFreeze {
        RoundFreeze { things: self.things(point), ..RoundFreeze::nothing() }
    }

    fn release_logs(&self, point: &str) -> LocalFuture<Vec<ReleasedLogs>> {
        self.release(point)
    }
}

impl RoundFreeze {
    pub fn nothing() -> Self {
        Self { things: Vec::new(), hook_runs: Box::new(Vec::new) }
    }
}

impl SetFreezing for NothingFrozen {
    fn round(&self, _point: &str) -> RoundFreeze {
        RoundFreeze::nothing()
    }
}
