//! Modes of groups on their way from their primary to the site that follows, over one session.
//!
//! Invariants:
//!
//! 1. A site sends the modes of groups of which it is primary, and takes those of groups that are secondary here.
//! 2. One that came waits until the pool takes orders. A refusal of it is said, and it is not asked again in this session.

use super::{
    group_view::{DrGroupView, DrRole},
    link_thread::Link,
    mode::DrMode,
    pool_groups::begin_change,
    service_exchange::groups_with,
    site_message::{MODES_VERSION, SiteMessage, group_of},
};
use array::format::{GroupId, SiteId};
use replication::session::ReplicationMode;
use std::{cell::RefCell, collections::BTreeMap};

/// Modes on their way.
#[derive(Default)]
pub(super) struct ModeExchange {
    /// As the other site has them from this session.
    sent: RefCell<BTreeMap<GroupId, ReplicationMode>>,
    /// Those that groups of this site do not have yet.
    arrived: RefCell<BTreeMap<GroupId, ReplicationMode>>,
}

impl ModeExchange {
    /// Messages with the modes that the other site lacks.
    pub fn due(&self, link: &Link, peer: SiteId, version: u16) -> Vec<SiteMessage> {
        let of_primaries = groups_with(link, peer).filter(|(_, group)| group.role == DrRole::Primary);
        let known: BTreeMap<GroupId, DrGroupView> =
            of_primaries.map(|(_, group)| (group.group, group)).collect();
        let mut sent = self.sent.borrow_mut();
        sent.retain(|group, _| known.contains_key(group));
        let mut messages = Vec::new();
        for group in known.into_values() {
            let before = sent.insert(group.group, group.mode);
            if before == Some(group.mode) {
                continue;
            }
            if version >= MODES_VERSION {
                let mode = DrMode::of(group.mode);
                messages.push(SiteMessage::Mode { group: group.group.to_string(), mode });
            } else if before.is_some() {
                link.notices.warn(format!(
                    "DR group {}: the program of site {} knows no changes of modes, and keeps the one before until there is a \
                     newer one",
                    group.name,
                    link.peer_name(peer)
                ));
            }
        }
        messages
    }

    /// Takes a mode that came.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn take(&self, group: &str, mode: &DrMode) -> Result<(), String> {
        let group = group_of(group).map_err(|refusal| refusal.to_string())?;
        let mode = mode.checked().map_err(|refusal| refusal.problem().to_owned())?;
        self.arrived.borrow_mut().insert(group, mode);
        Ok(())
    }

    /// Has groups that are secondary here follow.
    pub fn keep(&self, link: &Link, peer: SiteId) {
        let mut arrived = self.arrived.borrow_mut();
        for (pool, group) in groups_with(link, peer) {
            let Some(&mode) = arrived.get(&group.group) else { continue };
            if group.mode == mode || group.role == DrRole::Primary {
                arrived.remove(&group.group);
                continue;
            }
            let (id, name, notices) = (group.group, group.name, link.notices.of(&pool.name));
            let followed = begin_change(&pool, "follow mode of DR group", move |dr| {
                Box::pin(async move { dr.follow_mode(id, mode).await })
            });
            // A pool that is busy is asked again with the next look.
            let Ok(followed) = followed else { continue };
            arrived.remove(&id);
            link.world.spawn("mode of a group", async move {
                if let Ok(Err(refusal)) = followed.await {
                    notices.warn(format!(
                        "DR group {name}: it does not follow the mode of its primary: {refusal}"
                    ));
                }
            });
        }
    }
}
