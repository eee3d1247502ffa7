//! Groups with volumes in several pools, which this process has all open.

use super::{
    cut::{PoolVolumes, with_all_pools},
    folder::OpenPool,
    group::{HELP, NewClones, paths},
    partner_pools::Partners,
};
use crate::uuid::random_uuid;
use array::{
    error::Error,
    format::{
        GroupId, PoolId, SnapshotId,
        row::{GroupOperation, IdSeed},
    },
    pool::{GroupInfo, NewGroup, NewGroupClone, NewSnapshot, UnsettledCut, UnsettledState},
};
use report::Refusal;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};
use world::World;

/// The other pools of a group, none for a group of one pool.
///
/// # Errors
///
/// One of them is neither among those named nor beside the pool's folder.
pub fn partners(open: &OpenPool, group: &str, named: &[PathBuf]) -> Result<Vec<PathBuf>, Refusal> {
    let Some(info) = info_of(open, group) else { return Ok(Vec::new()) };
    let partners = Partners::near(open.folder(), named);
    let others = info.pools.into_iter().filter(|pool| *pool != open.pool.id());
    let found = others.map(|pool| {
        partners.folder_of(pool).map(Path::to_owned).ok_or_else(|| {
            let path = open.folder().join(group);
            let problem = format!("{} has volumes in pool {pool}, too, which was not found", path.display());
            Refusal::new(problem, "say where it is: ⟨with⟩ POOL")
        })
    });
    found.collect()
}

/// Makes a group. A part that a pool has already, because this was interrupted before, stays.
///
/// # Errors
///
/// A refusal of a pool; nothing was changed.
pub async fn create(world: &World, pools: &[PoolVolumes<'_>], name: &str) -> Result<(), Refusal> {
    let mut ids: Vec<PoolId> = pools.iter().map(|pool| pool.open.pool.id()).collect();
    ids.sort();
    let is_part = |pool: &PoolVolumes<'_>, info: &GroupInfo| {
        let all_of = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
        info.pools == ids && all_of(&info.volumes) == all_of(&pool.volumes)
    };
    let there = pools.iter().map(|pool| info_of(pool.open, name).filter(|info| is_part(pool, info)));
    let there: Vec<Option<GroupInfo>> = there.collect();
    let known = there.iter().flatten().map(|info| info.group).next();
    let new = NewGroup {
        name: name.to_owned(),
        group: known.unwrap_or_else(|| GroupId(random_uuid(world))),
        pools: ids.clone(),
    };
    let mut made = Vec::new();
    for (pool, _) in pools.iter().zip(&there).filter(|(_, part)| part.is_none()) {
        let volumes: Vec<&str> = pool.volumes.iter().map(String::as_str).collect();
        if let Err(error) = pool.open.pool.create_group(&new, &volumes).await {
            take_back(&made, name).await?;
            return Err(pool.open.refusal(&error, HELP));
        }
        made.push(pool.open);
    }
    if made.is_empty() {
        return Err(pools[0].open.refusal(&Error::NameTaken(name.to_owned()), HELP));
    }
    Ok(())
}

async fn take_back(made: &[&OpenPool], name: &str) -> Result<(), Refusal> {
    for open in made {
        open.pool.delete_group(name).await.map_err(|error| open.refusal(&error, HELP))?;
    }
    Ok(())
}

/// Takes a snapshot of a group. Returns the number of its volumes, and the longest time that hosts were held.
///
/// # Errors
///
/// The first refusal of a pool. Unless it says that the snapshot is pending, no pool has it.
pub async fn snapshot(
    world: &World,
    pools: &[OpenPool],
    (group, name): (&str, &str),
    note: &str,
) -> Result<(usize, Duration), Refusal> {
    let snapshot = SnapshotId(random_uuid(world));
    let held = with_all_pools(world, pools, HELP, |pool, part| {
        let (group, name, note) = (group.to_owned(), name.to_owned(), note.to_owned());
        async move {
            let new = NewSnapshot { name: &name, snapshot, note: note.as_bytes() };
            pool.take_part_in_group_cut(&group, &new, part).await
        }
    });
    let held = held.await?.into_iter().max().unwrap_or_default();
    let volumes = pools.iter().filter_map(|open| info_of(open, group)).map(|info| info.volumes.len());
    Ok((volumes.sum(), held))
}

/// Deletes a group in all its pools; its volumes stay. Goes on if this was interrupted before.
///
/// # Errors
///
/// A refusal of a pool.
pub async fn delete(pools: &[OpenPool], group: &str) -> Result<(), Refusal> {
    for open in pools.iter().filter(|open| info_of(open, group).is_some()) {
        open.pool.delete_group(group).await.map_err(|error| open.refusal(&error, HELP))?;
    }
    Ok(())
}

