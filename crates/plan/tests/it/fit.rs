//! The papers' own choices, and needs that must all be met.

use crate::needs::{dell_as_printed, needs};
use plan::{
    catalogue::{Catalogue, Raid},
    demand::Mode,
    fit::{Choice, Fit, Purpose, Wishes, choices},
    units::{Gib, HostIops, Share},
};
use proptest::{prelude::*, test_runner::RngSeed};

fn fit(needs: &plan::demand::Needs, wishes: &Wishes) -> Fit {
    choices(needs, &Catalogue::built_in(), wishes).expect("known")
}

fn of(product: &str, raid: Option<Raid>) -> Wishes {
    Wishes { product: Some(product.to_owned()), raid, ..Wishes::default() }
}

fn group(choice: &Choice, purpose: Purpose) -> (u32, u32, Raid) {
    let group = choice.groups.iter().find(|group| group.purpose == purpose).expect("there is one");
    (group.drives, group.spares, group.raid)
}

#[test]
fn for_5000_users_dell_chose_two_ps6500e_with_500_gb_drives_at_raid_50() {
    let fit = fit(&dell_as_printed(), &of("EqualLogic", None));
    let first = &fit.choices[0];
    assert_eq!(
        (first.product.as_str(), first.drive_size.get(), first.raid),
        ("PS6500E", 500.0, Raid::Raid50)
    );
    assert_eq!((first.groups.len(), first.groups[0].units, first.copies), (1, 1, 2), "one for each copy");
    assert_eq!(first.drives(), 96);
    assert_eq!(
        first.groups[0].iops_needed,
        HostIops::new(1060.0),
        "900, and the maintenance of 8 of 12 databases"
    );
    assert_eq!(first.shown(), "PS6500E, 96 x 7.2K SATA 500 GB as sold, raid50");
    // Rejected with their reasons, not left out.
    let why =
        |product: &str| &fit.rejected.iter().find(|rejected| rejected.product == product).unwrap().reason;
    assert!(why("PS6000E").starts_with("no source says what it does: Dell 2010"), "{}", why("PS6000E"));
    assert!(why("PS6500X").starts_with("no source says what it does: Dell 2010"));
}

#[test]
fn hps_appendix_a_needs_37_spindles_and_not_the_44_of_host_i_o_taken_for_that_of_drives() {
    let mut needs = needs(Mode::StandAlone, 5000.0);
    needs.database_read_share = Share::percent(67.0);
    (needs.database_volume, needs.log_volume) = (Gib::new(10.0), Gib::new(1.0));
    let fit = fit(&needs, &of("EVA8000", Some(Raid::Raid10)));
    assert_eq!(group(&fit.choices[0], Purpose::Databases), (37, 1, Raid::Raid10));
    // Example B divides drives' I/O by hosts'; here those are two types, and host by host gives about what A does.
    let by_host: f64 = 5000.0 / (12_389.0 / 88.0);
    assert_eq!(by_host.ceil(), 36.0);
}

#[test]
fn for_600_users_ami_took_8_drives_for_databases_2_for_logs_3_for_backups_and_a_spare_each() {
    let mut needs = needs(Mode::StandAlone, 270.0);
    needs.database_read_share = Share::percent(51.3);
    needs.databases = 1;
    (needs.database_volume, needs.log_volume) = (Gib::new(300.0), Gib::new(10.0));
    needs.backup_capacity = Gib::new(400.0);
    needs.log_iops = HostIops::new(40.0);
    let fit = fit(&needs, &of("StorTrends", Some(Raid::Raid10)));
    let chosen = &fit.choices[0];
    assert_eq!(group(chosen, Purpose::Databases), (8, 1, Raid::Raid10));
    assert_eq!(group(chosen, Purpose::Logs), (2, 1, Raid::Raid1));
    assert_eq!(group(chosen, Purpose::Backup), (3, 1, Raid::Raid5));
    assert_eq!(chosen.drives(), 16, "all its bays");
    // Its tables: 1858.92 GB of the 8 in RAID 10, in 1024s as Windows counts, for 4 x 500 GB are 1862.6 of these.
    let capacity = chosen.groups[0].capacity.get();
    assert!((capacity - 1858.92).abs() < 0.2, "{capacity}");
}

