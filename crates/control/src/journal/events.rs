//! Events, open conditions and the places of notifiers, as the journal keeps them.
//!
//! Invariants:
//!
//! 1. They change together: a condition is open in the journal if, and only if, its event is there or was removed for its age,
//!    and a notifier's place is never beyond the events that were there with it.
//! 2. Numbers below `numbers_below` may have been given to events that a crash has taken: the next server begins there.

use super::{DaemonJournal, JournalError, SETTINGS};
use crate::{conditions::OpenCondition, events::NumberedEvent, notifying::NotifierPlace};
use redb::{ReadableTable, TableDefinition};
use serde::{Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, sync::Arc};

/// Events by their numbers, as JSON.
pub(super) const EVENTS: TableDefinition<u64, &str> = TableDefinition::new("events");
/// Open conditions by their ids, as JSON.
pub(super) const CONDITIONS: TableDefinition<&str, &str> = TableDefinition::new("conditions");
/// Places of notifiers by their names, as JSON.
pub(super) const NOTIFIERS: TableDefinition<&str, &str> = TableDefinition::new("notifiers");
const NUMBERS_KEY: &str = "event numbers below";
const DROPPED_KEY: &str = "events dropped to";
const RUNNING_KEY: &str = "server runs";

/// Everything that is known of events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventRecords {
    /// Oldest first.
    pub events: Vec<NumberedEvent>,
    pub conditions: Vec<OpenCondition>,
    pub places: BTreeMap<String, NotifierPlace>,
    /// A server that starts gives numbers from this one on.
    pub numbers_below: u64,
    /// Number of the newest event that was removed as the oldest one.
    pub dropped_to: u64,
    /// Records that cannot be read, and are left out.
    pub unreadable: usize,
}

/// A change of what is known of events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventChanges {
    /// Oldest first.
    pub new: Vec<Arc<NumberedEvent>>,
    /// All that are open.
    pub conditions: Vec<OpenCondition>,
    /// All that are known.
    pub places: BTreeMap<String, NotifierPlace>,
    pub numbers_below: u64,
    /// They are removed.
    pub dropped: Vec<u64>,
    /// Older ones, and this one, are removed.
    pub dropped_to: u64,
}

impl DaemonJournal {
    /// Reads everything that is known of events.
    pub fn event_records(&self) -> Result<EventRecords, JournalError> {
        let database = &self.0;
        let (events, conditions, places, numbers_below, dropped_to) = database.read(|transaction| {
            let mut events = Vec::new();
            for record in transaction.open_table(EVENTS)?.iter()? {
                events.push(record?.1.value().to_owned());
            }
            let mut conditions = Vec::new();
            for record in transaction.open_table(CONDITIONS)?.iter()? {
                conditions.push(record?.1.value().to_owned());
            }
            let mut places = Vec::new();
            for record in transaction.open_table(NOTIFIERS)?.iter()? {
                let (name, place) = record?;
                places.push((name.value().to_owned(), place.value().to_owned()));
            }
            let settings = transaction.open_table(SETTINGS)?;
            let number =
                |key| Ok::<_, redb::StorageError>(settings.get(key)?.map_or(0, |number| number.value()));
            Ok((events, conditions, places, number(NUMBERS_KEY)?, number(DROPPED_KEY)?))
        })?;
        // One record that cannot be read keeps nobody from being served.
        let mut unreadable = 0;
        let events = events.iter().filter_map(|text| read(text, &mut unreadable)).collect();
        let conditions = conditions.iter().filter_map(|text| read(text, &mut unreadable)).collect();
        let place = |(name, text): (String, String)| Some((name, read(&text, &mut unreadable)?));
        let places = places.into_iter().filter_map(place).collect();
        Ok(EventRecords { events, conditions, places, numbers_below, dropped_to, unreadable })
    }

    /// Records a change, as a whole.
    pub fn put_events(&self, changes: &EventChanges) -> Result<(), JournalError> {
        self.0.change(|transaction| {
            let mut events = transaction.open_table(EVENTS)?;
            for event in changes.new.iter().filter(|event| event.id > changes.dropped_to) {
                events.insert(event.id, text(&**event).as_str())?;
            }
            for id in &changes.dropped {
                events.remove(id)?;
            }
            events.retain_in(..=changes.dropped_to, |_, _| false)?;
            let mut conditions = transaction.open_table(CONDITIONS)?;
            conditions.retain(|id, _| changes.conditions.iter().any(|condition| condition.id == id))?;
            for condition in &changes.conditions {
                conditions.insert(&*condition.id, text(condition).as_str())?;
            }
            let mut places = transaction.open_table(NOTIFIERS)?;
            places.retain(|name, _| changes.places.contains_key(name))?;
            for (name, place) in &changes.places {
                places.insert(&**name, text(place).as_str())?;
            }
            let mut settings = transaction.open_table(SETTINGS)?;
            settings.insert(NUMBERS_KEY, changes.numbers_below)?;
            settings.insert(DROPPED_KEY, changes.dropped_to)?;
            Ok(())
        })
    }

