//! The side that freezes: a thing of a backup.

use super::{FAILED, FIRST, GREETING, LATE, OK, in_a_line, read_line};
use crate::backup::{Consistency, Freezable, StepError, StepResult};
use std::{cell::RefCell, rc::Rc};
use tokio::io::{AsyncWriteExt, BufReader, ReadHalf, WriteHalf, split};
use world::{
    LocalFuture, Moment, World,
    network::{Address, Network, Stream},
};

/// The things of a process at a socket, frozen around one cut.
pub struct SocketFreeze {
    world: World,
    network: Rc<dyn Network>,
    at: Address,
    /// Name of the cut.
    name: String,
    /// Gone once a step failed or was given up: the service thaws then.
    connection: Rc<RefCell<Option<Connection>>>,
}

pub(super) struct Connection {
    reader: BufReader<ReadHalf<Stream>>,
    writer: WriteHalf<Stream>,
}

impl SocketFreeze {
    /// For the cut that will be called `name`.
    pub fn new(world: &World, network: Rc<dyn Network>, at: Address, name: &str) -> Self {
        Self { world: world.clone(), network, at, name: in_a_line(name), connection: Rc::default() }
    }

    /// Gives an order; its answer, without `ok`. The connection is gone if this is given up, or fails.
    fn order(&self, order: String) -> LocalFuture<Result<String, StepError>> {
        let (slot, at) = (Rc::clone(&self.connection), self.at.clone());
        Box::pin(async move {
            let taken = slot.borrow_mut().take();
            let mut connection = taken.ok_or_else(|| StepError(format!("{at}: the connection is gone")))?;
            let answer = connection.ask(&order).await;
            let answer = answer.ok_or_else(|| StepError(format!("{at}: the connection ended")))?;
            *slot.borrow_mut() = Some(connection);
            match answer.strip_prefix(FAILED) {
                Some(reason) => Err(StepError(format!("{at}: {reason}"))),
                None if answer.starts_with(OK) => Ok(answer),
                None => Err(StepError(format!("{at}: {:?} is no answer", in_a_line(&answer)))),
            }
        })
    }

    fn step(&self, order: String) -> LocalFuture<StepResult> {
        let answer = self.order(order);
        Box::pin(async move { answer.await.map(drop) })
    }
}

impl Connection {
    /// Connects, and reads the greeting.
    pub async fn open(network: &dyn Network, at: &Address) -> Result<Self, StepError> {
        let stream = network.connect(at).await;
        let stream = stream.map_err(|error| {
            StepError(format!("{error}; is there a run with --control at that socket, and does it measure?"))
        })?;
        let (reader, writer) = split(stream);
        let mut connection = Self { reader: BufReader::new(reader), writer };
        match read_line(&mut connection.reader).await {
            Some(line) if line.starts_with(GREETING) => Ok(connection),
            Some(line) => {
                Err(StepError(format!("{at}: {:?} is no greeting of this version", in_a_line(&line))))
            }
            None => Err(StepError(format!("{at}: the connection ended before its greeting"))),
        }
    }

    pub async fn ask(&mut self, order: &str) -> Option<String> {
        self.ask_with(order, &[]).await
    }

    /// Asks with what follows the order's line.
    pub async fn ask_with(&mut self, order: &str, with: &[u8]) -> Option<String> {
        self.writer.write_all(format!("{order}\n").as_bytes()).await.ok()?;
        self.writer.write_all(with).await.ok()?;
        self.writer.flush().await.ok()?;
        read_line(&mut self.reader).await
    }
}

impl Freezable for SocketFreeze {
    fn describe(&self) -> String {
        format!("the databases at {}", self.at)
    }

    fn consistency(&self) -> Consistency {
        Consistency::Application
    }

    fn prepare(&self) -> LocalFuture<StepResult> {
        let (network, at) = (Rc::clone(&self.network), self.at.clone());
        let (slot, prepared) = (Rc::clone(&self.connection), self.step("prepare".to_owned()));
        Box::pin(async move {
            let connection = Connection::open(&*network, &at).await?;
            *slot.borrow_mut() = Some(connection);
            prepared.await
        })
    }

    fn freeze(&self, deadline: Moment) -> LocalFuture<StepResult> {
        let within_ms = deadline.since(self.world.now()).as_millis();
        self.step(format!("freeze {within_ms} {}", self.name))
    }

    fn thaw(&self) -> LocalFuture<Result<bool, StepError>> {
        let answer = self.order("thaw".to_owned());
        Box::pin(async move {
            match answer.await?.as_str() {
                FIRST => Ok(true),
                LATE => Ok(false),
                other => Err(StepError(format!("{other:?} is no answer to a thaw"))),
            }
        })
    }

    fn after(&self) -> LocalFuture<StepResult> {
        let (slot, undone) = (Rc::clone(&self.connection), self.step("after".to_owned()));
        Box::pin(async move {
            let undone = undone.await;
            // The next one in line is served.
            slot.borrow_mut().take();
            undone
        })
    }
}
