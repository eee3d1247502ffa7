//! Snapshots. A snapshot is a point on the branch of each of its volumes, with a row; nothing is copied.

use super::{
    Pool, SnapshotKey, VolumeKey, difference::row_of_deleted, history_points::is_of_fork, volumes::check_name,
};
use crate::{
    engine::{BranchLoss, Catalogue, MapReader, PlannedDeletion},
    error::{Error, Result},
    format::{
        BranchNumber, GRAIN_BYTES, GroupNumber, RowKey, SECTOR_BYTES, SnapshotId, Stamp, VolumeNumber,
        WallNanoseconds,
        features::INCOMPATIBLE_NOTES,
        record::ENTRIES_MAX,
        row::{CutRow, NOTE_BYTES_MAX, PointRow, PointUses, VolumeRow, VolumeState},
    },
    log::LogItem,
    map::ReclaimableQuery,
    volume::SnapshotDevice,
};
use std::rc::Rc;

/// A snapshot of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Unique among the snapshots of the volume.
    pub name: String,
    /// The same for all volumes that were snapshotted together.
    pub snapshot: SnapshotId,
    pub created_at: WallNanoseconds,
    /// Size of the volume at that time.
    pub size_bytes: u64,
    /// Bytes of its owner, which the pool keeps and does not look at; empty without a note.
    pub note: Vec<u8>,
    /// The cut over several pools that it is part of, while that is not settled. If it is pending, the
    /// snapshot cannot be used.
    pub cut: Option<CutRow>,
}

/// A snapshot to take.
#[derive(Clone, Copy, Debug)]
pub struct NewSnapshot<'n> {
    /// Unique among the snapshots of each of its volumes.
    pub name: &'n str,
    /// Globally unique; the same for all its volumes.
    pub snapshot: SnapshotId,
    /// At most 768 bytes, kept with the snapshot of each volume; empty without a note.
    pub note: &'n [u8],
}

/// Name of the point of a replica that shows what a promotion would, in `VOLUME@replica`: no snapshot is taken under it.
pub const REPLICA_POINT: &str = "replica";

impl NewSnapshot<'_> {
    pub(super) fn check(&self) -> Result<()> {
        check_name(self.name)?;
        let length = self.note.len();
        if length > NOTE_BYTES_MAX { Err(Error::NoteTooLong(length)) } else { Ok(()) }
    }

    /// As [`NewSnapshot::check`], of one that people or programs take here. A primary may have one from before.
    pub(super) fn check_taken_here(&self) -> Result<()> {
        if self.name == REPLICA_POINT {
            return Err(Error::ReservedName(self.name.to_owned()));
        }
        self.check()
    }
}

/// The features that its rows need.
pub(super) fn new_features(new: &NewSnapshot<'_>) -> u64 {
    if new.note.is_empty() { 0 } else { INCOMPATIBLE_NOTES }
}

impl Snapshot {
    pub(super) fn of(catalogue: &Catalogue, row: &PointRow) -> Self {
        Self {
            name: row.name.clone(),
            snapshot: row.snapshot,
            created_at: row.created_at,
            size_bytes: row.sectors * SECTOR_BYTES,
            note: row.note.clone(),
            cut: catalogue.cut(row.snapshot).cloned(),
        }
    }
}

impl Pool {
    /// Takes a snapshot of several volumes at one moment, between two host commands. It contains all
    /// acknowledged commands; those under way may or may not be in it.
    ///
    /// # Errors
    ///
    /// No such volume; one of them has a snapshot of that name, or is what a rollback left; more than 124
    /// volumes.
    pub async fn snapshot<'k>(
        &self,
        volumes: &[impl Into<VolumeKey<'k>> + Copy],
        name: &str,
        snapshot: SnapshotId,
    ) -> Result<()> {
        self.take_snapshot(volumes, &NewSnapshot { name, snapshot, note: &[] }).await
    }

