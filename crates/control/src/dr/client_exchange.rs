//! The clients of groups on their way between two sites, over one session.
//!
//! Invariants:
//!
//! 1. A site names the clients of groups that it serves, and no others: one that has closed its volumes no longer knows who
//!    may come back.
//! 2. What came is kept only for a group that both sites have, and that is secondary here.

use super::{
    group_clients::GroupClients,
    group_view::DrRole,
    link_thread::Link,
    part_inbox::PartInbox,
    service_exchange::groups_with,
    site_message::{ServicesPart, SiteMessage},
};
use array::format::{GroupId, SiteId};
use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

/// Clients on their way.
#[derive(Default)]
pub(super) struct ClientExchange {
    /// As the other site has them from this session.
    sent: RefCell<BTreeMap<GroupId, Arc<GroupClients>>>,
    arriving: PartInbox,
    /// Whole, until they are kept.
    arrived: RefCell<BTreeMap<GroupId, GroupClients>>,
}

impl ClientExchange {
    /// Messages with the clients that the other site does not know.
    pub fn due(&self, link: &Link, peer: SiteId) -> Vec<SiteMessage> {
        let mut messages = Vec::new();
        for (pool, group) in groups_with(link, peer) {
            let Some(now) = group.hosts.clients.filter(|_| group.role == DrRole::Primary) else { continue };
            let mut sent = self.sent.borrow_mut();
            if sent.get(&group.group).is_some_and(|known| **known == *now) {
                continue;
            }
            sent.insert(group.group, Arc::clone(&now));
            match SiteMessage::clients(group.group, &now.text()) {
                Some(parts) => messages.extend(parts),
                None => link.notices.of(&pool.name).warn(format!(
                    "DR group {}: its clients are too many for site {} to know them; after an unplanned failover there, stop \
                     every host yourself",
                    group.name,
                    link.peer_name(peer)
                )),
            }
        }
        messages
    }

    /// Takes a part that came.
    ///
    /// # Errors
    ///
    /// It is out of order, or all parts together are none.
    pub fn take(&self, group: &str, (part, parts): (usize, usize), text: ServicesPart) -> Result<(), String> {
        if let Some((group, whole)) = self.arriving.take(group, (part, parts), text)? {
            let clients = GroupClients::parse(&whole).map_err(|why| format!("a group's clients: {why}"))?;
            self.arrived.borrow_mut().insert(group, clients);
        }
        Ok(())
    }

    /// Keeps what came, for groups that are secondary here, and forgets what came before for those that are served here.
    pub fn keep(&self, link: &Link, peer: SiteId) {
        let memory = link.access.clients();
        for (pool, group) in groups_with(link, peer) {
            let kept = match group.role {
                DrRole::Primary if group.serves => memory.forget(group.group),
                DrRole::Primary => Ok(()),
                DrRole::Secondary => match self.arrived.borrow_mut().remove(&group.group) {
                    Some(clients) => memory.tell(group.group, clients),
                    None => Ok(()),
                },
            };
            if let Err(error) = kept {
                link.notices.of(&pool.name).warn(format!(
                    "DR group {}: its clients at the other site are not kept: {}; after an unplanned failover, stop every host \
                     yourself",
                    group.name,
                    error.refusal()
                ));
            }
        }
    }
}
