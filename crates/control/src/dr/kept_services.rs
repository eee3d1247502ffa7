//! The rows that came with DR groups, for the pools of this site, and the names that each pool has by the site's own file.
//!
//! Invariants:
//!
//! 1. What is kept of a group is in the journal before a pool serves it.
//! 2. The revision grows with every change: a pool that has seen it has seen all.

use super::group_services::{GroupServices, PortalReach};
use crate::{
    journal::{DaemonJournal, JournalError},
    planted::{self, DrBug},
};
use array::format::{GroupId, PoolId, SiteId};
use serving::uuid::parse_uuid;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};
use world::Address;

/// Names that clients find services by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceNames {
    pub exports: BTreeSet<String>,
    /// iSCSI names.
    pub targets: BTreeSet<String>,
}

/// A pool, as the others have to know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolServiceNames {
    /// Of the site's own file.
    pub own: ServiceNames,
    pub groups: BTreeSet<GroupId>,
}

/// The rows that came with the groups of a site. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct KeptServices(Arc<Mutex<KeptState>>);

#[derive(Default)]
struct KeptState {
    journal: Option<Arc<DaemonJournal>>,
    groups: BTreeMap<GroupId, Arc<GroupServices>>,
    pools: BTreeMap<PoolId, PoolServiceNames>,
    /// Of this site's portals, NBD and iSCSI.
    reach: (PortalReach, PortalReach),
    /// This site's iSCSI portal.
    iscsi: Option<Address>,
    /// iSCSI portals of other sites, as initiators reach them.
    iscsi_of: BTreeMap<SiteId, String>,
    revision: u64,
}

impl KeptServices {
    fn state(&self) -> MutexGuard<'_, KeptState> {
        self.0.lock().expect("nothing panics with the lock held")
    }

    /// Reads what the journal has. Returns a line for each group whose rows cannot be used.
    pub fn load(&self, journal: &Arc<DaemonJournal>) -> Result<Vec<String>, JournalError> {
        let (mut groups, mut unusable) = (BTreeMap::new(), Vec::new());
        for (group, text) in journal.dr_services()? {
            match (parse_uuid(&group), GroupServices::parse(&text)) {
                (Ok(group), Ok(services)) => drop(groups.insert(GroupId(group), Arc::new(services))),
                (_, read) => unusable.push(format!(
                    "the exports, targets and rights that came with DR group {group} cannot be used: {}; its other site sends \
                     them again",
                    read.err().unwrap_or_else(|| "no UUID".to_owned())
                )),
            }
        }
        let mut state = self.state();
        (state.groups, state.journal) = (groups, Some(Arc::clone(journal)));
        state.revision += 1;
        Ok(unusable)
    }

    /// Says who reaches this site's portals, of NBD and of iSCSI, and the address of the latter.
    pub fn set_reach(&self, reach: (PortalReach, PortalReach), iscsi: Option<Address>) {
        let mut state = self.state();
        (state.reach, state.iscsi) = (reach, iscsi);
        state.revision += 1;
    }

    /// This site's iSCSI portal.
    pub fn iscsi_portal(&self) -> Option<Address> {
        self.state().iscsi.clone()
    }

    /// The iSCSI portal of another site, if it is known.
    pub fn iscsi_portal_of(&self, site: SiteId) -> Option<String> {
        self.state().iscsi_of.get(&site).cloned()
    }

    /// Another site has said where its iSCSI portal is, or that it has none.
    pub fn set_iscsi_portal_of(&self, site: SiteId, portal: Option<String>) {
        let mut state = self.state();
        if state.iscsi_of.get(&site) == portal.as_ref() {
            return;
        }
        match portal {
            Some(portal) => drop(state.iscsi_of.insert(site, portal)),
            None => drop(state.iscsi_of.remove(&site)),
        }
        state.revision += 1;
    }

    pub fn reach(&self) -> (PortalReach, PortalReach) {
        self.state().reach
    }

    pub fn revision(&self) -> u64 {
        self.state().revision
    }

    /// The rows that came with a group.
    pub fn of(&self, group: GroupId) -> Option<Arc<GroupServices>> {
        self.state().groups.get(&group).cloned()
    }

    /// Keeps the rows of a group, in the place of those before. False if they are the same.
    ///
    /// # Errors
    ///
    /// The journal cannot be written; nothing has changed.
    pub fn keep(&self, group: GroupId, services: GroupServices) -> Result<bool, JournalError> {
        let journal = {
            let state = self.state();
            if state.groups.get(&group).is_some_and(|known| **known == services) {
                return Ok(false);
            }
            state.journal.clone()
        };
        // It takes as long as a sync: pools ask meanwhile.
        if let Some(journal) = journal.filter(|_| !planted::is_in_dr(DrBug::RowsNotJournalled)) {
            journal.put_dr_services(&group.to_string(), &services.text())?;
        }
        let mut state = self.state();
        state.groups.insert(group, Arc::new(services));
        state.revision += 1;
        Ok(true)
    }

    /// Stops keeping the rows of a group. The caller has the journal forget them.
    pub fn drop_group(&self, group: GroupId) {
        let mut state = self.state();
        if state.groups.remove(&group).is_some() {
            state.revision += 1;
        }
    }

    /// Says what a pool has.
    pub fn set_pool(&self, pool: PoolId, names: PoolServiceNames) {
        let mut state = self.state();
        if state.pools.get(&pool) != Some(&names) {
            state.pools.insert(pool, names);
            state.revision += 1;
        }
    }

    /// A pool is not open any more.
    pub fn remove_pool(&self, pool: PoolId) {
        let mut state = self.state();
        if state.pools.remove(&pool).is_some() {
            state.revision += 1;
        }
    }

    /// Names that other pools have: by the site's own file, and by rows that came with their groups.
    pub fn names_beside(&self, pool: PoolId) -> (ServiceNames, Vec<(GroupId, Arc<GroupServices>)>) {
        let state = self.state();
        let others = state.pools.iter().filter(|(other, _)| **other != pool).map(|(_, names)| names);
        let (mut own, mut kept) = (ServiceNames::default(), Vec::new());
        for PoolServiceNames { own: names, groups } in others {
            own.exports.extend(names.exports.iter().cloned());
            own.targets.extend(names.targets.iter().cloned());
            let known =
                groups.iter().filter_map(|group| Some((*group, Arc::clone(state.groups.get(group)?))));
            kept.extend(known);
        }
        (own, kept)
    }
}
