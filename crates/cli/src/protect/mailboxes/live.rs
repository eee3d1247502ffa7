//! Databases in use, which take back mails of a backup from the process that has them.
//!
//! Invariant: a mail counts as delivered once the process said that it is stable.

use super::backup_databases::NamedDatabase;
use crate::server::connection::ServerConnection;
use control::web::client::{SetRow, in_uri};
use protect::{
    UnixSecond,
    backup::control_socket::{Delivery, DeliveryConnection, MessageDelivery},
};
use report::Refusal;
use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};
use workload::database::load::{
    mail_bytes,
    mail_record::{MailKey, MailRecord},
};
use world::{World, network::Address, real::Sockets};

/// Name for the sockets of a set.
const LIVE: &str = "live";
/// Mails of a connection. The process serves one at a time, and a backup that would freeze it waits meanwhile.
const MAILS_MAX: usize = 128;
/// Bytes of their bodies.
const BYTES_MAX: usize = 8 << 20;

/// The sockets of databases in use.
pub struct LiveDatabases {
    world: World,
    sockets: Vec<Address>,
}

/// Mails that were delivered.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveMails {
    pub added: u64,
    /// They were there.
    pub same: u64,
    /// Another version of them was there.
    pub other: u64,
    pub body_bytes: u64,
}

/// Mails of one connection, and the number of the next one.
#[derive(Default)]
struct MailBatch {
    mails: Vec<MailRecord>,
    bytes: usize,
    next: Option<MailKey>,
}

impl LiveDatabases {
    /// Those that `wanted` names. Each is asked for its greeting.
    ///
    /// # Errors
    ///
    /// The set has no such databases, or nobody serves a socket.
    pub async fn of(
        world: &World,
        (server, set): (&ServerConnection, &str),
        wanted: &[PathBuf],
    ) -> Result<Self, Refusal> {
        let mut sockets = Vec::new();
        for one in wanted {
            match one == Path::new(LIVE) {
                true => sockets.extend(sockets_of_set(server, set).await?),
                false => sockets.push(one.clone()),
            }
        }
        let sockets: Vec<Address> = sockets.into_iter().map(Address::Unix).collect();
        for at in &sockets {
            DeliveryConnection::open(world, &Sockets, at).await.map_err(|error| unreachable_at(&error))?;
        }
        Ok(Self { world: world.clone(), sockets })
    }

    /// Delivers the mails of a mailbox that arrived since then.
    ///
    /// # Errors
    ///
    /// No process has the database, one does not take them, or the backup cannot be read.
    pub async fn deliver(
        &self,
        database: &NamedDatabase,
        mailbox: i32,
        since: Option<UnixSecond>,
    ) -> Result<LiveMails, Refusal> {
        let mut sum = LiveMails::default();
        let mut delivery = MessageDelivery::new(&self.world, self.sockets.clone());
        let mut next = Some(MailKey { mailbox, message: i64::MIN });
        while let Some(first) = next {
            let batch = read_batch(database, first, since).await?;
            sum.body_bytes += batch.bytes as u64;
            let messages: Vec<Vec<u8>> = batch.mails.iter().map(mail_bytes::to_bytes).collect();
            let delivered = delivery.deliver_batch(&Sockets, (&database.name, &messages)).await;
            let delivered = delivered.map_err(|error| refused(&error))?;
            sum.add(&delivered.ok_or_else(|| self.nobody_has(database))?);
            next = batch.next;
        }
        Ok(sum)
    }

    fn nobody_has(&self, database: &NamedDatabase) -> Refusal {
        let asked: Vec<String> = self.sockets.iter().map(ToString::to_string).collect();
        Refusal::new(
            format!("no run at {} has a database {}", asked.join(", "), database.name),
            "name the sockets of all groups, --into SOCKET-1 --into SOCKET-2",
        )
    }
}

impl LiveMails {
    fn add(&mut self, delivered: &[Delivery]) {
        for delivery in delivered {
            match delivery {
                Delivery::Added => self.added += 1,
                Delivery::Same => self.same += 1,
                Delivery::Other => self.other += 1,
                Delivery::Elsewhere => unreachable!("the delivery ends with an error then"),
            }
        }
    }
}

async fn sockets_of_set(server: &ServerConnection, set: &str) -> Result<Vec<PathBuf>, Refusal> {
    let row: SetRow = server.get(&format!("/v1/sets/{}", in_uri(set))).await?;
    if row.sockets.is_empty() {
        return Err(Refusal::new(
            format!("set {set} is not frozen at a socket of databases, so none are known that are in use"),
            "name the socket of the run, --into SOCKET, as 'spindle prove --control SOCKET' made it",
        ));
    }
    Ok(row.sockets.into_iter().map(PathBuf::from).collect())
}

/// The mails from one on that arrived since then, as many as one connection takes.
async fn read_batch(
    database: &NamedDatabase,
    first: MailKey,
    since: Option<UnixSecond>,
) -> Result<MailBatch, Refusal> {
    let mut batch = MailBatch::default();
    let reading = database.reader.read_from(first, |mail| {
        if batch.mails.len() == MAILS_MAX || batch.bytes >= BYTES_MAX {
            batch.next = Some(mail.key);
            return ControlFlow::Break(());
        }
        if since.is_none_or(|since| mail.received_s() >= since.0) {
            batch.bytes += mail.body.len();
            batch.mails.push(mail);
        }
        ControlFlow::Continue(())
    });
    reading.await.map_err(|error| database.unread(&error))?;
    Ok(batch)
}

fn unreachable_at(error: &protect::backup::StepError) -> Refusal {
    Refusal::new(format!("--into: {error}"), "start it on this host, or fetch the mails into a folder, --to")
}

fn refused(error: &protect::backup::StepError) -> Refusal {
    Refusal::new(error.to_string(), "mails that it took stay; give the same command again, or use --to")
}
