//! Layout of chosen storage.

use crate::needs::{dell_as_printed, needs};
use plan::{
    catalogue::{Catalogue, Raid},
    demand::{Mode, Needs},
    fit::{Choice, Wishes, choices},
    layout::{Layout, lay_out},
    site::{Role, Volume},
    units::{Gib, HostIops, MegabitsPerSecond},
};
use proptest::{prelude::*, test_runner::RngSeed};
use std::collections::BTreeMap;

fn first(needs: &Needs, wishes: &Wishes) -> Choice {
    choices(needs, &Catalogue::built_in(), wishes).expect("known").choices.remove(0)
}

fn wishes(product: &str, raid: Option<Raid>) -> Wishes {
    Wishes { product: Some(product.to_owned()), raid, ..Wishes::default() }
}

/// Volumes of each group with active databases, and with copies.
fn active_and_passive(layout: &Layout) -> Vec<(String, usize, usize)> {
    let of = |group: &str, active: bool| {
        let is = |v: &&Volume| v.group == group && v.role == Role::Database && (v.copy == 1) == active;
        layout.volumes.iter().filter(is).count()
    };
    layout
        .groups
        .iter()
        .map(|group| (group.name.clone(), of(&group.name, true), of(&group.name, false)))
        .collect()
}

#[test]
fn dells_two_arrays_hold_half_of_the_active_databases_each_and_copies_of_the_others() {
    let needs = dell_as_printed();
    let wishes = wishes("EqualLogic", None);
    let layout = lay_out(&needs, &first(&needs, &wishes), &wishes);
    assert_eq!(active_and_passive(&layout), [("mail-1".to_owned(), 6, 6), ("mail-2".to_owned(), 6, 6)]);
    assert_eq!(
        layout.volumes.len(),
        2 * 2 * 12,
        "one volume for each database and one for each log, of each copy"
    );
    let volume = layout.volumes.iter().find(|volume| volume.name == "db03-log-copy2").unwrap();
    assert_eq!((volume.group.as_str(), volume.gb), ("mail-2", Some(48.0)));
}

#[test]
fn copies_of_a_database_are_served_by_different_servers_and_each_server_has_its_share() {
    let mut needs = needs(Mode::StandAlone, 5000.0);
    (needs.databases, needs.copies, needs.servers) = (23, 2, 3);
    (needs.database_volume, needs.log_volume) = (Gib::new(25.0), Gib::new(5.0));
    let wishes = Wishes { databases_per_log: 5, ..wishes("EVA8000", Some(Raid::Raid10)) };
    let choice = first(&needs, &wishes);
    let layout = lay_out(&needs, &choice, &wishes);
    let served = |layout: &Layout, server: &str, copy: u32| -> usize {
        let is = |v: &&Volume| v.server == server && v.copy == copy && v.role == Role::Database;
        layout.volumes.iter().filter(is).map(|v| v.databases.len()).sum()
    };
    for server in &layout.servers {
        assert_eq!(Some(served(&layout, &server.name, 1) as u64), server.databases, "{}", server.name);
    }
    let of = |name: &str| layout.volumes.iter().find(|v| v.name == name).expect("laid out").server.as_str();
    assert_eq!(
        [of("sg03"), of("sg03-log"), of("sg03-copy2"), of("sg03-log-copy2")],
        ["mail3", "mail3", "mail1", "mail1"]
    );
    // One server: nobody serves the second copy.
    needs.servers = 1;
    let layout = lay_out(&needs, &choice, &wishes);
    assert_eq!(
        [served(&layout, "mail1", 1), served(&layout, "mail1", 2), served(&layout, "", 2)],
        [23, 0, 23]
    );
}

