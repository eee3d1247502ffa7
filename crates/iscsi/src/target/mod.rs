//! The target: accepts connections, logs initiators in and executes their commands.
//!
//! Reading order: [`access`] (access control), `pending_command` (commands whose data are incomplete; no
//! I/O), `send_queue` (outgoing PDUs and their sequence numbers), `login`, `connection`, `task_management`,
//! `text_request` (SendTargets), [`portal`] (targets on several threads).

pub mod access;
mod connection;
mod failure;
mod login;
mod pending_command;
pub mod portal;
mod send_queue;
mod sessions;
mod task_management;
mod text_request;

pub use self::failure::SessionFailure;

use self::{
    access::{AccessList, AccessRight},
    connection::ArrivedConnection,
    sessions::Sessions,
};
use crate::{
    scsi::unit::{AccessibleUnit, LogicalUnit},
    session::{chap::Credentials, login::LoginPolicy},
};
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use world::{IncomingConnection, Listener, World, network::accept_next};

/// A named group of logical units.
pub struct Target {
    /// iSCSI name: `iqn.2026-11.org.example:mail`.
    pub name: String,
    /// By logical unit number.
    pub units: BTreeMap<u64, Rc<LogicalUnit>>,
}

/// A target of another thread, as discovery answers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTarget {
    /// iSCSI name.
    pub name: String,
    /// Logical unit numbers.
    pub units: BTreeSet<u64>,
}

/// All targets of a server and the rights on them.
#[derive(Clone, Default)]
pub struct Targets {
    all: Vec<Rc<Target>>,
    /// Found by discovery, served by other threads.
    listed: Rc<[ListedTarget]>,
    access: Rc<AccessList>,
    /// Portals to which logins are redirected, round robin.
    redirect_portals: Rc<[String]>,
    turn: Rc<Cell<usize>>,
    sessions: Rc<Sessions>,
}

impl Targets {
    ///
    /// # Panics
    ///
    /// If two targets have one name.
    pub fn new(targets: Vec<Target>) -> Self {
        let names: BTreeSet<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(names.len(), targets.len(), "a target is known by its name");
        Self { all: targets.into_iter().map(Rc::new).collect(), ..Self::default() }
    }

    pub fn with_access(self, access: AccessList) -> Self {
        Self { access: Rc::new(access), ..self }
    }

    /// Makes this a group portal: it answers discovery and redirects logins to `portals` (`HOST:PORT`).
    pub fn redirected_to(self, portals: impl IntoIterator<Item = String>) -> Self {
        Self { redirect_portals: portals.into_iter().collect(), ..self }
    }

    /// The same sessions and rights with other targets of other threads.
    pub fn with_listed(&self, listed: impl IntoIterator<Item = ListedTarget>) -> Self {
        Self { listed: listed.into_iter().collect(), ..self.clone() }
    }

    /// The same sessions with other targets and rights.
    ///
    /// # Panics
    ///
    /// If two targets have one name.
    pub fn replaced_by(&self, targets: Vec<Target>, access: AccessList) -> Self {
        Self { sessions: Rc::clone(&self.sessions), ..Self::new(targets).with_access(access) }
    }

    /// Requests all initiators to log out and waits until they have. The caller sets a time limit.
    pub async fn log_out_all(&self) {
        self.sessions.ask_all_to_log_out().await;
    }

    /// Targets with at least one unit the initiator may use.
    pub fn visible_to(&self, initiator: &str) -> impl Iterator<Item = &Rc<Target>> {
        self.all.iter().filter(move |target| !self.units_of(target, initiator).is_empty())
    }

    /// Names of the targets that discovery shows to an initiator.
    pub fn names_visible_to(&self, initiator: &str) -> Vec<&str> {
        let may_use =
            |target: &ListedTarget, &unit: &u64| self.access.right(initiator, &target.name, unit).is_some();
        let listed =
            self.listed.iter().filter(|target| target.units.iter().any(|unit| may_use(target, unit)));
        let own = self.visible_to(initiator).map(|target| target.name.as_str());
        own.chain(listed.map(|target| target.name.as_str())).collect()
    }

