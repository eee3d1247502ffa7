//! Changes of volumes and snapshots as values: a command makes them in a stopped pool, an order in a served one.
//!
//! Invariants:
//!
//! 1. A refused change changes nothing.
//! 2. Stopped and served pools go through [`perform`], so both refuse the same. A served pool refuses more: nothing is
//!    taken from clients that use it, unless the request says so.

mod changeable;
mod outcome;
mod reference;
mod settings;
#[cfg(test)]
mod tests;

pub use changeable::ChangeablePool;
pub(super) use changeable::HELP;
pub use outcome::{RolledBackVolume, TakenSnapshot, VolumeDone, VolumeOutcome};
pub use reference::{SnapshotRef, VolumeRef};

use super::{
    branching, filling,
    limits::LimitChange,
    withholding::{self, ReadmittedClients},
};
use report::Refusal;

/// A change of volumes of one pool.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeChange {
    Create {
        name: String,
        /// A multiple of 512.
        size_bytes: u64,
        write_cache: bool,
        /// One copy of its data instead of the pool's number.
        raid0: bool,
        limits: LimitChange,
    },
    Set {
        volume: VolumeRef,
        limits: LimitChange,
        /// `None` stays.
        write_cache: Option<bool>,
    },
    Resize {
        volume: VolumeRef,
        /// A multiple of 512.
        size_bytes: u64,
        may_shrink: bool,
    },
    Rename {
        volume: VolumeRef,
        name: String,
    },
    /// A volume without snapshots.
    Delete {
        volume: VolumeRef,
    },
    /// One snapshot of all the volumes, at one moment.
    Snapshot {
        volumes: Vec<VolumeRef>,
        name: String,
        /// At most 768 bytes; empty for none.
        note: String,
    },
    DeleteSnapshot {
        volume: VolumeRef,
        snapshot: SnapshotRef,
    },
    Clone {
        source: VolumeRef,
        /// `None` is the source as it is now.
        snapshot: Option<SnapshotRef>,
        name: String,
        is_independent: bool,
    },
    RollBack {
        volume: VolumeRef,
        to: RollbackTo,
        /// Although clients use the volume: it is withheld from them.
        is_forced: bool,
    },
    Fill {
        volume: VolumeRef,
    },
    CancelFilling {
        volume: VolumeRef,
    },
    Readmit {
        volume: VolumeRef,
        clients: ReadmittedClients,
    },
}

/// The state that a rollback goes to.
#[derive(Clone, Debug, PartialEq)]
pub enum RollbackTo {
    Snapshot(SnapshotRef),
    /// The volume of the change is what an earlier rollback left: the one that left it is rolled back to it.
    Left,
    /// Another volume of the pool, which takes its place.
    Volume(VolumeRef),
}

/// Makes a change.
///
/// # Errors
///
/// A refusal, of the pool or because clients use the volume. Nothing was changed; only a `Set` that the pool fails to
/// write may have been done in part.
pub async fn perform(change: &VolumeChange, on: &ChangeablePool<'_>) -> Result<VolumeDone, Refusal> {
    match change {
        VolumeChange::Create { name, size_bytes, write_cache, raid0, limits } => {
            settings::create(on, name, *size_bytes, (*write_cache, *raid0), limits).await
        }
        VolumeChange::Set { volume, limits, write_cache } => {
            settings::set(on, volume, limits, *write_cache).await
        }
        VolumeChange::Resize { volume, size_bytes, may_shrink } => {
            settings::resize(on, volume, *size_bytes, *may_shrink).await
        }
        VolumeChange::Rename { volume, name } => settings::rename(on, volume, name).await,
        VolumeChange::Delete { volume } => settings::delete(on, volume).await,
        VolumeChange::Snapshot { volumes, name, note } => branching::snapshot(on, volumes, name, note).await,
        VolumeChange::DeleteSnapshot { volume, snapshot } => {
            branching::delete_snapshot(on, volume, snapshot).await
        }
        VolumeChange::Clone { source, snapshot, name, is_independent } => {
            branching::clone(on, (source, snapshot.as_ref()), name, *is_independent).await
        }
        VolumeChange::RollBack { volume, to, is_forced } => {
            branching::roll_back(on, (volume, to), *is_forced).await
        }
        VolumeChange::Fill { volume } => filling::fill(on, volume).await,
        VolumeChange::CancelFilling { volume } => filling::cancel(on, volume).await,
        VolumeChange::Readmit { volume, clients } => withholding::readmit(on, volume, clients).await,
    }
}
