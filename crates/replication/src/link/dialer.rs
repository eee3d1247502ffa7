//! The side that connects: the first connection, the others, and those that were lost.

use super::{
    LinkError, LinkPeer, LinkSecurity, LinkSession, LinkSettings, PairingToken,
    connection::{LinkReader, LinkWriter},
    hello::{self, ConnectionPlace, HelloFailure, greet},
    pairing::PairingRole,
    refusal,
    security::SecuredConnection,
    session::{LinkEvent, SessionCore},
};
use crate::frame::{CONNECTIONS_MAX, FrameBody, HelloFrame, RefusalCode};
use array::format::SiteId;
use std::rc::Rc;
use world::{Address, Network, World, with_deadline};

/// Makes connections to one peer.
struct Dialer {
    world: World,
    network: Rc<dyn Network>,
    peer: LinkPeer,
    settings: LinkSettings,
    session: u64,
    count: u16,
}

/// A connection after *hello*.
struct Dialled {
    halves: (LinkReader, LinkWriter),
    hello: HelloFrame,
    version: u16,
}

/// Connects to an address, and protects the connection.
pub(super) async fn open(
    world: &World,
    network: &Rc<dyn Network>,
    address: &Address,
    security: &LinkSecurity,
) -> Result<SecuredConnection, HelloFailure> {
    let stream = network.connect(address).await;
    let stream = stream.map_err(|error| HelloFailure::Connection(error.to_string()))?;
    security.secure(world, stream, PairingRole::Presenter).await
}

/// Presents a token that the site at an address has made. Returns that site, which is among the paired ones from now
/// on, as this one is there.
///
/// # Errors
///
/// The address cannot be reached, the token is refused, or the other side does not know it. If the answer alone was
/// lost, the same token may be presented again.
///
/// # Panics
///
/// If the settings are those of plain TCP.
pub async fn pair(
    world: &World,
    network: Rc<dyn Network>,
    address: &Address,
    settings: &LinkSettings,
    token: &PairingToken,
) -> Result<SiteId, LinkError> {
    let limit = world.sleep(settings.handshake_max);
    let paired = with_deadline(limit, present(world, network, address, settings, token)).await;
    let late = || HelloFailure::Connection("no answer in time".to_owned());
    Ok(paired.unwrap_or_else(|| Err(late()))?)
}

async fn present(
    world: &World,
    network: Rc<dyn Network>,
    address: &Address,
    settings: &LinkSettings,
    token: &PairingToken,
) -> Result<SiteId, HelloFailure> {
    let LinkSecurity::Tls { paired, .. } = &settings.security else {
        panic!("sites are paired over TLS");
    };
    let SecuredConnection { halves: (mut reader, mut writer), peer } =
        open(world, &network, address, &settings.security).await?;
    let peer = peer.expect("the connection has TLS");
    let key = token.key();
    let proof = key.prove(PairingRole::Presenter, settings.site, &peer.channel);
    hello::send(&mut writer, FrameBody::Pairing(proof)).await?;
    let FrameBody::Pairing(answer) = hello::receive(&mut reader).await? else {
        return Err(HelloFailure::Connection("the answer to a token is another frame".to_owned()));
    };
    let refuse = |text: &str| Err(HelloFailure::Refused(refusal(RefusalCode::Token, text)));
    if !key.verify(PairingRole::Maker, &answer, &peer.channel) {
        return refuse("the other side does not know the token: it may be a man in the middle");
    }
    if !paired.insert(answer.site, peer.certificate) {
        return refuse("the site is paired with another certificate: unpair it first");
    }
    Ok(answer.site)
}

