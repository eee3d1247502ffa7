//! A session with one paired site: which groups both have, offers of new ones, and a channel for each group.
//!
//! Invariants:
//!
//! 1. The side that connected attaches; a group has one channel at a time.
//! 2. An offer is answered once, at the latest when the session ends.

use super::{
    client_exchange::ClientExchange,
    group_services::GroupServices,
    group_view::{DrGroupView, DrRole},
    half_made::OFFER_KEPT,
    link_thread::Link,
    mode_exchange::ModeExchange,
    pool_groups::{GroupVolume, begin_change},
    service_exchange::{ServiceExchange, reachable_portal},
    set_exchange::SetExchange,
    site_message::{
        CLIENTS_VERSION, GroupOffer, RefusedOffer, SERVICES_VERSION, SETS_VERSION, SiteMessage,
        VERIFICATIONS_VERSION, group_of,
    },
    thread_channel::{LineRoundTrip, carry, thread_channel},
    verdict_exchange::VerdictExchange,
};
use crate::{order::OrderRefusal, site::handle::PoolHandle};
use array::format::{GroupId, SiteId};
use futures_util::future::{Either, select};
use replication::{
    frame::{AttachFrame, FrameBody, JOINT_VERSION, RefusalCode, RefusalFrame},
    group_record::GroupSettings,
    link::{ConnectionStatus, LinkChannel, LinkError, LinkSession},
};
use report::Refusal;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};
use world::{Moment, WallTime};

/// Interval of looking for groups without a channel; also the pause before a group gets its next one.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Pause of a group that was refused since it is suspended, or the other pool is full.
const SUSPENDED_PAUSE: Duration = Duration::from_millis(500);
/// Interval of looking for groups that the other side never made.
const OFFERS_LOOK: Duration = Duration::from_secs(5);
/// Time for the other site to make replicas.
const OFFER_WITHIN: Duration = Duration::from_secs(20);

type OfferAnswer = oneshot::Sender<Result<(), Refusal>>;

pub(super) struct PeerSession {
    session: LinkSession,
    pub since: WallTime,
    say: mpsc::UnboundedSender<SiteMessage>,
    said: RefCell<Option<mpsc::UnboundedReceiver<SiteMessage>>>,
    /// Groups that the other side has with this one.
    theirs: RefCell<BTreeSet<GroupId>>,
    /// It has named them.
    has_named: Cell<bool>,
    /// Groups that have a channel.
    carried: RefCell<BTreeSet<GroupId>>,
    offers: RefCell<BTreeMap<GroupId, OfferAnswer>>,
    services: Rc<ServiceExchange>,
    clients: ClientExchange,
    sets: SetExchange,
    verdicts: VerdictExchange,
    modes: ModeExchange,
    round_trip: Arc<LineRoundTrip>,
}

impl PeerSession {
    pub fn new(session: LinkSession, since: WallTime) -> Rc<Self> {
        let (say, said) = mpsc::unbounded_channel();
        Rc::new(Self {
            session,
            since,
            say,
            said: RefCell::new(Some(said)),
            theirs: RefCell::default(),
            has_named: Cell::new(false),
            carried: RefCell::default(),
            offers: RefCell::default(),
            services: Rc::default(),
            clients: ClientExchange::default(),
            sets: SetExchange::default(),
            verdicts: VerdictExchange::default(),
            modes: ModeExchange::default(),
            round_trip: Arc::default(),
        })
    }

    /// Ends the session.
    pub fn close(&self) {
        self.session
            .close(RefusalFrame { code: RefusalCode::Closing, text: "the other site stops".to_owned() });
    }

    /// The version of the protocol that both sides use.
    pub fn version(&self) -> u16 {
        self.session.version()
    }

    /// Name and version of the other side's program.
    pub fn program(&self) -> &str {
        self.session.peer_program()
    }

