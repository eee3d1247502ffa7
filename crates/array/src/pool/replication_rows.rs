//! The records of DR groups: what a site must not forget of each. Their owner gives the bytes; the pool keeps them, whole, and
//! reads the volumes with which they begin.
//!
//! Invariants:
//!
//! 1. A record is replaced by one record of the log, so a crash leaves the record of before, or the new one.
//! 2. A change waits for no answer that is held and for no verb: hosts may wait for this very change, and verbs for hosts.
//! 3. Damaged rows of one record keep neither the pool from opening nor other records from being read.

use super::Pool;
use crate::{
    engine::Catalogue,
    error::{Error, Result},
    format::{
        GroupId, VolumeId,
        features::INCOMPATIBLE_REPLICATION,
        record::ENTRIES_MAX,
        row::{REPLICATION_BYTES_MAX, ReplicationRecord, VolumeRow},
    },
    log::LogItem,
};
use std::collections::BTreeMap;

impl Pool {
    /// The records of all groups, those included that are damaged and still name their group.
    pub fn replication_records(&self) -> Vec<(GroupId, Result<Vec<u8>>)> {
        records_of(&self.shared.state.borrow().catalogue)
    }

    /// Damaged records that name no group.
    pub fn nameless_replication_records(&self) -> usize {
        let state = self.shared.state.borrow();
        state.catalogue.replication_records().iter().filter(|stored| stored.group.is_none()).count()
    }

    /// Stores the record of a group in place of the one before; stable when this returns. If this is interrupted, the pool
    /// has the one of before, or this one.
    ///
    /// # Errors
    ///
    /// It is larger than [`REPLICATION_BYTES_MAX`]; the group has no record yet and the pool is full; or the pool cannot
    /// write.
    ///
    /// # Panics
    ///
    /// The record is empty, or the group has no UUID.
    pub async fn put_replication_record(&self, group: GroupId, bytes: Vec<u8>) -> Result<()> {
        if bytes.len() > REPLICATION_BYTES_MAX {
            return Err(Error::ReplicationRecordTooLarge {
                bytes: bytes.len(),
                at_most: REPLICATION_BYTES_MAX,
            });
        }
        let one_at_a_time = self.replication_changes.lock().await;
        self.admit_replication_record(group).await?;
        let feature = self.shared.begin_rows(INCOMPATIBLE_REPLICATION).await?;
        let (number, before) = {
            let stored = self.shared.state.borrow().catalogue.replication_records();
            let used = |number: &u64| stored.iter().any(|stored| stored.keys[0].id == *number);
            let own =
                stored.iter().find(|stored| stored.group == Some(group)).map(|stored| stored.keys[0].id);
            let free =
                (1..).find(|number| !used(number)).expect("a pool has fewer rows than there are numbers");
            let own_keys = stored.iter().filter(|stored| stored.group == Some(group));
            // Number 0 is not valid: rows of it are replaced under another one.
            let number = own.filter(|number| *number > 0).unwrap_or(free);
            (number, own_keys.flat_map(|stored| stored.keys.clone()).collect::<Vec<_>>())
        };
        let rows = ReplicationRecord { group, bytes }.rows(number);
        let obsolete = before.into_iter().filter(|key| !rows.iter().any(|(row, _)| row == key));
        let removals: Vec<LogItem> = obsolete.map(LogItem::Remove).collect();
        let puts = rows.into_iter().map(|(row, bytes)| LogItem::Put { row, bytes });
        let logged = self.log_rows_at_once(feature, puts.chain(removals).collect()).await;
        drop(one_at_a_time);
        logged
    }

    /// Removes the record of a group, if it has one.
    ///
    /// # Errors
    ///
    /// The pool cannot write.
    pub async fn remove_replication_record(&self, group: GroupId) -> Result<()> {
        self.remove_replication_records(|named| named == Some(group)).await
    }

