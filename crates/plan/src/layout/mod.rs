//! Groups, volumes, owners: how the chosen storage is divided.
//!
//! Invariants, asserted for every layout made here:
//!
//! 1. No two copies of a database lie in one group.
//! 2. What lies in a group fits it.
//! 3. Each controller owns as many databases of a group as any other, or one more, and the log of each.

mod owners;
mod sets;

pub use sets::failure_sets;

use crate::{
    catalogue::Raid,
    demand::Needs,
    fit::{Choice, GroupChoice, Purpose, Wishes, spindle},
    site::{Group, Location, Role, Server, Volume, round},
    units::{HostIops, MegabitsPerSecond},
};
use owners::Owners;
use std::collections::BTreeMap;

/// Sizes are written with three digits, so sums of many are a little off.
const ROUNDED: f64 = 1.0;

/// Division of storage into groups and volumes.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    pub sites: Vec<Location>,
    /// Mailbox servers, of the first site.
    pub servers: Vec<Server>,
    /// Groups of drives.
    pub groups: Vec<Group>,
    /// Volumes in them.
    pub volumes: Vec<Volume>,
    /// Logs, each of one or several databases.
    pub storage_groups: u64,
}

/// Divides `choice` so that `needs` are met: a volume for each database and one for each log, or, where databases
/// share a log, a volume for all databases of a storage group and one for its log (both HP papers).
pub fn lay_out(needs: &Needs, choice: &Choice, wishes: &Wishes) -> Layout {
    let per_log = u64::from(wishes.databases_per_log.max(1));
    let storage_groups = needs.databases.div_ceil(per_log);
    let sites = sites(needs);
    let groups = groups(choice, &sites);
    let servers = servers(needs, per_log, &sites);
    let volumes = volumes(needs, choice, per_log, &servers);
    let layout = Layout { servers, sites, groups, volumes, storage_groups };
    layout.check();
    layout
}

/// One place, and a second if a copy is sent over a link.
fn sites(needs: &Needs) -> Vec<Location> {
    let is_remote = needs.replication_link > MegabitsPerSecond::ZERO && needs.copies > 1;
    let names: &[&str] = if is_remote { &["main", "remote"] } else { &["main"] };
    names.iter().map(|name| Location { name: (*name).to_owned() }).collect()
}

/// Mailbox servers of the first site. Storage groups go to them in turn.
fn servers(needs: &Needs, per_log: u64, sites: &[Location]) -> Vec<Server> {
    let count = u64::from(needs.servers.max(1));
    let storage_groups = needs.databases.div_ceil(per_log);
    let share = |all: u64, index: u64| all / count + u64::from(index < all % count);
    let server = |index: u64| {
        let own_groups = share(storage_groups, index);
        // Only the last storage group may have fewer databases than the others.
        let has_last = own_groups > 0 && (storage_groups - 1) % count == index;
        let lacking = if has_last { storage_groups * per_log - needs.databases } else { 0 };
        Server {
            name: format!("mail{}", index + 1),
            site: sites[0].name.clone(),
            mailboxes: Some(share(needs.users, index)),
            storage_groups: Some(own_groups),
            databases: Some(own_groups * per_log - lacking),
            ..Server::default()
        }
    };
    (0..count).map(server).collect()
}

/// The server of one copy of a storage group, both counted from 0: copies go to the servers that follow the active one's.
/// Empty where no server of its own is left for the copy.
fn server_of(servers: &[Server], storage_group: u64, copy: u32) -> String {
    if copy as usize >= servers.len() {
        return String::new();
    }
    let turn = (storage_group + u64::from(copy)) % servers.len() as u64;
    servers[turn as usize].name.clone()
}

/// The name of the pool of `purpose` for the `set`th copy, both from 0.
fn name_of(choice: &Choice, purpose: Purpose, set: u32, pool: u32) -> String {
    let of_copy = match purpose.is_of_a_copy() && choice.copies > 1 {
        true => format!("{}-{}", purpose.word(), set + 1),
        false => purpose.word().to_owned(),
    };
    match pools_of(choice, purpose) {
        1 => of_copy,
        pools => format!("{of_copy}-pool{:0digits$}", pool + 1, digits = pools.to_string().len()),
    }
}

