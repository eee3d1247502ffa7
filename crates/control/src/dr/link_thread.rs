//! The thread of the link to other sites: it listens, connects, pairs, and gives channels to the groups of the pools.
//!
//! Of two paired sites the one that presented the token connects, and attaches the channels.

use super::{
    access::DrAccess,
    link_view::{LinkHandle, LinkOrder, LinkView, ORDERS_MAX, PeerView},
    peer_session::PeerSession,
    set_memory::LinkStanding,
    site_message::default_name,
};
use crate::{
    journal::{
        DaemonJournal,
        pairings::{OwnIdentity, PairedSite},
    },
    notice::NoticeSender,
    portal::{NetworkMaker, no_thread},
    site::handle::SiteHandle,
};
use array::format::SiteId;
use replication::link::{
    LinkError, LinkListener, LinkPeer, LinkSecurity, LinkSession, LinkSettings, PairedSites, PairingToken,
    RejectedConnection, pair,
};
use report::Refusal;
use serving::{export::listen_refusal, uuid::random_uuid};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};
use tls::{CertificateFingerprint, PinnedIdentity, TlsIdentity};
use tokio::sync::{mpsc, oneshot, watch};
use world::{
    Address, JoinHandle, Listener, LocalFuture, Network, ThreadStarter, WallTime, World, with_deadline,
};

/// Port of the link, if an address names none.
pub const LINK_PORT: u16 = 7789;
/// First and longest pause between two attempts to connect.
const CONNECT_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Interval of the view.
const VIEW_EVERY: Duration = Duration::from_secs(1);

/// Protection of the connections with other sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkProtection {
    /// TLS, between paired sites only.
    Tls,
    /// Nothing: a site is taken for the one that it says it is. For simulated networks alone, where a seed has to give one run.
    Plain,
}

/// Surroundings of the link.
pub struct LinkThreadSetting {
    pub network: NetworkMaker,
    /// To listen at.
    pub address: Address,
    pub protection: LinkProtection,
    /// As the site calls itself; empty for a name made of its UUID.
    pub name: String,
    pub site: SiteHandle,
    pub journal: Arc<DaemonJournal>,
    /// Learns the identity of this site.
    pub access: DrAccess,
}

/// The link's thread, seen from another one.
pub struct LinkThread {
    pub handle: LinkHandle,
    stop: oneshot::Sender<()>,
    end: JoinHandle<Result<(), String>>,
}

impl LinkThread {
    /// Binds the address and begins to connect.
    ///
    /// # Errors
    ///
    /// The address is taken; the journal cannot be read or written; or there is no thread left.
    pub async fn start(
        world: &World,
        threads: &dyn ThreadStarter,
        setting: LinkThreadSetting,
        notices: NoticeSender,
    ) -> Result<Self, Refusal> {
        let (tell, bound) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let (give, orders) = mpsc::channel(ORDERS_MAX);
        let own = notices.clone();
        let main = move |world: World| -> LocalFuture<()> {
            Box::pin(run(world, setting, (tell, stopped, orders), own))
        };
        let ended = threads.start("link", Box::new(main)).map_err(|error| no_thread(&error))?;
        let end = world.spawn("link watch", async move {
            let end = ended.await;
            if let Err(panic) = &end {
                notices.warn(format!(
                    "the link to other sites has stopped by an error of the program: {panic}; groups in sync hold their hosts, \
                     then go on alone; start again to have it back"
                ));
            }
            end
        });
        match bound.await {
            Ok(view) => Ok(Self { handle: LinkHandle { orders: give, view: view? }, stop, end }),
            Err(_) => {
                let why = end.await.err().unwrap_or_else(|| "it has ended".to_owned());
                Err(Refusal::new(format!("the thread of the link: {why}"), "see the log"))
            }
        }
    }

    /// Ends all sessions and the thread. The error is the message of a panic.
    pub async fn stop(self) -> Result<(), String> {
        let Self { stop, end, .. } = self;
        // The thread may have ended.
        let _ = stop.send(());
        end.await
    }
}

type Signals = (
    oneshot::Sender<Result<watch::Receiver<Arc<LinkView>>, Refusal>>,
    oneshot::Receiver<()>,
    mpsc::Receiver<LinkOrder>,
);

