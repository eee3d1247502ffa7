//! Checks of groups after an opening: what happens to a group has happened to all its volumes, or to none.

use super::{
    content::VolumeKey,
    model::{GroupModelKey, Model, Presence},
    violation::PoolViolation,
};
use array::pool::{GroupInfo, Pool, VolumeInfo};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// Checks that each operation on a group that was in flight has made all of its volumes, or none.
pub fn check_made_together(
    model: &mut Model,
    found: &BTreeMap<VolumeKey, &VolumeInfo>,
    is_lossy: bool,
) -> Result<(), PoolViolation> {
    for made in std::mem::take(&mut model.made_together) {
        let there = made.iter().filter(|key| found.contains_key(key)).count();
        if there > 0 && there < made.len() && !is_lossy {
            let what = format!("an operation on a group happened to {there} of its {} volumes", made.len());
            return Err(PoolViolation::Catalogue(what));
        }
    }
    Ok(())
}

/// Checks groups, their volumes and their snapshots.
pub fn check_groups(
    model: &mut Model,
    pool: &Rc<Pool>,
    volumes: &BTreeMap<VolumeKey, &VolumeInfo>,
    is_lossy: bool,
) -> Result<(), PoolViolation> {
    let infos = pool.groups();
    let found: BTreeMap<GroupModelKey, &GroupInfo> =
        infos.iter().map(|info| (GroupModelKey::of(info.group), info)).collect();
    if is_lossy {
        take_as_found(model, &found, volumes);
        return Ok(());
    }
    let wrong = |what: String| Err(PoolViolation::Catalogue(what));
    if let Some(unknown) = found.keys().find(|key| !model.groups.contains_key(key)) {
        return wrong(format!("group {} is back, or was never made", unknown.0));
    }
    for key in model.groups.keys().copied().collect::<Vec<_>>() {
        let group = &model.groups[&key];
        let Some(info) = found.get(&key) else {
            if group.presence == Presence::There {
                return wrong(format!("{} is lost", group.name));
            }
            model.end_group(key, false);
            continue;
        };
        let members: BTreeSet<&str> = info.volumes.iter().map(String::as_str).collect();
        let expected: BTreeSet<&str> =
            group.members.iter().map(|member| model.volumes[member].name.as_str()).collect();
        if info.name != group.name || members != expected || info.volumes.len() != members.len() {
            return wrong(format!("{info:?} is not {:?} with {expected:?}", group.name));
        }
        let listed: Vec<&str> = info.snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect();
        let cuts = model.cuts.values().filter(|cut| cut.group == Some(key));
        let expected: Vec<&str> = cuts.map(|cut| cut.name.as_str()).collect();
        if listed != expected {
            return wrong(format!("{} has the snapshots {listed:?}, not {expected:?}", group.name));
        }
        model.end_group(key, true);
    }
    let of_volumes = volumes.values().filter_map(|info| Some((info.name.as_str(), info.group.as_deref()?)));
    let of_volumes: BTreeSet<(&str, &str)> = of_volumes.collect();
    let of_groups =
        infos.iter().flat_map(|info| info.volumes.iter().map(|volume| (volume.as_str(), info.name.as_str())));
    if of_volumes != of_groups.collect() {
        return wrong(format!("volumes name other groups than groups have volumes: {of_volumes:?}"));
    }
    Ok(())
}

/// Drives have lost data: what is found is what is there.
fn take_as_found(
    model: &mut Model,
    found: &BTreeMap<GroupModelKey, &GroupInfo>,
    volumes: &BTreeMap<VolumeKey, &VolumeInfo>,
) {
    for key in model.groups.keys().copied().collect::<Vec<_>>() {
        let Some(info) = found.get(&key) else {
            model.end_group(key, false);
            continue;
        };
        let members = volumes.iter().filter(|(_, volume)| info.volumes.contains(&volume.name));
        let members = members.map(|(&member, _)| member).collect();
        model.groups.get_mut(&key).expect("it is a key").members = members;
        model.end_group(key, true);
    }
}
