//! Sets whose volumes lie in DR groups: whether this site follows another one, and what that told of its catalogue; in memory,
//! and in the journal.
//!
//! Invariants:
//!
//! 1. A change is in the journal before anyone sees it.
//! 2. Verifications that a site asks the other one for, and their verdicts, are in memory alone: what a crash loses is asked for
//!    again.
//! 3. A site that has followed knows that after a crash: whatever takes the set over then does so as a successor.

use crate::journal::{DaemonJournal, JournalError};
use array::format::SiteId;
use protect::{
    catalogue::{CatalogueExtract, SetId},
    set_keeper::{ReplicaVerdict, ReplicaVerification},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};
use world::WallTime;

/// A set, as this site remembers it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SetRecord {
    /// The turn in which this site kept the set last; 0 if it never did.
    pub own_turn: u64,
    /// Another site keeps the set, or did until the keeper here has taken it over.
    pub is_following: bool,
    /// The site that kept it before, while its catalogue was not seen at rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaited: Option<String>,
    /// The catalogue of the other site, as that told it last.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "shared_extract")]
    pub told: Option<Arc<CatalogueExtract>>,
    /// The ends of locks as the other site told them, in seconds since 1970, by `CATALOGUE/NUMBER`: the latest ones, whatever it
    /// told later.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub locks: BTreeMap<String, i64>,
}

/// Locks of a set that are remembered.
const LOCKS_MAX: usize = 20_000;

fn lock_key(set: &SetId, number: u64) -> String {
    format!("{set}/{number}")
}

/// An extract behind a pointer, as a value of its own.
mod shared_extract {
    use super::{Arc, CatalogueExtract, Deserialize, Serialize};
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(
        told: &Option<Arc<CatalogueExtract>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        told.as_deref().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<CatalogueExtract>>, D::Error> {
        Ok(Option::<CatalogueExtract>::deserialize(deserializer)?.map(Arc::new))
    }
}

impl SetRecord {
    /// Takes what the other site told. Locks only become longer by it; those that have ended are forgotten.
    pub fn take_told(&mut self, told: &Arc<CatalogueExtract>, now_s: i64) {
        self.locks.retain(|_, until_s| *until_s > now_s);
        for (id, backup) in told.id.iter().flat_map(|id| told.backups.iter().map(move |backup| (id, backup)))
        {
            let until_s = backup.at_s.saturating_add(backup.lock_s.unwrap_or(0));
            let key = lock_key(id, backup.backup);
            if until_s > now_s && (self.locks.len() < LOCKS_MAX || self.locks.contains_key(&key)) {
                let known = self.locks.entry(key).or_insert(until_s);
                *known = until_s.max(*known);
            }
        }
        self.told = Some(Arc::clone(told));
    }

    /// The other site's catalogue, if nothing comes to it after this extract: that site kept the set after this one.
    pub fn told_at_rest(&self) -> Option<&Arc<CatalogueExtract>> {
        self.told.as_ref().filter(|told| told.is_at_rest && told.turn > self.own_turn)
    }

    /// The catalogue that was awaited since this site took over.
    pub fn seen_catalogue(&self) -> Option<(&str, &Arc<CatalogueExtract>)> {
        let told = self.told.as_ref().filter(|told| told.is_at_rest && told.turn + 1 >= self.own_turn);
        self.awaited.as_deref().zip(told)
    }

    /// Turn of the next keeper here.
    pub fn next_turn(&self) -> u64 {
        self.told.as_ref().map_or(0, |told| told.turn).max(self.own_turn) + 1
    }
}

/// The sets of a site. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct SetMemory(Arc<Mutex<MemoryState>>);

#[derive(Default)]
struct MemoryState {
    journal: Option<Arc<DaemonJournal>>,
    sets: BTreeMap<String, SetRecord>,
    /// Names of paired sites.
    sites: BTreeMap<SiteId, String>,
    links: BTreeMap<SiteId, LinkStanding>,
    /// Verifications that the other site wants, by set.
    asked: BTreeMap<String, Arc<ReplicaVerification>>,
    /// Verdicts that came from the other site, by set.
    verdicts: BTreeMap<String, Arc<ReplicaVerdict>>,
}

/// The link to a paired site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LinkStanding {
    /// With the version of the protocol that both know.
    Connected(u16),
    Lost(WallTime),
}