    /// The connections that are up.
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        self.session.connections()
    }

    /// Serves it to its end.
    pub async fn run(self: Rc<Self>, link: &Rc<Link>, is_dialer: bool) -> LinkError {
        let work = async {
            if is_dialer {
                let Ok(channel) = self.session.attach(AttachFrame::of_sites()) else { return };
                select(pin!(self.talk(link, channel)), pin!(self.attach_groups(link))).await;
            } else {
                self.take_channels(link).await;
            }
        };
        let beside = async {
            select(pin!(work), pin!(self.undo_offers(link))).await;
        };
        let end = match select(pin!(beside), pin!(self.session.ended())).await {
            Either::Left(_) => {
                self.close();
                self.session.ended().await
            }
            Either::Right((end, _)) => end,
        };
        for (_, answer) in std::mem::take(&mut *self.offers.borrow_mut()) {
            let next = "try again once it is connected: it finds what was made";
            drop(answer.send(Err(Refusal::new("the connection to the other site was lost", next))));
        }
        end
    }

    /// Undoes groups that the other side offered and never made.
    async fn undo_offers(&self, link: &Link) -> std::convert::Infallible {
        let mut missed: BTreeMap<GroupId, Moment> = BTreeMap::new();
        loop {
            link.world.sleep(OFFERS_LOOK).await;
            let (ours, now) = (untouched_groups(link, self.session.peer_site()), link.world.now());
            let theirs = self.theirs.borrow().clone();
            missed.retain(|group, _| ours.contains(group) && !theirs.contains(group));
            if !self.has_named.get() {
                continue;
            }
            for group in ours.difference(&theirs) {
                let since = *missed.entry(*group).or_insert(now);
                if now.since(since) >= OFFER_KEPT {
                    missed.insert(*group, now);
                    undo_offer(link, self.session.peer_site(), *group).await;
                }
            }
        }
    }

    /// Takes the channels that the other side attaches.
    async fn take_channels(self: &Rc<Self>, link: &Rc<Link>) {
        while let Ok(channel) = self.session.next_channel().await {
            let (own, link) = (Rc::clone(self), Rc::clone(link));
            let world = link.world.clone();
            if channel.attached() == AttachFrame::of_sites() {
                world.spawn("site messages", async move {
                    own.talk(&link, channel).await;
                    own.close();
                });
            } else {
                world.spawn("a group's channel", async move { own.give(&link, channel).await });
            }
        }
    }

    /// Attaches a channel for each group that both sides have, and that has none.
    async fn attach_groups(self: &Rc<Self>, link: &Rc<Link>) {
        loop {
            let ours = groups_of(link, self.session.peer_site());
            let wanted: Vec<GroupId> = self.theirs.borrow().intersection(&ours).copied().collect();
            for group in wanted {
                if self.carried.borrow().contains(&group) {
                    continue;
                }
                let Ok(channel) = self.session.attach(AttachFrame { group, part: Some(0) }) else { return };
                let (own, link) = (Rc::clone(self), Rc::clone(link));
                let world = link.world.clone();
                world.spawn("a group's channel", async move { own.give(&link, channel).await });
                self.carried.borrow_mut().insert(group);
            }
            link.world.sleep(LOOK_EVERY).await;
        }
    }

    /// Gives a channel to its group, and carries its frames.
    async fn give(&self, link: &Link, channel: LinkChannel) {
        let group = channel.attached().group;
        let Some(pool) = pool_of(link, self.session.peer_site(), group) else {
            let text = "there is no such group here".to_owned();
            channel.refuse(RefusalFrame { code: RefusalCode::UnknownGroup, text });
            self.rest(link, group, LOOK_EVERY).await;
            return;
        };
        let (here, there) = thread_channel(self.version(), &self.round_trip);
        let given = pool
            .begin("connect DR group", move |served| Box::pin(async move { served.dr.connect(group, here) }));
        let code = match given {
            Ok(_) => carry(channel, there).await,
            Err(refusal) => {
                channel.refuse(RefusalFrame { code: RefusalCode::Busy, text: refusal.to_string() });
                None
            }
        };
        let is_suspended = matches!(code, Some(RefusalCode::Suspended | RefusalCode::Full));
        self.rest(link, group, if is_suspended { SUSPENDED_PAUSE } else { LOOK_EVERY }).await;
    }

    /// A group gets its next channel after a pause.
    async fn rest(&self, link: &Link, group: GroupId, pause: Duration) {
        link.world.sleep(pause).await;
        self.carried.borrow_mut().remove(&group);
    }

    /// Exchanges messages with the other site.
    async fn talk(&self, link: &Rc<Link>, channel: LinkChannel) {
        let Some(mut said) = self.said.borrow_mut().take() else {
            let text = "a session has one channel for messages of the sites".to_owned();
            return channel.refuse(RefusalFrame { code: RefusalCode::Frame, text });
        };
        let peer = self.session.peer_site();
        let sending = async {
            let mut shown = None;
            loop {
                let groups = groups_of(link, peer);
                if shown.as_ref() != Some(&groups) {
                    let listed = groups.iter().map(GroupId::to_string).collect();
                    let message = SiteMessage::Site { name: link.name.clone(), groups: listed };
                    if channel.send(FrameBody::SiteMessage(message.frame())).await.is_err() {
                        return;
                    }
                    shown = Some(groups);
                }
                let idle = self.connections().into_iter().filter_map(|status| status.round_trips.idle).min();
                idle.into_iter().for_each(|idle| self.round_trip.set(idle));
                self.services.keep(link, peer);
                self.clients.keep(link, peer);
                self.sets.keep(link, peer);
                self.verdicts.keep(link, peer);
                self.modes.keep(link, peer);
                if self.version() >= SERVICES_VERSION {
                    for message in self.due(link, peer) {
                        if channel.send(FrameBody::SiteMessage(message.frame())).await.is_err() {
                            return;
                        }
                    }
                }
                let looked = link.world.sleep(LOOK_EVERY);
                let Either::Right((Some(message), _)) = select(looked, pin!(said.recv())).await else {
                    continue;
                };
                if channel.send(FrameBody::SiteMessage(message.frame())).await.is_err() {
                    return;
                }
            }
        };
        let taking = async {
            loop {
                let message = match channel.receive().await {
                    Ok(FrameBody::SiteMessage(frame)) => SiteMessage::parse(&frame.text),
                    Ok(body) => Err(format!("a frame {:?} does not belong here", body.kind())),
                    Err(_) => return,
                };
                let heard = message.and_then(|message| self.hear(link, message));
                match heard {
                    Ok(()) => {}
                    Err(problem) => {
                        let name = link.peer_name(peer);
                        link.notices.warn(format!(
                            "site {name} sent what is no message: {problem}; compare the versions of both"
                        ));
                        return;
                    }
                }
            }
        };
        select(pin!(sending), pin!(taking)).await;
    }

    /// Messages that tell the other site what it does not know of its groups with this one.
    fn due(&self, link: &Link, peer: SiteId) -> Vec<SiteMessage> {
        let mut messages = self.services.due(link, peer);
        if self.version() >= CLIENTS_VERSION {
            messages.extend(self.clients.due(link, peer));
        }
        if self.version() >= SETS_VERSION {
            messages.extend(self.sets.due(link, peer));
        }
        if self.version() >= VERIFICATIONS_VERSION {
            messages.extend(self.verdicts.due(link, peer));
        }
        messages.extend(self.modes.due(link, peer, self.version()));
        messages
    }

    /// Does what a message asks for. The error is the reason for which it is none.
    fn hear(&self, link: &Rc<Link>, message: SiteMessage) -> Result<(), String> {
        match message {
            SiteMessage::Site { name, groups } => {
                link.note_name(self.session.peer_site(), &name);
                self.has_named.set(true);
                *self.theirs.borrow_mut() = groups.iter().filter_map(|group| group_of(group).ok()).collect();
            }
            SiteMessage::Offer(offer) => {
                let (own, peer) = (Rc::clone(link), self.session.peer_site());
                let group = offer.group.clone();
                let services = Rc::clone(&self.services);
                self.answer(link, group.clone(), async move {
                    take_offer(&own, peer, offer).await?;
                    services.keep_new(&own, group_of(&group)?)
                });
            }
            SiteMessage::HandOver { group } => {
                let (own, peer, meant) = (Rc::clone(link), self.session.peer_site(), group.clone());
                self.answer(link, group, async move { hand_over(&own, peer, &meant).await });
            }
            SiteMessage::Answer { group, refused } => {
                let answer = group_of(&group).ok().and_then(|group| self.offers.borrow_mut().remove(&group));
                let answered = match refused {
                    None => Ok(()),
                    Some(RefusedOffer { problem, next }) => {
                        let site = link.peer_name(self.session.peer_site());
                        Err(Refusal::new(format!("site {site}: {problem}"), next))
                    }
                };
                answer.into_iter().for_each(|answer| drop(answer.send(answered.clone())));
            }
            SiteMessage::Portal { iscsi } => {
                let near = self.connections().into_iter().next().map(|connection| connection.address);
                let portal = iscsi.zip(near).and_then(|(said, near)| reachable_portal(&said, &near));
                link.access.services().set_iscsi_portal_of(self.session.peer_site(), portal);
            }
            SiteMessage::Services { group, part, parts, text } => {
                return self.services.take(&group, (part, parts), text);
            }
            SiteMessage::Clients { group, part, parts, text } => {
                return self.clients.take(&group, (part, parts), text);
            }
            SiteMessage::Set { set, part, parts, text } => {
                return self.sets.take(&set, (part, parts), text);
            }
            SiteMessage::Verification { set, part, parts, text } => {
                return self.verdicts.take_verification(&set, (part, parts), text);
            }
            SiteMessage::Verdict { set, part, parts, text } => {
                return self.verdicts.take_verdict(&set, (part, parts), text);
            }
            SiteMessage::Mode { group, mode } => return self.modes.take(&group, &mode),
        }
        Ok(())
    }

    /// Does something for the other site, beside other messages, and answers it.
    fn answer(&self, link: &Link, group: String, work: impl Future<Output = Result<(), Refusal>> + 'static) {
        let say = self.say.clone();
        link.world.spawn("work for another site", async move {
            let refused = work.await.err().map(|refusal| RefusedOffer::of(&refusal));
            // The session may have ended.
            let _ = say.send(SiteMessage::Answer { group, refused });
        });
    }

    /// Has the other site make replicas, and keep the rows by which hosts reach them.
    pub fn offer(&self, offer: GroupOffer, services: &GroupServices, answer: OfferAnswer) {
        let Ok(group) = group_of(&offer.group) else { return };
        if offer.joint.is_some() && self.version() < JOINT_VERSION {
            let problem = format!(
                "{}: the other site's program knows no groups with volumes in several pools",
                offer.name
            );
            return drop(answer.send(Err(Refusal::new(problem, "use a newer one there"))));
        }
        if self.version() >= SERVICES_VERSION {
            let Some(parts) = SiteMessage::services(group, &services.text()) else {
                let problem =
                    format!("{}: its exports, targets and rights are too many to travel with it", offer.name);
                return drop(answer.send(Err(Refusal::new(problem, "make several groups of its volumes"))));
            };
            // The session may have ended: all are answered then.
            parts.into_iter().for_each(|part| drop(self.say.send(part)));
        }
        self.ask(group, SiteMessage::Offer(offer), answer);
    }

    /// Has the other site hand a group over.
    pub fn request_hand_over(&self, group: GroupId, answer: OfferAnswer) {
        self.ask(group, SiteMessage::HandOver { group: group.to_string() }, answer);
    }

    fn ask(&self, group: GroupId, message: SiteMessage, answer: OfferAnswer) {
        if let Some(before) = self.offers.borrow_mut().insert(group, answer) {
            drop(before.send(Err(Refusal::new("the same was asked for again", ""))));
        }
        // The session may have ended: it answers all then.
        let _ = self.say.send(message);
    }
}

