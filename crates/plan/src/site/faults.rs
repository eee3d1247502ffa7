//! Contradictions within a site file.

use super::{Site, VERSION, Volume};
use std::collections::BTreeSet;

impl Site {
    /// The first thing that does not hold together, in words; none if all does.
    pub fn fault(&self) -> Option<String> {
        if self.version != VERSION {
            return Some(format!("it is of version {}, and this program knows {VERSION}", self.version));
        }
        self.doubled_name()
            .or_else(|| self.missing_reference())
            .or_else(|| self.serving_fault())
            .or_else(|| self.bad_number())
    }

    fn doubled_name(&self) -> Option<String> {
        fn doubled<'a>(kind: &str, names: impl Iterator<Item = &'a String>) -> Option<String> {
            let mut seen = BTreeSet::new();
            for name in names {
                if name.is_empty() {
                    return Some(format!("a {kind} has no name"));
                }
                if !seen.insert(name) {
                    return Some(format!("two {kind}s are called {name:?}"));
                }
            }
            None
        }
        doubled("site", self.sites.iter().map(|site| &site.name))
            .or_else(|| doubled("server", self.servers.iter().map(|server| &server.name)))
            .or_else(|| doubled("group", self.groups.iter().map(|group| &group.name)))
            .or_else(|| self.doubled_volume())
            .or_else(|| doubled("link", self.links.iter().map(|link| &link.name)))
            .or_else(|| doubled("snapshot schedule", self.snapshots.iter().map(|one| &one.name)))
            .or_else(|| doubled("protected set", self.sets.iter().map(|one| &one.set)))
            .or_else(|| doubled("target", self.targets.iter().map(|target| &target.name)))
            .or_else(|| doubled("initiator", self.initiators.iter().map(|initiator| &initiator.name)))
            .or_else(|| doubled("nbd export", self.exports.iter().map(|export| &export.name)))
            .or_else(|| doubled("notifier", self.notifiers.iter().map(|notifier| &notifier.name)))
            .or_else(|| doubled("DR group", self.dr_groups().iter().map(|group| &group.name)))
    }

    fn doubled_volume(&self) -> Option<String> {
        let mut seen = BTreeSet::new();
        if self.volumes.iter().any(|volume| volume.name.is_empty()) {
            return Some("a volume has no name".to_owned());
        }
        let Volume { name, group, .. } =
            self.volumes.iter().find(|volume| !seen.insert((&volume.group, &volume.name)))?;
        Some(match group.is_empty() {
            true => format!("two volumes are called {name:?}"),
            false => format!("two volumes of group {group:?} are called {name:?}"),
        })
    }

    fn missing_reference(&self) -> Option<String> {
        let groups: BTreeSet<&str> = self.groups.iter().map(|group| group.name.as_str()).collect();
        let sites: BTreeSet<&str> = self.sites.iter().map(|site| site.name.as_str()).collect();
        let lacks = |known: &BTreeSet<&str>, name: &str| !name.is_empty() && !known.contains(name);
        for volume in &self.volumes {
            if volume.copy == 0 {
                return Some(format!("volume {:?} is of copy 0; the active one is 1", volume.name));
            }
            if lacks(&groups, &volume.group) {
                return Some(format!(
                    "volume {:?} lies in group {:?}, which is not there",
                    volume.name, volume.group
                ));
            }
        }
        let of_groups = self.groups.iter().map(|group| (&group.name, &group.site));
        let of_servers = self.servers.iter().map(|server| (&server.name, &server.site));
        if let Some((name, site)) = of_groups.chain(of_servers).find(|(_, site)| lacks(&sites, site)) {
            return Some(format!("{name:?} stands in site {site:?}, which is not there"));
        }
        if let Some(server) = self.servers.iter().find(|server| lacks(&groups, &server.system_group)) {
            return Some(format!(
                "the system of {:?} lies in group {:?}, which is not there",
                server.name, server.system_group
            ));
        }
        for schedule in &self.snapshots {
            if let Some(group) = schedule.groups.iter().find(|group| !groups.contains(group.as_str())) {
                return Some(format!(
                    "snapshots {:?} are of group {group:?}, which is not there",
                    schedule.name
                ));
            }
        }
        let replication = self.replication.as_ref()?;
        if lacks(&groups, &replication.write_history_group) {
            return Some(format!(
                "write history lies in group {:?}, which is not there",
                replication.write_history_group
            ));
        }
        if !replication.link.is_empty() && !self.links.iter().any(|link| link.name == replication.link) {
            return Some(format!("replication uses link {:?}, which is not there", replication.link));
        }
        None
    }

    /// Numbers are looked at where they all are: in the text form.
    fn bad_number(&self) -> Option<String> {
        let Ok(toml::Value::Table(table)) = toml::Value::try_from(self) else {
            return Some("a number is too large".to_owned());
        };
        bad_in("", &toml::Value::Table(table))
    }
}

fn bad_in(path: &str, value: &toml::Value) -> Option<String> {
    let inner = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    let says = |shown: String| Some(format!("{path}: {shown} makes no sense; give a number from 0 on"));
    match value {
        toml::Value::Float(number) if !number.is_finite() || *number < 0.0 => says(number.to_string()),
        toml::Value::Integer(number) if *number < 0 => says(number.to_string()),
        toml::Value::Table(table) => table.iter().find_map(|(key, value)| bad_in(&inner(key), value)),
        toml::Value::Array(all) => all.iter().find_map(|value| bad_in(path, value)),
        _ => None,
    }
}
