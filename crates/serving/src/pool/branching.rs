//! Snapshots, clones and rollbacks of volumes in a pool that this thread has open.

use super::volume_change::{
    ChangeablePool, HELP, RollbackTo, RolledBackVolume, SnapshotRef, TakenSnapshot, VolumeDone,
    VolumeOutcome, VolumeRef,
};
use crate::export::{IdentityOrigin, ServedAs, WithheldClients};
use array::{
    error::Error,
    format::{SnapshotId, VolumeId},
    pool::{NewClone, NewSnapshot, RollbackGoal, VolumeInfo, VolumeKey},
};
use report::Refusal;
use std::path::{Path, PathBuf};
use world::ByteCount;

/// A rollback that happened, with paths.
#[derive(Clone, Debug)]
pub struct RollbackAnswer {
    /// The volume that was rolled back.
    pub volume: PathBuf,
    /// The volume with the state of before.
    pub left: PathBuf,
    pub size: ByteCount,
    pub size_before: ByteCount,
}

/// Takes one snapshot of all the volumes.
pub(super) async fn snapshot(
    on: &ChangeablePool<'_>,
    volumes: &[VolumeRef],
    name: &str,
    note: &str,
) -> Result<VolumeDone, Refusal> {
    if volumes.is_empty() {
        return Err(Refusal::new("a snapshot of no volume", HELP));
    }
    let new = NewSnapshot { name, snapshot: SnapshotId(on.new_uuid()), note: note.as_bytes() };
    let keys: Vec<VolumeKey<'_>> = volumes.iter().map(VolumeRef::key).collect();
    on.pool.take_snapshot(&keys, &new).await.map_err(|error| on.refusal(&error, HELP))?;
    let infos: Vec<VolumeInfo> = volumes.iter().map(|volume| on.info(volume)).collect::<Result<_, _>>()?;
    let taken = TakenSnapshot {
        snapshot: new.snapshot,
        name: name.to_owned(),
        volumes: infos.iter().map(|info| (info.volume, info.name.clone())).collect(),
    };
    let first = infos.into_iter().next().expect("there is one at least");
    Ok(VolumeDone::of(first, VolumeOutcome::SnapshotTaken(taken)))
}

/// Deletes a snapshot that is not served.
pub(super) async fn delete_snapshot(
    on: &ChangeablePool<'_>,
    volume: &VolumeRef,
    snapshot: &SnapshotRef,
) -> Result<VolumeDone, Refusal> {
    let (info, snapshots) = on.with_snapshots(volume)?;
    let found = snapshots.into_iter().find(|known| snapshot.is(known)).ok_or_else(|| {
        let (volume, snapshot) = (volume.key().to_string(), snapshot.key().to_string());
        on.refusal(&Error::NoSnapshot { volume, snapshot }, HELP)
    })?;
    let shown = format!("{}@{}", info.name, found.name);
    on.check_unserved(&IdentityOrigin::Snapshot(info.volume, found.snapshot), &shown)?;
    let deleted = on.pool.delete_snapshot(volume.key(), snapshot.key()).await;
    deleted.map_err(|error| on.refusal(&error, HELP))?;
    let outcome = VolumeOutcome::SnapshotDeleted { snapshot: found.snapshot, name: found.name };
    Ok(VolumeDone::of(on.info(&info.volume.into())?, outcome))
}

/// Clones a volume as it is now, or one of its snapshots.
pub(super) async fn clone(
    on: &ChangeablePool<'_>,
    (source, at): (&VolumeRef, Option<&SnapshotRef>),
    name: &str,
    is_independent: bool,
) -> Result<VolumeDone, Refusal> {
    let new = NewClone { name: name.to_owned(), volume: VolumeId(on.new_uuid()), is_independent };
    let cloned = on.pool.clone_volume(source.key(), at.map(SnapshotRef::key), &new).await;
    cloned.map_err(|error| on.refusal(&error, HELP))?;
    Ok(VolumeDone::of(on.info(&new.volume.into())?, VolumeOutcome::Cloned))
}