/// Groups of this site that follow another one, and got nothing from it yet.
fn untouched_groups(link: &Link, peer: SiteId) -> BTreeSet<GroupId> {
    let site = link.site.look();
    let views = site.pools.values().filter_map(PoolHandle::view);
    let groups = views.flat_map(|view| view.dr.groups.clone());
    let is_untouched = |group: &DrGroupView| {
        group.peer == peer
            && group.role == DrRole::Secondary
            && !group.is_complete
            && group.report.merge.is_none()
    };
    groups.filter(is_untouched).map(|group| group.group).collect()
}

/// Removes a group that the other site never made. If it cannot be done, it is tried again later.
async fn undo_offer(link: &Link, peer: SiteId, group: GroupId) {
    let Some(pool) = pool_of(link, peer, group) else { return };
    let undone =
        begin_change(&pool, "undo DR replica", move |dr| Box::pin(async move { dr.undo_offer(group).await }));
    if let Ok(undone) = undone {
        let _ = undone.await;
    }
}

fn busy(refusal: OrderRefusal) -> Refusal {
    Refusal::new(refusal.to_string(), "try again")
}

/// Groups of this site with another one.
fn groups_of(link: &Link, peer: SiteId) -> BTreeSet<GroupId> {
    let site = link.site.look();
    let views = site.pools.values().filter_map(PoolHandle::view);
    let groups = views.flat_map(|view| view.dr.groups.clone());
    groups.filter(|group| group.peer == peer).map(|group| group.group).collect()
}