    /// As [`Pool::snapshot`], with a note.
    ///
    /// # Errors
    ///
    /// Those of [`Pool::snapshot`]; or the note has more than 768 bytes.
    pub async fn take_snapshot<'k>(
        &self,
        volumes: &[impl Into<VolumeKey<'k>> + Copy],
        new: &NewSnapshot<'_>,
    ) -> Result<()> {
        new.check_taken_here()?;
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let feature = self.shared.begin_rows(new_features(new)).await?;
        let numbers = volumes.iter().map(|volume| self.number_of((*volume).into()));
        let numbers: Vec<VolumeNumber> = numbers.collect::<Result<_>>()?;
        self.check_snapshot(&numbers, new, ENTRIES_MAX)?;
        let parts = self.cut_of(&numbers, new, None);
        self.answer((one_at_a_time, feature), self.log.append_together(parts)).await
    }

    /// Takes a snapshot of several volumes as [`Pool::take_snapshot`], under any name; at `given`, if there is one, a
    /// stamp that none of their branches is above, and of that time, if there is one. Returns its stamp. Of replicas, too:
    /// for those who follow.
    pub(super) async fn take_snapshot_at(
        &self,
        volumes: &[VolumeNumber],
        new: &NewSnapshot<'_>,
        (given, created_at): (Option<Stamp>, Option<WallNanoseconds>),
    ) -> Result<Stamp> {
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let feature = self.shared.begin_rows(new_features(new)).await?;
        self.check_points((volumes, new), ENTRIES_MAX, |row| self.check_not_left(row))?;
        let branches = self.branches_of(volumes);
        let stamp = match given {
            Some(stamp) => self.shared.state.borrow_mut().take_point_stamp(&branches, stamp)?,
            None => self.shared.state.borrow_mut().next_stamp_of([]),
        };
        let created_at = created_at.unwrap_or_else(|| self.shared.wall_now());
        let parts = self.cut_at((stamp, created_at), volumes, new, None);
        // Not an answer to a host: what holds those may wait for this.
        let logged = self.log.append_together(parts);
        drop(self.shared.logged_under((one_at_a_time, feature), logged).await?);
        Ok(stamp)
    }

    fn branches_of(&self, volumes: &[VolumeNumber]) -> Vec<BranchNumber> {
        volumes.iter().map(|&number| self.volume_row(number).branch).collect()
    }

    /// Takes a snapshot of a volume as [`Pool::take_snapshot`], under any name and with any time.
    pub(super) async fn take_snapshot_as(
        &self,
        number: VolumeNumber,
        new: &NewSnapshot<'_>,
        created_at: WallNanoseconds,
    ) -> Result<()> {
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let feature = self.shared.begin_rows(new_features(new)).await?;
        self.check_snapshot(&[number], new, ENTRIES_MAX)?;
        let parts = self.cut_of_time(&[number], new, None, created_at);
        self.answer((one_at_a_time, feature), self.log.append_together(parts)).await
    }

    /// The rows of a snapshot of several volumes, perhaps those of a group, that was checked
    /// ([`Self::check_snapshot`]) and cannot be refused since. They have to enter the log's queue before anything
    /// awaits.
    pub(super) fn cut_of(
        &self,
        volumes: &[VolumeNumber],
        new: &NewSnapshot<'_>,
        group: Option<GroupNumber>,
    ) -> Vec<LogItem> {
        self.cut_of_time(volumes, new, group, self.shared.wall_now())
    }

    fn cut_of_time(
        &self,
        volumes: &[VolumeNumber],
        new: &NewSnapshot<'_>,
        group: Option<GroupNumber>,
        created_at: WallNanoseconds,
    ) -> Vec<LogItem> {
        let stamp = self.shared.state.borrow_mut().next_stamp_of([]);
        self.cut_at((stamp, created_at), volumes, new, group)
    }

