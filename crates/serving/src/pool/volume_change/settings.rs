//! Volumes made, set, resized, renamed and deleted.

use super::{ChangeablePool, HELP, VolumeDone, VolumeOutcome, VolumeRef};
use crate::{export::IdentityOrigin, pool::limits::LimitChange};
use array::{
    format::{RedundancyClass, VolumeId, row::WriteCache},
    pool::{NewVolume, VolumeSetting},
};
use report::Refusal;
use world::ByteCount;

pub(super) async fn create(
    on: &ChangeablePool<'_>,
    name: &str,
    size_bytes: u64,
    (has_write_cache, is_raid0): (bool, bool),
    limits: &LimitChange,
) -> Result<VolumeDone, Refusal> {
    let usual = VolumeSetting::default();
    let new = NewVolume {
        name: name.to_owned(),
        volume: VolumeId(on.new_uuid()),
        size_bytes,
        setting: VolumeSetting {
            class: if is_raid0 { RedundancyClass::Raid0 } else { RedundancyClass::Raid1 },
            write_cache: write_cache_of(has_write_cache),
            bounds: limits.bounds(usual.bounds),
            rates: limits.rates(usual.rates),
        },
    };
    on.pool.create_volume(&new).await.map_err(|error| on.refusal(&error, HELP))?;
    Ok(VolumeDone::of(on.info(&new.volume.into())?, VolumeOutcome::Created))
}

/// Bounds come first: they alone may be refused, and then all is as it was.
pub(super) async fn set(
    on: &ChangeablePool<'_>,
    volume: &VolumeRef,
    limits: &LimitChange,
    write_cache: Option<bool>,
) -> Result<VolumeDone, Refusal> {
    let info = on.info(volume)?;
    let before = info.setting;
    let refused = |error| on.refusal(&error, HELP);
    let (bounds, rates) = (limits.bounds(before.bounds), limits.rates(before.rates));
    if bounds != before.bounds {
        on.pool.set_bounds(volume.key(), bounds).await.map_err(refused)?;
    }
    if rates != before.rates {
        on.pool.set_rates(volume.key(), rates).await.map_err(refused)?;
    }
    if let Some(has_cache) = write_cache {
        on.pool.set_write_cache(volume.key(), write_cache_of(has_cache)).await.map_err(refused)?;
    }
    let mut done = VolumeDone::of(on.info(volume)?, VolumeOutcome::Set { before });
    let is_cached_now = done.volume.setting.write_cache == WriteCache::On;
    if before.write_cache == WriteCache::Off && is_cached_now && on.device(&info).is_some() {
        // They were promised that writes are stable when answered, and may never flush.
        done.notes.push(format!(
            "{}: clients of now keep stable writes; the write cache is on for those that come after its exports are \
             served anew",
            on.path(&info.name).display()
        ));
    }
    Ok(done)
}

pub(super) async fn resize(
    on: &ChangeablePool<'_>,
    volume: &VolumeRef,
    size_bytes: u64,
    may_shrink: bool,
) -> Result<VolumeDone, Refusal> {
    let before = on.find(volume);
    if let Some(before) = before.as_ref().filter(|before| size_bytes < before.size_bytes && !may_shrink) {
        let problem = format!(
            "{} has {}, and what lies behind {} would be lost",
            on.path(&before.name).display(),
            ByteCount(before.size_bytes),
            ByteCount(size_bytes)
        );
        return Err(Refusal::new(problem, "say ⟨shrink⟩ if that is meant"));
    }
    let resized = on.pool.resize_volume(volume.key(), size_bytes).await;
    resized.map_err(|error| on.refusal(&error, HELP))?;
    let info = on.info(volume)?;
    if let Some(exports) = on.exports {
        exports.capacity_changed(info.volume);
    }
    let bytes_before = before.map_or(info.size_bytes, |before| before.size_bytes);
    Ok(VolumeDone::of(info, VolumeOutcome::Resized { bytes_before }))
}

pub(super) async fn rename(
    on: &ChangeablePool<'_>,
    volume: &VolumeRef,
    name: &str,
) -> Result<VolumeDone, Refusal> {
    let (before, snapshots) = on.with_snapshots(volume)?;
    // The site file would mean another volume from then on, and the next apply would make it, empty, under clients.
    let origins = snapshots.iter().map(|snapshot| IdentityOrigin::Snapshot(before.volume, snapshot.snapshot));
    for origin in origins.chain([IdentityOrigin::Volume(before.volume)]) {
        let remedy = format!(
            "rename it in the site file, with name = {name:?} and was = {:?}, and apply that",
            before.name
        );
        on.check_unserved_or(&origin, &before.name, &remedy)?;
    }
    let renamed = on.pool.rename_volume(volume.key(), name).await;
    renamed.map_err(|error| on.refusal(&error, HELP))?;
    let info = on.info(&VolumeRef::Name(name.to_owned()))?;
    Ok(VolumeDone::of(info, VolumeOutcome::Renamed { name_before: before.name }))
}

pub(super) async fn delete(on: &ChangeablePool<'_>, volume: &VolumeRef) -> Result<VolumeDone, Refusal> {
    let (before, _) = on.with_snapshots(volume)?;
    on.check_unserved(&IdentityOrigin::Volume(before.volume), &before.name)?;
    let deleted = on.pool.delete_volume(volume.key(), false).await;
    deleted.map_err(|error| on.refusal(&error, HELP))?;
    Ok(VolumeDone::of(before, VolumeOutcome::Deleted))
}

fn write_cache_of(is_on: bool) -> WriteCache {
    if is_on { WriteCache::On } else { WriteCache::Off }
}