/// Deletes a snapshot of a group in all its pools. Goes on if this was interrupted before.
///
/// # Errors
///
/// A refusal of a pool; or no pool has it.
pub async fn delete_snapshot(pools: &[OpenPool], (group, name): (&str, &str)) -> Result<(), Refusal> {
    let id = snapshot_of(pools, group, name)?;
    for open in pools {
        match open.pool.delete_group_snapshot(group, id).await {
            Ok(()) | Err(Error::NoGroupSnapshot { .. } | Error::NoGroup(_)) => {}
            Err(error) => return Err(open.refusal(&error, HELP)),
        }
    }
    Ok(())
}

/// Clones a snapshot of a group in all its pools. Returns the paths of the volumes and of their clones.
///
/// # Errors
///
/// The first refusal of a pool. Unless it says that the clones are pending, no pool has one.
pub async fn clone(
    world: &World,
    pools: &[OpenPool],
    (group, name): (&str, &str),
    new: &NewClones<'_>,
) -> Result<Vec<(PathBuf, PathBuf)>, Refusal> {
    let snapshot = snapshot_of(pools, group, name)?;
    let new = NewGroupClone {
        suffix: new.suffix.to_owned(),
        seed: IdSeed(random_uuid(world)),
        is_independent: new.is_independent,
    };
    let made = with_all_pools(world, pools, HELP, |pool, part| {
        let (group, new) = (group.to_owned(), new.clone());
        async move { pool.take_part_in_group_clone(&group, snapshot, &new, part).await }
    });
    Ok(pools.iter().zip(made.await?).flat_map(|(open, made)| paths(open, made)).collect())
}

/// Rolls a group back in all its pools. Returns the paths of its volumes, and of those with their states of before.
///
/// # Errors
///
/// The first refusal of a pool. Unless it says that the rollback is pending, no pool was rolled back.
pub async fn roll_back(
    world: &World,
    pools: &[OpenPool],
    (group, name): (&str, &str),
) -> Result<Vec<(PathBuf, PathBuf)>, Refusal> {
    let snapshot = snapshot_of(pools, group, name)?;
    let seed = IdSeed(random_uuid(world));
    let made = with_all_pools(world, pools, HELP, |pool, part| {
        let group = group.to_owned();
        async move { pool.take_part_in_group_rollback(&group, snapshot, (seed, false), part).await }
    });
    Ok(pools.iter().zip(made.await?).flat_map(|(open, made)| paths(open, made)).collect())
}

/// Lines on clones and rollbacks that are not settled: until they are, the pool makes no volume, and renames and
/// deletes none.
pub fn unsettled_warnings(open: &OpenPool) -> Vec<String> {
    let unsettled = open.pool.unsettled_cuts().into_iter().filter(|cut| cut.operation.is_some());
    let partners = Partners::near(open.folder(), &[]);
    let warning = |cut: UnsettledCut| {
        let path = open.folder().join(&cut.name).display().to_string();
        let pools: Vec<String> = cut.pools.iter().map(|&pool| partners.name_of(pool)).collect();
        let settle = pools.join(" ");
        match (cut.operation, cut.state) {
            (Some(GroupOperation::RollBack), UnsettledState::Pending) => format!(
                "{path}: a rollback in several pools is not settled, so the volumes of the group stay closed: 'spindle \
                 pool settle {settle}'"
            ),
            _ => format!(
                "{path}: a clone or rollback in several pools is not settled, so no volume is made, renamed or deleted: \
                 'spindle pool settle {settle}'"
            ),
        }
    };
    unsettled.map(warning).collect()
}

fn info_of(open: &OpenPool, group: &str) -> Option<GroupInfo> {
    open.pool.groups().into_iter().find(|info| info.name == group)
}

/// The snapshot of that name, of any of the pools.
fn snapshot_of(pools: &[OpenPool], group: &str, name: &str) -> Result<SnapshotId, Refusal> {
    let snapshots = pools.iter().filter_map(|open| info_of(open, group)).flat_map(|info| info.snapshots);
    let found = snapshots.into_iter().find(|snapshot| snapshot.name == name);
    found.map(|snapshot| snapshot.snapshot).ok_or_else(|| {
        let missing = Error::NoGroupSnapshot { group: group.to_owned(), snapshot: name.to_owned() };
        pools[0].refusal(&missing, HELP)
    })
}