#[test]
fn hps_storage_groups_share_a_volume_and_a_log_and_are_owned_in_turn() {
    let mut needs = needs(Mode::StandAlone, 5000.0);
    needs.databases = 20;
    (needs.database_volume, needs.log_volume) = (Gib::new(25.0), Gib::new(5.0));
    let wishes = Wishes { databases_per_log: 5, ..wishes("EVA8000", Some(Raid::Raid10)) };
    let layout = lay_out(&needs, &first(&needs, &wishes), &wishes);
    assert_eq!(layout.storage_groups, 4);
    let all: Vec<_> =
        layout.volumes.iter().map(|v| (v.name.as_str(), v.group.as_str(), v.owner.as_str())).collect();
    let expected = [
        ("sg01", "databases", "A"),
        ("sg01-log", "logs", "A"),
        ("sg02", "databases", "B"),
        ("sg02-log", "logs", "B"),
        ("sg03", "databases", "A"),
        ("sg03-log", "logs", "A"),
        ("sg04", "databases", "B"),
        ("sg04-log", "logs", "B"),
    ];
    assert_eq!(all, expected, "HP EVA8000, \"LUN ownership\"");
    assert_eq!(layout.volumes[0].databases.len(), 5, "HP EVA8000: all five databases on the same LUN");
    assert_eq!(layout.groups[0].failure_sets.iter().sum::<u32>(), layout.groups[0].drives.unwrap());
}

#[test]
fn a_copy_over_a_link_is_never_active_and_stands_elsewhere() {
    let mut needs = dell_as_printed();
    needs.copies = 3;
    needs.replication_link = MegabitsPerSecond::new(100.0);
    let wishes = wishes("NVMe", None);
    let layout = lay_out(&needs, &first(&needs, &wishes), &wishes);
    let of: Vec<_> = layout.groups.iter().map(|group| (group.name.as_str(), group.site.as_str())).collect();
    assert_eq!(of, [("mail-1", "main"), ("mail-2", "main"), ("mail-3", "remote")]);
    let active: Vec<usize> = active_and_passive(&layout).into_iter().map(|(_, active, _)| active).collect();
    assert_eq!(active, [6, 6, 0]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(6),
        ..ProptestConfig::default()
    })]

    #[test]
    fn copies_never_share_a_group_and_owners_are_balanced(
        databases in 1_u64..40,
        copies in 1_u32..5,
        per_log in 1_u32..7,
        servers in 1_u32..9,
        apart: bool,
        backup in 0.0..2_000.0_f64,
        link in 0.0..2.0_f64,
    ) {
        let mut needs = needs(if copies > 1 { Mode::Copies } else { Mode::StandAlone }, 700.0);
        (needs.databases, needs.copies, needs.servers) = (databases, copies, servers);
        (needs.database_volume, needs.log_volume) = (Gib::new(30.0), Gib::new(3.0));
        needs.log_iops = HostIops::new(200.0);
        needs.backup_capacity = Gib::new(backup.floor());
        needs.replication_link = MegabitsPerSecond::new(link.floor());
        let wishes = Wishes { databases_per_log: per_log, logs_apart: Some(apart), ..Wishes::default() };
        for choice in choices(&needs, &Catalogue::built_in(), &wishes).unwrap().choices.iter().step_by(7) {
            let layout = lay_out(&needs, choice, &wishes);
            let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for volume in layout.volumes.iter().filter(|volume| volume.role == Role::Database) {
                for database in &volume.databases {
                    groups.entry(database).or_default().push(&volume.group);
                }
            }
            prop_assert_eq!(groups.len() as u64, databases);
            for (database, mut groups) in groups {
                prop_assert_eq!(groups.len() as u32, copies);
                groups.sort_unstable();
                groups.dedup();
                prop_assert_eq!(groups.len() as u32, copies, "copies of {} share a group", database);
            }
            for group in &layout.groups {
                let owned = |controller: &String| {
                    let is = |v: &&Volume| v.group == group.name && v.role == Role::Database && v.owner == *controller;
                    layout.volumes.iter().filter(is).count()
                };
                let counts: Vec<usize> = group.controllers.iter().map(owned).collect();
                let (most, least) = (counts.iter().max(), counts.iter().min());
                prop_assert!(most.unwrap_or(&0) - least.unwrap_or(&0) <= 1, "{counts:?}");
            }
            let mailboxes: u64 = layout.servers.iter().filter_map(|server| server.mailboxes).sum();
            prop_assert_eq!(mailboxes, needs.users);
        }
    }
}
