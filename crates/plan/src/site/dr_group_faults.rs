//! Contradictions within the DR groups of a site.

use super::{DrGroup, Site, SiteIndex, Volume};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a name in the record of a group.
const NAME_BYTES_MAX: usize = 128;

impl Site {
    /// The first thing that does not hold together in the DR groups; none if all does. What each kind of replication needs is
    /// the daemon's to check.
    pub(super) fn dr_group_fault(&self, index: &SiteIndex) -> Option<String> {
        let groups = self.dr_groups();
        groups
            .iter()
            .find_map(|group| index.dr_volume_fault(group).or_else(|| self.made_group_fault(group, index)))
            .or_else(|| self.volume_in_two(index))
    }

    /// The fault of a group that a server is to make.
    fn made_group_fault(&self, group: &DrGroup, index: &SiteIndex) -> Option<String> {
        let DrGroup { name, volumes, to, to_group, .. } = group;
        if to.is_empty() {
            return None;
        }
        if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Some(format!(
                "DR group {name:?}: a name has at most {NAME_BYTES_MAX} bytes without control characters"
            ));
        }
        let groups: BTreeSet<&String> =
            volumes.iter().filter_map(|meant| index.volume(meant)).map(|volume| &volume.group).collect();
        let mut groups = groups.into_iter();
        match (groups.next(), groups.next()) {
            (None, _) => return Some(format!("DR group {name:?} has no volumes")),
            (Some(one), Some(other)) => {
                return Some(format!(
                    "DR group {name:?} has volumes of the groups {one:?} and {other:?}; make a DR group for each group"
                ));
            }
            (Some(_), None) => {}
        }
        let there = self.group(to_group).filter(|group| !group.site.is_empty() && group.site != *to)?;
        Some(format!(
            "DR group {name:?} goes to site {to:?}, and its to_group {to_group:?} stands in site {:?}",
            there.site
        ))
    }

    /// A volume has one copy elsewhere at most.
    fn volume_in_two(&self, index: &SiteIndex) -> Option<String> {
        let mut seen = BTreeMap::new();
        for group in self.dr_groups().iter().filter(|group| !group.to.is_empty()) {
            for Volume { group: of, name, .. } in group.volumes.iter().filter_map(|meant| index.volume(meant))
            {
                match seen.insert((of, name), &group.name) {
                    Some(other) if *other == group.name => {
                        return Some(format!("DR group {other:?} has volume {name:?} twice"));
                    }
                    Some(other) => {
                        return Some(format!(
                            "volume {name:?} is in the DR groups {other:?} and {:?}; it may be in one",
                            group.name
                        ));
                    }
                    None => {}
                }
            }
        }
        None
    }
}

impl SiteIndex<'_> {
    fn dr_volume_fault(&self, group: &DrGroup) -> Option<String> {
        let name = &group.name;
        if let Some(snapshot) = group.volumes.iter().find(|meant| meant.contains('@')) {
            return Some(format!("DR group {name:?}: {snapshot:?} is a snapshot; say its volume"));
        }
        group.volumes.iter().find_map(|meant| self.volume_fault("DR group", name, meant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "
        [[site]]
        name = 'boston'
        [[site]]
        name = 'denver'
        [[group]]
        name = 'mail'
        site = 'boston'
        [[group]]
        name = 'logs'
        site = 'boston'
        [[group]]
        name = 'copies'
        site = 'denver'
        [[volume]]
        name = 'store'
        group = 'mail'
        [[volume]]
        name = 'store'
        group = 'logs'
        [[volume]]
        name = 'queue'
        group = 'mail'
        [[replication.dr_group]]
        name = 'sg1'
        volumes = ['mail/store', 'queue']
        to = 'denver'
        to_group = 'copies'
        kind = 'periodic'
        every_minutes = 15
        [[replication.dr_group]]
        name = 'planned'
        volumes = ['logs/store', 'queue']
    ";

    #[test]
    fn a_group_reads_back_the_same_and_one_that_is_only_planned_may_span_groups_of_drives() {
        let site = Site::from_toml(WHOLE).unwrap();
        assert_eq!(Site::from_toml(&site.to_toml()), Ok(site.clone()));
        let [made, planned] = site.dr_groups() else { panic!("{site:?}") };
        assert_eq!((made.every_minutes, made.keep, &*planned.to), (Some(15.0), None, ""));
    }

    #[test]
    fn each_contradiction_is_refused_with_its_place() {
        for (from, to, fault) in [
            ("'mail/store', 'queue'", "'store'", "several groups have a volume \"store\"; say GROUP/store"),
            ("'mail/store', 'queue'", "'none'", "DR group \"sg1\" has volume \"none\", which is not there"),
            ("'mail/store', 'queue'", "'mail/store@monday'", "is a snapshot; say its volume"),
            ("'mail/store', 'queue'", "", "DR group \"sg1\" has no volumes"),
            ("'mail/store', 'queue'", "'mail/queue', 'queue'", "DR group \"sg1\" has volume \"queue\" twice"),
            (
                "'mail/store', 'queue'",
                "'logs/store', 'queue'",
                "volumes of the groups \"logs\" and \"mail\"; make a DR group for each group",
            ),
            ("'copies'\n        kind", "'logs'\n        kind", "\"logs\" stands in site \"boston\""),
            ("'planned'", "'sg1'", "two DR groups are called \"sg1\""),
            (
                "['logs/store', 'queue']",
                "['queue']\nto = 'denver'",
                "volume \"queue\" is in the DR groups \"sg1\" and \"planned\"; it may be in one",
            ),
        ] {
            let refused = Site::from_toml(&WHOLE.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(refused.contains(fault), "{from} → {to}: {refused}");
        }
    }
}
