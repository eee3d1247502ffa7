//! The link to other sites as other threads see it, and the orders that they give to its thread.

use super::{
    group_services::GroupServices,
    line_test::{LineTest, LineTestOrder},
    site_message::GroupOffer,
};
use array::format::{GroupId, SiteId};
use replication::link::ConnectionStatus;
use report::Refusal;
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot, watch};
use world::WallTime;

/// Orders that wait.
pub(super) const ORDERS_MAX: usize = 16;

/// This site's link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkView {
    pub site: SiteId,
    /// As this site calls itself.
    pub name: String,
    /// The address at which it listens.
    pub address: String,
    /// By name.
    pub peers: Vec<PeerView>,
}

/// A paired site.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerView {
    pub site: SiteId,
    pub name: String,
    /// Its addresses, to which this site connects; none if the other one connects.
    pub addresses: Vec<String>,
    pub connected_since: Option<WallTime>,
    /// The end of the last session, or the start of this server; `None` while it is connected.
    pub lost_since: Option<WallTime>,
    /// The connections that are up.
    pub connections: Vec<ConnectionStatus>,
    /// The last failure to connect, or the end of the last session.
    pub last_error: Option<(WallTime, String)>,
}

/// An order to the link's thread.
pub(super) enum LinkOrder {
    MakeToken {
        valid: Duration,
        answer: oneshot::Sender<Result<String, Refusal>>,
    },
    Pair {
        name: String,
        address: String,
        token: String,
        answer: oneshot::Sender<Result<SiteId, Refusal>>,
    },
    Unpair {
        site: SiteId,
        answer: oneshot::Sender<Result<(), Refusal>>,
    },
    TestLine {
        peer: SiteId,
        order: LineTestOrder,
        answer: oneshot::Sender<Result<LineTest, Refusal>>,
    },
    /// A group to be made, and the rows by which hosts reach it.
    Offer {
        peer: SiteId,
        offer: Box<(GroupOffer, GroupServices)>,
        answer: oneshot::Sender<Result<(), Refusal>>,
    },
    RequestHandOver {
        peer: SiteId,
        group: GroupId,
        answer: oneshot::Sender<Result<(), Refusal>>,
    },
}

/// The link, seen from another thread.
#[derive(Clone)]
pub struct LinkHandle {
    pub(super) orders: mpsc::Sender<LinkOrder>,
    pub(super) view: watch::Receiver<Arc<LinkView>>,
}

impl LinkHandle {
    /// The link as it is now.
    pub fn look(&self) -> Arc<LinkView> {
        Arc::clone(&self.view.borrow())
    }

    /// Waits until the link differs from what was looked at last here. False if it has ended.
    pub(crate) async fn changed(&mut self) -> bool {
        self.view.changed().await.is_ok()
    }

    async fn ask<T>(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<T, Refusal>>) -> LinkOrder,
    ) -> Result<T, Refusal> {
        let (tell, answer) = oneshot::channel();
        let gone = || Refusal::new("the link to other sites has stopped", "see the server's messages");
        self.orders.send(order(tell)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Makes a token with which one other site can pair.
    pub async fn make_token(&self, valid: Duration) -> Result<String, Refusal> {
        self.ask(|answer| LinkOrder::MakeToken { valid, answer }).await
    }

    /// Pairs with the site at an address, which made the token. It is called by this name from now on.
    pub async fn pair(&self, name: &str, address: &str, token: &str) -> Result<SiteId, Refusal> {
        let (name, address, token) = (name.to_owned(), address.to_owned(), token.to_owned());
        self.ask(|answer| LinkOrder::Pair { name, address, token, answer }).await
    }

    /// Ends the pairing with a site.
    pub async fn unpair(&self, site: SiteId) -> Result<(), Refusal> {
        self.ask(|answer| LinkOrder::Unpair { site, answer }).await
    }

    /// Tests the line to a site. It takes about as long as was ordered.
    pub async fn test_line(&self, peer: SiteId, order: LineTestOrder) -> Result<LineTest, Refusal> {
        self.ask(|answer| LinkOrder::TestLine { peer, order, answer }).await
    }

    /// Has another site hand a group over to this one.
    pub(crate) async fn request_hand_over(&self, peer: SiteId, group: GroupId) -> Result<(), Refusal> {
        self.ask(|answer| LinkOrder::RequestHandOver { peer, group, answer }).await
    }

    /// Has another site make the replicas of a group, and keep the rows by which hosts reach it.
    pub(crate) async fn offer(
        &self,
        peer: SiteId,
        offer: GroupOffer,
        services: GroupServices,
    ) -> Result<(), Refusal> {
        let offer = Box::new((offer, services));
        self.ask(|answer| LinkOrder::Offer { peer, offer, answer }).await
    }
}
