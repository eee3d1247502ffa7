//! Extracts of catalogues that the sites of DR groups send each other over one session, and of which backups a
//! site has the points.

use super::{
    link_thread::Link,
    part_inbox::PartInbox,
    site_message::{ServicesPart, SiteMessage},
};
use crate::sets::{SetKeeping, SetReplication};
use array::format::SiteId;
use protect::catalogue::CatalogueExtract;
use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

/// Extracts on their way.
#[derive(Default)]
pub(super) struct SetExchange {
    /// As the other site has them from this session.
    sent: RefCell<BTreeMap<String, Arc<CatalogueExtract>>>,
    arriving: PartInbox,
    /// Complete ones, until they are kept.
    arrived: RefCell<BTreeMap<String, CatalogueExtract>>,
}

impl SetExchange {
    /// Messages with the extracts that the other site does not have.
    pub fn due(&self, link: &Link, peer: SiteId) -> Vec<SiteMessage> {
        link.access.sets().note_site_name(peer, link.peer_name(peer));
        let mut messages = Vec::new();
        for (set, replication) in sets_with(link, peer) {
            let Some(extract) = replication.extract else { continue };
            let mut sent = self.sent.borrow_mut();
            if sent.get(&set).is_some_and(|known| Arc::ptr_eq(known, &extract) || **known == *extract) {
                continue;
            }
            match SiteMessage::sets(&set, &extract.text()) {
                Some(parts) => messages.extend(parts),
                None => link.notices.warn(format!(
                    "set {set}: its catalogue is too long for site {} to know it; after a failover there, nothing is deleted before \
                     a person allows it",
                    link.peer_name(peer)
                )),
            }
            sent.insert(set, extract);
        }
        messages
    }

    /// Takes a part that came.
    ///
    /// # Errors
    ///
    /// It is out of order, or all parts together are none.
    pub fn take(&self, set: &str, (part, parts): (usize, usize), text: ServicesPart) -> Result<(), String> {
        if let Some(whole) = self.arriving.take_text(set, (part, parts), text)? {
            let extract =
                CatalogueExtract::parse(&whole).map_err(|why| format!("a set's catalogue: {why}"))?;
            self.arrived.borrow_mut().insert(set.to_owned(), extract);
        }
        Ok(())
    }

    /// Keeps what came, for sets that this site has with the other one.
    pub fn keep(&self, link: &Link, peer: SiteId) {
        if self.arrived.borrow().is_empty() {
            return;
        }
        for (set, _) in sets_with(link, peer) {
            let Some(extract) = self.arrived.borrow_mut().remove(&set) else { continue };
            let told = Arc::new(extract);
            let now_s = link.world.wall().seconds;
            if let Err(error) = link.access.sets().change(&set, |record| record.take_told(&told, now_s)) {
                link.notices.warn(format!(
                    "set {set}: what site {} told of its catalogue is not kept: {}",
                    link.peer_name(peer),
                    error.refusal()
                ));
            }
        }
    }
}

/// The sets of this site that lie in groups with another one.
pub(super) fn sets_with(link: &Link, peer: SiteId) -> Vec<(String, SetReplication)> {
    let sets = link.site.sets();
    let of_peer = |set: &crate::sets::ServedSet| match &set.keeping {
        SetKeeping::Server { replication: Some(replication), .. } if replication.peers.contains(&peer) => {
            Some((set.wanted.settings.name.clone(), (**replication).clone()))
        }
        _ => None,
    };
    sets.iter().filter_map(of_peer).collect()
}
