//! Contradictions within the protected sets of a site.

use super::{ProtectedSet, Site, SiteIndex};
use std::collections::BTreeSet;

impl Site {
    /// The first thing that does not hold together in the sets; none if all does. Schedules, hooks and spans are checked by
    /// those who run them.
    pub(super) fn protecting_fault(&self, index: &SiteIndex) -> Option<String> {
        self.sets.iter().find_map(|set| index.set_fault(set).or_else(|| self.schedule_of_its_name(set)))
    }

    /// The backups of a set are named as the second snapshot of a minute is that a schedule of its name takes.
    fn schedule_of_its_name(&self, set: &ProtectedSet) -> Option<String> {
        let has_its_name = self.snapshots.iter().any(|schedule| schedule.name == set.set);
        has_its_name.then(|| {
            format!("protect {:?}: a schedule of snapshots is called so too; name them apart", set.set)
        })
    }
}

impl SiteIndex<'_> {
    fn set_fault(&self, set: &ProtectedSet) -> Option<String> {
        let ProtectedSet { set: name, volumes, logs, .. } = set;
        if volumes.is_empty() {
            return Some(format!("protect {name:?} has no volumes"));
        }
        let mut seen = BTreeSet::new();
        for meant in volumes {
            if meant.contains('@') {
                return Some(format!("protect {name:?}: {meant:?} is a snapshot; say its volume"));
            }
            if let Some(fault) = self.volume_fault("protect", name, meant) {
                return Some(fault);
            }
            let volume = self.volume(meant).expect("it has no fault");
            if !seen.insert((&volume.group, &volume.name)) {
                return Some(format!("protect {name:?} has volume {meant:?} twice"));
            }
        }
        let mut of_logs = BTreeSet::new();
        for meant in logs {
            let volume = self.volume(meant).map(|volume| (&volume.group, &volume.name));
            match volume.filter(|volume| seen.contains(volume)) {
                None => return Some(format!("protect {name:?}: logs {meant:?} is not among its volumes")),
                Some(volume) if !of_logs.insert(volume) => {
                    return Some(format!("protect {name:?} has logs {meant:?} twice"));
                }
                Some(_) => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "
        [[group]]
        name = 'dbs'
        [[group]]
        name = 'logs'
        [[volume]]
        name = 'store'
        group = 'dbs'
        [[volume]]
        name = 'store'
        group = 'logs'
        [[volume]]
        name = 'log'
        group = 'logs'
        [[protect]]
        set = 'mail'
        volumes = ['dbs/store', 'log']
        logs = ['logs/log']
        schedules = ['60x1min', '24x1h', '30x1d@02:30', '24x1month']
        zone = 'Europe/Berlin'
        freeze_every = '1h'
        logs_every = '1min'
        [protect.freeze]
        kind = 'hooks'
        before = ['/etc/mail/quiet', 'all']
        after = ['/etc/mail/go']
        timeout = '8s'
        [protect.keep]
        at_least = 3
        not_before = '7d'
        [[protect]]
        set = 'queue'
        volumes = ['logs/store']
        schedules = ['7x1d']
        freeze = { kind = 'filesystem', mounts = ['/var/spool'] }
    ";

    #[test]
    fn sets_read_back_the_same() {
        let site = Site::from_toml(WHOLE).unwrap();
        let [mail, queue] = &site.sets[..] else { panic!("{site:?}") };
        assert_eq!((mail.freeze.before.len(), mail.keep.at_least), (2, Some(3)));
        assert_eq!((&*queue.freeze.kind, &queue.keep), ("filesystem", &Default::default()));
        assert_eq!(Site::from_toml(&site.to_toml()), Ok(site));
    }

    #[test]
    fn each_contradiction_is_refused_with_its_place() {
        for (from, to, fault) in [
            ("'dbs/store', 'log'", "", "protect \"mail\" has no volumes"),
            (
                "'dbs/store', 'log'",
                "'store', 'log'",
                "several groups have a volume \"store\"; say GROUP/store",
            ),
            (
                "'dbs/store', 'log'",
                "'none', 'log'",
                "protect \"mail\" has volume \"none\", which is not there",
            ),
            ("'dbs/store', 'log'", "'dbs/store@monday', 'log'", "is a snapshot; say its volume"),
            ("'dbs/store', 'log'", "'logs/log', 'log'", "protect \"mail\" has volume \"log\" twice"),
            ("['logs/log']", "['dbs/store', 'logs/store']", "logs \"logs/store\" is not among its volumes"),
            ("['logs/log']", "['gone']", "logs \"gone\" is not among its volumes"),
            ("['logs/log']", "['logs/log', 'log']", "protect \"mail\" has logs \"log\" twice"),
            ("set = 'queue'", "set = 'mail'", "two protected sets are called \"mail\""),
            ("set = 'queue'", "", "a protected set has no name"),
            (
                "set = 'queue'",
                "set = 'queue'\nverify = { depth = 'chain' }",
                "no key is called \"depth\" here",
            ),
            ("at_least = 3", "at_least = -3", "-3"),
            (
                "[[protect]]",
                "[[snapshots]]\nname = 'mail'\ngroups = ['dbs']\n[[protect]]",
                "protect \"mail\": a schedule of snapshots is called so too; name them apart",
            ),
        ] {
            let refused = Site::from_toml(&WHOLE.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(refused.contains(fault), "{from} → {to}: {refused}");
        }
    }
}
