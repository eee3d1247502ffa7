//! Messages of a backup that go back into databases while these are in use.

use super::{DELIVERED, FAILED, OK, client::Connection, in_a_line};
use crate::backup::{StepError, StepResult};
use std::time::Duration;
use world::{
    LocalFuture, World,
    network::{Address, Network},
    with_deadline,
};

/// Most bytes of a message.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Longest wait for an answer: one connection is served at a time, and another may freeze the databases for 20 s.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// Databases that take messages while they are in use. How a message is written is a matter of theirs.
pub trait LiveMailboxes {
    /// Adds a message to the database of that name, in a transaction that [`Self::keep`] ends. One that is there is never
    /// changed.
    fn deliver(&self, database: &str, message: Vec<u8>) -> LocalFuture<Result<Delivery, StepError>>;

    /// Makes stable what was delivered since the last call.
    fn keep(&self) -> LocalFuture<StepResult>;

    /// Takes back what was delivered and not kept.
    fn undo(&self) -> LocalFuture<()>;
}

/// The result of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    Added,
    /// The message is there.
    Same,
    /// Another version of the message is there, and stays.
    Other,
    /// The database is not among these.
    Elsewhere,
}

impl Delivery {
    const ALL: [Self; 4] = [Self::Added, Self::Same, Self::Other, Self::Elsewhere];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Same => "same",
            Self::Other => "other",
            Self::Elsewhere => "elsewhere",
        }
    }
}

/// A connection over which messages are delivered. What is not kept when it ends was not delivered.
pub struct DeliveryConnection {
    world: World,
    at: Address,
    connection: Connection,
}

impl DeliveryConnection {
    /// Connects.
    ///
    /// # Errors
    ///
    /// Nobody serves the socket.
    pub async fn open(world: &World, network: &dyn Network, at: &Address) -> Result<Self, StepError> {
        let opened = with_deadline(world.sleep(ANSWERED_WITHIN), Connection::open(network, at)).await;
        let connection = opened.unwrap_or_else(|| Err(late(at)))?;
        Ok(Self { world: world.clone(), at: at.clone(), connection })
    }

    /// Adds a message to a database, as [`LiveMailboxes::deliver`] does.
    ///
    /// # Errors
    ///
    /// It was refused, or the connection ended.
    pub async fn deliver(&mut self, database: &str, message: &[u8]) -> Result<Delivery, StepError> {
        let order = format!("deliver {} {}", message.len(), in_a_line(database));
        let answer = self.ask(&order, message).await?;
        let word = answer.strip_prefix(DELIVERED);
        let delivery = word.and_then(|word| Delivery::ALL.into_iter().find(|one| one.word() == word));
        delivery.ok_or_else(|| StepError(format!("{}: {:?} is no answer", self.at, in_a_line(&answer))))
    }

    /// Makes stable what was delivered.
    ///
    /// # Errors
    ///
    /// It may not be, or the connection ended before it was said.
    pub async fn keep(&mut self) -> StepResult {
        match &*self.ask("keep", &[]).await? {
            OK => Ok(()),
            other => Err(StepError(format!("{}: {:?} is no answer", self.at, in_a_line(other)))),
        }
    }

    async fn ask(&mut self, order: &str, with: &[u8]) -> Result<String, StepError> {
        let asked = self.connection.ask_with(order, with);
        let answer = with_deadline(self.world.sleep(ANSWERED_WITHIN), asked).await;
        let answer = answer.ok_or_else(|| late(&self.at))?;
        let answer = answer.ok_or_else(|| StepError(format!("{}: the connection ended", self.at)))?;
        match answer.strip_prefix(FAILED) {
            Some(reason) => Err(StepError(format!("{}: {reason}", self.at))),
            None => Ok(answer),
        }
    }
}

/// Delivers messages to whichever of several processes has their database, each message over one connection.
pub struct MessageDelivery {
    world: World,
    sockets: Vec<Address>,
    /// The one that has the database, once it is known.
    chosen: Option<usize>,
}

impl MessageDelivery {
    /// Delivers at these sockets.
    pub fn new(world: &World, sockets: Vec<Address>) -> Self {
        Self { world: world.clone(), sockets, chosen: None }
    }

    /// Delivers messages to the database of that name, and returns once they are stable. `None` if no process has it; then nothing
    /// was delivered. If this fails, none of them counts as delivered, and those that are there nevertheless are
    /// [`Delivery::Same`] the next time.
    ///
    /// # Errors
    ///
    /// A socket is not served, a message was refused, or the connection ended.
    pub async fn deliver_batch(
        &mut self,
        network: &dyn Network,
        (database, messages): (&str, &[Vec<u8>]),
    ) -> Result<Option<Vec<Delivery>>, StepError> {
        let candidates = match self.chosen {
            Some(chosen) => chosen..chosen + 1,
            None => 0..self.sockets.len(),
        };
        let Some((first, others)) = messages.split_first() else { return Ok(Some(Vec::new())) };
        for at in candidates {
            let mut connection = DeliveryConnection::open(&self.world, network, &self.sockets[at]).await?;
            // Over the connection that goes on, if it is the one: a message that is taken back and comes again would be
            // delivered twice.
            let mut done = vec![connection.deliver(database, first).await?];
            if done[0] == Delivery::Elsewhere {
                continue;
            }
            for message in others {
                done.push(connection.deliver(database, message).await?);
            }
            if done.contains(&Delivery::Elsewhere) {
                let lost = format!("{} has no database {} any more", self.sockets[at], in_a_line(database));
                return Err(StepError(lost));
            }
            connection.keep().await?;
            self.chosen = Some(at);
            return Ok(Some(done));
        }
        match self.chosen {
            Some(chosen) => Err(StepError(format!(
                "{} has no database {} any more",
                self.sockets[chosen],
                in_a_line(database)
            ))),
            None => Ok(None),
        }
    }
}

fn late(at: &Address) -> StepError {
    StepError(format!("{at}: no answer in {} s", ANSWERED_WITHIN.as_secs()))
}
