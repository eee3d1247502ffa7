//! DR groups of the site file that were not made, for their other site is not connected: the server makes them once it is.
//!
//! Invariants:
//!
//! 1. A group waits for the connection alone: one that was refused otherwise is made by a person's next command.
//! 2. One flow at a time watches the link, and it ends when it has asked the server to go on.
//! 3. While an apply is under way nothing is made beside it: its next attempt makes the groups, too.

use super::{
    changes::SiteStep,
    handle::{SiteAnswer, SiteRequest, WantedAnswer},
    planning::PlanOccasion,
    server::SiteServer,
    wanted_dr_group::WantedDrGroup,
};
use crate::dr::{LinkHandle, LinkView};
use report::Refusal;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};
use tokio::sync::oneshot;

/// A group of the site file that is made once its other site is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingDrGroup {
    pub name: String,
    /// Pool of its volumes; the first one if they lie in several.
    pub pool: String,
    /// Name of the other site.
    pub peer: String,
}

/// Groups that wait, and whether a flow watches the link for them.
#[derive(Clone, Default)]
pub(super) struct WaitingDrGroups {
    all: Rc<RefCell<Vec<WaitingDrGroup>>>,
    is_watched: Rc<Cell<bool>>,
}

impl WaitingDrGroups {
    pub fn clear(&self) {
        self.all.borrow_mut().clear();
    }

    /// A group was not made: it waits if its site is paired and not connected. True if it does.
    pub fn note_not_made(&self, link: Option<&LinkView>, group: &WantedDrGroup) -> bool {
        let peer = link.and_then(|link| link.peers.iter().find(|peer| peer.name == group.to));
        let waits = peer.is_some_and(|peer| peer.connected_since.is_none());
        if let (true, Some(place)) = (waits, group.places.first()) {
            let (name, pool, peer) = (group.name.clone(), place.pool.clone(), group.to.clone());
            self.all.borrow_mut().push(WaitingDrGroup { name, pool, peer });
        }
        waits
    }

    pub fn list(&self) -> Arc<[WaitingDrGroup]> {
        self.all.borrow().clone().into()
    }

    fn has_name(&self, name: &str) -> bool {
        self.all.borrow().iter().any(|group| group.name == name)
    }

    /// The next step of the person who asked, if all that is left waits.
    pub fn next_of(&self, name: &str) -> Option<String> {
        let all = self.all.borrow();
        let group = all.iter().find(|group| group.name == name)?;
        Some(format!("this server makes it once {} is connected", group.peer))
    }

    /// True if the site of one of them is connected.
    fn is_due(&self, link: &LinkView) -> bool {
        let all = self.all.borrow();
        let connected = link.peers.iter().filter(|peer| peer.connected_since.is_some());
        connected.into_iter().any(|peer| all.iter().any(|group| group.peer == peer.name))
    }
}

impl SiteServer {
    /// Watches the link while groups wait.
    pub(super) fn watch_for_dr_sites(&self) {
        let waiting = self.waiting_dr_groups.clone();
        let Some(link) = self.link.clone().filter(|_| !waiting.all.borrow().is_empty()) else { return };
        if waiting.is_watched.replace(true) {
            return;
        }
        let requests = self.requests.give.downgrade();
        drop(self.world.spawn("DR groups that wait", async move {
            until_due(&waiting, link).await;
            waiting.is_watched.set(false);
            // Without a server nobody makes them.
            let Some(requests) = requests.upgrade() else { return };
            let wanted = WantedAnswer::MakeWaitingDrGroups;
            let _ =
                requests.send(SiteRequest { wanted, answer: oneshot::channel().0, in_progress: None }).await;
        }));
    }

    /// Makes the groups that waited, as far as their sites are connected.
    pub(super) async fn make_waiting_dr_groups(&mut self) -> Result<SiteAnswer, Refusal> {
        if !self.is_applied() {
            return Ok(SiteAnswer::default());
        }
        let text = self.journal.served_site().map_err(|error| error.refusal())?.unwrap_or_default();
        let plan = self.plan(&text, &[], PlanOccasion::Reload).await?;
        let is_due = |step: &SiteStep| matches!(step, SiteStep::MakeDrGroup(group) if self.waiting_dr_groups.has_name(&group.name));
        let steps: Vec<SiteStep> = plan.changes.steps.into_iter().filter(is_due).collect();
        let not_made = self.make_dr_groups(&steps, plan.wanted.listens, |_| false).await;
        for step in &steps {
            let SiteStep::MakeDrGroup(group) = step else { continue };
            if !not_made.iter().any(|(name, _)| *name == group.name) {
                let line = format!("DR group {} is made: {} is connected", group.name, group.to);
                self.notices.note(line);
            }
        }
        let done = match not_made.into_iter().next() {
            None => Ok(()),
            Some((name, refusal)) => Err(self.not_made(&name, &refusal, PlanOccasion::Reload)),
        };
        self.show_changes().await;
        self.note_outcome(&done);
        done.map(|()| SiteAnswer::default())
    }
}

async fn until_due(waiting: &WaitingDrGroups, mut link: LinkHandle) {
    loop {
        if waiting.is_due(&link.look()) {
            return;
        }
        if !link.changed().await {
            // The link has ended, and with it all connections.
            std::future::pending::<()>().await;
        }
    }
}