    /// Removes the damaged records that name no group.
    ///
    /// # Errors
    ///
    /// The pool cannot write.
    pub async fn remove_nameless_replication_records(&self) -> Result<()> {
        self.remove_replication_records(|named| named.is_none()).await
    }

    async fn remove_replication_records(&self, is_removed: impl Fn(Option<GroupId>) -> bool) -> Result<()> {
        let _one_at_a_time = self.replication_changes.lock().await;
        let stored = self.shared.state.borrow().catalogue.replication_records();
        let keys: Vec<_> = stored
            .into_iter()
            .filter(|stored| is_removed(stored.group))
            .flat_map(|stored| stored.keys)
            .collect();
        if keys.is_empty() {
            return Ok(());
        }
        // The first part goes with the first record of the log: other parts alone mean nothing.
        self.log_rows_at_once((), keys.into_iter().map(LogItem::Remove).collect()).await
    }

    /// Admits a record of a group. One that has a record is admitted on a full pool, too: that the group goes on alone, or
    /// who is primary, must be stored before hosts get an answer, and its rows take the places of those before. Only a new
    /// record waits for space.
    async fn admit_replication_record(&self, group: GroupId) -> Result<()> {
        let stored = self.shared.state.borrow().catalogue.replication_records();
        if !stored.iter().any(|stored| stored.group == Some(group)) {
            drop(self.host.admission.admit_rows().await?);
        }
        Ok(())
    }

    /// Logs rows, and waits for nothing but the log. Goes on if the caller does not wait.
    async fn log_rows_at_once<L: 'static>(&self, until_logged: L, items: Vec<LogItem>) -> Result<()> {
        // All are in the log's queue before anything awaits.
        let records: Vec<Vec<LogItem>> = items.chunks(ENTRIES_MAX).map(<[LogItem]>::to_vec).collect();
        let logged: Vec<_> = records.into_iter().map(|record| self.log.append_together(record)).collect();
        let logging = self.shared.world.spawn("rows of replication", async move {
            for logged in logged {
                logged.await?;
            }
            drop(until_logged);
            Ok(())
        });
        logging.await
    }

    /// Fails if the volume is in a DR group: its size, its past and its end are not carried to the other site.
    pub(super) fn check_not_replicated(&self, row: &VolumeRow) -> Result<()> {
        let records = self.replication_records().into_iter();
        let mut whole = records.filter_map(|(_, record)| record.ok());
        match whole.any(|record| replicated_volumes(&record).contains(&row.volume)) {
            true => Err(Error::InDrGroup(row.name.clone())),
            false => Ok(()),
        }
    }
}

/// The volumes with whose number and UUIDs a record begins; none of a record that does not.
pub fn replicated_volumes(record: &[u8]) -> Vec<VolumeId> {
    let split = |record: &[u8]| {
        let (count, rest) = record.split_first_chunk::<2>()?;
        let volumes = rest.get(..usize::from(u16::from_le_bytes(*count)) * size_of::<VolumeId>())?;
        Some(volumes.as_chunks::<16>().0.iter().map(|id| VolumeId(*id)).collect())
    };
    split(record).unwrap_or_default()
}

