//! The sessions of all portals.
//!
//! Invariants:
//!
//! 1. A new session with the name of an existing one replaces it (session reinstatement, RFC 7143, 6.3.5).
//! 2. A session that must end is notified once; it ends after its commands.

use super::{connection::Connection, failed_logins::FailedLogins, unit_holders::UnitHolders};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::{Rc, Weak},
};
use tokio::sync::Notify;

#[derive(Default)]
pub(super) struct Sessions {
    all: RefCell<BTreeMap<String, Session>>,
    changed: Notify,
    /// Of the targets that the sessions follow.
    pub revision: Cell<u64>,
    pub holders: Rc<UnitHolders>,
    pub failed_logins: FailedLogins,
}

struct Session {
    ends: Rc<Notify>,
    connection: Weak<Connection>,
}

impl Sessions {
    /// Adds a session; the returned `Notify` fires when it must end.
    pub fn begin(&self, name: &str) -> Rc<Notify> {
        let ends = Rc::new(Notify::new());
        let session = Session { ends: Rc::clone(&ends), connection: Weak::new() };
        if let Some(before) = self.all.borrow_mut().insert(name.to_owned(), session) {
            before.ends.notify_one();
        }
        ends
    }

    /// Records the connection of a session, unless it was replaced.
    pub fn connected(&self, name: &str, ends: &Rc<Notify>, connection: &Rc<Connection>) {
        let mut all = self.all.borrow_mut();
        if let Some(session) = all.get_mut(name).filter(|session| Rc::ptr_eq(&session.ends, ends)) {
            session.connection = Rc::downgrade(connection);
        }
    }

    pub fn end(&self, name: &str, ends: &Rc<Notify>) {
        let mut all = self.all.borrow_mut();
        if all.get(name).is_some_and(|session| Rc::ptr_eq(&session.ends, ends)) {
            all.remove(name);
        }
        self.changed.notify_one();
    }

    pub fn count(&self) -> usize {
        self.all.borrow().len()
    }

    pub fn connections(&self) -> Vec<Rc<Connection>> {
        self.all.borrow().values().filter_map(|session| session.connection.upgrade()).collect()
    }

    /// Ends all sessions of a target.
    pub fn end_all_of(&self, target: &str) {
        for session in self.all.borrow().values() {
            if session.connection.upgrade().is_some_and(|connection| connection.target_name == target) {
                session.ends.notify_one();
            }
        }
    }

    /// Ends the sessions whose connection is not to go on.
    pub fn end_unless(&self, goes_on: impl Fn(&Connection) -> bool) {
        for session in self.all.borrow().values() {
            if session.connection.upgrade().is_some_and(|connection| !goes_on(&connection)) {
                session.ends.notify_one();
            }
        }
    }

    /// Requests a logout of every session and waits until all have ended.
    pub async fn ask_all_to_log_out(&self) {
        self.connections().iter().for_each(|connection| connection.ask_to_log_out());
        while !self.all.borrow().is_empty() {
            self.changed.notified().await;
        }
    }
}