/// The line to a peer, as it was last.
#[derive(Default)]
struct PeerLine {
    last_error: Option<(WallTime, String)>,
    /// The end of the last session, or the pairing; none before the first one.
    lost_since: Option<WallTime>,
    /// A failure to connect was reported, and no success since.
    is_reported: bool,
}

/// The link, on its thread.
pub(super) struct Link {
    pub world: World,
    pub site: SiteHandle,
    pub notices: NoticeSender,
    pub(super) access: DrAccess,
    pub(super) network: Rc<dyn Network>,
    journal: Arc<DaemonJournal>,
    pub(super) settings: LinkSettings,
    paired: PairedSites,
    pub name: String,
    listener: Rc<LinkListener>,
    peers: RefCell<BTreeMap<SiteId, PairedSite>>,
    lines: RefCell<BTreeMap<SiteId, PeerLine>>,
    sessions: RefCell<BTreeMap<SiteId, Rc<PeerSession>>>,
    address: String,
    /// A test of a line is under way from here.
    pub(super) is_testing: Cell<bool>,
    started_at: WallTime,
}

async fn run(
    world: World,
    setting: LinkThreadSetting,
    (tell, stopped, mut orders): Signals,
    notices: NoticeSender,
) {
    let LinkThreadSetting { network, address, protection, name, site, journal, access } = setting;
    let network = network();
    let begun = async {
        let listener = network.listen(&address).await;
        let listener = listener.map_err(|error| listen_refusal(&error, "[replication] listen"))?;
        let begun = Link::new(
            &world,
            (network, listener, protection),
            (name, site, journal, access.clone()),
            notices,
        )?;
        access.set_site(begun.0.settings.site);
        Ok(begun)
    };
    let (link, socket) = match begun.await {
        Ok(begun) => begun,
        Err(refusal) => return drop(tell.send(Err(refusal))),
    };
    let (show, view) = watch::channel(Arc::new(link.view()));
    // Nobody may wait for it.
    let _ = tell.send(Ok(view));
    world.spawn("link listener", Rc::clone(&link.listener).serve(socket));
    world.spawn("link sessions", Rc::clone(&link).take_sessions());
    let known: Vec<SiteId> = link.peers.borrow().keys().copied().collect();
    known.into_iter().for_each(|site| link.keep_connected(site));
    let (showing, shown_world) = (Rc::downgrade(&link), world.clone());
    world.spawn("link view", async move {
        while let Some(link) = showing.upgrade() {
            let view = link.view();
            drop(link);
            show.send_if_modified(|last| {
                let is_new = **last != view;
                if is_new {
                    *last = Arc::new(view);
                }
                is_new
            });
            shown_world.sleep(VIEW_EVERY).await;
        }
    });
    let taken = async {
        while let Some(order) = orders.recv().await {
            link.do_order(order);
        }
    };
    // The sender is dropped with its daemon: that is a stop too.
    let _ = with_deadline(async { drop(stopped.await) }, taken).await;
    link.listener.close();
    link.sessions.borrow().values().for_each(|session| session.close());
}

/// The identity of this site, which is made with the first start.
fn own_identity(world: &World, journal: &DaemonJournal) -> Result<OwnIdentity, Refusal> {
    if let Some(known) = journal.own_identity().map_err(|error| error.refusal())? {
        return Ok(known);
    }
    let made = PinnedIdentity::generate();
    let (certificate, key) = made.map_err(|error| Refusal::new(error.to_string(), ""))?;
    let identity = OwnIdentity { site: random_uuid(world), certificate, key };
    journal.put_own_identity(&identity).map_err(|error| error.refusal())?;
    Ok(identity)
}

