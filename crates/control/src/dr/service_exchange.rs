//! The services of groups on their way between two sites, over one session.
//!
//! Invariants:
//!
//! 1. A site sends the rows of its own file alone, while it is primary: rows that came from the other site never go back.
//! 2. What came is kept only for a group that both sites have, and that is secondary here.

use super::{
    group_services::GroupServices,
    group_view::{DrGroupView, DrRole},
    link_thread::{LINK_PORT, Link},
    part_inbox::PartInbox,
    site_message::{ServicesPart, SiteMessage},
};
use crate::{
    planted::{self, DrBug},
    site::handle::PoolHandle,
};
use array::format::{GroupId, SiteId};
use report::Refusal;
use std::{cell::RefCell, collections::BTreeMap, sync::Arc};
use world::Address;

/// Services on their way.
#[derive(Default)]
pub(super) struct ServiceExchange {
    /// As the other site has them from this session.
    sent: RefCell<BTreeMap<GroupId, Arc<GroupServices>>>,
    /// As the other site has it from this session.
    portal: RefCell<Option<Option<Address>>>,
    arriving: PartInbox,
    /// Whole, for groups that are not secondary here yet.
    arrived: RefCell<BTreeMap<GroupId, GroupServices>>,
}

impl ServiceExchange {
    /// Messages with the services that the other site lacks, and with the place of this site's portal.
    pub fn due(&self, link: &Link, peer: SiteId) -> Vec<SiteMessage> {
        let mut messages = Vec::new();
        let portal = link.access.services().iscsi_portal();
        if self.portal.borrow().as_ref() != Some(&portal) {
            messages.push(SiteMessage::Portal { iscsi: portal.as_ref().map(Address::to_string) });
            *self.portal.borrow_mut() = Some(portal);
        }
        for (_, group) in groups_with(link, peer) {
            let Some(own) = group.hosts.own.filter(|_| group.role == DrRole::Primary) else { continue };
            let mut sent = self.sent.borrow_mut();
            match sent.get(&group.group) {
                Some(_) if planted::is_in_dr(DrBug::RowsSentOnce) => continue,
                Some(known) if Arc::ptr_eq(known, &own) || **known == *own => continue,
                _ => {}
            }
            sent.insert(group.group, Arc::clone(&own));
            match SiteMessage::services(group.group, &own.text()) {
                Some(parts) => messages.extend(parts),
                None => link.notices.warn(format!(
                    "DR group {}: its exports, targets and rights are too many to travel with it; write them in the file of site \
                     {}",
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
            let services =
                GroupServices::parse(&whole).map_err(|why| format!("a group's services: {why}"))?;
            self.arrived.borrow_mut().insert(group, services);
        }
        Ok(())
    }

    /// Keeps the rows of a group that was made here just now.
    ///
    /// # Errors
    ///
    /// The journal cannot be written.
    pub fn keep_new(&self, link: &Link, group: GroupId) -> Result<(), Refusal> {
        let Some(services) = self.arrived.borrow_mut().remove(&group) else { return Ok(()) };
        link.access.services().keep(group, services).map(drop).map_err(|error| error.refusal())
    }

    /// Keeps what came, for groups that are secondary here.
    pub fn keep(&self, link: &Link, peer: SiteId) {
        if self.arrived.borrow().is_empty() {
            return;
        }
        for (pool, group) in groups_with(link, peer).filter(|(_, group)| group.role == DrRole::Secondary) {
            let Some(services) = self.arrived.borrow_mut().remove(&group.group) else { continue };
            let (exports, targets) = (services.exports.len(), services.targets.len());
            let before = link.access.services().of(group.group);
            let are_none = services.is_empty() && before.is_none_or(|before| before.is_empty());
            match link.access.services().keep(group.group, services) {
                Ok(is_other) if !is_other || are_none => {}
                Ok(_) => link.notices.of(&pool.name).occurred(
                    "dr_services_kept",
                    format!(
                        "{}: {exports} exports and {targets} targets came with the group, to be served here when it is primary",
                        group.name
                    ),
                ),
                Err(error) => link.notices.of(&pool.name).warn(format!(
                    "DR group {}: the exports, targets and rights that came with it are not kept: {}",
                    group.name,
                    error.refusal()
                )),
            }
        }
    }
}

/// The iSCSI portal of another site, as initiators reach it: one that listens at all addresses is at that of the session. A
/// loopback address is of use only if the session has one too.
pub(super) fn reachable_portal(said: &str, session: &str) -> Option<String> {
    let Ok(Address::Tcp { host, port }) = Address::parse(said, iscsi::PORT) else { return None };
    let said = Address::Tcp { host, port };
    let Ok(Address::Tcp { host: near, .. }) = Address::parse(session, LINK_PORT) else { return None };
    let near = Address::Tcp { host: near, port };
    match (said.is_any(), said.is_local()) {
        (true, _) => Some(near.to_string()),
        (false, true) if !near.is_local() => None,
        _ => Some(said.to_string()),
    }
}

/// The groups of this site with another one.
pub(super) fn groups_with(link: &Link, peer: SiteId) -> impl Iterator<Item = (PoolHandle, DrGroupView)> {
    let pools: Vec<PoolHandle> = link.site.look().pools.values().cloned().collect();
    pools.into_iter().flat_map(move |pool| {
        let groups = pool.view().map(|view| view.dr.groups.clone()).unwrap_or_default();
        let of_peer = groups.into_iter().filter(move |group| group.peer == peer);
        of_peer.map(|group| (pool.clone(), group)).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portal_is_named_as_initiators_reach_it() {
        for (said, session, portal) in [
            ("10.0.0.5:3260", "192.0.2.1:7789", Some("10.0.0.5:3260")),
            ("0.0.0.0:3260", "192.0.2.1:50000", Some("192.0.2.1:3260")),
            ("[::]:3261", "[2001:db8::1]:50000", Some("[2001:db8::1]:3261")),
            ("127.0.0.1:3260", "192.0.2.1:7789", None),
            ("127.0.0.1:3260", "127.0.0.1:7789", Some("127.0.0.1:3260")),
            ("unix:/x", "127.0.0.1:7789", None),
            ("boston:3260", "boston:7789", Some("boston:3260")),
        ] {
            assert_eq!(reachable_portal(said, session).as_deref(), portal, "{said} by {session}");
        }
    }
}
