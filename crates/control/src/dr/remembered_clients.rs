//! The clients of groups at their other sites, for the promotions of all pools: in memory, and in the journal.
//!
//! Invariants:
//!
//! 1. A change is in the journal before a promotion sees it.
//! 2. What is remembered of a group is dropped once this site serves its hosts, as they are its own then.

use super::group_clients::{ClientsOfVolumes, GroupClients, RememberedClients};
use crate::{
    journal::{DaemonJournal, JournalError},
    planted::{self, DrBug},
};
use array::format::GroupId;
use serving::uuid::parse_uuid;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

/// The clients of the groups of a site. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct ClientMemory(Arc<Mutex<MemoryState>>);

#[derive(Default)]
struct MemoryState {
    journal: Option<Arc<DaemonJournal>>,
    groups: BTreeMap<GroupId, RememberedClients>,
}

impl ClientMemory {
    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.0.lock().expect("nothing panics with the lock held")
    }

    /// Reads what the journal has. Returns a line for each group whose clients cannot be read.
    pub fn load(&self, journal: &Arc<DaemonJournal>) -> Result<Vec<String>, JournalError> {
        let (mut groups, mut unusable) = (BTreeMap::new(), Vec::new());
        for (group, text) in journal.dr_clients()? {
            match (parse_uuid(&group), RememberedClients::parse(&text)) {
                (Ok(group), Ok(clients)) => drop(groups.insert(GroupId(group), clients)),
                (_, read) => unusable.push(format!(
                    "the clients of DR group {group} at its other site cannot be read: {}; that site sends them again. After an \
                     unplanned failover before that, stop every host yourself",
                    read.err().unwrap_or_else(|| "no UUID".to_owned())
                )),
            }
        }
        let mut state = self.state();
        (state.groups, state.journal) = (groups, Some(Arc::clone(journal)));
        Ok(unusable)
    }

    /// Clients of a group at its other site.
    pub fn of(&self, group: GroupId) -> ClientsOfVolumes {
        self.state().groups.get(&group).map(RememberedClients::all).unwrap_or_default()
    }

    /// The primary of a group says who uses it.
    ///
    /// # Errors
    ///
    /// The journal cannot be written; nothing has changed.
    pub fn tell(&self, group: GroupId, now: GroupClients) -> Result<(), JournalError> {
        let (journal, changed) = {
            let state = self.state();
            let known = state.groups.get(&group);
            let changed = match known.cloned() {
                Some(mut known) => {
                    known.tell(now);
                    known
                }
                None => RememberedClients::new(now),
            };
            if known == Some(&changed) {
                return Ok(());
            }
            (state.journal.clone(), changed)
        };
        // It takes as long as a sync: promotions look meanwhile.
        if let Some(journal) = journal.filter(|_| !planted::is_in_dr(DrBug::ClientsNotJournalled)) {
            journal.put_dr_clients(&group.to_string(), &changed.text())?;
        }
        self.state().groups.insert(group, changed);
        Ok(())
    }

    /// A group is removed. The caller has the journal forget its clients.
    pub fn drop_group(&self, group: GroupId) {
        self.state().groups.remove(&group);
    }

    /// This site serves the hosts of a group: those of the other site are no more.
    ///
    /// # Errors
    ///
    /// The journal cannot be written; nothing has changed.
    pub fn forget(&self, group: GroupId) -> Result<(), JournalError> {
        let journal = {
            let state = self.state();
            if !state.groups.contains_key(&group) {
                return Ok(());
            }
            state.journal.clone()
        };
        journal.map_or(Ok(()), |journal| journal.forget_dr_clients(&group.to_string()))?;
        self.state().groups.remove(&group);
        Ok(())
    }
}
