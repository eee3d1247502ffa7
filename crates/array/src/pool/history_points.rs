//! Points of a volume's history, as its replication needs them: snapshots with their stamps, and the points that rollbacks
//! left.
//!
//! A rollback of a volume in a DR group leaves a point at its stamp, on the branch that the volume left. From it a pass
//! finds what the rollback undid, as long as the other site may lack the rollback; then it is deleted.

use super::{
    NewSnapshot, Pool, Snapshot, SnapshotKey, VolumeKey, given_commands::GivenSnapshot, snapshots::new_point,
};
use crate::{
    engine::OWN_POINT_BEGIN,
    error::Result,
    format::{
        BranchNumber, RowKey, SnapshotId, Stamp, VolumeId, VolumeNumber,
        row::{NAME_BYTES_MAX, PointRow, VolumeRow},
    },
    log::LogItem,
};

/// Beginning of the names of points that rollbacks left. People give no name with a `~`.
const ROLLBACK_NAME_BEGIN: &str = "~rollback-";
/// Between the name of a snapshot of a history that was given up, and a number. People give no name with a `~`.
const FORK_NAME_MARK: &str = "~fork";

/// A snapshot with its place in the history of its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryPoint {
    pub stamp: Stamp,
    pub snapshot: Snapshot,
}

/// True if people gave a snapshot its name: not a point of the pool's own, nor one that a replica keeps.
fn is_of_people(name: &str) -> bool {
    !name.contains(OWN_POINT_BEGIN)
}

/// True if a snapshot was kept when its side gave up the history that it is of.
pub(super) fn is_of_fork(name: &str) -> bool {
    name.contains(FORK_NAME_MARK)
}

impl Pool {
    /// Snapshots that people took of a volume above a stamp, on any of its branches, in the order of stamps. Not those of a
    /// history that was given up, nor those that a periodic group keeps.
    ///
    /// # Errors
    ///
    /// No such volume.
    pub fn snapshots_above(&self, volume: VolumeId, since: Stamp) -> Result<Vec<HistoryPoint>> {
        self.points_above(volume, since, |point| is_of_people(&point.snapshot.name) && !is_pending(point))
    }

    /// Points that rollbacks of a volume left above a stamp, in the order of stamps: each shows what its rollback undid.
    ///
    /// # Errors
    ///
    /// No such volume.
    pub fn rollbacks_above(&self, volume: VolumeId, since: Stamp) -> Result<Vec<HistoryPoint>> {
        self.points_above(volume, since, |point| point.snapshot.name.starts_with(ROLLBACK_NAME_BEGIN))
    }

    fn points_above(
        &self,
        volume: VolumeId,
        since: Stamp,
        is_wanted: impl Fn(&HistoryPoint) -> bool,
    ) -> Result<Vec<HistoryPoint>> {
        let number = self.number_of(volume.into())?;
        let state = self.shared.state.borrow();
        let points = state.catalogue.snapshots_of(number).filter(|(_, stamp, _)| *stamp > since);
        let points = points
            .map(|(_, stamp, row)| HistoryPoint { stamp, snapshot: Snapshot::of(&state.catalogue, row) });
        Ok(points.filter(is_wanted).collect())
    }

    /// The stamp up to which two snapshots of a volume have the same history; 0 without any.
    ///
    /// # Errors
    ///
    /// No such volume or snapshot.
    pub fn common_stamp(&self, volume: VolumeId, one: SnapshotId, other: SnapshotId) -> Result<Stamp> {
        let way = |snapshot: SnapshotId| -> Result<Vec<(BranchNumber, Stamp)>> {
            let (branch, stamp, _) = self.snapshot_of(VolumeKey::Id(volume), SnapshotKey::Id(snapshot))?;
            let state = self.shared.state.borrow();
            let above = state.catalogue.branches().ancestors(branch);
            Ok(std::iter::once((branch, stamp)).chain(above).collect())
        };
        let (ours, theirs) = (way(one)?, way(other)?);
        let shared = ours.iter().find_map(|(branch, stamp)| {
            let there = theirs.iter().find(|(other, _)| other == branch)?;
            Some(there.1.min(*stamp))
        });
        Ok(shared.unwrap_or_default())
    }

    /// Deletes the points that rollbacks of volumes left, up to a stamp.
    ///
    /// # Errors
    ///
    /// No such volume, or the pool cannot write.
    pub async fn delete_rollback_points(&self, volumes: &[VolumeId], until: Stamp) -> Result<()> {
        for &volume in volumes {
            let passed =
                self.rollbacks_above(volume, Stamp(0))?.into_iter().filter(|point| point.stamp <= until);
            for point in passed {
                let snapshot = SnapshotKey::Id(point.snapshot.snapshot);
                self.delete_own_snapshot(VolumeKey::Id(volume), snapshot).await?;
            }
        }
        Ok(())
    }

