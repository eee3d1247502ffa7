//! Contradictions within the DR groups of a site.

use super::{DrGroup, Site, SiteIndex, Volume};
use std::collections::{BTreeMap, BTreeSet};

/// Groups in which the volumes of a DR group may lie, as `replication` has it.
const DR_PARTS_MAX: usize = 8;
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
        let DrGroup { name, volumes, to, to_group, to_groups, .. } = group;
        let group_named = |here| group.group_there(here);
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
        let Some(first) = groups.first() else {
            return Some(format!("DR group {name:?} has no volumes"));
        };
        if groups.len() > DR_PARTS_MAX {
            return Some(format!(
                "DR group {name:?} has volumes of {} groups; at most {DR_PARTS_MAX}",
                groups.len()
            ));
        }
        if let Some(other) = groups.iter().find(|other| self.stands_in(other) != self.stands_in(first)) {
            return Some(format!(
                "DR group {name:?} has volumes of the groups {first:?} and {other:?}, which stand in two sites"
            ));
        }
        if let Some(other) = groups.iter().nth(1).filter(|_| !to_group.is_empty()) {
            return Some(format!(
                "DR group {name:?} has volumes of the groups {first:?} and {other:?}, and one to_group; say to_groups"
            ));
        }
        let is_other = |pair: &String| pair.split_once('=').is_some_and(|(_, there)| there != to_group);
        if !to_group.is_empty() && to_groups.iter().any(is_other) {
            return Some(format!("DR group {name:?}: to_group and to_groups differ; say one of them"));
        }
        let mut named = BTreeSet::new();
        for pair in to_groups {
            let Some((here, _)) = pair.split_once('=').filter(|(_, there)| !there.is_empty()) else {
                return Some(format!("DR group {name:?}: to_groups: {pair:?} is no GROUP=GROUP THERE"));
            };
            if !groups.iter().any(|group| *group == here) {
                return Some(format!(
                    "DR group {name:?}: to_groups: it has no volumes of the group {here:?}"
                ));
            }
            if !named.insert(here) {
                return Some(format!("DR group {name:?}: to_groups: {here:?} is named twice"));
            }
        }
        let key = if to_groups.is_empty() { "to_group" } else { "to_groups" };
        groups.iter().find_map(|group| {
            let there = group_named(group);
            // Without a word of it the group there is none of this file.
            let known = self.group(there).filter(|_| there != group.as_str())?;
            (!known.site.is_empty() && known.site != *to).then(|| {
                format!(
                    "DR group {name:?} goes to site {to:?}, and its {key} {there:?} stands in site {:?}",
                    known.site
                )
            })
        })
    }

    /// The site of a group; the empty one if the file does not say it.
    fn stands_in(&self, group: &str) -> &str {
        self.group(group).map_or("", |group| group.site.as_str())
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
        [[volume]]
        name = 'copy'
        group = 'copies'
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
        let several = WHOLE
            .replace("'mail/store', 'queue'", "'mail/store', 'logs/store'")
            .replace("to_group = 'copies'", "to_groups = ['logs=copies']");
        let several = Site::from_toml(&several).unwrap();
        assert_eq!(Site::from_toml(&several.to_toml()), Ok(several.clone()));
        let made = &several.dr_groups()[0];
        assert_eq!((made.group_there("logs"), made.group_there("mail")), ("copies", "mail"));
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
                "volumes of the groups \"logs\" and \"mail\", and one to_group; say to_groups",
            ),
            (
                "'mail/store', 'queue'",
                "'copy', 'queue'",
                "volumes of the groups \"copies\" and \"mail\", which stand in two sites",
            ),
            (
                "to_group = 'copies'",
                "to_groups = ['logs=copies']",
                "to_groups: it has no volumes of the group \"logs\"",
            ),
            (
                "to_group = 'copies'",
                "to_groups = ['mail=logs']",
                "its to_groups \"logs\" stands in site \"boston\"",
            ),
            ("to_group = 'copies'", "to_groups = ['copies']", "\"copies\" is no GROUP=GROUP THERE"),
            ("to_group = 'copies'", "to_groups = ['mail=copies', 'mail=copies']", "\"mail\" is named twice"),
            ("to_group = 'copies'", "to_group = 'copies'\nto_groups = ['mail=others']", "say one of them"),
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