/// Pools of `purpose`, of one copy.
fn pools_of(choice: &Choice, purpose: Purpose) -> u32 {
    choice.groups.iter().find(|group| group.purpose == purpose).map_or(1, |group| group.pools)
}

fn groups(choice: &Choice, sites: &[Location]) -> Vec<Group> {
    let mut groups = Vec::new();
    for set in 0..choice.copies {
        // The last copy is the one elsewhere.
        let site = if set + 1 == choice.copies { sites.last() } else { sites.first() };
        let of_a_copy = choice.groups.iter().filter(|group| group.purpose.is_of_a_copy());
        let site = &site.expect("one").name;
        groups.extend(of_a_copy.flat_map(|group| pools(choice, group, set, site)));
    }
    let others = choice.groups.iter().filter(|group| !group.purpose.is_of_a_copy());
    groups.extend(others.flat_map(|group| pools(choice, group, 0, &sites[0].name)));
    groups
}

/// The pools of `group`, of one copy.
fn pools(choice: &Choice, group: &GroupChoice, set: u32, site: &str) -> Vec<Group> {
    (0..group.pools).map(|pool| pool_of(choice, group, set, pool, site)).collect()
}

fn pool_of(choice: &Choice, group: &GroupChoice, set: u32, pool: u32, site: &str) -> Group {
    let of_cloud = group.raid == Raid::Inside;
    let array = match choice.product == choice.drive {
        true => String::new(),
        // Each copy is on an array of its own.
        false if group.purpose.is_of_a_copy() && choice.copies > 1 => {
            format!("{} {}", choice.product, set + 1)
        }
        false => choice.product.clone(),
    };
    let of_unit = group.drives / (group.units.max(group.pools));
    let units = (group.units / group.pools).max(1);
    let share = 1.0 / f64::from(group.pools);
    Group {
        name: name_of(choice, group.purpose, set, pool),
        site: site.to_owned(),
        array,
        raid: group.raid,
        drive: choice.drive.clone(),
        drive_gb: (!of_cloud).then(|| round(choice.drive_size.get())),
        drives: Some(group.drives / group.pools),
        spares: (!of_cloud)
            .then(|| group.spares / group.pools + u32::from(pool < group.spares % group.pools)),
        // Spindle's pools form their sets themselves.
        failure_sets: match of_cloud || choice.product == spindle::NAME {
            true => Vec::new(),
            false => failure_sets(of_unit).repeat(units as usize),
        },
        usable_gb: Some(round(group.capacity.get() * share)),
        host_iops: Some((group.iops.get() * share).round()),
        iops_beside: (group.iops_beside > HostIops::ZERO).then(|| (group.iops_beside.get() * share).round()),
        controllers: controllers(choice),
        cache_gb: choice.cache_gb,
        ..Group::default()
    }
}

fn controllers(choice: &Choice) -> Vec<String> {
    // One controller balances nothing.
    let count = if choice.controllers > 1 { choice.controllers } else { 0 };
    (0..count).map(|index| char::from(b'A' + (index % 26) as u8).to_string()).collect()
}