impl SetMemory {
    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.0.lock().expect("nothing panics with the lock held")
    }

    /// Reads what the journal has. Returns a line for each set whose record cannot be read.
    pub fn load(&self, journal: &Arc<DaemonJournal>) -> Result<Vec<String>, JournalError> {
        let (mut sets, mut unusable) = (BTreeMap::new(), Vec::new());
        for (set, text) in journal.dr_sets()? {
            match serde_json::from_str(&text) {
                Ok(record) => drop(sets.insert(set, record)),
                Err(error) => {
                    unusable.push(format!("what another site told of set {set} cannot be read: {error}"));
                    // It is taken over as from a site that told nothing.
                    sets.insert(set, SetRecord { is_following: true, ..SetRecord::default() });
                }
            }
        }
        let names = journal.paired_sites()?.into_iter().map(|site| (SiteId(site.site), site.name)).collect();
        let mut state = self.state();
        (state.sets, state.sites, state.journal) = (sets, names, Some(Arc::clone(journal)));
        Ok(unusable)
    }

    pub fn of(&self, set: &str) -> SetRecord {
        self.state().sets.get(set).cloned().unwrap_or_default()
    }

    /// The end of the lock of a backup as another site told it, in seconds since 1970.
    pub fn longer_lock(&self, set: &SetId, number: u64) -> Option<i64> {
        let key = lock_key(set, number);
        self.state().sets.values().filter_map(|record| record.locks.get(&key).copied()).max()
    }

    /// Changes the record of a set.
    ///
    /// # Errors
    ///
    /// The journal cannot be written; nothing has changed.
    pub fn change(&self, set: &str, change: impl Fn(&mut SetRecord)) -> Result<(), JournalError> {
        let journal = self.state().journal.clone();
        let before = self.of(set);
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return Ok(());
        }
        // It takes as long as a sync: other threads look meanwhile.
        if let Some(journal) = journal {
            journal.put_dr_set(set, &serde_json::to_string(&after).expect("plain fields"))?;
        }
        change(self.state().sets.entry(set.to_owned()).or_default());
        Ok(())
    }

    /// Name of a paired site.
    pub fn site_name(&self, site: SiteId) -> String {
        let known = self.state().sites.get(&site).cloned();
        known.unwrap_or_else(|| super::site_message::default_name(&site.0))
    }

    /// The link to a site as it was last; `None` if it was never up since the start.
    pub fn link_to(&self, site: SiteId) -> Option<LinkStanding> {
        self.state().links.get(&site).copied()
    }

    pub fn note_link(&self, site: SiteId, standing: LinkStanding) {
        self.state().links.insert(site, standing);
    }

    /// The verification that the other site wants now.
    pub fn asked(&self, set: &str) -> Option<Arc<ReplicaVerification>> {
        self.state().asked.get(set).cloned()
    }

    pub fn note_asked(&self, set: &str, asked: Option<ReplicaVerification>) {
        let mut state = self.state();
        match asked {
            Some(asked) => drop(state.asked.insert(set.to_owned(), Arc::new(asked))),
            None => drop(state.asked.remove(set)),
        }
    }

    pub fn note_verdict(&self, set: &str, verdict: ReplicaVerdict) {
        self.state().verdicts.insert(set.to_owned(), Arc::new(verdict));
    }

    /// True if a verdict of the other site waits for the keeper.
    pub fn has_verdict(&self, set: &str) -> bool {
        self.state().verdicts.contains_key(set)
    }

    pub fn take_verdict(&self, set: &str) -> Option<Arc<ReplicaVerdict>> {
        self.state().verdicts.remove(set)
    }

    pub fn note_site_name(&self, site: SiteId, name: String) {
        self.state().sites.insert(site, name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_was_told_becomes_longer_only() {
        let id = SetId::new(7);
        let told = |lock_s: Option<i64>, numbers: &[u64]| {
            let mut told = CatalogueExtract::without_catalogue("mail", 1, Vec::new());
            told.id = Some(id.clone());
            let backup = |number: &u64| protect::catalogue::ExtractedBackup {
                backup: *number,
                name: format!("mail-{number}"),
                kind: protect::backup_schedule::BackupKind::Full,
                at_s: 1_000,
                label: protect::catalogue::LabelWord::Crash,
                reasons: Vec::new(),
                verified: None,
                holds: Vec::new(),
                lock_s,
                copies: Vec::new(),
            };
            told.backups = numbers.iter().map(backup).collect();
            Arc::new(told)
        };
        let mut record = SetRecord::default();
        let until = |record: &SetRecord, number| record.locks.get(&lock_key(&id, number)).copied();
        record.take_told(&told(Some(500), &[1, 2]), 1_100);
        record.take_told(&told(Some(900), &[1]), 1_200);
        assert_eq!((until(&record, 1), until(&record, 2)), (Some(1_900), Some(1_500)));
        // The other site says that nothing is locked, and then that nothing is there.
        record.take_told(&told(None, &[1, 2]), 1_300);
        record.take_told(&told(None, &[]), 1_400);
        assert_eq!((until(&record, 1), until(&record, 2)), (Some(1_900), Some(1_500)));
        record.take_told(&told(None, &[]), 1_600);
        assert_eq!((until(&record, 1), until(&record, 2)), (Some(1_900), None), "one has ended");
    }

    #[test]
    fn a_catalogue_counts_as_seen_if_its_site_kept_the_set_last_and_does_so_no_more() {
        let told = |turn, is_at_rest| {
            let told = CatalogueExtract::without_catalogue("mail", turn, Vec::new());
            Some(Arc::new(CatalogueExtract { is_at_rest, ..told }))
        };
        let record = |own_turn, told| SetRecord { own_turn, told, ..SetRecord::default() };
        assert!(record(0, told(1, true)).told_at_rest().is_some());
        assert!(record(0, told(1, false)).told_at_rest().is_none(), "it goes on there");
        assert!(record(2, told(1, true)).told_at_rest().is_none(), "it is of before this site's own turn");
        assert_eq!((record(0, None).next_turn(), record(2, told(3, true)).next_turn()), (1, 4));
        let waits = |told| SetRecord { awaited: Some("boston".to_owned()), ..record(2, told) };
        assert!(waits(told(1, true)).seen_catalogue().is_some());
        assert!(waits(told(1, false)).seen_catalogue().is_none());
        assert!(record(2, told(1, true)).seen_catalogue().is_none(), "nobody waits for it");
    }
}
