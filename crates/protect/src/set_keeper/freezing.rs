//! The things that a set freezes around a full backup.

use crate::backup::{Freezable, control_socket::SocketFreeze, hooks::HookRun};
use std::{path::PathBuf, rc::Rc};
use world::{
    World,
    network::{Address, Network},
};

/// Brings the things that a set freezes, new ones for each round.
pub trait SetFreezing {
    /// The things to freeze for the cut that will be called `point`.
    fn round(&self, point: &str) -> RoundFreeze;
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
}

impl SetFreezing for DatabasesFrozen {
    fn round(&self, point: &str) -> RoundFreeze {
        RoundFreeze { things: self.things(point), ..RoundFreeze::nothing() }
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
