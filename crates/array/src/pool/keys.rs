//! Keys of volumes and snapshots: the id, which programs keep, or the name, which people type.
//!
//! A name may be given to another volume at any time. A program looks it up once and goes on with the id.

use super::{Pool, copy::INCOMPLETE_END, snapshots::no_snapshot};
use crate::{
    error::{Error, Result},
    format::{
        BranchNumber, SnapshotId, Stamp, VolumeId, VolumeNumber,
        row::{PointRow, VolumeState},
    },
    volume::MOVED_END,
};
use std::fmt;

/// An id, or a name of the same thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdOrName<'k, I> {
    Id(I),
    Name(&'k str),
}

/// A volume of a pool.
pub type VolumeKey<'k> = IdOrName<'k, VolumeId>;

/// A snapshot of a volume. The volumes of one cut share the id.
pub type SnapshotKey<'k> = IdOrName<'k, SnapshotId>;

impl From<VolumeId> for VolumeKey<'_> {
    fn from(id: VolumeId) -> Self {
        Self::Id(id)
    }
}

impl From<SnapshotId> for SnapshotKey<'_> {
    fn from(id: SnapshotId) -> Self {
        Self::Id(id)
    }
}

impl<'k, I> From<&'k str> for IdOrName<'k, I> {
    fn from(name: &'k str) -> Self {
        Self::Name(name)
    }
}

impl<'k, I> From<&'k String> for IdOrName<'k, I> {
    fn from(name: &'k String) -> Self {
        Self::Name(name)
    }
}

impl<I: fmt::Display> fmt::Display for IdOrName<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Pool {
    /// The live volume of this key.
    pub(super) fn number_of(&self, volume: VolumeKey<'_>) -> Result<VolumeNumber> {
        let state = self.shared.state.borrow();
        let number = match volume {
            VolumeKey::Name(name) => state.catalogue.volume_named(name),
            VolumeKey::Id(id) => {
                let mut live = state.catalogue.volumes().filter(|(_, row)| row.state == VolumeState::Live);
                live.find(|(_, row)| row.volume == id).map(|(number, _)| number)
            }
        };
        number.ok_or_else(|| {
            // A copy or a move may have it under another name for a while.
            let has = |end: &str| state.catalogue.volume_named(&format!("{volume}{end}")).is_some();
            match volume {
                VolumeKey::Name(_) if has(MOVED_END) => Error::MovedElsewhere(format!("{volume}{MOVED_END}")),
                VolumeKey::Name(_) if has(INCOMPLETE_END) => {
                    Error::IncompleteCopy(format!("{volume}{INCOMPLETE_END}"))
                }
                _ => Error::NoVolume(volume.to_string()),
            }
        })
    }

    /// The branch, point and row of a snapshot that is not pending.
    pub(super) fn snapshot_of(
        &self,
        volume: VolumeKey<'_>,
        snapshot: SnapshotKey<'_>,
    ) -> Result<(BranchNumber, Stamp, PointRow)> {
        let number = self.number_of(volume)?;
        let state = self.shared.state.borrow();
        let is_it = |row: &PointRow| match snapshot {
            SnapshotKey::Id(id) => row.snapshot == id,
            SnapshotKey::Name(name) => row.name == name,
        };
        let found = state.catalogue.unsorted_snapshots_of(number).find(|(_, _, row)| is_it(row));
        let found = found.map(|(branch, stamp, row)| (branch, stamp, row.clone()));
        let found = found.ok_or_else(|| no_snapshot(&volume.to_string(), &snapshot.to_string()))?;
        drop(state);
        self.check_offered(&found.2)?;
        Ok(found)
    }
}