fn volumes(needs: &Needs, choice: &Choice, per_log: u64, servers: &[Server]) -> Vec<Volume> {
    let has = |purpose| choice.groups.iter().any(|group| group.purpose == purpose);
    let (of_databases, of_logs) = match has(Purpose::Mail) {
        true => (Purpose::Mail, Purpose::Mail),
        false => (Purpose::Databases, Purpose::Logs),
    };
    let mut owners = Owners::new(controllers(choice));
    let digits = needs.databases.to_string().len().max(2);
    let storage_groups = needs.databases.div_ceil(per_log);
    // Active copies are spread over all sets that stand here (Dell 2010, section 4.4).
    let is_remote = needs.replication_link > MegabitsPerSecond::ZERO && choice.copies > 1;
    let active_sets = if is_remote { choice.copies - 1 } else { choice.copies };
    let mut volumes = Vec::new();
    for index in 0..storage_groups {
        let first = index * per_log;
        let count = per_log.min(needs.databases - first);
        let databases: Vec<String> =
            (first..first + count).map(|database| format!("db{:0digits$}", database + 1)).collect();
        let name = if per_log > 1 { format!("sg{:0digits$}", index + 1) } else { databases[0].clone() };
        // Turned by one from pool to pool, so that each has its share of active copies, too.
        let pools = u64::from(pools_of(choice, of_databases));
        let active = ((index / pools + index % pools) % u64::from(active_sets)) as u32;
        let pool = |purpose| (index % u64::from(pools_of(choice, purpose))) as u32;
        for copy in 0..choice.copies {
            let set = (active + copy) % choice.copies;
            let suffix = if copy == 0 { String::new() } else { format!("-copy{}", copy + 1) };
            let group = name_of(choice, of_databases, set, pool(of_databases));
            let owner = owners.next(&group);
            // All servers stand at the first site.
            let is_elsewhere = is_remote && set == choice.copies - 1;
            let server = if is_elsewhere { String::new() } else { server_of(servers, index, copy) };
            let volume = |name: String, role, group, gb: f64, used_gb: Option<f64>| Volume {
                name,
                server: server.clone(),
                role,
                group,
                databases: databases.clone(),
                copy: copy + 1,
                gb: Some(round(gb)),
                used_gb: used_gb.map(round),
                owner: owner.clone(),
                ..Volume::default()
            };
            let gb = needs.database_volume.get() * count as f64;
            let used = needs.database.get() * count as f64;
            volumes.push(volume(format!("{name}{suffix}"), Role::Database, group, gb, Some(used)));
            let gb = needs.log_volume.get() * per_log as f64;
            let group = name_of(choice, of_logs, set, pool(of_logs));
            volumes.push(volume(format!("{name}-log{suffix}"), Role::Log, group, gb, None));
        }
    }
    let beside = [
        ("backup", Role::Backup, needs.backup_capacity.get()),
        ("write-history", Role::WriteHistory, needs.write_history.get()),
    ];
    let pools = pools_of(choice, Purpose::Backup);
    for (name, role, gb) in beside.into_iter().filter(|(.., gb)| *gb > 0.0) {
        for pool in 0..pools {
            let group = name_of(choice, Purpose::Backup, 0, pool);
            let owner = owners.next(&group);
            volumes.push(Volume {
                name: if pools > 1 { format!("{name}-{}", pool + 1) } else { name.to_owned() },
                role,
                group,
                gb: Some(round(gb / f64::from(pools))),
                copy: 1,
                owner,
                ..Volume::default()
            });
        }
    }
    volumes
}

impl Layout {
    /// Asserts the invariants.
    fn check(&self) {
        let mut groups_of: BTreeMap<(&str, bool), Vec<&str>> = BTreeMap::new();
        let mut taken: BTreeMap<&str, f64> = BTreeMap::new();
        for volume in &self.volumes {
            for database in &volume.databases {
                let key = (database.as_str(), volume.role.has_logs());
                let groups = groups_of.entry(key).or_default();
                assert!(
                    !groups.contains(&volume.group.as_str()),
                    "two copies of {database} lie in {}",
                    volume.group
                );
                groups.push(&volume.group);
            }
            *taken.entry(&volume.group).or_default() += volume.gb.unwrap_or(0.0);
        }
        for group in &self.groups {
            let (taken, usable) = (taken.get(group.name.as_str()).copied().unwrap_or(0.0), group.usable_gb);
            assert!(taken <= usable.unwrap_or(0.0) + ROUNDED, "{taken} GB do not fit {group:?}");
        }
    }
}
