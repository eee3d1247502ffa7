//! A snapshot of volumes of several pools, in all of them or in none: whoever asks for it hears which.

use super::{GATHER_MAX, HeldPlaces, PartsRefusal, settle, show_settled, with_all_pools};
use crate::{order::check_time, site::handle::PoolHandle};
use array::{
    format::{PoolId, SnapshotId, VolumeId},
    pool::Snapshot,
};
use serving::pool::{group_change::cut, volume_change::VolumeRef};
use std::{collections::BTreeMap, time::Duration};
use world::{Moment, with_deadline};

/// Time for views to show a snapshot.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);

/// The volumes of one pool.
pub struct SharedCutPart {
    pub pool: PoolHandle,
    pub volumes: Vec<VolumeId>,
}

/// The snapshot to take.
#[derive(Clone, Debug)]
pub struct SharedCut {
    pub name: String,
    pub note: String,
    /// Its UUID, in all pools.
    pub uuid: [u8; 16],
    /// An order that a pool takes up later is refused.
    pub not_after: Option<Moment>,
}

/// Takes a snapshot in all pools of `parts`, two or more, whose `places` are held; `sleep` is that of the caller's world.
/// Returns how long answers to hosts waited in the pool where they waited longest; zero if the snapshot ended early and was
/// settled.
///
/// # Errors
///
/// No pool has the snapshot, unless what has become of it is not known yet: then a pool does not answer, and points of it are
/// not settled where it is.
pub async fn take_in_all<S: Future<Output = ()>>(
    parts: &[SharedCutPart],
    wanted: SharedCut,
    places: &HeldPlaces,
    sleep: impl Fn(Duration) -> S,
) -> Result<Duration, PartsRefusal> {
    let pools: Vec<PoolHandle> = parts.iter().map(|part| part.pool.clone()).collect();
    let by_pool: BTreeMap<PoolId, Vec<VolumeRef>> = parts
        .iter()
        .map(|part| (part.pool.id, part.volumes.iter().copied().map(VolumeRef::Id).collect()))
        .collect();
    let uuid = wanted.uuid;
    let taken = with_all_pools(&pools, "take snapshot", (places, sleep(GATHER_MAX)), move |served, part| {
        let volumes = by_pool.get(&served.pool.id()).cloned().unwrap_or_default();
        let SharedCut { name, note, uuid, not_after } = wanted.clone();
        Box::pin(async move {
            check_time(served.world.now(), not_after)?;
            let on = served.exports.changeable().with_identity(uuid);
            let held = cut(&on, &volumes, (&name, &note), part).await?;
            Ok((held, served.pool.catalogue_revision()))
        })
    });
    match taken.await {
        Ok(taken) => {
            for (pool, (_, revision)) in pools.iter().zip(&taken) {
                // A view that is late shows it later.
                with_deadline(sleep(SHOWN_WITHIN), pool.shows(*revision)).await;
            }
            Ok(taken.into_iter().map(|(held, _)| held).max().unwrap_or_default())
        }
        Err(refused) if refused.is_before_begin() => Err(refused),
        Err(refused) => {
            // All pools may have it, and not know that of each other.
            if settle(&pools, None).await.is_err() {
                return Err(refused);
            }
            show_settled(&pools, sleep(SHOWN_WITHIN)).await;
            match is_in_all(parts, uuid).await? {
                true => Ok(Duration::ZERO),
                false => Err(refused),
            }
        }
    }
}

/// True if all pools have the snapshot with this UUID, and it can be used.
///
/// # Errors
///
/// A pool does not answer.
pub async fn is_in_all(parts: &[SharedCutPart], uuid: [u8; 16]) -> Result<bool, PartsRefusal> {
    for part in parts {
        for volume in &part.volumes {
            let found = find(&part.pool, *volume, SnapshotId(uuid)).await?;
            if found.is_none_or(|known| known.cut.is_some()) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

async fn find(
    pool: &PoolHandle,
    volume: VolumeId,
    snapshot: SnapshotId,
) -> Result<Option<Snapshot>, PartsRefusal> {
    let not_taken = |refusal| PartsRefusal::NotTaken { pool: pool.name.clone(), refusal };
    let pending = pool.begin("look at snapshot", move |served| {
        Box::pin(async move {
            let snapshots = served.pool.snapshots(volume).unwrap_or_default();
            snapshots.into_iter().find(|known| known.snapshot == snapshot)
        })
    });
    pending.map_err(not_taken)?.await.map_err(not_taken)
}
