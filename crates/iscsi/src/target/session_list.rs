//! The sessions of a thread's targets, for the operator: listed, and ended.

use super::{Targets, connection::Connection};
use std::{rc::Rc, time::Duration};
use world::{WallTime, World};

/// Time that an initiator has to log out when its session is to end; it is told three seconds.
const LOG_OUT_MAX: Duration = Duration::from_secs(5);

/// A session to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSession {
    /// Unique among the sessions of one process's targets.
    pub number: u64,
    /// iSCSI name of the initiator.
    pub initiator: String,
    /// Its address.
    pub peer: String,
    /// iSCSI name of the target.
    pub target: String,
    pub since: WallTime,
    /// Logical unit numbers that it may use, and whether it may write there.
    pub units: Vec<(u64, bool)>,
}

impl ListedSession {
    fn of(connection: &Rc<Connection>) -> Self {
        let units = connection.units();
        Self {
            number: connection.hold,
            initiator: connection.initiator.clone(),
            peer: connection.peer.clone(),
            target: connection.target_name.clone(),
            since: connection.since,
            units: units.iter().map(|(&number, reached)| (number, reached.may_write)).collect(),
        }
    }
}

impl Targets {
    /// The sessions to targets, not those for discovery.
    pub fn sessions(&self) -> Vec<ListedSession> {
        let connections = self.sessions.connections();
        let mut listed: Vec<_> = connections
            .iter()
            .filter(|connection| !connection.is_discovery())
            .map(ListedSession::of)
            .collect();
        listed.sort_by_key(|session| session.number);
        listed
    }

    /// Asks the initiator of a session to log out, and ends the session if it has not after a few seconds. Commands that were
    /// begun are done. False if there is no such session.
    pub fn end_session(&self, world: &World, number: u64) -> bool {
        let is_meant = move |connection: &Connection| connection.hold == number && !connection.is_discovery();
        let Some(connection) = self.sessions.connections().into_iter().find(|one| is_meant(one)) else {
            return false;
        };
        connection.is_ended_by_operator.set(true);
        connection.ask_to_log_out();
        drop(connection);
        let (sessions, own) = (Rc::clone(&self.sessions), world.clone());
        world.spawn("iscsi session end", async move {
            own.sleep(LOG_OUT_MAX).await;
            sessions.end_unless(|connection| !is_meant(connection));
        });
        true
    }
}