#[test]
fn raid_5_takes_more_spindles_than_raid_1_for_the_same_i_o() {
    let mut needs = needs(Mode::StandAlone, 6000.0);
    needs.database_volume = Gib::new(10.0);
    let drives = |raid| group(&fit(&needs, &of("EVA8000", Some(raid))).choices[0], Purpose::Databases).0;
    assert!(drives(Raid::Raid5) > drives(Raid::Raid10), "HP EVA8000, \"Comparing VRAID1 and VRAID5\"");
}

#[test]
fn an_eva_has_its_two_virtual_levels_alone_and_drives_of_a_server_no_other_makers() {
    let levels = |product: &str| {
        let fit = fit(&needs(Mode::Copies, 500.0), &of(product, None));
        let tried =
            fit.choices.iter().map(|one| one.raid).chain(fit.rejected.iter().filter_map(|one| one.raid));
        tried.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(levels("EVA8000"), [Raid::Raid10], "RAID 5 is for who asks for it");
    assert_eq!(levels("N5500"), [Raid::RaidDp]);
    assert_eq!(levels("10K SAS"), [Raid::Raid10, Raid::Raid50, Raid::Raid6]);
}

#[test]
fn what_cannot_be_had_says_why() {
    let needs = needs(Mode::Copies, 100_000.0);
    let reason = |wishes: &Wishes| fit(&needs, wishes).rejected[0].reason.clone();
    assert!(reason(&of("EVA8000", Some(Raid::Raid10))).contains("an array holds 168"));
    assert_eq!(reason(&of("EVA8000", Some(Raid::Raid50))), "it has no raid50, but raid10 and raid5");
    assert!(reason(&of("N5500", None)).starts_with("no source says what it does"));
    assert!(reason(&of("15K SAS", Some(Raid::Raid0))).starts_with("raid0 survives no lost drive"));
    let small_volumes = plan::demand::Needs { database_volume: Gib::new(20_000.0), ..needs.clone() };
    let of_gp3 = fit(&small_volumes, &of("AWS gp3", None)).rejected[0].reason.clone();
    assert_eq!(of_gp3, "a database takes 20,000 GB, a volume has 16,384 GB at most");
    let unknown = choices(&needs, &Catalogue::built_in(), &of("PS6600E", None)).unwrap_err().to_string();
    assert_eq!(unknown, "nothing in the catalogue is called \"PS6600E\"; did you mean \"PS6500E\"?");
}

#[test]
fn ten_million_mailboxes_have_an_answer() {
    let mut needs = needs(Mode::Copies, 1_800_000.0);
    (needs.users, needs.databases, needs.copies) = (10_000_000, 27_600, 3);
    (needs.database_volume, needs.log_volume) = (Gib::new(1302.0), Gib::new(42.0));
    let fit = fit(&needs, &Wishes::default());
    assert!(!fit.choices.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(6),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_choice_carries_what_is_asked_and_more_is_never_less(
        iops in 1.0..50_000.0_f64,
        gib in 1.0..4_000.0_f64,
        databases in 1_u64..60,
        copies in 1_u32..4,
        reads in 0.0..100.0_f64,
    ) {
        let mode = if copies > 1 { Mode::Copies } else { Mode::StandAlone };
        let mut less = needs(mode, iops);
        (less.databases, less.copies) = (databases, copies);
        less.database_read_share = Share::percent(reads);
        less.database_volume = Gib::new(gib);
        let mut more = less.clone();
        more.database_iops = less.database_iops * 1.3;
        more.database_volume = less.database_volume * 1.1;
        let (less, more) = (fit(&less, &Wishes::default()), fit(&more, &Wishes::default()));
        for choice in &less.choices {
            for group in &choice.groups {
                prop_assert!(group.capacity >= group.capacity_needed && group.iops >= group.iops_needed);
            }
            let same = more.choices.iter().find(|other| {
                (&other.product, other.drive_size, other.raid) == (&choice.product, choice.drive_size, choice.raid)
            });
            // Another number of pools shares databases out in other whole numbers.
            let pools = |choice: &Choice| choice.groups.iter().map(|group| group.pools).collect::<Vec<_>>();
            if let Some(same) = same
                && pools(same) == pools(choice)
            {
                prop_assert!(same.drives() >= choice.drives(), "{choice:?}\n{same:?}");
            }
        }
        let rank = |choice: &Choice| (choice.raid == Raid::Inside, choice.drives());
        prop_assert!(less.choices.iter().map(rank).is_sorted());
    }
}
