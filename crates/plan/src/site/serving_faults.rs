//! Contradictions within what is served of a site.

use super::{Site, SiteExport, SiteIndex, SiteTarget, Volume};
use std::collections::{BTreeMap, BTreeSet};

/// The highest number of flat space addressing (SAM-5, 4.7.7.4).
const UNIT_MAX: u64 = 0x3fff;
/// Most schedules of snapshots that a volume is in.
const SCHEDULES_MAX: usize = 8;

impl Site {
    /// The first thing that does not hold together in what is served; none if all does.
    pub(super) fn serving_fault(&self) -> Option<String> {
        let index = &SiteIndex::of(self);
        let export_fault = |export: &SiteExport| index.volume_fault("nbd", &export.name, &export.volume);
        self.device_fault()
            .or_else(|| self.rename_fault(index))
            .or_else(|| self.targets.iter().find_map(|target| index.target_fault(target)))
            .or_else(|| self.unit_twice(index))
            .or_else(|| self.initiator_fault(index))
            .or_else(|| self.exports.iter().find_map(export_fault))
            .or_else(|| self.schedule_fault(index))
            .or_else(|| self.protecting_fault(index))
            .or_else(|| self.dr_group_fault(index))
            .or_else(|| self.notifier_fault())
            .or_else(|| self.serve_fault())
    }

    /// The volume that `VOLUME`, `GROUP/VOLUME` or either with `@SNAPSHOT` refers to.
    pub fn served_volume(&self, meant: &str) -> Option<&Volume> {
        let (volume, _) = split_snapshot(meant);
        self.volume(volume)
    }

    /// The site with the group of each volume said: the only group need not be, unless the volume is found by its path.
    pub fn with_groups_said(mut self) -> Self {
        if let [group] = &self.groups[..] {
            let is_of_it = |volume: &&mut Volume| volume.group.is_empty() && volume.path.is_empty();
            self.volumes.iter_mut().filter(is_of_it).for_each(|volume| volume.group.clone_from(&group.name));
        }
        self
    }

    fn device_fault(&self) -> Option<String> {
        let mut seen = BTreeSet::new();
        for group in &self.groups {
            if let Some(twice) = group.devices.iter().find(|device| !seen.insert(*device)) {
                return Some(format!("device {twice:?} is listed twice"));
            }
            let (listed, drives) = (group.devices.len() as u64, group.drives.map(u64::from));
            let spares = u64::from(group.spares.unwrap_or(0));
            if let Some(drives) = drives
                && listed > 0
                && listed != drives
                && listed != drives + spares
            {
                let name = &group.name;
                return Some(format!("group {name:?} has {drives} drives, and {listed} devices are listed"));
            }
        }
        None
    }

    fn rename_fault(&self, index: &SiteIndex) -> Option<String> {
        let mut seen = BTreeSet::new();
        for Volume { name, group, was, .. } in self.volumes.iter().filter(|volume| !volume.was.is_empty()) {
            let is_there = was != name && index.has_in_group(group, was);
            if is_there || !seen.insert((group, was)) {
                return Some(format!(
                    "volume {name:?} was {was:?}, and the file has another use for that name"
                ));
            }
        }
        None
    }

    /// A disk under two names would be taken for two paths to it.
    fn unit_twice(&self, index: &SiteIndex) -> Option<String> {
        let mut seen = BTreeSet::new();
        for target in &self.targets {
            for unit in &target.units {
                let (_, snapshot) = split_snapshot(&unit.volume);
                let volume = index.served_volume(&unit.volume)?;
                if !seen.insert((&volume.group, &volume.name, snapshot)) {
                    return Some(format!("target {:?}: {:?} is a unit already", target.name, unit.volume));
                }
            }
        }
        None
    }

    fn initiator_fault(&self, index: &SiteIndex) -> Option<String> {
        let mut names = BTreeSet::new();
        for initiator in &self.initiators {
            let name = &initiator.name;
            if !names.insert(name.to_ascii_lowercase()) {
                return Some(format!("initiator {name:?} is listed twice"));
            }
            if initiator.user.is_empty() != initiator.secret_file.is_empty() {
                return Some(format!("initiator {name:?}: user and secret_file go together"));
            }
            let unknown = |meant: &&String| index.units_meant(meant).is_none();
            if let Some(meant) = initiator.uses.iter().chain(&initiator.reads).find(unknown) {
                return Some(format!(
                    "initiator {name:?} uses {meant:?}, and there is no such target or unit"
                ));
            }
        }
        None
    }

