//! The side that accepts: streams from anywhere become sessions. Invariants:
//!
//! 1. A connection begins a session that does not exist, or joins one of its own site that has not ended.
//! 2. There are at most as many sessions, and handshakes at one time, as are allowed. A handshake ends within its limit.
//! 3. A connection of a test becomes part of no session.

use super::{
    LinkError, LinkSecurity, LinkSession, LinkSettings, PairingToken,
    connection::{LinkReader, LinkWriter},
    hello::{self, HelloFailure},
    pairing::{PairingRole, TokenBook},
    refusal,
    security::{AuthenticatedPeer, SecuredConnection},
    session::SessionCore,
    test_answer::{TestConnection, TestSlot},
};
use crate::frame::{FrameBody, HelloFrame, LinkTestFrame, PairingFrame, RefusalCode, RefusalFrame};
use array::format::SiteId;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::Duration,
};
use tokio::{io::AsyncWriteExt, sync::Notify};
use world::{IncomingConnection, IoError, Listener, Stream, World, network::accept_next, with_deadline};

/// A connection that became part of no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedConnection {
    /// Its address.
    pub source: String,
    /// One line.
    pub reason: String,
}

/// A connection after its first frames.
enum AcceptedConnection {
    /// With its session.
    Session(Rc<SessionCore>, HelloFrame, (LinkReader, LinkWriter)),
    Test(TestConnection),
    /// It is closed.
    Paired,
}

/// Accepts sessions of other sites, and pairs with them.
pub struct LinkListener {
    world: World,
    settings: LinkSettings,
    sessions: RefCell<BTreeMap<(SiteId, u64), Rc<SessionCore>>>,
    begun: RefCell<VecDeque<LinkSession>>,
    has_begun: Notify,
    handshakes: Rc<Cell<usize>>,
    is_closed: Cell<bool>,
    tokens: RefCell<TokenBook>,
    test: TestSlot,
    paired: Rc<dyn Fn(SiteId)>,
    tell: Rc<dyn Fn(RejectedConnection)>,
}

/// Counts a handshake that is under way.
struct HandshakeCount(Rc<Cell<usize>>);

