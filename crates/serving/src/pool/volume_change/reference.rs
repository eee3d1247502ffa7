//! Volumes and snapshots as a request names them: by name, as people do, or by id, as programs do.

use array::{
    format::{SnapshotId, VolumeId},
    pool::{Snapshot, SnapshotKey, VolumeInfo, VolumeKey},
};

/// A volume of a pool. A name may be given to another volume at any time; an id never.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeRef {
    Id(VolumeId),
    Name(String),
}

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotRef {
    Id(SnapshotId),
    Name(String),
}

impl VolumeRef {
    pub fn key(&self) -> VolumeKey<'_> {
        match self {
            Self::Id(id) => VolumeKey::Id(*id),
            Self::Name(name) => VolumeKey::Name(name),
        }
    }

    /// True if it names this volume.
    pub fn is(&self, info: &VolumeInfo) -> bool {
        match self {
            Self::Id(id) => *id == info.volume,
            Self::Name(name) => *name == info.name,
        }
    }
}

impl SnapshotRef {
    pub fn key(&self) -> SnapshotKey<'_> {
        match self {
            Self::Id(id) => SnapshotKey::Id(*id),
            Self::Name(name) => SnapshotKey::Name(name),
        }
    }

    /// True if it names this one of the volume's snapshots.
    pub fn is(&self, snapshot: &Snapshot) -> bool {
        match self {
            Self::Id(id) => *id == snapshot.snapshot,
            Self::Name(name) => *name == snapshot.name,
        }
    }
}

impl From<VolumeId> for VolumeRef {
    fn from(id: VolumeId) -> Self {
        Self::Id(id)
    }
}

impl From<&str> for VolumeRef {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<SnapshotId> for SnapshotRef {
    fn from(id: SnapshotId) -> Self {
        Self::Id(id)
    }
}

impl From<&str> for SnapshotRef {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}