    fn schedule_fault(&self, index: &SiteIndex) -> Option<String> {
        let mut counts = BTreeMap::new();
        for schedule in &self.snapshots {
            let name = &schedule.name;
            for meant in &schedule.volumes {
                if meant.contains('@') {
                    return Some(format!("snapshots {name:?}: {meant:?} is a snapshot; say its volume"));
                }
                if let Some(fault) = index.volume_fault("snapshots", name, meant) {
                    return Some(fault);
                }
            }
            for volume in index.scheduled_volumes(schedule) {
                let count = counts.entry((&volume.group, &volume.name)).or_insert(0);
                *count += 1;
                if *count > SCHEDULES_MAX {
                    return Some(format!(
                        "volume {:?} is in more than {SCHEDULES_MAX} schedules of snapshots",
                        volume.name
                    ));
                }
            }
        }
        None
    }

    fn serve_fault(&self) -> Option<String> {
        let serve = &self.serve;
        if serve.chap_user.is_empty() != serve.chap_secret_file.is_empty() {
            return Some("serve: chap_user and chap_secret_file go together".to_owned());
        }
        let is_missing = !serve.site.is_empty() && !self.sites.iter().any(|site| site.name == serve.site);
        is_missing.then(|| format!("serve: site {:?} is not there", serve.site))
    }
}

impl SiteIndex<'_> {
    fn target_fault(&self, target: &SiteTarget) -> Option<String> {
        let name = &target.name;
        let mut numbers = BTreeSet::new();
        let mut groups = BTreeSet::new();
        for unit in &target.units {
            if unit.number > UNIT_MAX {
                return Some(format!(
                    "target {name:?}: a unit's number is from 0 to {UNIT_MAX}, not {}",
                    unit.number
                ));
            }
            if !numbers.insert(unit.number) {
                return Some(format!(
                    "target {name:?} has two units with number {}; give each its own",
                    unit.number
                ));
            }
            if let Some(fault) = self.volume_fault("target", name, &unit.volume) {
                return Some(fault);
            }
            groups.extend(self.served_volume(&unit.volume).map(|volume| &volume.group));
        }
        let mut groups = groups.into_iter();
        match (groups.next(), groups.next()) {
            (Some(one), Some(other)) => Some(format!(
                "target {name:?} has units of the groups {one:?} and {other:?}; make a target for each group"
            )),
            _ => None,
        }
    }

    pub(super) fn volume_fault(&self, kind: &str, name: &str, meant: &str) -> Option<String> {
        if meant.is_empty() {
            return Some(format!("{kind} {name:?} says no volume"));
        }
        if split_snapshot(meant)
            .1
            .is_some_and(|snapshot| snapshot.is_empty() || snapshot.contains(['/', '@']))
        {
            return Some(format!("{kind} {name:?}: {meant:?} names no snapshot; say VOLUME@SNAPSHOT"));
        }
        if self.served_volume(meant).is_some() {
            return None;
        }
        let (volume, _) = split_snapshot(meant);
        Some(match self.has_name(volume) {
            true => format!("{kind} {name:?}: several groups have a volume {volume:?}; say GROUP/{volume}"),
            false => format!("{kind} {name:?} has volume {volume:?}, which is not there"),
        })
    }
}