impl LinkSession {
    /// Begins a session with a peer. Its addresses are tried one after the other; the other connections follow in the
    /// background, and those that are lost are dialled again, each at its own address.
    ///
    /// # Errors
    ///
    /// No address answers, or the peer refuses.
    ///
    /// # Panics
    ///
    /// If the peer has no address.
    pub async fn connect(
        world: &World,
        network: Rc<dyn Network>,
        peer: LinkPeer,
        settings: LinkSettings,
    ) -> Result<Self, LinkError> {
        assert!(!peer.addresses.is_empty(), "a peer has an address");
        let addresses = u16::try_from(peer.addresses.len()).unwrap_or(u16::MAX);
        let count = settings.connections.max(addresses).clamp(1, CONNECTIONS_MAX);
        let mut reasons = Vec::new();
        for index in 0..count.min(addresses) {
            let mut session = [0; 8];
            world.fill_secret(&mut session);
            let dialer = Dialer {
                world: world.clone(),
                network: Rc::clone(&network),
                peer: peer.clone(),
                settings: settings.clone(),
                session: u64::from_le_bytes(session),
                count,
            };
            match dialer.dial(index, false).await {
                Ok(dialled) => return Ok(Rc::new(dialer).begin(index, dialled)),
                Err(HelloFailure::Connection(reason)) => {
                    reasons.push(format!("{}: {reason}", dialer.address(index)));
                }
                Err(refused) => return Err(refused.into()),
            }
        }
        Err(LinkError::Unreachable(reasons.join("; ")))
    }
}

impl Dialer {
    fn address(&self, index: u16) -> &Address {
        &self.peer.addresses[usize::from(index) % self.peer.addresses.len()]
    }

    async fn dial(&self, index: u16, is_joining: bool) -> Result<Dialled, HelloFailure> {
        let limit = self.world.sleep(self.settings.handshake_max);
        let dialled = with_deadline(limit, self.dial_without_limit(index, is_joining)).await;
        dialled.unwrap_or_else(|| {
            let limit = self.settings.handshake_max.as_secs_f64();
            Err(HelloFailure::Connection(format!("no connection within {limit:.1} s")))
        })
    }

    async fn dial_without_limit(&self, index: u16, is_joining: bool) -> Result<Dialled, HelloFailure> {
        let SecuredConnection { mut halves, peer } =
            open(&self.world, &self.network, self.address(index), &self.settings.security).await?;
        let security = &self.settings.security;
        security.check_certificate(peer.as_ref(), self.peer.site).map_err(HelloFailure::Refused)?;
        let place = ConnectionPlace { session: self.session, index, count: self.count, is_joining };
        let (hello, version) = greet(&mut halves, &self.settings, self.peer.site, place).await?;
        security.check(peer.as_ref(), hello.site).map_err(HelloFailure::Refused)?;
        Ok(Dialled { halves, hello, version })
    }

    /// The session, with its first connection.
    fn begin(self: Rc<Self>, first: u16, Dialled { halves, hello, version }: Dialled) -> LinkSession {
        let core = SessionCore::begin(&self.world, &self.settings, (hello, version), true);
        for index in 0..self.count {
            if index != first {
                self.world.spawn("link connection", Rc::clone(&self).keep(Rc::clone(&core), index));
            }
        }
        let (dialer, own) = (Rc::clone(&self), Rc::clone(&core));
        self.world.spawn("link connection", async move {
            own.serve(first, dialer.address(first).to_string(), halves).await;
            dialer.keep(own, first).await;
        });
        LinkSession { core }
    }

    /// Keeps a connection up until the session has ended.
    async fn keep(self: Rc<Self>, core: Rc<SessionCore>, index: u16) {
        let address = self.address(index).to_string();
        let (pause_first, pause_max) = self.settings.redial;
        let mut pause = pause_first;
        let mut is_reported = false;
        while !core.has_ended() {
            match self.dial(index, true).await {
                Ok(dialled) if !core.has_ended() => {
                    (pause, is_reported) = (pause_first, false);
                    core.serve(index, address.clone(), dialled.halves).await;
                }
                Ok(_) => return,
                Err(HelloFailure::Connection(reason)) => {
                    if !std::mem::replace(&mut is_reported, true) && !core.has_ended() {
                        core.record(LinkEvent::NotReached { address: address.clone(), index, reason });
                    }
                }
                Err(HelloFailure::Refused(refused)) => {
                    return core.end(LinkError::Refused(refused), None);
                }
            }
            with_deadline(self.world.sleep(pause), core.ended.notified()).await;
            pause = (pause * 2).min(pause_max);
        }
    }
}