impl Link {
    fn new(
        world: &World,
        (network, socket, protection): (Rc<dyn Network>, Box<dyn Listener>, LinkProtection),
        (name, site, journal, access): (String, SiteHandle, Arc<DaemonJournal>, DrAccess),
        notices: NoticeSender,
    ) -> Result<(Rc<Self>, Rc<dyn Listener>), Refusal> {
        let own = own_identity(world, &journal)?;
        let peers = journal.paired_sites().map_err(|error| error.refusal())?;
        let paired = PairedSites::default();
        for peer in &peers {
            paired.insert(SiteId(peer.site), CertificateFingerprint(peer.certificate));
        }
        let security = match protection {
            LinkProtection::Tls => {
                let identity =
                    TlsIdentity { certificate: own.certificate.as_bytes(), key: own.key.as_bytes() };
                let identity = PinnedIdentity::new(identity);
                let identity = identity.map_err(|error| Refusal::new(error.to_string(), ""))?;
                LinkSecurity::Tls { identity, paired: paired.clone() }
            }
            LinkProtection::Plain => LinkSecurity::Plain,
        };
        let program = concat!("spindle ", env!("CARGO_PKG_VERSION"));
        let settings = LinkSettings::new(SiteId(own.site), program, security);
        let address = socket.address().to_string();
        let name = if name.is_empty() { default_name(&own.site) } else { name };
        let link = Rc::new_cyclic(|link: &Weak<Self>| {
            let own = link.clone();
            let note_paired = move |site| own.upgrade().iter().for_each(|link| link.note_paired(site));
            let told = notices.clone();
            let tell = move |RejectedConnection { source, reason }| {
                told.login_failed(&source, format!("{source}: refused as another site: {reason}"));
            };
            let listener = LinkListener::new(world, settings.clone(), Rc::new(note_paired), Rc::new(tell));
            Self {
                world: world.clone(),
                site,
                notices: notices.clone(),
                access,
                network,
                journal,
                settings,
                paired,
                name,
                listener,
                peers: RefCell::new(peers.into_iter().map(|peer| (SiteId(peer.site), peer)).collect()),
                lines: RefCell::default(),
                sessions: RefCell::default(),
                address,
                is_testing: Cell::new(false),
                started_at: world.wall(),
            }
        });
        Ok((link, socket.into()))
    }

    fn view(&self) -> LinkView {
        let (lines, sessions) = (self.lines.borrow(), self.sessions.borrow());
        let lost_since =
            |site| lines.get(site).and_then(|line: &PeerLine| line.lost_since).unwrap_or(self.started_at);
        let mut peers: Vec<PeerView> = self
            .peers
            .borrow()
            .iter()
            .map(|(site, peer)| PeerView {
                site: *site,
                name: peer.name.clone(),
                addresses: peer.addresses.clone(),
                connected_since: sessions.get(site).map(|session| session.since),
                lost_since: (!sessions.contains_key(site)).then(|| lost_since(site)),
                connections: sessions.get(site).map(|session| session.connections()).unwrap_or_default(),
                last_error: lines.get(site).and_then(|line| line.last_error.clone()),
            })
            .collect();
        peers.sort_by(|one, other| one.name.cmp(&other.name));
        LinkView { site: self.settings.site, name: self.name.clone(), address: self.address.clone(), peers }
    }

    pub fn peer_name(&self, site: SiteId) -> String {
        let known = self.peers.borrow().get(&site).map(|peer| peer.name.clone());
        known.unwrap_or_else(|| default_name(&site.0))
    }

    /// The other site says how its people call it: that is its name here, unless people here chose one.
    pub fn note_name(&self, site: SiteId, said: &str) {
        let mut peers = self.peers.borrow_mut();
        let is_taken = said == self.name || peers.values().any(|peer| peer.name == said);
        if let Some(peer) = peers.get_mut(&site)
            && peer.is_named_by_itself
            && !is_taken
            && is_site_name(said)
        {
            said.clone_into(&mut peer.name);
            if let Err(error) = self.journal.put_paired_site(peer) {
                self.notices.warn(error.refusal().to_string());
            }
        }
    }

