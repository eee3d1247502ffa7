//! The target: connections are logged in, then carry commands to units until they end.
//!
//! Reading order: `tasks` (commands whose data are still coming, without any I/O), `sending` (what is sent, and its
//! numbers), `logging_in`, `connection` (all of a connection), `managing`.

mod connection;
mod logging_in;
mod managing;
mod sending;
mod tasks;

use crate::scsi::unit::Unit;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};
use tokio::sync::Notify;
use world::{Accepted, Listener, World};

/// A target: units under a name.
pub struct Target {
    /// Its name: `iqn.2026-11.org.example:mail`.
    pub name: String,
    /// By number.
    pub units: BTreeMap<u64, Rc<Unit>>,
    /// Who may use it; none: everybody.
    pub initiators: Option<BTreeSet<String>>,
}

impl Target {
    /// Whether that initiator may use it.
    pub fn admits(&self, initiator: &str) -> bool {
        self.initiators.as_ref().is_none_or(|initiators| initiators.contains(initiator))
    }
}

/// All targets.
#[derive(Clone, Default)]
pub struct Targets(Vec<Rc<Target>>);

impl Targets {
    /// Those of `targets`.
    ///
    /// # Panics
    ///
    /// If two have one name.
    pub fn new(targets: Vec<Target>) -> Self {
        let names: BTreeSet<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(names.len(), targets.len(), "a target is known by its name");
        Self(targets.into_iter().map(Rc::new).collect())
    }

    /// All of them.
    pub fn all(&self) -> &[Rc<Target>] {
        &self.0
    }

    /// The one of that name; upper and lower case are one.
    pub fn find(&self, name: &str) -> Option<&Rc<Target>> {
        self.0.iter().find(|target| target.name.eq_ignore_ascii_case(name))
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

/// Sessions there are: a new one of the same name takes the place of the one before (RFC 7143, 6.3.5).
#[derive(Default)]
struct Sessions(RefCell<BTreeMap<String, Rc<Notify>>>);

impl Sessions {
    /// A session begins; what it is told when another one takes its place.
    fn begin(&self, name: &str) -> Rc<Notify> {
        let own = Rc::new(Notify::new());
        if let Some(before) = self.0.borrow_mut().insert(name.to_owned(), Rc::clone(&own)) {
            before.notify_one();
        }
        own
    }

    fn end(&self, name: &str, own: &Rc<Notify>) {
        let mut sessions = self.0.borrow_mut();
        if sessions.get(name).is_some_and(|session| Rc::ptr_eq(session, own)) {
            sessions.remove(name);
        }
    }
}

/// Serves `targets` to all who connect, until it is dropped; `portal` is what initiators are told to connect to.
pub async fn serve(
    world: World,
    listener: Rc<dyn Listener>,
    targets: Targets,
    portal: String,
    tell: Rc<dyn Fn(Event)>,
) {
    let sessions = Rc::new(Sessions::default());
    loop {
        match listener.accept().await {
            Ok(Accepted { stream, peer }) => {
                let (own, targets, portal) = (world.clone(), targets.clone(), portal.clone());
                let (sessions, tell) = (Rc::clone(&sessions), Rc::clone(&tell));
                world.spawn("iscsi connection", async move {
                    let logged_in = |initiator: &str, target: Option<&str>| {
                        let (initiator, target) = (initiator.to_owned(), target.map(str::to_owned));
                        tell(Event::LoggedIn { peer: peer.clone(), initiator, target });
                    };
                    let why =
                        connection::run(&own, stream, &targets, &portal, &sessions, logged_in).await.err();
                    tell(Event::Ended { peer, why });
                });
            }
            Err(error) => {
                tell(Event::NotAccepted(error));
                // Out of descriptors, as a rule: that passes.
                world.sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