/// The records that name their group, by group. Two records of one group contradict each other.
pub(super) fn records_of(catalogue: &Catalogue) -> Vec<(GroupId, Result<Vec<u8>>)> {
    let what = |group: GroupId| format!("the replication record of group {group}");
    let mut all = BTreeMap::new();
    for stored in catalogue.replication_records() {
        let Some(group) = stored.group else { continue };
        let record = stored.record.map(|record| record.bytes);
        let record = record.map_err(|refusal| Error::Damaged { what: what(group), refusal });
        let is_second = all.contains_key(&group);
        all.insert(group, if is_second { Err(Error::TwoReplicationRecords(group)) } else { record });
    }
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        format::{DriveId, PoolId, RowKey, SparingLevel, row::ReplicationPartRow},
        pool::{NewDrive, NewPool, OpenSetting, create, open, open_read_only},
    };
    use std::rc::Rc;
    use world::{
        BlockDevice, ByteCount,
        sim::{DriveOptions, SimLimits, SimOutcome, Simulation},
    };

    const DAMAGED: GroupId = GroupId([3; 16]);
    const WHOLE: GroupId = GroupId([4; 16]);

    async fn forge(pool: &Rc<Pool>, row: RowKey, bytes: Vec<u8>) {
        let _feature = pool.shared.begin_rows(INCOMPATIBLE_REPLICATION).await.expect("it is set");
        pool.log.append_together(vec![LogItem::Put { row, bytes }]).await.expect("it is logged");
    }

    #[test]
    fn damaged_rows_of_one_record_hide_no_other_and_keep_no_pool_from_opening() {
        let mut simulation = Simulation::new(1);
        let device: Rc<dyn BlockDevice> = simulation.add_drive(DriveOptions::new(ByteCount(64 << 20)));
        let outcome = simulation.run(SimLimits::generous(), |world| async move {
            let (pool, name) = (PoolId([1; 16]), "mail".to_owned());
            let new = NewPool { pool, name, slot_bytes: 1 << 20, sparing: SparingLevel::None };
            let (drive, serial) = (DriveId([2; 16]), String::new());
            let drive = NewDrive { drive, serial, domain: None, device: Rc::clone(&device) };
            create(&world, &new, &[drive]).await.expect("it is made");
            let devices = [device];
            let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
            pool.put_replication_record(DAMAGED, vec![1; 3000]).await.expect("it is stored");
            pool.put_replication_record(WHOLE, vec![2; 3000]).await.expect("it is stored");
            let head = ReplicationRecord { group: DAMAGED, bytes: vec![1; 3000] }.rows(1).remove(0).1;
            let cases = [
                // Another part is in the place of one.
                (RowKey::of_replication(1, 1), ReplicationPartRow { bytes: vec![9; 1016] }.encode()),
                (RowKey::of_replication(1, 1), vec![0xff; 5]),
                (RowKey::of_replication(1, 0), [&[9, 9][..], &head[2..]].concat()),
                // A second record of the same group.
                (RowKey::of_replication(u64::MAX, 0), head),
                (RowKey::of_replication(0, u64::MAX), vec![3]),
            ];
            for (row, bytes) in cases {
                forge(&pool, row, bytes).await;
            }
            pool.close().await.expect("it closes");
            let read = open_read_only(&devices, 1 << 20).await.expect("it can be read");
            let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens again");
            for records in [read.replication_records(), pool.replication_records()] {
                let [(first, damaged), (second, whole)] = &records[..] else { panic!("{records:?}") };
                assert_eq!((*first, *second), (DAMAGED, WHOLE));
                let refused = damaged.as_ref().expect_err("it is damaged").to_string();
                assert!(refused.contains(&DAMAGED.to_string()) && !refused.contains('\n'), "{refused}");
                assert_eq!(whole.as_ref().ok(), Some(&vec![2; 3000]));
            }
            assert_eq!(pool.nameless_replication_records(), 1);
            pool.remove_nameless_replication_records().await.expect("it is removed");
            assert_eq!(pool.nameless_replication_records(), 0);
            // The next record takes the place of all that name the group.
            pool.put_replication_record(DAMAGED, vec![5]).await.expect("it is stored");
            let records = pool.replication_records();
            assert!(matches!(&records[0], (DAMAGED, Ok(bytes)) if bytes == &[5]), "{records:?}");
            pool.remove_replication_record(DAMAGED).await.expect("it is removed");
            pool.remove_replication_record(WHOLE).await.expect("it is removed");
            assert!(!pool.shared.state.borrow().catalogue.has_replication_rows(), "no row is left");
        });
        assert!(matches!(outcome, SimOutcome::Completed(())), "{outcome:?}");
    }
}
