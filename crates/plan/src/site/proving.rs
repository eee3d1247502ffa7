//! A site as the settings of a test.

use super::{Role, Site, mail::round};

/// Storage groups that one test runs at most, and databases of each (the engine's own bounds).
const GROUPS_MAX: u64 = 64;
const DATABASES_MAX: u64 = 10;

/// A test of the site's active copies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proving {
    pub groups: Option<u32>,
    /// Databases of each.
    pub databases: Option<u32>,
    /// Mailboxes of all.
    pub mailboxes: Option<u32>,
    /// Database reads and writes a second of one, headroom included.
    pub iops_each: Option<f64>,
    /// Name of the profile.
    pub profile: Option<String>,
    /// Name of the limit set.
    pub limits: Option<String>,
    pub paths: Vec<String>,
    pub logs: Vec<String>,
    /// Parts of the site that the test leaves out, in words.
    pub left_out: Vec<String>,
}

impl Site {
    /// The site as the settings of a test: all of it, or the share that one test can run, with its share of mailboxes.
    pub fn proving(&self) -> Proving {
        let mut proving = Proving {
            profile: self.profile(),
            limits: some(&self.limits.set),
            paths: self.paths(Role::has_databases),
            ..Proving::default()
        };
        let logs = self.paths(Role::has_logs);
        if logs != proving.paths {
            proving.logs = logs;
        }
        let count = self.databases.count.or_else(|| {
            let named = self.volumes.iter().filter(|volume| volume.role.has_databases() && volume.copy == 1);
            Some(named.map(|volume| volume.databases.len() as u64).sum()).filter(|count| *count > 0)
        });
        let mut share = 1.0;
        if let Some(count) = count.filter(|count| *count > 0) {
            let groups = self.databases.storage_groups.unwrap_or(count).clamp(1, count);
            let each = count.div_ceil(groups);
            let (run_groups, run_each) = (groups.min(GROUPS_MAX), each.min(DATABASES_MAX));
            proving.groups = Some(run_groups as u32);
            proving.databases = Some(run_each as u32);
            let run = run_groups * run_each;
            if run < count {
                share = run as f64 / count as f64;
                proving
                    .left_out
                    .push(format!("{run} of {count} databases are tested, with their share of mailboxes"));
            }
        }
        let headroom = 1.0 + self.demand.headroom_percent.unwrap_or(0.0) / 100.0;
        if let (Some(mailboxes), Some(iops)) = (self.users.mailboxes, self.users.iops_each)
            && mailboxes > 0
            && iops > 0.0
        {
            let mailboxes = (mailboxes as f64 * share).ceil();
            proving.mailboxes = Some(mailboxes.min(f64::from(u32::MAX)) as u32);
            proving.iops_each = Some(round(iops * headroom).max(0.001));
        }
        proving
    }

    /// The profile that `prove` runs: the one named, or that of the rule set, which has the same name where there is one.
    fn profile(&self) -> Option<String> {
        let of_rules = || some(&self.users.rules).filter(|rules| rules.starts_with("exchange-"));
        some(&self.users.profile).or_else(of_rules)
    }

    /// Paths of volumes with active copies that hold what `has` says, each once.
    fn paths(&self, has: fn(Role) -> bool) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        for volume in self.volumes.iter().filter(|volume| has(volume.role) && volume.copy == 1) {
            if !volume.path.is_empty() && !paths.contains(&volume.path) {
                paths.push(volume.path.clone());
            }
        }
        paths
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
