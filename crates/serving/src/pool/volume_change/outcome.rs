//! Changes that were made, as values that another thread may read.

use crate::{export::WithheldClients, pool::withholding::ReadmissionAnswer};
use array::{
    format::{SnapshotId, VolumeId},
    pool::{VolumeInfo, VolumeSetting},
};

/// A change of a volume that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeDone {
    /// The volume afterwards; of a deleted one, before. A snapshot of several volumes has the first one here.
    pub volume: VolumeInfo,
    pub outcome: VolumeOutcome,
    /// Consequences for clients of a served volume, a line each.
    pub notes: Vec<String>,
}

impl VolumeDone {
    pub(in crate::pool) fn of(volume: VolumeInfo, outcome: VolumeOutcome) -> Self {
        Self { volume, outcome, notes: Vec::new() }
    }
}

/// Facts of a change, by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeOutcome {
    Created,
    Set {
        before: VolumeSetting,
    },
    Resized {
        bytes_before: u64,
    },
    Renamed {
        name_before: String,
    },
    Deleted,
    SnapshotTaken(TakenSnapshot),
    SnapshotDeleted {
        snapshot: SnapshotId,
        name: String,
    },
    /// [`VolumeDone::volume`] is the clone. One that is to be independent is being filled.
    Cloned,
    RolledBack(RolledBackVolume),
    /// Nothing has begun if the volume had no source.
    FillingBegun,
    FillingCancelled,
    Readmitted(ReadmissionAnswer),
}

/// A snapshot of volumes of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenSnapshot {
    /// The same for all volumes.
    pub snapshot: SnapshotId,
    pub name: String,
    /// In the order of the request.
    pub volumes: Vec<(VolumeId, String)>,
}

/// A volume that was rolled back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolledBackVolume {
    /// The volume with the state of before.
    pub left: VolumeId,
    pub left_name: String,
    pub bytes_before: u64,
    /// Clients that had the volume in use, and have to let go of what they cached.
    pub withheld: WithheldClients,
}