    /// Units of a target that the initiator may use, by number.
    pub fn units_of(&self, target: &Target, initiator: &str) -> BTreeMap<u64, AccessibleUnit> {
        let right = |number: u64| self.access.right(initiator, &target.name, number);
        let seen = target.units.iter().filter_map(|(&number, unit)| Some((number, unit, right(number)?)));
        seen.map(|(number, unit, right)| {
            (number, AccessibleUnit { unit: Rc::clone(unit), may_write: right == AccessRight::Write })
        })
        .collect()
    }

    /// All units of all targets that the initiator may use.
    pub fn accessible_units(&self, initiator: &str) -> Vec<AccessibleUnit> {
        self.all.iter().flat_map(|target| self.units_of(target, initiator).into_values()).collect()
    }
}

impl LoginPolicy for Targets {
    type Target = Rc<Target>;

    fn admits(&self, initiator: &str) -> bool {
        self.access.admits(initiator)
    }

    fn credentials_of(&self, initiator: &str) -> Option<&Credentials> {
        self.access.credentials_of(initiator)
    }

    fn own_credentials(&self) -> Option<&Credentials> {
        self.access.own()
    }

    fn target(&self, name: &str, initiator: &str) -> Option<Rc<Target>> {
        self.visible_to(initiator).find(|target| target.name.eq_ignore_ascii_case(name)).cloned()
    }

    /// The portals of a group take turns.
    fn redirection(&self) -> Option<&str> {
        let turn = self.turn.replace(self.turn.get().wrapping_add(1));
        self.redirect_portals.get(turn.checked_rem(self.redirect_portals.len())?).map(String::as_str)
    }
}

/// An event of a target, for the operator. [`EventLog`](world::EventLog) keeps events for readers.
#[derive(Debug)]
pub enum TargetEvent {
    /// A session was established.
    LoggedIn {
        peer: String,
        initiator: String,
        /// `None` for a discovery session.
        target: Option<String>,
    },
    /// A connection ended, or its login was refused.
    Ended {
        peer: String,
        /// `None` after a logout, or if the initiator closed the connection between two PDUs.
        why: Option<SessionFailure>,
    },
    /// A connection could not be accepted.
    NotAccepted(world::IoError),
}

/// Serves `targets` until the future is dropped.
///
/// SendTargets answers with the listener's address; if that is a wildcard address, with the local address of
/// the connection.
pub async fn serve(
    world: World,
    listener: Rc<dyn Listener>,
    targets: Targets,
    tell: Rc<dyn Fn(TargetEvent)>,
) {
    let address = listener.address();
    loop {
        let IncomingConnection { stream, peer, local } =
            accept_next(&world, &*listener, |error| tell(TargetEvent::NotAccepted(error))).await;
        let portal = if address.is_any() { local.to_string() } else { address.to_string() };
        let (own, targets) = (world.clone(), targets.clone());
        let tell = Rc::clone(&tell);
        world.spawn("iscsi connection", async move {
            let arrived = ArrivedConnection { stream, received: Vec::new(), portal };
            answer(&own, arrived, peer, &targets, &tell).await;
        });
    }
}

/// Serves one connection to its end, and tells of it.
async fn answer(
    world: &World,
    arrived: ArrivedConnection,
    peer: String,
    targets: &Targets,
    tell: &Rc<dyn Fn(TargetEvent)>,
) {
    let logged_in = |initiator: &str, target: Option<&str>| {
        let (initiator, target) = (initiator.to_owned(), target.map(str::to_owned));
        tell(TargetEvent::LoggedIn { peer: peer.clone(), initiator, target });
    };
    let why = connection::run(world, arrived, targets, logged_in).await.err();
    tell(TargetEvent::Ended { peer, why });
}
