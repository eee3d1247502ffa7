//! The target: accepts connections, logs initiators in and executes their commands.
//!
//! Reading order: [`access`] (access control), `pending_command` (commands whose data are incomplete; no
//! I/O), `send_queue` (outgoing PDUs and their sequence numbers), `login`, `connection`, `task_management`,
//! `text_request` (SendTargets), [`failed_logins`] (throttling), `unit_holders` (units of one initiator at a time), `changed_rights`
//! (sessions that follow a change), `session_list` (sessions listed and ended), [`portal`] (targets on several threads).

pub mod access;
mod changed_rights;
mod connection;
pub mod failed_logins;
mod failure;
mod login;
mod pending_command;
pub mod portal;
mod responses;
mod send_queue;
mod session_list;
mod sessions;
mod task_management;
mod text_request;
mod unit_holders;

pub use self::{
    failure::SessionFailure,
    session_list::ListedSession,
    unit_holders::{UNIT_KEPT, UnitConflict},
};

use self::{
    access::{AccessList, AccessRight},
    connection::ArrivedConnection,
    sessions::Sessions,
    unit_holders::HeldUnits,
};
use crate::{
    scsi::unit::{AccessibleUnit, LogicalUnit},
    session::{
        chap::Credentials,
        login::{LoginPolicy, NewSession, PORTAL_GROUP},
    },
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

/// The portals of a target that two sites have. One of them serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPortals {
    /// Tag of the portal group of this server.
    pub group: u16,
    /// Portals of the other site (`HOST:PORT`), and the tag of their group.
    pub others: Vec<String>,
    pub other_group: u16,
    /// The first of these serves the target: a login here is redirected to it.
    pub has_moved: bool,
}

/// All targets of a server and the rights on them.
#[derive(Clone, Default)]
pub struct Targets {
    all: Vec<Rc<Target>>,
    /// Found by discovery, served by other threads.
    listed: Rc<[ListedTarget]>,
    access: Rc<AccessList>,
    /// By iSCSI names of targets.
    portals: Rc<BTreeMap<String, TargetPortals>>,
    /// Portals to which logins are redirected, round robin.
    redirect_portals: Rc<[String]>,
    turn: Rc<Cell<usize>>,
    sessions: Rc<Sessions>,
    /// Counted up by each replacement.
    revision: u64,
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

    /// Says which targets two sites have. Those that have moved are to be among the listed ones.
    pub fn with_portals(self, portals: impl IntoIterator<Item = (String, TargetPortals)>) -> Self {
        Self { portals: Rc::new(portals.into_iter().collect()), ..self }
    }

    /// The other site's part in a target, if there is one.
    pub fn portals_of(&self, name: &str) -> Option<&TargetPortals> {
        self.portals.get(&name.to_ascii_lowercase())
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
        let (sessions, revision) = (Rc::clone(&self.sessions), self.revision + 1);
        Self { sessions, revision, ..Self::new(targets).with_access(access) }
    }

    /// Sessions of these targets and of those that they replaced.
    pub fn session_count(&self) -> usize {
        self.sessions.count()
    }

    /// Has the sessions of before follow these targets and rights. One that has lost a unit or a right ends, and finds the rest
    /// when it logs in again; one that has gained units goes on, and its initiator learns of them (REPORTED LUNS DATA HAS
    /// CHANGED). Units that another initiator holds are gained with a new login only. A login under way ends, too.
    pub fn update_sessions(&self) {
        self.sessions.revision.set(self.revision);
        self.sessions.end_unless(|connection| connection.is_discovery() || connection.follow(self));
    }

    /// True if the sessions follow other targets by now.
    fn are_replaced(&self) -> bool {
        self.sessions.revision.get() > self.revision
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

    /// All units of all targets that the initiator may use in a session to `target`: exclusive ones only of this target, which
    /// the session holds.
    fn units_in_reach(&self, initiator: &str, target: Option<&Rc<Target>>) -> Vec<AccessibleUnit> {
        let units_of = |other: &Rc<Target>| {
            let is_own = target.is_some_and(|target| Rc::ptr_eq(target, other));
            let units = self.units_of(other, initiator).into_values();
            units.filter(move |reached| is_own || !reached.unit.is_exclusive())
        };
        self.all.iter().flat_map(units_of).collect()
    }

    /// Holds the units of a new session.
    fn hold_units(
        &self,
        world: &World,
        session: &NewSession<Rc<Target>>,
        peer: &str,
    ) -> Result<HeldUnits, SessionFailure> {
        let NewSession { initiator, target, .. } = session;
        let units = target.as_ref().map_or_else(BTreeMap::new, |target| self.units_of(target, initiator));
        let target = target.as_ref().map_or("", |target| &target.name);
        let held = self.sessions.holders.hold(world, (initiator, peer), target, &units);
        held.map_err(SessionFailure::UnitHeld)
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

    /// Targets that are hidden from an initiator have not moved for it either.
    fn moved_to(&self, name: &str, initiator: &str) -> Option<&str> {
        let portals = self.portals_of(name).filter(|portals| portals.has_moved)?;
        let mut visible = self.names_visible_to(initiator).into_iter();
        let is_visible = visible.any(|known| known.eq_ignore_ascii_case(name));
        portals.others.first().filter(|_| is_visible).map(String::as_str)
    }

    fn portal_group(&self, name: &str) -> u16 {
        self.portals_of(name).map_or(PORTAL_GROUP, |portals| portals.group)
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
        let IncomingConnection { stream, peer, local, .. } =
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
    let why = connection::run(world, arrived, &peer, targets, logged_in).await.err();
    tell(TargetEvent::Ended { peer, why });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::{identity::UnitIdentity, properties::UnitProperties};
    use world::{
        ByteCount,
        sim::{DriveOptions, Simulation},
    };

    /// An EXTENDED COPY would write to a unit that another initiator may hold.
    #[test]
    fn a_session_does_not_reach_exclusive_units_of_other_targets() {
        let mut simulation = Simulation::new(1);
        let drive = simulation.add_drive(DriveOptions::new(ByteCount::mib(1)));
        let unit = |number: u8| {
            let properties = UnitProperties {
                product: "VOLUME".to_owned(),
                revision: "0001".to_owned(),
                identity: UnitIdentity([number; 16]),
                block_bytes: 512,
                physical_bytes: 4096,
                is_read_only: false,
                is_thin: false,
                is_removable: false,
                port: 1,
            };
            LogicalUnit::new(properties, Rc::clone(&drive) as _, None, false)
        };
        let target = |name: &str, shared: u8, exclusive: u8| Target {
            name: name.to_owned(),
            units: BTreeMap::from([(0, Rc::new(unit(shared))), (1, Rc::new(unit(exclusive).exclusive()))]),
        };
        let targets = Targets::new(vec![target("iqn.x:mail", 1, 2), target("iqn.x:logs", 3, 4)]);
        let own = targets.target("iqn.x:mail", "iqn.x:a");
        let reached = targets.units_in_reach("iqn.x:a", own.as_ref());
        let reached: Vec<u8> = reached.iter().map(|reached| reached.unit.identity().0[0]).collect();
        assert_eq!(reached, [1, 2, 3]);
    }
}
