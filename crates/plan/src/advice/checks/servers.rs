//! Mailbox servers: ports, paths, what else they are.

use crate::{
    advice::subject::{Outcome, Subject, hold},
    units::{counted, shown},
};

/// Storage groups of a server, and databases of it (Exchange 2003 Enterprise; HP EVA8000).
const STORAGE_GROUPS_2003: u64 = 4;
const DATABASES_2003: u64 = 20;
/// A virtual server's system, beside its memory (Dell 2010).
const SYSTEM_GB: f64 = 15.0;

pub fn databases_per_server(subject: &Subject<'_>) -> Outcome {
    if subject.year() != Some(2003) {
        return Outcome::Outside;
    }
    Outcome::each(&subject.site.servers, "databases and storage_groups of servers", |server| {
        let (databases, groups) = (server.databases?, server.storage_groups?);
        hold(databases <= DATABASES_2003 && groups <= STORAGE_GROUPS_2003, || {
            let (groups, databases) = (counted(groups), counted(databases));
            format!("{} has {groups} storage groups and {databases} databases", server.name)
        })
    })
}

pub fn two_storage_ports(subject: &Subject<'_>) -> Outcome {
    Outcome::each(&subject.site.servers, "storage_ports of servers", |server| {
        let ports = server.storage_ports?;
        hold(ports > 1, || format!("{} has {}", server.name, counted(ports)))
    })
}

pub fn multipath(subject: &Subject<'_>) -> Outcome {
    let servers = subject.site.servers.iter().filter(|server| server.storage_ports != Some(1));
    Outcome::each(servers, "multipath of servers", |server| hold(server.multipath?, || server.name.clone()))
}

pub fn manual_paths(subject: &Subject<'_>) -> Outcome {
    Outcome::each(&subject.site.servers, "path_policy of servers", |server| {
        if server.path_policy.is_empty() {
            return None;
        }
        let is_balanced = server.path_policy != "manual" || server.paths_balanced == Some(true);
        hold(is_balanced, || server.name.clone())
    })
}

pub fn client_ports(subject: &Subject<'_>) -> Outcome {
    Outcome::each(&subject.site.servers, "client_ports of servers", |server| {
        hold(server.client_ports? > 0, || format!("{} has none", server.name))
    })
}

pub fn replication_ports(subject: &Subject<'_>) -> Outcome {
    if !subject.has_copies() {
        return Outcome::Outside;
    }
    Outcome::each(&subject.site.servers, "replication_ports of servers", |server| {
        hold(server.replication_ports? > 0, || format!("{} has none", server.name))
    })
}

pub fn immediate_acks(subject: &Subject<'_>) -> Outcome {
    if subject.site.network.ethernet == Some(false) {
        return Outcome::Outside;
    }
    Outcome::each(&subject.site.servers, "immediate_acks of servers", |server| {
        hold(server.immediate_acks?, || server.name.clone())
    })
}

pub fn system_apart(subject: &Subject<'_>) -> Outcome {
    let groups = subject.mail_groups();
    Outcome::each(&subject.site.servers, "system_group of servers", |server| {
        if server.system_group.is_empty() {
            return None;
        }
        let shares = groups.iter().any(|group| group.name == server.system_group);
        hold(!shares, || format!("{} lies in {}", server.name, server.system_group))
    })
}

pub fn system_size(subject: &Subject<'_>) -> Outcome {
    let servers = subject.site.servers.iter().filter(|server| server.is_virtual == Some(true));
    Outcome::each(servers, "system_gb and memory_gb of virtual servers", |server| {
        let (gb, needed) = (server.system_gb?, SYSTEM_GB + server.memory_gb?);
        hold(gb >= needed, || format!("{} has {} GB, {} are needed", server.name, shown(gb), shown(needed)))
    })
}

pub fn host_availability(subject: &Subject<'_>) -> Outcome {
    let servers = subject.site.servers.iter().filter(|server| server.is_virtual == Some(true));
    Outcome::each(servers, "host_availability of virtual servers", |server| {
        hold(!server.host_availability?, || server.name.clone())
    })
}

pub fn no_domain_controller(subject: &Subject<'_>) -> Outcome {
    let is_one = |roles: &[String]| roles.iter().any(|role| role == "domain-controller");
    Outcome::among(&subject.site.servers, |server| is_one(&server.other_roles).then(|| server.name.clone()))
}