    /// Takes a snapshot of a volume of a replica as it is, unless it has it, at a stamp that none of its commands is above.
    ///
    /// # Errors
    ///
    /// Its name is taken; the stamp is not above those of the volume; or the pool cannot write.
    pub async fn ensure_snapshot_of_pass(&self, volume: VolumeId, given: &GivenSnapshot<'_>) -> Result<()> {
        given.new.check()?;
        let number = self.number_of(volume.into())?;
        if self.has_snapshot(volume, given.new.snapshot) {
            return Ok(());
        }
        let at = (Some(given.stamp), Some(given.created_at));
        self.take_snapshot_at(&[number], &given.new, at).await.map(drop)
    }

    /// True if a volume has a snapshot of this identity.
    pub fn has_snapshot(&self, volume: VolumeId, snapshot: SnapshotId) -> bool {
        self.snapshot_of(VolumeKey::Id(volume), SnapshotKey::Id(snapshot)).is_ok()
    }

    /// Deletes the snapshots that people took of a volume and that its primary has no more: all but `kept`. Those of a
    /// history that was given up stay. Takes no stamp. Returns their number.
    ///
    /// # Errors
    ///
    /// No such volume, or the pool cannot write.
    pub async fn delete_other_snapshots(&self, volume: VolumeId, kept: &[SnapshotId]) -> Result<usize> {
        let others = self.snapshots_above(volume, Stamp(0))?.into_iter();
        let others = others.filter(|point| !kept.contains(&point.snapshot.snapshot));
        let mut count = 0;
        for point in others {
            self.delete_own_snapshot(VolumeKey::Id(volume), SnapshotKey::Id(point.snapshot.snapshot)).await?;
            count += 1;
        }
        Ok(count)
    }

    /// Keeps the snapshots of a volume above a stamp, up to another one, under names of their own, since they are of a
    /// history that is given up: `NAME~fork1`. They get new identities, so that none is taken for one of the other history. Returns their number.
    ///
    /// # Errors
    ///
    /// No such volume, or the pool cannot write.
    pub async fn keep_snapshots_of_fork(
        &self,
        volume: VolumeId,
        (above, until): (Stamp, Stamp),
    ) -> Result<usize> {
        let mut kept = self.snapshots_above(volume, above)?;
        kept.retain(|point| point.stamp <= until);
        let one_at_a_time = self.shared.lock_changes().await;
        let number = self.number_of(volume.into())?;
        let mut puts = Vec::new();
        {
            let state = self.shared.state.borrow();
            let mut names: Vec<String> =
                state.catalogue.unsorted_snapshots_of(number).map(|(_, _, row)| row.name.clone()).collect();
            for (branch, stamp, row) in state.catalogue.unsorted_snapshots_of(number) {
                if !kept.iter().any(|point| point.snapshot.snapshot == row.snapshot) {
                    continue;
                }
                let name = fork_name(&row.name, &names);
                names.push(name.clone());
                let row = PointRow { name, snapshot: id_of_fork(row.snapshot), group: None, ..row.clone() };
                puts.push(LogItem::Put { row: RowKey::of_point(branch, stamp), bytes: row.encode() });
            }
        }
        let count = puts.len();
        for put in puts {
            self.log.append(vec![put]).await?;
        }
        drop(one_at_a_time);
        Ok(count)
    }

    /// The row of the point that a rollback of a volume in a DR group leaves: what the volume was until then.
    pub(super) fn rollback_point(
        &self,
        (number, before): (VolumeNumber, &VolumeRow),
        left: VolumeId,
        stamp: Stamp,
    ) -> (RowKey, Vec<u8>) {
        let snapshot = SnapshotId(left.0);
        let name = format!("{ROLLBACK_NAME_BEGIN}{snapshot}");
        let new = NewSnapshot { name: &name, snapshot, note: &[] };
        let row = new_point((number, before), &new, self.shared.wall_now());
        (RowKey::of_point(before.branch, stamp), row.encode())
    }
}

/// True if the snapshot is part of a cut over several pools that may come to nothing.
fn is_pending(point: &HistoryPoint) -> bool {
    point.snapshot.cut.is_some()
}

/// A free name of a snapshot of a history that was given up.
fn fork_name(name: &str, taken: &[String]) -> String {
    let named = |number: u32| {
        let end = format!("{FORK_NAME_MARK}{number}");
        let mut kept = name.len().min(NAME_BYTES_MAX - end.len());
        while !name.is_char_boundary(kept) {
            kept -= 1;
        }
        format!("{}{end}", &name[..kept])
    };
    let free = (1..).map(named).find(|name| !taken.contains(name));
    free.expect("there are more numbers than names")
}

/// Identity of a snapshot of a history that was given up.
fn id_of_fork(snapshot: SnapshotId) -> SnapshotId {
    let mut id = snapshot.0;
    id.iter_mut().zip(b"of a given fork.").for_each(|(byte, mark)| *byte ^= mark);
    SnapshotId(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_of_a_fork_have_names_that_nobody_gives() {
        assert_eq!(fork_name("daily", &[]), "daily~fork1");
        assert_eq!(fork_name("daily", &["daily~fork1".to_owned()]), "daily~fork2");
        let long = fork_name(&"ö".repeat(64), &[]);
        assert!(long.len() <= 128 && long.ends_with("ö~fork1") && is_of_fork(&long));
        let id = SnapshotId([7; 16]);
        assert!(id_of_fork(id) != id && id_of_fork(id_of_fork(id)) == id);
    }
}