    fn cut_at(
        &self,
        (stamp, created_at): (Stamp, WallNanoseconds),
        volumes: &[VolumeNumber],
        new: &NewSnapshot<'_>,
        group: Option<GroupNumber>,
    ) -> Vec<LogItem> {
        let mut state = self.shared.state.borrow_mut();
        let mut parts = Vec::new();
        for &number in volumes {
            let volume = state.catalogue.volume(number).expect("it was checked");
            let branch = volume.branch;
            let row = PointRow { group, ..new_point((number, volume), new, created_at) };
            state.branch_stamps.note(branch, stamp);
            parts.push(LogItem::Put { row: RowKey::of_point(branch, stamp), bytes: row.encode() });
        }
        parts
    }

    /// Fails if one of the volumes cannot have that snapshot, or they are more than `at_most`. What it finds holds
    /// while the catalogue is locked for changes.
    pub(super) fn check_snapshot(
        &self,
        volumes: &[VolumeNumber],
        new: &NewSnapshot<'_>,
        at_most: usize,
    ) -> Result<()> {
        self.check_points((volumes, new), at_most, |row| self.check_changeable(row))
    }

    fn check_points(
        &self,
        (volumes, new): (&[VolumeNumber], &NewSnapshot<'_>),
        at_most: usize,
        check: impl Fn(&VolumeRow) -> Result<()>,
    ) -> Result<()> {
        if volumes.len() > at_most {
            return Err(Error::TooManyAtOnce { volumes: volumes.len(), at_most });
        }
        let state = self.shared.state.borrow();
        for &number in volumes {
            let row = state.catalogue.volume(number).expect("numbers of volumes stay");
            check(row)?;
            let mut snapshots = state.catalogue.unsorted_snapshots_of(number);
            if snapshots.any(|(_, _, row)| row.name == new.name) {
                return Err(Error::NameTaken(new.name.to_owned()));
            }
        }
        Ok(())
    }

    /// The present of a volume as a point without a name, which lasts as long as it has a use. It has to enter
    /// the log's queue before anything awaits.
    pub(super) fn present_point(
        &self,
        number: VolumeNumber,
        uses: PointUses,
    ) -> ((BranchNumber, Stamp), PointRow) {
        let volume = self.volume_row(number);
        let stamp = self.shared.state.borrow_mut().next_stamp_of([volume.branch]);
        let row = PointRow {
            name: String::new(),
            state: VolumeState::Live,
            uses,
            references: 1,
            volume: number,
            group: None,
            snapshot: SnapshotId::default(),
            created_at: self.shared.wall_now(),
            expires_at: WallNanoseconds(0),
            sectors: volume.sectors,
            note: Vec::new(),
        };
        ((volume.branch, stamp), row)
    }

    /// Snapshots of a volume, oldest first.
    ///
    /// # Errors
    ///
    /// No such volume.
    pub fn snapshots<'k>(&self, volume: impl Into<VolumeKey<'k>>) -> Result<Vec<Snapshot>> {
        let number = self.number_of(volume.into())?;
        let state = self.shared.state.borrow();
        let rows =
            state.catalogue.snapshots_of(number).map(|(_, _, row)| Snapshot::of(&state.catalogue, row));
        Ok(rows.collect())
    }