impl Drop for HandshakeCount {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl LinkListener {
    /// `paired` is called when a site presented a token and is paired from now on: the owner stores it. `tell` hears of
    /// connections that were rejected.
    pub fn new(
        world: &World,
        settings: LinkSettings,
        paired: Rc<dyn Fn(SiteId)>,
        tell: Rc<dyn Fn(RejectedConnection)>,
    ) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            settings,
            sessions: RefCell::default(),
            begun: RefCell::default(),
            has_begun: Notify::new(),
            handshakes: Rc::default(),
            is_closed: Cell::new(false),
            tokens: RefCell::default(),
            test: TestSlot::default(),
            paired,
            tell,
        })
    }

    /// Accepts connections until the future is dropped. Several listeners may serve one.
    pub async fn serve(self: Rc<Self>, listener: Rc<dyn Listener>) {
        let source = listener.address().to_string();
        loop {
            let not_accepted = |error: IoError| self.reject(&source, error.to_string());
            let IncomingConnection { stream, peer, .. } =
                accept_next(&self.world, &*listener, not_accepted).await;
            self.take(stream, peer);
        }
    }

    /// Takes a connection that was accepted elsewhere, of which nothing was read.
    pub fn take(self: &Rc<Self>, stream: Stream, source: String) {
        if self.handshakes.get() >= self.settings.handshakes_max {
            let reason = format!("{} handshakes are under way", self.settings.handshakes_max);
            return self.reject(&source, reason);
        }
        self.handshakes.set(self.handshakes.get() + 1);
        let count = HandshakeCount(Rc::clone(&self.handshakes));
        let own = Rc::clone(self);
        self.world.spawn("link handshake", async move {
            let limit = own.world.sleep(own.settings.handshake_max);
            let begun = with_deadline(limit, own.shake_hands(stream, &source)).await;
            drop(count);
            match begun {
                Some(Ok(AcceptedConnection::Paired)) => {}
                Some(Ok(AcceptedConnection::Session(core, hello, halves))) => {
                    core.serve(hello.connection, source, halves).await;
                }
                Some(Ok(AcceptedConnection::Test(connection))) => {
                    if let Err(reason) = connection.serve(&own.world).await {
                        own.reject(&source, reason);
                    }
                }
                Some(Err(failure)) => own.reject(&source, failure.to_string()),
                None => own.reject(&source, "no hello in time".to_owned()),
            }
            own.forget_ended();
        });
    }

    /// Waits for the next session that another site begins. One caller at a time.
    pub async fn next_session(&self) -> LinkSession {
        loop {
            let begun = self.begun.borrow_mut().pop_front();
            match begun {
                Some(session) => return session,
                None => self.has_begun.notified().await,
            }
        }
    }

    /// Makes a token with which one site can pair, within a time. `None` if as many wait as are allowed. A restart
    /// forgets it.
    pub fn offer_token(&self, valid: Duration) -> Option<PairingToken> {
        self.tokens.borrow_mut().offer(&self.world, valid)
    }

    /// Ends all sessions, and takes no more connections.
    pub fn close(&self) {
        self.is_closed.set(true);
        let reason = refusal(RefusalCode::Closing, "the other site stops");
        self.sessions.borrow().values().for_each(|core| core.end(LinkError::Closed, Some(reason.clone())));
    }

    fn reject(&self, source: &str, reason: String) {
        (self.tell)(RejectedConnection { source: source.to_owned(), reason });
    }

    fn forget_ended(&self) {
        self.sessions.borrow_mut().retain(|_, core| !core.has_ended());
    }

    async fn shake_hands(&self, stream: Stream, source: &str) -> Result<AcceptedConnection, HelloFailure> {
        let security = &self.settings.security;
        let secured = security.secure(&self.world, stream, PairingRole::Maker).await?;
        let SecuredConnection { halves: (mut reader, mut writer), peer } = secured;
        let theirs = match hello::receive(&mut reader).await? {
            FrameBody::Hello(theirs) => theirs,
            FrameBody::Pairing(said) => {
                let paired = self.pair(&mut writer, source, &said, peer.as_ref()).await;
                return paired.map(|()| AcceptedConnection::Paired);
            }
            FrameBody::LinkTest(said) => return self.begin_test(said, (reader, writer), peer.as_ref()).await,
            _ => return Err(HelloFailure::Connection("the first frame is not hello".to_owned())),
        };
        if let Err(refused) = security.check(peer.as_ref(), theirs.site) {
            return Err(refuse(&mut writer, refused).await);
        }
        let core = match self.session_of(&theirs) {
            Ok(core) => core,
            Err(refused) => return Err(refuse(&mut writer, refused).await),
        };
        // The session exists before the answer: with it the other side may let more connections join.
        let unserved = UnservedSession(Some(Rc::clone(&core)));
        hello::answer(&mut writer, &self.settings, &theirs).await?;
        unserved.open();
        if !theirs.is_joining {
            self.begun.borrow_mut().push_back(LinkSession { core: Rc::clone(&core) });
            self.has_begun.notify_one();
        }
        Ok(AcceptedConnection::Session(core, theirs, (reader, writer)))
    }

    /// Lets a connection of a paired site into a test of the line.
    async fn begin_test(
        &self,
        said: LinkTestFrame,
        (reader, mut writer): (LinkReader, LinkWriter),
        peer: Option<&AuthenticatedPeer>,
    ) -> Result<AcceptedConnection, HelloFailure> {
        let checked = self.settings.security.check(peer, said.site).and_then(|()| self.check_test(&said));
        let entered = checked.and_then(|()| self.test.enter(&said, self.world.now()));
        let place = match entered {
            Ok(place) => place,
            Err(refused) => return Err(refuse(&mut writer, refused).await),
        };
        let answer = LinkTestFrame { site: self.settings.site, ..said };
        hello::send(&mut writer, FrameBody::LinkTest(answer)).await?;
        Ok(AcceptedConnection::Test(TestConnection { place, halves: (reader, writer) }))
    }

    fn check_test(&self, said: &LinkTestFrame) -> Result<(), RefusalFrame> {
        // Frames of tests are the same since there are some, also where sessions need a later version.
        if !self.settings.versions.reaches(said.version) {
            let text = format!("the other site does not know version {} of the link", said.version);
            return Err(refusal(RefusalCode::Version, text));
        }
        if said.site == self.settings.site {
            return Err(refusal(RefusalCode::NotPaired, "a site cannot be its own peer"));
        }
        if self.is_closed.get() {
            return Err(refusal(RefusalCode::Closing, "the other site stops"));
        }
        Ok(())
    }

    /// Answers a site that presents a token.
    async fn pair(
        &self,
        writer: &mut LinkWriter,
        source: &str,
        said: &PairingFrame,
        peer: Option<&AuthenticatedPeer>,
    ) -> Result<(), HelloFailure> {
        let (LinkSecurity::Tls { paired, .. }, Some(peer)) = (&self.settings.security, peer) else {
            return Err(refuse(writer, refusal(RefusalCode::Token, "sites are paired over TLS")).await);
        };
        let checked = self.tokens.borrow_mut().check(source, said, &peer.channel, self.world.now());
        let key = match checked {
            Ok(key) => key,
            Err(refused) => return Err(refuse(writer, refused).await),
        };
        if said.site == self.settings.site || !paired.insert(said.site, peer.certificate) {
            let text = "the site is paired with another certificate: unpair it first";
            return Err(refuse(writer, refusal(RefusalCode::NotPaired, text)).await);
        }
        (self.paired)(said.site);
        let answer = key.prove(PairingRole::Maker, self.settings.site, &peer.channel);
        hello::send(writer, FrameBody::Pairing(answer)).await?;
        let _ = writer.shutdown().await;
        Ok(())
    }

    /// Checks a hello, and whether it could get its session.
    fn check(&self, theirs: &HelloFrame) -> Result<(), RefusalFrame> {
        hello::check(&self.settings, theirs)?;
        if self.is_closed.get() {
            return Err(refusal(RefusalCode::Closing, "the other site stops"));
        }
        self.forget_ended();
        let sessions = self.sessions.borrow();
        if sessions.contains_key(&(theirs.site, theirs.session)) != theirs.is_joining {
            let text = if theirs.is_joining { "the session has ended" } else { "the session exists" };
            return Err(refusal(RefusalCode::UnknownSession, text));
        }
        if !theirs.is_joining && sessions.len() >= self.settings.sessions_max {
            let text = format!("there are {} sessions already", self.settings.sessions_max);
            return Err(refusal(RefusalCode::Busy, text));
        }
        Ok(())
    }

    fn session_of(&self, theirs: &HelloFrame) -> Result<Rc<SessionCore>, RefusalFrame> {
        self.check(theirs)?;
        let version = hello::check(&self.settings, theirs)?;
        let key = (theirs.site, theirs.session);
        if let Some(core) = self.sessions.borrow().get(&key) {
            return Ok(Rc::clone(core));
        }
        let core = SessionCore::begin(&self.world, &self.settings, (theirs.clone(), version), false);
        self.sessions.borrow_mut().insert(key, Rc::clone(&core));
        Ok(core)
    }
}

/// A session whose first connection is not yet open. It ends if that fails.
struct UnservedSession(Option<Rc<SessionCore>>);

impl UnservedSession {
    fn open(mut self) {
        self.0 = None;
    }
}

impl Drop for UnservedSession {
    fn drop(&mut self) {
        self.0.iter().for_each(|core| core.end_without_connections());
    }
}

/// Sends a refusal to a connection that is refused; returns it as the failure.
async fn refuse(writer: &mut LinkWriter, refused: RefusalFrame) -> HelloFailure {
    let _ = hello::send(writer, FrameBody::Refusal(refused.clone())).await;
    let _ = writer.shutdown().await;
    HelloFailure::Refused(refused)
}