/// A volume, and the snapshot behind `@`.
pub fn split_snapshot(meant: &str) -> (&str, Option<&str>) {
    match meant.split_once('@') {
        Some((volume, snapshot)) => (volume, Some(snapshot)),
        None => (meant, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "
        [[group]]
        name = 'mail'
        devices = ['/dev/sdb', '/dev/sdc']
        [[group]]
        name = 'logs'
        [[volume]]
        name = 'store'
        group = 'mail'
        [[volume]]
        name = 'store'
        group = 'logs'
        [[target]]
        name = 'disks'
        [[target.unit]]
        number = 7
        volume = 'mail/store@monday'
        [[initiator]]
        name = 'iqn.2026-11.org.example:host'
        uses = ['disks/7']
        [[nbd]]
        name = 'store'
        volume = 'mail/store'
    ";

    #[test]
    fn volumes_of_one_name_are_told_apart_by_their_groups() {
        let site = Site::from_toml(WHOLE).unwrap();
        let index = SiteIndex::of(&site);
        for meant in ["mail/store@monday", "logs/store", "store", "mail/none", "none", "none/store", ""] {
            assert_eq!(index.served_volume(meant), site.served_volume(meant), "{meant}");
        }
        assert_eq!(site.served_volume("mail/store@monday").map(|volume| &*volume.group), Some("mail"));
        assert_eq!((site.volume("store"), site.volume("mail/none")), (None, None));
        assert_eq!(index.units_meant("disks/7").map(|(_, numbers)| numbers), Some(vec![7]));
        assert_eq!(Site::from_toml(&site.to_toml()), Ok(site));
    }

    #[test]
    fn each_contradiction_is_refused_with_its_place() {
        for (from, to, fault) in [
            ("'mail/store@monday'", "'store'", "several groups have a volume \"store\"; say GROUP/store"),
            ("'mail/store@monday'", "'mail/none'", "has volume \"mail/none\", which is not there"),
            ("'mail/store@monday'", "''", "target \"disks\" says no volume"),
            ("'mail/store@monday'", "'store@a/b'", "names no snapshot; say VOLUME@SNAPSHOT"),
            ("number = 7", "number = 16384", "a unit's number is from 0 to 16383, not 16384"),
            ("'disks/7'", "'disks/8'", "uses \"disks/8\", and there is no such target or unit"),
            ("uses =", "user = 'host'\nuses =", "user and secret_file go together"),
            ("'/dev/sdc'", "'/dev/sdb'", "device \"/dev/sdb\" is listed twice"),
            ("devices =", "drives = 8\ndevices =", "group \"mail\" has 8 drives, and 2 devices are listed"),
            ("group = 'logs'", "group = 'mail'", "two volumes of group \"mail\" are called \"store\""),
            (
                "[[initiator]]",
                "[[target.unit]]\nvolume = 'mail/store'\nnumber = 7\n[[initiator]]",
                "target \"disks\" has two units with number 7; give each its own",
            ),
            (
                "[[initiator]]",
                "[[target.unit]]\nvolume = 'mail/store@monday'\n[[initiator]]",
                "\"mail/store@monday\" is a unit already",
            ),
            (
                "[[initiator]]",
                "[[target.unit]]\nvolume = 'logs/store'\n[[initiator]]",
                "target \"disks\" has units of the groups \"logs\" and \"mail\"; make a target for each group",
            ),
            (
                "[[nbd]]",
                "[[initiator]]\nname = 'IQN.2026-11.org.example:host'\n[[nbd]]",
                "initiator \"IQN.2026-11.org.example:host\" is listed twice",
            ),
            (
                "name = 'store'\n        group = 'mail'",
                "name = 'store'\nwas = 'b'\ngroup = 'mail'\n[[volume]]\nname = 'b'\ngroup = 'mail'",
                "volume \"store\" was \"b\", and the file has another use for that name",
            ),
            (
                "[[nbd]]",
                "[[snapshots]]\nname = 'daily'\nvolumes = ['store']\n[[nbd]]",
                "snapshots \"daily\": several groups have a volume \"store\"; say GROUP/store",
            ),
            (
                "[[nbd]]",
                "[[snapshots]]\nname = 'daily'\nvolumes = ['mail/store@monday']\n[[nbd]]",
                "snapshots \"daily\": \"mail/store@monday\" is a snapshot; say its volume",
            ),
            ("[[nbd]]", "[serve]\nsite = 'one'\n[[nbd]]", "serve: site \"one\" is not there"),
            ("[[nbd]]", "[serve]\nchap_user = 'one'\n[[nbd]]", "chap_user and chap_secret_file go together"),
        ] {
            let text = WHOLE.replacen(from, to, 1);
            let refused = Site::from_toml(&text).unwrap_err().to_string();
            assert!(refused.contains(fault), "{from} → {to}: {refused}");
        }
    }

    #[test]
    fn a_volume_is_in_eight_schedules_at_most_by_its_group_or_its_name() {
        let schedules = |count| {
            let one = |number: u32| {
                let volumes = if number.is_multiple_of(2) {
                    "groups = ['mail']"
                } else {
                    "volumes = ['mail/store', 'logs/store']"
                };
                format!("[[snapshots]]\nname = 's{number}'\n{volumes}\n")
            };
            format!("{WHOLE}{}", (0..count).map(one).collect::<String>())
        };
        let site = Site::from_toml(&schedules(8)).unwrap();
        let index = SiteIndex::of(&site);
        let counts: Vec<_> =
            site.snapshots.iter().map(|schedule| index.scheduled_volumes(schedule).count()).collect();
        assert_eq!(counts, [1, 2, 1, 2, 1, 2, 1, 2]);
        let refused = Site::from_toml(&schedules(9)).unwrap_err().to_string();
        assert!(refused.contains("volume \"store\" is in more than 8 schedules of snapshots"), "{refused}");
    }
}
