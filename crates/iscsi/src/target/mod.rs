//! The target: connections are logged in, then carry commands to units until they end.
//!
//! Reading order: [`access`] (who may use what), `tasks` (commands whose data are still coming, without any I/O), `sending` (what is sent, and its
//! numbers), `logging_in`, `connection` (all of a connection), `managing`, `texts`.

pub mod access;
mod connection;
mod logging_in;
mod managing;
mod sending;
mod sessions;
mod tasks;
mod texts;

use self::{
    access::{Access, Right},
    sessions::Sessions,
};
use crate::scsi::unit::{Reachable, Unit};
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use world::{Accepted, Listener, World, network::accept_next};

/// A target: units under a name.
pub struct Target {
    /// Its name: `iqn.2026-11.org.example:mail`.
    pub name: String,
    /// By number.
    pub units: BTreeMap<u64, Rc<Unit>>,
}

/// All targets, and who may use them.
#[derive(Clone, Default)]
pub struct Targets {
    all: Vec<Rc<Target>>,
    access: Rc<Access>,
    /// Where logins are sent on to, in turn.
    elsewhere: Rc<[String]>,
    turn: Rc<Cell<usize>>,
    sessions: Rc<Sessions>,
}

impl Targets {
    /// Those of `targets`.
    ///
    /// # Panics
    ///
    /// If two have one name.
    pub fn new(targets: Vec<Target>) -> Self {
        let names: BTreeSet<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(names.len(), targets.len(), "a target is known by its name");
        Self { all: targets.into_iter().map(Rc::new).collect(), ..Self::default() }
    }

    /// The same, for those that `access` names.
    pub fn with_access(self, access: Access) -> Self {
        Self { access: Rc::new(access), ..self }
    }

    /// The same, at a group's address: initiators find them there, and are sent on to one of `portals` (`HOST:PORT`) when they
    /// log in.
    pub fn sent_on_to(self, portals: impl IntoIterator<Item = String>) -> Self {
        Self { elsewhere: portals.into_iter().collect(), ..self }
    }

    /// Asks all initiators to log out, and waits until they have: how long, is for the caller to say.
    pub async fn log_out_all(&self) {
        self.sessions.ask_all_to_log_out().await;
    }

    /// Who may use what.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Where a login is sent on to; none if it is served here.
    pub fn next_portal(&self) -> Option<&str> {
        let turn = self.turn.replace(self.turn.get().wrapping_add(1));
        self.elsewhere.get(turn.checked_rem(self.elsewhere.len())?).map(String::as_str)
    }

    /// Those that are there for an initiator.
    pub fn seen_by(&self, initiator: &str) -> impl Iterator<Item = &Rc<Target>> {
        self.all.iter().filter(move |target| !self.units_of(target, initiator).is_empty())
    }

    /// The units of a target that are there for an initiator, by number.
    pub fn units_of(&self, target: &Target, initiator: &str) -> BTreeMap<u64, Reachable> {
        let right = |number: u64| self.access.right(initiator, &target.name, number);
        let seen = target.units.iter().filter_map(|(&number, unit)| Some((number, unit, right(number)?)));
        seen.map(|(number, unit, right)| {
            (number, Reachable { unit: Rc::clone(unit), may_write: right == Right::Write })
        })
        .collect()
    }

    /// All units that an initiator may use.
    pub fn reach_of(&self, initiator: &str) -> Vec<Reachable> {
        self.all.iter().flat_map(|target| self.units_of(target, initiator).into_values()).collect()
    }

    /// The one of that name, if it is there for that initiator; upper and lower case are one.
    pub fn find(&self, name: &str, initiator: &str) -> Option<&Rc<Target>> {
        self.seen_by(initiator).find(|target| target.name.eq_ignore_ascii_case(name))
    }
}

/// Something worth telling an operator.
#[derive(Debug)]
pub enum Event {
    /// An initiator is logged in.
    LoggedIn {
        /// From where.
        peer: String,
        /// Who.
        initiator: String,
        /// To which target; none if it only asks which there are.
        target: Option<String>,
    },
    /// A connection ended.
    Ended {
        /// From where.
        peer: String,
        /// Why, if it did not log out.
        why: Option<String>,
    },
    /// A connection could not be accepted.
    NotAccepted(world::IoError),
}

/// Serves `targets` to all who connect, until it is dropped.
///
/// Discovery answers with the address the listener was given, or, where that is every address of this host, with the one
/// that the initiator connected to.
pub async fn serve(world: World, listener: Rc<dyn Listener>, targets: Targets, tell: Rc<dyn Fn(Event)>) {
    let address = listener.address();
    loop {
        let Accepted { stream, peer, local } =
            accept_next(&world, &*listener, |error| tell(Event::NotAccepted(error))).await;
        let portal = if address.is_any() { local.to_string() } else { address.to_string() };
        let (own, targets) = (world.clone(), targets.clone());
        let tell = Rc::clone(&tell);
        world.spawn("iscsi connection", async move {
            let logged_in = |initiator: &str, target: Option<&str>| {
                let (initiator, target) = (initiator.to_owned(), target.map(str::to_owned));
                tell(Event::LoggedIn { peer: peer.clone(), initiator, target });
            };
            let why = connection::run(&own, stream, &targets, &portal, logged_in).await.err();
            tell(Event::Ended { peer, why });
        });
    }
}