    /// A site has presented a token that was made here.
    fn note_paired(&self, site: SiteId) {
        let certificate = self.paired.certificate_of(site).expect("it was paired just now").0;
        let known = self.peers.borrow().get(&site).cloned();
        let peer = known.unwrap_or_else(|| PairedSite {
            site: site.0,
            certificate,
            name: default_name(&site.0),
            is_named_by_itself: true,
            addresses: Vec::new(),
        });
        if let Err(error) = self.journal.put_paired_site(&PairedSite { certificate, ..peer.clone() }) {
            // The other side believes it; after a restart here it has to pair again.
            self.notices.warn(format!(
                "a site that was paired is forgotten with the next start: {}",
                error.refusal()
            ));
        }
        self.note_pairing(site, &format!("paired with {}, which presented a token of this site", peer.name));
        self.peers.borrow_mut().insert(site, peer);
    }

    async fn take_sessions(self: Rc<Self>) {
        loop {
            let session = self.listener.next_session().await;
            let own = Rc::clone(&self);
            self.world.spawn("link session", async move {
                drop(own.serve(session, false).await);
            });
        }
    }

    /// Serves a session to its end. A newer one takes the place of an older one.
    async fn serve(self: &Rc<Self>, session: LinkSession, is_dialer: bool) -> LinkError {
        let peer = session.peer_site();
        let session = PeerSession::new(session, self.world.wall());
        let before = self.sessions.borrow_mut().insert(peer, Rc::clone(&session));
        before.iter().for_each(|session| session.close());
        self.lines.borrow_mut().entry(peer).or_default().is_reported = false;
        self.notices.note(format!("connected with site {}", self.peer_name(peer)));
        self.access.sets().note_link(peer, LinkStanding::Connected(session.version()));
        let end = Rc::clone(&session).run(self, is_dialer).await;
        let is_newest = self.sessions.borrow().get(&peer).is_some_and(|newest| Rc::ptr_eq(newest, &session));
        if is_newest {
            self.sessions.borrow_mut().remove(&peer);
            let now = self.world.wall();
            self.access.sets().note_link(peer, LinkStanding::Lost(now));
            self.lines.borrow_mut().entry(peer).or_default().lost_since = Some(now);
            self.note_error(peer, end.to_string());
        }
        end
    }

    /// Notes why there is no session. The first reason after a success is said.
    fn note_error(&self, site: SiteId, reason: String) {
        let mut lines = self.lines.borrow_mut();
        let line = lines.entry(site).or_default();
        if !std::mem::replace(&mut line.is_reported, true) {
            // A condition says so, unless it is back before long.
            self.notices.show(format!("site {} is not reached: {reason}", self.peer_name(site)));
        }
        line.last_error = Some((self.world.wall(), reason));
    }

    /// Keeps a session with a site that this one connects to, as long as they are paired.
    fn keep_connected(self: &Rc<Self>, site: SiteId) {
        let own = Rc::clone(self);
        self.world.spawn("link dialer", async move {
            let mut pause = CONNECT_PAUSE.0;
            loop {
                let addresses = match own.peers.borrow().get(&site) {
                    Some(peer) if !peer.addresses.is_empty() => peer.addresses.clone(),
                    _ => return,
                };
                let addresses =
                    addresses.iter().filter_map(|address| Address::parse(address, LINK_PORT).ok());
                let peer = LinkPeer { addresses: addresses.collect(), site: Some(site) };
                let network = Rc::clone(&own.network);
                match LinkSession::connect(&own.world, network, peer, own.settings.clone()).await {
                    Ok(session) => {
                        pause = CONNECT_PAUSE.0;
                        own.serve(session, true).await;
                    }
                    Err(error) => own.note_error(site, error.to_string()),
                }
                own.world.sleep(pause).await;
                pause = (pause * 2).min(CONNECT_PAUSE.1);
            }
        });
    }

