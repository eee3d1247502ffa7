//! The hosts that use a pool, as other threads see them: sessions of iSCSI, clients of NBD.

use crate::{hexadecimal::hexadecimal, pool_thread::ServedPool};
use array::format::PoolId;
use iscsi::target::ListedSession;
use nbd::server::portal::ListedClient;
use ring::digest::{SHA256, digest};
use world::WallTime;

/// Bytes of an identity.
const ID_BYTES: usize = 8;

/// A host that uses what a pool serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// Of this session alone, also after the server was started again.
    pub id: String,
    pub protocol: SessionProtocol,
    /// iSCSI name; clients of NBD have none.
    pub initiator: Option<String>,
    /// Address of the host.
    pub peer: String,
    /// iSCSI name of the target, or name of the export.
    pub service: String,
    pub since: WallTime,
    /// Logical unit numbers, and whether it may write there; none of NBD.
    pub units: Vec<(u64, bool)>,
    pub is_encrypted: bool,
    pub is_read_only: bool,
    /// On the pool's thread.
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionProtocol {
    Iscsi,
    Nbd,
}

impl SessionView {
    fn of_iscsi(pool: PoolId, session: ListedSession) -> Self {
        let ListedSession { number, initiator, peer, target, since, units } = session;
        Self {
            id: id_of(pool, "iscsi", number, (&peer, since)),
            protocol: SessionProtocol::Iscsi,
            initiator: Some(initiator),
            is_read_only: !units.iter().any(|&(_, may_write)| may_write),
            service: target,
            peer,
            since,
            units,
            is_encrypted: false,
            number,
        }
    }

    fn of_nbd(pool: PoolId, client: ListedClient) -> Self {
        let ListedClient { number, peer, export, since, is_encrypted, is_read_only } = client;
        Self {
            id: id_of(pool, "nbd", number, (&peer, since)),
            protocol: SessionProtocol::Nbd,
            initiator: None,
            peer,
            service: export,
            since,
            units: Vec::new(),
            is_encrypted,
            is_read_only,
            number,
        }
    }

    /// The host in words: `iqn.2026-11.org.example:host (10.0.0.7:4711)`.
    pub fn host(&self) -> String {
        match &self.initiator {
            Some(initiator) => format!("{initiator} ({})", self.peer),
            None => format!("the NBD client {}", self.peer),
        }
    }
}

fn id_of(pool: PoolId, protocol: &str, number: u64, (peer, since): (&str, WallTime)) -> String {
    let text = format!("{pool} {protocol} {number} {peer} {}.{}", since.seconds, since.nanos);
    hexadecimal(&digest(&SHA256, text.as_bytes()).as_ref()[..ID_BYTES])
}

impl ServedPool {
    /// The hosts that use what is served, those of iSCSI first.
    pub(crate) fn sessions(&self) -> Vec<SessionView> {
        let pool = self.pool.id();
        let iscsi = self.listed_sessions().into_iter().map(|session| SessionView::of_iscsi(pool, session));
        let nbd = self.listed_clients().into_iter().map(|client| SessionView::of_nbd(pool, client));
        iscsi.chain(nbd).collect()
    }

    /// Ends a session: an initiator is asked to log out first. Returns what it was; `None` if there is none with this identity.
    pub(crate) fn end_session(&self, id: &str) -> Option<SessionView> {
        let session = self.sessions().into_iter().find(|session| session.id == id)?;
        let is_ended = match session.protocol {
            SessionProtocol::Iscsi => self.end_iscsi_session(session.number),
            SessionProtocol::Nbd => self.end_nbd_client(session.number),
        };
        is_ended.then_some(session)
    }
}