/// Rolls a volume back to one of its snapshots, to what an earlier rollback of it left, or to another volume.
pub(super) async fn roll_back(
    on: &ChangeablePool<'_>,
    (volume, to): (&VolumeRef, &RollbackTo),
    is_forced: bool,
) -> Result<VolumeDone, Refusal> {
    let given = on.info(volume)?;
    let (before, to) = match (to, &given.left_by) {
        (RollbackTo::Snapshot(snapshot), _) => (given, RollbackGoal::Snapshot(snapshot.key())),
        (RollbackTo::Volume(other), _) => {
            let taking = on.info(other)?;
            on.check_unserved(&IdentityOrigin::Volume(taking.volume), &taking.name)?;
            (given, RollbackGoal::Volume(other.key()))
        }
        (RollbackTo::Left, Some(name)) => {
            on.check_unserved(&IdentityOrigin::Volume(given.volume), &given.name)?;
            (on.info(&VolumeRef::Name(name.clone()))?, RollbackGoal::Left(volume.key()))
        }
        (RollbackTo::Left, None) => {
            let problem =
                format!("{} is neither a snapshot nor what a rollback left", on.path(&given.name).display());
            let remedy = "say POOL/VOLUME@SNAPSHOT, or POOL/VOLUME~1, or ⟨to-volume⟩ NAME";
            return Err(Refusal::new(problem, remedy));
        }
    };
    let left = VolumeId(on.new_uuid());
    let refused = |error| on.refusal(&error, HELP);
    let (left_name, withheld) = match on.device(&before) {
        Some(device) if is_forced => {
            let forced = device.served.roll_back(on.pool, (&before.name, to), left).await.map_err(refused)?;
            (forced.left_name, forced.withheld)
        }
        Some(device) => return Err(in_use(on, &before, &device.served)),
        None => {
            let left_name = on.pool.roll_back(&*before.name, to, left, false).await.map_err(refused)?;
            (left_name, WithheldClients::default())
        }
    };
    let rolled_back = RolledBackVolume { left, left_name, bytes_before: before.size_bytes, withheld };
    Ok(VolumeDone::of(on.info(&before.volume.into())?, VolumeOutcome::RolledBack(rolled_back)))
}

/// The refusal of a rollback under clients.
fn in_use(on: &ChangeablePool<'_>, volume: &VolumeInfo, served: &ServedAs) -> Refusal {
    let exports = on.exports.expect("it is served by them");
    let services = exports.services_of(&IdentityOrigin::Volume(volume.volume));
    Refusal::new(
        format!("{}{}", on.path(&volume.name).display(), users_text(&services, &served.initiators())),
        "end its use and take it out of the site file first, or say ⟨force⟩: the volume is withheld then from each client \
         until it has let go of what it cached",
    )
}

/// Services and clients of a volume, behind its name.
pub(super) fn users_text(services: &[String], initiators: &[String]) -> String {
    let services = services.join(", ");
    match initiators {
        [] => format!(" is served as {services}"),
        initiators => format!(" is served as {services}; {} are logged in", initiators.join(", ")),
    }
}

impl RollbackAnswer {
    /// Of a volume in the pool of `folder`, as it is now.
    pub fn of(folder: &Path, volume: &VolumeInfo, rolled_back: &RolledBackVolume) -> Self {
        Self {
            volume: folder.join(&volume.name),
            left: folder.join(&rolled_back.left_name),
            size: ByteCount(volume.size_bytes),
            size_before: ByteCount(rolled_back.bytes_before),
        }
    }

    /// In lines: old and new, and the command that undoes it.
    pub fn text(&self, goal: &Path) -> String {
        let Self { volume, left, size, size_before } = self;
        let (volume, left) = (volume.display(), left.display());
        let sizes = if size == size_before { size.to_string() } else { format!("{size_before} → {size}") };
        format!(
            "{volume}: now → as of {}, {sizes}; what it was is {left}, read-only\nundo: spindle volume rollback {left}",
            goal.display()
        )
    }
}