    fn do_order(self: &Rc<Self>, order: LinkOrder) {
        match order {
            LinkOrder::MakeToken { valid, answer } => {
                let token = self.listener.offer_token(valid).map(|token| token.digits());
                let full =
                    || Refusal::new("too many pairing tokens wait to be used", "wait until they expire");
                drop(answer.send(token.ok_or_else(full)));
            }
            LinkOrder::Pair { name, address, token, answer } => {
                let own = Rc::clone(self);
                self.world.spawn("pairing", async move {
                    drop(answer.send(own.pair(name, &address, &token).await));
                });
            }
            LinkOrder::Unpair { site, answer } => drop(answer.send(self.unpair(site))),
            LinkOrder::TestLine { peer, order, answer } => {
                let own = Rc::clone(self);
                self.world.spawn("line test", async move {
                    drop(answer.send(own.test_line(peer, order).await));
                });
            }
            LinkOrder::Offer { peer, offer, answer } => match self.session_with(peer) {
                Ok(session) => session.offer(offer.0, &offer.1, answer),
                Err(refusal) => drop(answer.send(Err(refusal))),
            },
            LinkOrder::RequestHandOver { peer, group, answer } => match self.session_with(peer) {
                Ok(session) => session.request_hand_over(group, answer),
                Err(refusal) => drop(answer.send(Err(refusal))),
            },
        }
    }

    /// Addresses of a peer, to which this site connects.
    pub(super) fn addresses_of(&self, site: SiteId) -> Vec<String> {
        self.peers.borrow().get(&site).map(|peer| peer.addresses.clone()).unwrap_or_default()
    }

    pub(super) fn session_with(&self, peer: SiteId) -> Result<Rc<PeerSession>, Refusal> {
        let session = self.sessions.borrow().get(&peer).cloned();
        session.ok_or_else(|| {
            Refusal::new(format!("site {} is not connected", self.peer_name(peer)), "see 'spindle dr status'")
        })
    }

    async fn pair(self: &Rc<Self>, name: String, address: &str, token: &str) -> Result<SiteId, Refusal> {
        if !is_site_name(&name) {
            let next = "use letters, digits, '.', '-' and '_', at most 64";
            return Err(Refusal::new(format!("{name:?} is no name of a site"), next));
        }
        let parsed =
            Address::parse(address, LINK_PORT).map_err(|error| Refusal::new(error.to_string(), ""))?;
        let token = PairingToken::parse(token).ok_or_else(|| {
            Refusal::new(
                "a pairing token is 32 hexadecimal digits",
                "'spindle dr token' makes one at the other site",
            )
        })?;
        let is_of_other =
            |peer: &PairedSite| peer.name == name && !peer.addresses.iter().any(|known| known == address);
        if name == self.name || self.peers.borrow().values().any(is_of_other) {
            return Err(Refusal::new(format!("there is a site {name:?} already"), "choose another name"));
        }
        let paired = pair(&self.world, Rc::clone(&self.network), &parsed, &self.settings, &token).await;
        let site = paired.map_err(|error| {
            Refusal::new(format!("{address}: {error}"), "make a new token there, and look at the address")
        })?;
        let certificate = self.paired.certificate_of(site).expect("it was paired just now").0;
        let peer = PairedSite {
            site: site.0,
            certificate,
            name,
            is_named_by_itself: false,
            addresses: vec![address.to_owned()],
        };
        self.journal.put_paired_site(&peer).map_err(|error| error.refusal())?;
        self.note_pairing(
            site,
            &format!("paired with {} at {address}, with a token of that site", peer.name),
        );
        let before = self.peers.borrow_mut().insert(site, peer);
        if before.is_none_or(|before| before.addresses.is_empty()) {
            self.keep_connected(site);
        }
        Ok(site)
    }

    fn note_pairing(&self, site: SiteId, text: &str) {
        self.lines.borrow_mut().entry(site).or_default().lost_since = Some(self.world.wall());
        self.notices.occurred("dr_site_paired", text);
    }

    fn unpair(&self, site: SiteId) -> Result<(), Refusal> {
        if !self.peers.borrow().contains_key(&site) {
            return Err(Refusal::new("there is no such site", "see 'spindle dr status'"));
        }
        self.journal.forget_paired_site(&site.0).map_err(|error| error.refusal())?;
        self.paired.remove(site);
        let name = self.peer_name(site);
        self.peers.borrow_mut().remove(&site);
        self.notices.occurred("dr_site_unpaired", format!("the pairing with {name} was ended here"));
        if let Some(session) = self.sessions.borrow().get(&site) {
            session.close();
        }
        Ok(())
    }
}

/// A name that people can type.
fn is_site_name(name: &str) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || ".-_".contains(char);
    (1..=64).contains(&name.len()) && name.chars().all(is_plain)
}
