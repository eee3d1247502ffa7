//! Lookups by name in a site that does not change meanwhile. A site may have thousands of volumes, exports and targets, each of
//! which refers to others by name.

use super::{ProtectedSet, Site, SiteTarget, Snapshots, Volume, split_snapshot};
use std::collections::{BTreeSet, HashMap};

/// The volumes and targets of a site by their names.
pub struct SiteIndex<'s> {
    site: &'s Site,
    /// `None` where several groups have a volume of the name.
    volumes: HashMap<&'s str, Option<&'s Volume>>,
    /// By group and name; `None` where a group has several.
    in_groups: HashMap<(&'s str, &'s str), Option<&'s Volume>>,
    targets: HashMap<&'s str, &'s SiteTarget>,
}

impl<'s> SiteIndex<'s> {
    pub fn of(site: &'s Site) -> Self {
        let mut index = Self {
            site,
            volumes: HashMap::with_capacity(site.volumes.len()),
            in_groups: HashMap::with_capacity(site.volumes.len()),
            targets: HashMap::with_capacity(site.targets.len()),
        };
        for volume in &site.volumes {
            let (group, name) = (volume.group.as_str(), volume.name.as_str());
            index.volumes.entry(name).and_modify(|known| *known = None).or_insert(Some(volume));
            index.in_groups.entry((group, name)).and_modify(|known| *known = None).or_insert(Some(volume));
        }
        for target in &site.targets {
            index.targets.entry(&target.name).or_insert(target);
        }
        index
    }

    /// As [`Site::volume`].
    pub fn volume(&self, name: &str) -> Option<&'s Volume> {
        match name.split_once('/') {
            Some(in_group) => self.in_groups.get(&in_group).copied().flatten(),
            None => self.volumes.get(name).copied().flatten(),
        }
    }

    /// As [`Site::served_volume`].
    pub fn served_volume(&self, meant: &str) -> Option<&'s Volume> {
        self.volume(split_snapshot(meant).0)
    }

    /// True if a volume of any group has the name.
    pub fn site(&self) -> &'s Site {
        self.site
    }

    pub(super) fn has_name(&self, name: &str) -> bool {
        self.volumes.contains_key(name)
    }

    /// True if the group has a volume of the name.
    pub(super) fn has_in_group(&self, group: &str, name: &str) -> bool {
        self.in_groups.contains_key(&(group, name))
    }

    /// The target and the unit numbers that `TARGET` or `TARGET/NUMBER` selects.
    pub fn units_meant(&self, meant: &str) -> Option<(&'s SiteTarget, Vec<u64>)> {
        if let Some(target) = self.targets.get(meant) {
            return Some((target, target.units.iter().map(|unit| unit.number).collect()));
        }
        let (name, number) = meant.rsplit_once('/')?;
        let (target, number) = (self.targets.get(name)?, number.parse().ok()?);
        target.units.iter().any(|unit| unit.number == number).then(|| (*target, vec![number]))
    }

    /// The volumes of a schedule of snapshots, in the order of the file.
    pub fn scheduled_volumes<'i>(&'i self, schedule: &'i Snapshots) -> impl Iterator<Item = &'s Volume> {
        let named = schedule.volumes.iter().filter_map(|meant| self.served_volume(meant));
        let named: BTreeSet<_> = named.map(|volume| (&volume.group, &volume.name)).collect();
        self.site.volumes.iter().filter(move |volume| {
            schedule.groups.contains(&volume.group) || named.contains(&(&volume.group, &volume.name))
        })
    }

    /// The sets of backups: `[[protect]]`, and those of `[[snapshots]]` that have volumes and the schedules of sets.
    pub fn protected_sets(&self) -> Vec<ProtectedSet> {
        let of_snapshots = |table: &'s Snapshots| ProtectedSet {
            set: table.name.clone(),
            volumes: self
                .scheduled_volumes(table)
                .map(|volume| format!("{}/{}", volume.group, volume.name))
                .collect(),
            schedules: table.schedules.clone(),
            zone: table.zone.clone(),
            ..ProtectedSet::default()
        };
        let tables = self.site.snapshots.iter().filter(|table| table.is_set()).map(of_snapshots);
        self.site.sets.iter().cloned().chain(tables.filter(|set| !set.volumes.is_empty())).collect()
    }
}