    /// A snapshot as a read-only device.
    ///
    /// # Errors
    ///
    /// No such volume or snapshot.
    pub fn snapshot_device<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        snapshot: impl Into<SnapshotKey<'k>>,
    ) -> Result<SnapshotDevice> {
        let (branch, stamp, row) = self.snapshot_of(volume.into(), snapshot.into())?;
        Ok(SnapshotDevice::new(Rc::clone(&self.host), (branch, stamp), row.sectors))
    }

    /// Deletes a snapshot. It disappears at once; checkpoints reclaim its space, once no difference reads it, and
    /// nothing that began at it is left.
    ///
    /// # Errors
    ///
    /// No such volume or snapshot; it is part of a snapshot of a group; or of a cut over several pools that is
    /// not settled.
    pub async fn delete_snapshot<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        snapshot: impl Into<SnapshotKey<'k>>,
    ) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        let (branch, stamp, row) = self.snapshot_of(volume.into(), snapshot.into())?;
        self.check_single(&row)?;
        self.check_no_cut(&row)?;
        let (number, is_of_fork) = (row.volume, is_of_fork(&row.name));
        let put = LogItem::Put { row: RowKey::of_point(branch, stamp), bytes: row_of_deleted(row).encode() };
        let volume = self.volume_row(number);
        if is_of_fork && self.check_no_replica_of(&volume).is_err() {
            // It is of no history that the replica follows.
            return self.answer(one_at_a_time, self.log.append(vec![put])).await;
        }
        self.check_no_replica_of(&volume)?;
        let deleted_at = self.shared.state.borrow_mut().next_stamp_of([volume.branch]);
        let parts = vec![put, self.stamped_branch(volume.branch, deleted_at)];
        self.answer(one_at_a_time, self.log.append_together(parts)).await
    }

    /// As [`Pool::delete_snapshot`], and waits for no hold of answers: what holds them may wait for this.
    pub(super) async fn delete_own_snapshot(
        &self,
        volume: VolumeKey<'_>,
        snapshot: SnapshotKey<'_>,
    ) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        let (branch, stamp, row) = self.snapshot_of(volume, snapshot)?;
        let put = LogItem::Put { row: RowKey::of_point(branch, stamp), bytes: row_of_deleted(row).encode() };
        drop(self.shared.logged_under(one_at_a_time, self.log.append(vec![put])).await?);
        Ok(())
    }

    /// Bytes that deleting these snapshots together would free, exactly and as of now: nothing for those that
    /// a clone, or a rollback, began at. Scans the history of the volume, so it may take long.
    ///
    /// # Errors
    ///
    /// No such volume or snapshot; or a part of the map cannot be read.
    pub async fn reclaimable_bytes<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        snapshots: &[impl Into<SnapshotKey<'k>> + Copy],
    ) -> Result<u64> {
        let volume = volume.into();
        let mut planned = PlannedDeletion::default();
        for snapshot in snapshots {
            let (branch, stamp, _) = self.snapshot_of(volume, (*snapshot).into())?;
            planned.snapshots.insert((branch, stamp));
        }
        deletion_bytes(&self.map, &planned).await
    }
}

/// The row of the point of a snapshot of a volume as it is now.
pub(super) fn new_point(
    (number, volume): (VolumeNumber, &VolumeRow),
    new: &NewSnapshot<'_>,
    created_at: WallNanoseconds,
) -> PointRow {
    PointRow {
        name: new.name.to_owned(),
        state: VolumeState::Live,
        uses: PointUses { snapshot: true, ..PointUses::default() },
        references: 0,
        volume: number,
        group: None,
        snapshot: new.snapshot,
        created_at,
        expires_at: WallNanoseconds(0),
        sectors: volume.sectors,
        note: new.note.to_owned(),
    }
}

pub(super) fn no_snapshot(volume: &str, name: &str) -> Error {
    Error::NoSnapshot { volume: volume.to_owned(), snapshot: name.to_owned() }
}

/// Bytes that a deletion would free, exactly and as of now: points at which other branches left stay.
/// Snapshots deleted meanwhile do not count.
///
/// # Errors
///
/// A part of the map cannot be read.
pub(super) async fn deletion_bytes(map: &MapReader, planned: &PlannedDeletion) -> Result<u64> {
    let losses = map.shared.state.borrow().catalogue.losses(planned);
    let mut grains = 0;
    for BranchLoss { branch, points, loses_head } in losses {
        let _reading = map.shared.begin_reading();
        let query = {
            let state = map.shared.state.borrow();
            let query = ReclaimableQuery::new(&state.sources(), state.catalogue.points(), branch, &points);
            if loses_head { query.with_head() } else { query }
        };
        grains += query.finish(&map.trees).await?.total();
    }
    Ok(u64::try_from(grains).expect("nothing is freed more than once") * GRAIN_BYTES as u64)
}