/// The pool with a group that this site has with another one.
fn pool_of(link: &Link, peer: SiteId, group: GroupId) -> Option<PoolHandle> {
    let site = link.site.look();
    let has = |pool: &&PoolHandle| {
        let view = pool.view();
        view.is_some_and(|view| view.dr.groups.iter().any(|known| known.group == group && known.peer == peer))
    };
    site.pools.values().find(has).cloned()
}

fn group_name(pool: &PoolHandle, group: GroupId) -> String {
    let view = pool.last_view();
    let known = view.dr.groups.iter().find(|known| known.group == group);
    known.map_or_else(|| group.to_string(), |known| known.name.clone())
}

/// Hands a group over to the site that asks for it.
async fn hand_over(link: &Link, peer: SiteId, group: &str) -> Result<(), Refusal> {
    let group = group_of(group)?;
    let pool = pool_of(link, peer, group);
    let pool =
        pool.ok_or_else(|| Refusal::new(format!("there is no DR group {group} with this site"), ""))?;
    let name = group_name(&pool, group);
    let text = format!("{name}: site {} asked for a planned failover", link.peer_name(peer));
    link.notices.of(&pool.name).occurred("dr_failover_asked", text);
    let given = begin_change(&pool, "hand DR group over", move |dr| {
        Box::pin(async move { dr.hand_over(group).await })
    });
    given.map_err(busy)?.await.map_err(busy)?
}

