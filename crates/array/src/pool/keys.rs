//! Keys of volumes and snapshots: the id, which programs keep, or the name, which people type.
//!
//! A name may be given to another volume at any time. A program looks it up once and goes on with the id.

use super::{Pool, snapshots::no_snapshot};
use crate::{
    error::{Error, Result},
    format::{
        BranchNumber, SnapshotId, Stamp, VolumeId, VolumeNumber,
        row::{PointRow, VolumeState},
    },
};
use std::fmt;

/// A volume of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeKey<'k> {
    Id(VolumeId),
    Name(&'k str),
}

/// A snapshot of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotKey<'k> {
    /// The id of the cut, which all of its volumes share.
    Id(SnapshotId),
    Name(&'k str),
}

impl From<VolumeId> for VolumeKey<'_> {
    fn from(id: VolumeId) -> Self {
        Self::Id(id)
    }
}

impl<'k> From<&'k str> for VolumeKey<'k> {
    fn from(name: &'k str) -> Self {
        Self::Name(name)
    }
}

impl<'k> From<&'k String> for VolumeKey<'k> {
    fn from(name: &'k String) -> Self {
        Self::Name(name)
    }
}

impl From<SnapshotId> for SnapshotKey<'_> {
    fn from(id: SnapshotId) -> Self {
        Self::Id(id)
    }
}

impl<'k> From<&'k str> for SnapshotKey<'k> {
    fn from(name: &'k str) -> Self {
        Self::Name(name)
    }
}

impl<'k> From<&'k String> for SnapshotKey<'k> {
    fn from(name: &'k String) -> Self {
        Self::Name(name)
    }
}

impl fmt::Display for VolumeKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for SnapshotKey<'_> {
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
        number.ok_or_else(|| Error::NoVolume(volume.to_string()))
    }

    /// The branch, point and row of a snapshot.
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
        let found = state.catalogue.snapshots_of(number).find(|(_, _, row)| is_it(row));
        let found = found.map(|(branch, stamp, row)| (branch, stamp, row.clone()));
        found.ok_or_else(|| no_snapshot(&volume.to_string(), &snapshot.to_string()))
    }
}
