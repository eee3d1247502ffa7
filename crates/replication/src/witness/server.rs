//! The witness as a server: one ledger, one file, a task for each session.
//!
//! Invariants:
//!
//! 1. Deciding a request and making the ledger stable is one step without an await, so no session sees a
//!    decision that is not stable.
//! 2. After an error of the file nothing is answered any more, and [`WitnessServer::serve`] ends.

use super::{
    file::WitnessFile,
    group::WitnessRequest,
    ledger::{WitnessAnswer, WitnessLedger},
    message::{MessageFault, MessageKind, REQUEST_BYTES_MAX, decode_request, encode_answer, encode_list},
    session::{WitnessSecret, WitnessSession, WitnessSessionEnd},
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use tokio::sync::Notify;
use world::{IoError, IoResult, Listener, StateFile, Stream, World, network::accept_next, with_deadline};

/// Sessions at a time; a further connection is closed.
pub const SESSIONS_MAX: usize = 128;
/// A client that has not said hello by then is dropped.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// A session without a request for so long is closed.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// A running witness.
pub struct WitnessServer {
    world: World,
    ledger: RefCell<WitnessLedger>,
    file: RefCell<WitnessFile>,
    secret: Option<WitnessSecret>,
    sessions: Cell<usize>,
    failure: RefCell<Option<IoError>>,
    failed: Notify,
}

impl WitnessServer {
    /// A witness that begins with what `file` keeps. Leases that may have been given before count as held.
    ///
    /// # Errors
    ///
    /// The file cannot be used, see [`WitnessFile::open`].
    pub fn open(
        world: &World,
        file: Box<dyn StateFile>,
        secret: Option<WitnessSecret>,
    ) -> IoResult<Rc<Self>> {
        let (file, groups) = WitnessFile::open(file)?;
        // Read after the file was opened: a lock that another process just gave up came first.
        let ledger = WitnessLedger::restarted(groups, world.now());
        Ok(Rc::new(Self {
            world: world.clone(),
            ledger: RefCell::new(ledger),
            file: RefCell::new(file),
            secret,
            sessions: Cell::new(0),
            failure: RefCell::new(None),
            failed: Notify::new(),
        }))
    }

    /// Groups that the witness knows.
    pub fn group_count(&self) -> usize {
        self.ledger.borrow().groups().len()
    }

    /// Serves until the file fails; returns that error. Dropping the future stops accepting.
    pub async fn serve(self: Rc<Self>, listener: Box<dyn Listener>) -> IoError {
        let accept = async {
            loop {
                let accepted = accept_next(&self.world, &*listener, |_| ()).await;
                if self.sessions.get() < SESSIONS_MAX {
                    let server = Rc::clone(&self);
                    server.sessions.set(server.sessions.get() + 1);
                    self.world.spawn("witness session", async move {
                        // A session ends with its connection; what was wrong with it is the client's to say.
                        let _ = server.converse(accepted.stream).await;
                        server.sessions.set(server.sessions.get() - 1);
                    });
                }
            }
        };
        let failed: Option<()> = with_deadline(self.failed.notified(), accept).await;
        assert!(failed.is_none(), "accepting has no end");
        self.failure.borrow_mut().take().expect("the error was kept before the notice")
    }

    async fn converse(&self, stream: Stream) -> Result<(), WitnessSessionEnd> {
        let hello = WitnessSession::accept(&self.world, stream, self.secret.as_ref(), REQUEST_BYTES_MAX);
        let Some(session) = with_deadline(self.world.sleep(HELLO_MAX), hello).await else { return Ok(()) };
        let mut session = session?;
        loop {
            let exchange = async {
                let (kind, body) = session.receive().await?;
                if kind != MessageKind::Request {
                    return Err(MessageFault::Kind(kind as u16).into());
                }
                match decode_request(&body)? {
                    None => {
                        let views = self.ledger.borrow().views(self.world.now());
                        session.send(MessageKind::List, &encode_list(&views)).await
                    }
                    Some(request) => match self.decide(&request) {
                        Some(answer) => session.send(MessageKind::Answer, &encode_answer(&answer)).await,
                        None => Err(WitnessSessionEnd::Refused("the state file failed".to_owned())),
                    },
                }
            };
            match with_deadline(self.world.sleep(IDLE_MAX), exchange).await {
                Some(done) => done?,
                None => return Ok(()),
            }
        }
    }

    /// A decision that is stable; none if the file failed.
    fn decide(&self, request: &WitnessRequest) -> Option<WitnessAnswer> {
        let mut ledger = self.ledger.borrow_mut();
        let (answer, is_changed) = ledger.apply(request, self.world.now(), self.world.wall());
        if self.failure.borrow().is_some() {
            return None;
        }
        if is_changed && let Err(error) = self.file.borrow_mut().store(ledger.groups()) {
            *self.failure.borrow_mut() = Some(error);
            self.failed.notify_one();
            return None;
        }
        Some(answer)
    }
}
