//! Sessions there are, whichever portal they came through.
//!
//! Invariants:
//!
//! 1. A new session of the same name takes the place of the one before (RFC 7143, 6.3.5).
//! 2. Who is told to end is told once, and is gone when its commands are done.

use super::connection::Connection;
use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::{Rc, Weak},
};
use tokio::sync::Notify;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Sessions {
    all: RefCell<BTreeMap<String, Session>>,
    changed: Notify,
}

struct Session {
    ends: Rc<Notify>,
    connection: Weak<Connection>,
}

impl Sessions {
    /// A session begins; what it is told when it has to end.
    pub fn begin(&self, name: &str) -> Rc<Notify> {
        let ends = Rc::new(Notify::new());
        let session = Session { ends: Rc::clone(&ends), connection: Weak::new() };
        if let Some(before) = self.all.borrow_mut().insert(name.to_owned(), session) {
            before.ends.notify_one();
        }
        ends
    }

    /// The connection of a session, unless another one took its place.
    pub fn connected(&self, name: &str, ends: &Rc<Notify>, connection: &Rc<Connection>) {
        let mut all = self.all.borrow_mut();
        if let Some(session) = all.get_mut(name).filter(|session| Rc::ptr_eq(&session.ends, ends)) {
            session.connection = Rc::downgrade(connection);
        }
    }

    /// A session has ended.
    pub fn end(&self, name: &str, ends: &Rc<Notify>) {
        let mut all = self.all.borrow_mut();
        if all.get(name).is_some_and(|session| Rc::ptr_eq(&session.ends, ends)) {
            all.remove(name);
        }
        self.changed.notify_one();
    }

    /// All connections.
    pub fn connections(&self) -> Vec<Rc<Connection>> {
        self.all.borrow().values().filter_map(|session| session.connection.upgrade()).collect()
    }

    /// All that are logged in to a target have to end.
    pub fn end_all_of(&self, target: &str) {
        for session in self.all.borrow().values() {
            if session.connection.upgrade().is_some_and(|connection| connection.target_name == target) {
                session.ends.notify_one();
            }
        }
    }

    /// Asks all to log out, and waits until they have.
    pub async fn ask_all_to_log_out(&self) {
        self.connections().iter().for_each(|connection| connection.ask_to_log_out());
        while !self.all.borrow().is_empty() {
            self.changed.notified().await;
        }
    }
}