    /// Records that a server runs, or has ended in order. Returns what was recorded before.
    pub fn set_running(&self, is_running: bool) -> Result<bool, JournalError> {
        self.0.change(|transaction| {
            let mut settings = transaction.open_table(SETTINGS)?;
            let before = settings.insert(RUNNING_KEY, u64::from(is_running))?;
            Ok(before.is_some_and(|before| before.value() == 1))
        })
    }
}

fn read<T: DeserializeOwned>(text: &str, unreadable: &mut usize) -> Option<T> {
    let record = serde_json::from_str(text).ok();
    *unreadable += usize::from(record.is_none());
    record
}

fn text(record: &impl Serialize) -> String {
    serde_json::to_string(record).expect("plain fields")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        conditions::{ConditionBoard, ConditionClaim},
        events::DaemonEventLog,
    };
    use world::{WallTime, sim::SimStateFile};

    const NOW: WallTime = WallTime { seconds: 1_795_782_896, nanos: 0 };

    #[test]
    fn changes_add_up_and_what_was_dropped_is_removed() {
        let file = SimStateFile::new("journal", 0);
        let journal = DaemonJournal::open(Arc::new(file.open())).unwrap();
        assert_eq!(journal.event_records().unwrap(), EventRecords::default());
        let log = DaemonEventLog::new(NOW);
        log.raise(&ConditionClaim::new("space_80", "mail", "81 % full"), NOW);
        log.raise(&ConditionClaim::new("drive_warned", "mail", "warm").of("a"), NOW);
        log.place("ops");
        let (first, revision) = log.pending().unwrap();
        journal.put_events(&first).unwrap();
        log.note_flushed(&first, revision);
        log.clear("space:mail", NOW);
        let second_newest = log.newest();
        log.change_place("ops", |place| {
            place.lanes.insert("all".to_owned(), second_newest);
        });
        let (second, _) = log.pending().unwrap();
        assert_eq!((first.new.len(), second.new.len()), (2, 1), "each is written once");
        let second = EventChanges { dropped_to: first.new[0].id, ..second };
        journal.put_events(&second).unwrap();
        drop(journal);
        let records = DaemonJournal::open(Arc::new(file.open())).unwrap().event_records().unwrap();
        let ids: Vec<u64> = records.events.iter().map(|event| event.id).collect();
        assert_eq!(ids, [first.new[1].id, second.new[0].id]);
        assert_eq!(ConditionBoard::of(records.conditions.clone()).open().count(), 1);
        assert_eq!(records.places["ops"].of_lane("all"), second.new[0].id);
        assert_eq!((records.dropped_to, records.numbers_below), (second.dropped_to, second.numbers_below));
        let again = DaemonEventLog::of(records, WallTime::default());
        assert_eq!(again.after(0, 9).iter().map(|event| event.id).collect::<Vec<_>>(), ids);
        assert!(again.pending().is_none(), "the journal has all of it");
    }

    #[test]
    fn a_server_that_was_killed_is_known_by_the_next_one() {
        let journal = DaemonJournal::open(Arc::new(SimStateFile::new("journal", 0).open())).unwrap();
        assert!(!journal.set_running(true).unwrap());
        assert!(journal.set_running(true).unwrap(), "it did not end in order");
        assert!(journal.set_running(false).unwrap());
        assert!(!journal.set_running(true).unwrap());
    }

    #[test]
    fn a_record_that_cannot_be_read_is_left_out_and_said() {
        let journal = DaemonJournal::open(Arc::new(SimStateFile::new("journal", 0).open())).unwrap();
        let log = DaemonEventLog::new(NOW);
        log.raise(&ConditionClaim::new("space_80", "mail", "81 % full"), NOW);
        journal.put_events(&log.pending().unwrap().0).unwrap();
        let write = |transaction: &redb::WriteTransaction| {
            transaction.open_table(EVENTS)?.insert(1, "{}")?;
            transaction.open_table(NOTIFIERS)?.insert("ops", "")?;
            Ok(())
        };
        journal.0.change(write).unwrap();
        let records = journal.event_records().unwrap();
        assert_eq!((records.events.len(), records.places.len(), records.unreadable), (1, 0, 2));
        let said = DaemonEventLog::of(records, NOW).after(0, 9).pop().unwrap();
        assert!(said.report.text.starts_with("2 records of events"), "{said:?}");
    }
}
