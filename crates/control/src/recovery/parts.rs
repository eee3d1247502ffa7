//! The part of a site that a pool keeps.

use crate::site::adoption::with_groups_in_references;
use plan::site::{ProtectedSet, Role, Site, SiteIndex, SiteInitiator, Snapshots, Volume};

/// The part of `site` that the pool of a group needs to be served, with what concerns the site as a whole. Sizes and bounds
/// of volumes are left out: the pool has them.
pub(crate) fn part_of(site: &Site, group: &str) -> Site {
    let site = with_groups_in_references(site.clone());
    let index = SiteIndex::of(&site);
    let is_here = |meant: &String| index.served_volume(meant).is_some_and(|volume| volume.group == group);
    let mut part = site.clone();
    part.groups.retain(|known| known.name == group);
    part.volumes =
        site.volumes.iter().filter(|volume| volume.group == group).filter_map(remembered).collect();
    part.targets.retain(|target| target.units.iter().any(|unit| is_here(&unit.volume)));
    part.exports.retain(|export| is_here(&export.volume));
    let known = part.clone();
    let known = SiteIndex::of(&known);
    for SiteInitiator { uses, reads, .. } in &mut part.initiators {
        uses.retain(|meant| known.units_meant(meant).is_some());
        reads.retain(|meant| known.units_meant(meant).is_some());
    }
    for Snapshots { groups, volumes, .. } in &mut part.snapshots {
        groups.retain(|known| known == group);
        volumes.retain(&is_here);
    }
    part.snapshots.retain(|schedule| !schedule.groups.is_empty() || !schedule.volumes.is_empty());
    for ProtectedSet { volumes, logs, .. } in &mut part.sets {
        volumes.retain(&is_here);
        logs.retain(&is_here);
    }
    part.sets.retain(|set| !set.volumes.is_empty());
    if let Some(replication) = &mut part.replication {
        replication.dr_groups.retain(|group| group.volumes.iter().any(is_here));
    }
    part
}

/// The keys of a volume that its pool does not know; `None` if there are none.
fn remembered(volume: &Volume) -> Option<Volume> {
    let known = Volume {
        was: String::new(),
        gb: None,
        reserve_gb: None,
        limit_gb: None,
        iops_max: None,
        mb_per_second_max: None,
        write_cache: None,
        ..volume.clone()
    };
    let plain = Volume {
        name: volume.name.clone(),
        group: volume.group.clone(),
        role: Role::Other,
        copy: 1,
        ..Volume::default()
    };
    (known != plain).then_some(known)
}