/// Makes the replicas of a group that another site offers.
async fn take_offer(link: &Link, peer: SiteId, offer: GroupOffer) -> Result<(), Refusal> {
    let group = group_of(&offer.group)?;
    let mode = offer.mode.checked()?;
    let (auto, joint) = (offer.auto(), offer.part()?);
    let volumes: Vec<GroupVolume> = offer.volumes()?;
    let site = link.site.look();
    let pool = site.pools.get(&offer.pool);
    let pool = pool.ok_or_else(|| {
        let known: Vec<&str> = site.pools.keys().map(String::as_str).collect();
        Refusal::new(
            format!("there is no pool {:?}", offer.pool),
            format!("name one of its pools with ⟨pool⟩: {}", known.join(", ")),
        )
    })?;
    let ids = volumes.iter().map(|volume| volume.volume).collect();
    let settings = GroupSettings { name: offer.name, mode, peer, volumes: ids, auto, joint };
    let made = begin_change(pool, "make DR replica", move |dr| {
        Box::pin(async move { dr.create_secondary(group, settings, &volumes).await })
    });
    let limit = link.world.sleep(OFFER_WITHIN);
    match world::with_deadline(limit, made.map_err(busy)?).await {
        Some(made) => made.map_err(busy)?,
        None => {
            Err(Refusal::new("the pool there did not answer in time", "try again: it finds what was made"))
        }
    }
}
