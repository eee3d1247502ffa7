//! Replicas: volumes that a follower alone writes, with the stamps of another pool. Hosts may read them.
//!
//! The row of the branch says so. While it does, nothing here takes a stamp of the branch but the follower's commands
//! (`given_commands`, [`Volume::ensure_write`](crate::volume::Volume::ensure_write) and their like): a stamp of this
//! pool is above those that the follower will bring, so its next command would be refused.

use super::{
    Pool,
    volumes::{NewVolume, VolumeWriter, check_name},
};
use crate::{
    error::{Error, Result},
    format::{
        RowKey, VolumeId, VolumeNumber,
        features::INCOMPATIBLE_REPLICAS,
        record::ENTRIES_MAX,
        row::{BranchRow, VolumeRow},
    },
    log::LogItem,
};

impl Pool {
    /// Creates a volume as [`Pool::create_volume`], which is a replica from the beginning.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn create_replica(&self, new: &NewVolume) -> Result<()> {
        check_name(&new.name)?;
        self.create_written_by(new, VolumeWriter::Follower).await
    }

    /// True if a follower alone writes the volume.
    ///
    /// # Errors
    ///
    /// No such volume.
    pub fn is_replica(&self, volume: VolumeId) -> Result<bool> {
        let row = self.volume_row(self.number_of(volume.into())?);
        Ok(self.shared.state.borrow().catalogue.is_replica(&row))
    }

    /// Makes volumes replicas, or ends that: all of them at one moment, stable before this returns. Waits for writes
    /// of hosts that are under way. Those that come later are refused while the volume is a replica.
    ///
    /// # Errors
    ///
    /// No such volume, or a rollback left it; more than 124 volumes; or the pool cannot write.
    pub async fn set_replica(&self, volumes: &[VolumeId], is_replica: bool) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        let feature = self.shared.begin_rows(if is_replica { INCOMPATIBLE_REPLICAS } else { 0 }).await?;
        let numbers = self.numbers_of(volumes, ENTRIES_MAX)?;
        let mut no_writes = Vec::new();
        for &number in &numbers {
            self.check_not_left(&self.volume_row(number))?;
            no_writes.push(self.handles.locks_of(number).close().await);
        }
        let parts = self.replica_rows(&numbers, is_replica);
        if !parts.is_empty() {
            self.answer((one_at_a_time, feature, no_writes), self.log.append_together(parts)).await?;
        }
        self.shared.subscribers.ended_hosts.reopen(volumes);
        Ok(())
    }

    /// Does something while no write of hosts to these volumes is under way: what it sees of them has whole commands
    /// alone, and each later command begins after it.
    ///
    /// # Errors
    ///
    /// No such volume.
    pub async fn between_writes<T>(&self, volumes: &[VolumeId], work: impl FnOnce() -> T) -> Result<T> {
        let mut no_writes = Vec::new();
        for number in self.numbers_of(volumes, ENTRIES_MAX)? {
            no_writes.push(self.handles.locks_of(number).close().await);
        }
        Ok(work())
    }

    /// The rows of branches that change if these volumes become replicas, or are none any more.
    pub(super) fn replica_rows(&self, numbers: &[VolumeNumber], is_replica: bool) -> Vec<LogItem> {
        let state = self.shared.state.borrow();
        let branches = numbers.iter().map(|&number| {
            let branch = state.catalogue.volume(number).expect("numbers of volumes stay").branch;
            (branch, state.catalogue.branch(branch).expect("a volume writes it"))
        });
        let changed = branches.filter(|(_, row)| row.is_replica != is_replica);
        let rows = changed.map(|(branch, row)| (branch, BranchRow { is_replica, ..row.clone() }));
        rows.map(|(branch, row)| LogItem::Put { row: RowKey::of_branch(branch), bytes: row.encode() })
            .collect()
    }

    /// The numbers of live volumes, each once.
    pub(super) fn numbers_of(&self, volumes: &[VolumeId], at_most: usize) -> Result<Vec<VolumeNumber>> {
        if volumes.len() > at_most {
            return Err(Error::TooManyAtOnce { volumes: volumes.len(), at_most });
        }
        let mut numbers =
            volumes.iter().map(|&volume| self.number_of(volume.into())).collect::<Result<Vec<_>>>()?;
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    /// Fails for a replica: its present is no point that could be read, as a follower may be within a command.
    pub(super) fn check_has_present(&self, number: VolumeNumber) -> Result<()> {
        let row = self.volume_row(number);
        self.check_no_replica_of(&row)?;
        self.check_not_importing(&row)
    }

    /// Fails if the volume is a replica.
    pub(super) fn check_no_replica_of(&self, row: &VolumeRow) -> Result<()> {
        match self.shared.state.borrow().catalogue.is_replica(row) {
            true => Err(Error::Replica(row.name.clone())),
            false => Ok(()),
        }
    }
}
