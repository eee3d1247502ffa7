//! Clones and rollbacks of volumes by their paths, in a pool that this process has open.

use super::folder::{OpenPool, VolumePath};
use crate::uuid::random_uuid;
use array::{
    format::VolumeId,
    pool::{NewClone, RollbackGoal, VolumeInfo},
};
use report::Refusal;
use std::path::{Path, PathBuf};
use world::{ByteCount, World};

const HELP: &str = "see 'spindle volume --help'";

/// A rollback that happened.
#[derive(Clone, Debug)]
pub struct RollbackAnswer {
    /// The volume that was rolled back.
    pub volume: PathBuf,
    /// The volume with the state of before.
    pub left: PathBuf,
    pub size: ByteCount,
    pub size_before: ByteCount,
}

/// Clones a volume as it is now, or one of its snapshots, perhaps to be independent of it. Returns the size of
/// the clone.
///
/// # Errors
///
/// A refusal of the pool; nothing was changed.
pub async fn clone(
    world: &World,
    open: &OpenPool,
    source: &VolumePath,
    (name, is_independent): (&str, bool),
) -> Result<ByteCount, Refusal> {
    let new = NewClone { name: name.to_owned(), volume: VolumeId(random_uuid(world)), is_independent };
    let at = source.snapshot.as_deref().map(Into::into);
    let cloned = open.pool.clone_volume(&source.volume, at, &new).await;
    cloned.map_err(|error| open.refusal(&error, HELP))?;
    Ok(ByteCount(info(open, name)?.size_bytes))
}

/// Rolls a volume back to one of its snapshots, or to what an earlier rollback of it left.
///
/// # Errors
///
/// A refusal; nothing was changed.
pub async fn roll_back(world: &World, open: &OpenPool, goal: &VolumePath) -> Result<RollbackAnswer, Refusal> {
    let given = info(open, &goal.volume)?;
    let (volume, to) = match (&goal.snapshot, &given.left_by) {
        (Some(snapshot), _) => (given.name.clone(), RollbackGoal::Snapshot(snapshot.as_str().into())),
        (None, Some(volume)) => (volume.clone(), RollbackGoal::Left(goal.volume.as_str().into())),
        (None, None) => {
            let problem = format!(
                "{} is neither a snapshot nor what a rollback left",
                open.folder().join(&goal.volume).display()
            );
            return Err(Refusal::new(problem, "say POOL/VOLUME@SNAPSHOT, or POOL/VOLUME~1"));
        }
    };
    let size_before = ByteCount(info(open, &volume)?.size_bytes);
    let left = open.pool.roll_back(&volume, to, VolumeId(random_uuid(world)), false).await;
    let left = left.map_err(|error| open.refusal(&error, HELP))?;
    let size = ByteCount(info(open, &volume)?.size_bytes);
    let path = |name: &str| open.folder().join(name);
    Ok(RollbackAnswer { volume: path(&volume), left: path(&left), size, size_before })
}

fn info(open: &OpenPool, name: &str) -> Result<VolumeInfo, Refusal> {
    let found = open.pool.volumes().into_iter().find(|volume| volume.name == name);
    found.ok_or_else(|| open.refusal(&array::error::Error::NoVolume(name.to_owned()), HELP))
}

impl RollbackAnswer {
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
