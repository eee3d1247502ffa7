//! The subject of advice: a site, and a run of it if one is given.

use super::RunFacts;
use crate::site::{Group, Replication, Role, Site, Volume};

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is as it should be.
    Kept,
    /// The rule is not for such a site: it has nothing of what the rule is about.
    Outside,
    /// It is not: where, one line each.
    Broken(Vec<String>),
    /// The site does not say enough: which words are missing.
    Unsaid(String),
}

/// A site and, if given, a run of it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub site: &'a Site,
    /// A run on it, if one was given.
    pub run: Option<&'a RunFacts>,
}

impl Outcome {
    /// By what was `looked_at`: outside if nothing was, and broken where there are any.
    pub fn of(looked_at: usize, broken: Vec<String>) -> Self {
        match (looked_at, broken.is_empty()) {
            (0, true) => Self::Outside,
            (_, true) => Self::Kept,
            (_, false) => Self::Broken(broken),
        }
    }

    /// By what is wrong with each of `all`; outside if there are none.
    pub fn among<T>(all: impl IntoIterator<Item = T>, wrong: impl FnMut(T) -> Option<String>) -> Self {
        let found: Vec<Option<String>> = all.into_iter().map(wrong).collect();
        Self::of(found.len(), found.into_iter().flatten().collect())
    }

    /// Kept if `holds`, else broken with what is said.
    pub fn expect(holds: bool, said: impl FnOnce() -> String) -> Self {
        if holds { Self::Kept } else { Self::Broken(vec![said()]) }
    }

    /// By whether each of `all` holds; those of which the site says nothing count as unsaid if none is broken.
    pub fn each<T>(
        all: impl IntoIterator<Item = T>,
        missing: &str,
        mut look: impl FnMut(T) -> Option<Result<(), String>>,
    ) -> Self {
        let (mut broken, mut unsaid, mut kept) = (Vec::new(), false, false);
        for one in all {
            match look(one) {
                Some(Ok(())) => kept = true,
                Some(Err(said)) => broken.push(said),
                None => unsaid = true,
            }
        }
        match (broken.is_empty(), unsaid, kept) {
            (false, ..) => Self::Broken(broken),
            (true, true, _) => Self::Unsaid(missing.to_owned()),
            (true, false, true) => Self::Kept,
            (true, false, false) => Self::Outside,
        }
    }
}

/// Holds, or what is said of it.
pub fn hold(holds: bool, said: impl FnOnce() -> String) -> Option<Result<(), String>> {
    Some(if holds { Ok(()) } else { Err(said()) })
}

impl<'a> Subject<'a> {
    /// Groups with volumes of which `is` says so, each once.
    pub fn groups_with(&self, is: impl Fn(&Volume) -> bool) -> Vec<&'a Group> {
        let holds =
            |group: &&Group| self.site.volumes.iter().any(|volume| volume.group == group.name && is(volume));
        self.site.groups.iter().filter(holds).collect()
    }

    /// Groups with databases or logs.
    pub fn mail_groups(&self) -> Vec<&'a Group> {
        self.groups_with(|volume| holds_mail(volume.role))
    }

    /// Volumes with databases or logs.
    pub fn mail_volumes(&self) -> impl Iterator<Item = &'a Volume> + use<'a> {
        self.site.volumes.iter().filter(|volume| holds_mail(volume.role))
    }

    /// Volumes in `group`.
    pub fn in_group(&self, group: &'a Group) -> impl Iterator<Item = &'a Volume> + use<'a> {
        self.site.volumes.iter().filter(move |volume| volume.group == group.name)
    }

    pub fn has_copies(&self) -> bool {
        self.site.databases.has_copies()
    }

    /// The mail server's year by its rules, if they are of one.
    pub fn year(&self) -> Option<u32> {
        self.site.users.rules.strip_prefix("exchange-")?.get(..4)?.parse().ok()
    }

    /// True if the mail server keeps one log for each database, as Exchange does from 2010 on.
    pub fn has_log_each(&self) -> bool {
        self.year().is_some_and(|year| year >= 2010)
    }

    /// Replication that makes writes wait for another site.
    pub fn synchronous(&self) -> Option<&'a Replication> {
        self.site.replication.as_ref().filter(|replication| replication.kind == "synchronous")
    }

    /// Databases of the site, as said or as named by volumes.
    pub fn database_count(&self) -> f64 {
        let named = || {
            let active =
                self.site.volumes.iter().filter(|volume| volume.role.has_databases() && volume.copy == 1);
            active.map(|volume| volume.databases.len() as u64).sum::<u64>()
        };
        self.site.databases.count.unwrap_or_else(named) as f64
    }

    /// IOPS that `group` carries of databases, logs and maintenance together.
    pub fn carried_by(&self, group: &Group) -> Option<f64> {
        Some(group.host_iops? + group.iops_beside.unwrap_or(0.0))
    }

    /// IOPS that the databases and logs in `group` ask, without headroom: of those that are active there, or, with
    /// `all_copies`, of all it has, as after a failover.
    pub fn asked_of(&self, group: &'a Group, all_copies: bool) -> Option<f64> {
        let demand = &self.site.demand;
        let of_databases = demand.database_iops? + demand.maintenance_iops.unwrap_or(0.0);
        let of_logs = demand.log_iops.unwrap_or(0.0);
        let count = self.database_count();
        if count == 0.0 {
            return None;
        }
        let share = |has: fn(Role) -> bool| {
            let volumes =
                self.in_group(group).filter(|volume| has(volume.role) && (all_copies || volume.copy == 1));
            volumes.map(|volume| volume.databases.len() as f64).sum::<f64>() / count
        };
        Some(of_databases * share(Role::has_databases) + of_logs * share(Role::has_logs))
    }
}

pub fn holds_mail(role: Role) -> bool {
    role.has_databases() || role.has_logs()
}
