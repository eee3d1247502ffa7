//! The number of drives bought: by formulas that are shown, by ratings that can be set, in pools of bounded size.

use crate::planned::{DELL, answered, check, users};
use plan::{
    answer::StoragePlan,
    fit::{Choice, GroupChoice, Purpose},
};
use proptest::{prelude::*, test_runner::RngSeed};

fn group(choice: &Choice, purpose: Purpose) -> &GroupChoice {
    choice.groups.iter().find(|group| group.purpose == purpose).expect("there is one")
}

#[track_caller]
fn shown_is_bought(answer: &StoragePlan) {
    let Some(choice) = answer.first() else { return };
    let shown = |id: &str| answer.demand.sheet.get(id) as u64;
    for group in &choice.groups {
        let (at_work, spares, pools) = match group.purpose {
            Purpose::Mail | Purpose::Databases => ("SPIN", "SPRD", "PLSD"),
            Purpose::Logs => ("SPINL", "SPRL", "PLSL"),
            Purpose::Backup => ("SPINB", "SPRB", "PLSB"),
        };
        assert_eq!(shown(at_work), u64::from(group.drives), "{at_work} of {group:?}");
        assert_eq!(shown(spares), u64::from(group.spares), "{spares} of {group:?}");
        if group.raid != plan::catalogue::Raid::Inside {
            assert_eq!(shown(pools), u64::from(group.pools), "{pools} of {group:?}");
        }
    }
    assert_eq!(shown("DRVT"), choice.drives(), "{choice:?}");
}

#[test]
fn what_one_drive_is_said_to_do_moves_what_is_bought() {
    let text = users("exchange-2010", 5000, "2GB", 100, "array = \"15K SAS\"\nraid = \"raid10\"");
    let (rated, half) = (answered(&text, &[]), answered(&text, &["drive_iops=30"]));
    let drives = |answer: &StoragePlan| answer.first().expect("it fits").groups[0].drives;
    check(&rated.demand, &[("EACH", "180"), ("SPIN", &drives(&rated).to_string())]);
    check(&half.demand, &[("EACH", "30"), ("SPIN", &drives(&half).to_string())]);
    assert!(drives(&half) > 2 * drives(&rated), "{} {}", drives(&half), drives(&rated));
    // An array whose paper prints no I/O can be planned with once somebody says what it does.
    let n5500 = users("exchange-2007", 1000, "200MB", 100, "array = \"N5500\"");
    assert!(answered(&n5500, &[]).first().is_none());
    shown_is_bought(&answered(&n5500, &["drive_iops=150"]));
    assert!(answered(&n5500, &["drive_iops=150"]).first().is_some());
    let unmeasured = format!("{DELL}\n").replace("copies = 2", "copies = 2\narray = \"PS6500X\"");
    assert!(answered(&unmeasured, &[]).first().is_none());
    assert!(answered(&unmeasured, &["array_iops=2500"]).first().is_some());
}

#[test]
fn logs_of_their_own_are_written_one_behind_another() {
    let text = users("exchange-2007", 600, "200MB", 100, "array = \"StorTrends\"\nmax-database = \"300GB\"");
    let answer = answered(&text, &["iops_per_mailbox=0.45", "iops_headroom=0%"]);
    check(&answer.demand, &[("LOGW", "121.5"), ("EACHL", "833"), ("DIOL", "1")]);
    let logs = group(answer.first().expect("its own array carries it"), Purpose::Logs);
    assert_eq!((logs.drives, logs.spares), (2, 1), "AMI 2008: a mirrored pair and a spare");
    // A slow log still takes the drives it needs.
    let text = text.replace("StorTrends", "7.2K SATA");
    let slow = answered(&text, &["iops_per_mailbox=0.45", "iops_headroom=0%", "log_write_time=8ms"]);
    check(&slow.demand, &[("DIOL", "8")]);
}

#[test]
fn pools_are_bounded_and_spares_grow_with_drives() {
    let text = users("exchange-2010", 300_000, "2GB", 100, "copies = 2\narray = \"7.2K SATA\"");
    let answer = answered(&text, &[]);
    let choice = answer.first().expect("it fits");
    let mail = group(choice, Purpose::Mail);
    let of_pool = mail.drives / mail.pools;
    assert!(mail.pools > 5 && of_pool <= 168 && of_pool > 100, "{mail:?}");
    assert_eq!(
        mail.spares,
        mail.pools * of_pool.div_ceil(23),
        "two for each 46 drives: Dell 2010, section 3.1"
    );
    let site = answer.site().expect("a site");
    assert_eq!(site.groups.len() as u32, 2 * mail.pools);
    assert!(site.groups.iter().all(|group| group.drives == Some(of_pool)));
    assert_eq!(site.groups[0].name, "mail-1-pool1");
    let small = answered(&text, &["pool_drives=40"]);
    assert!(group(small.first().expect("it fits"), Purpose::Mail).pools > 3 * mail.pools);
    shown_is_bought(&answer);
    shown_is_bought(&small);
    // A database that no pool holds is a reason, not a pool beyond the bound.
    let none = answered(&text, &["pool_drives=4"]);
    let reason = &none.fit.rejected[0].reason;
    assert!(reason.contains("a pool has 4 at most (pool_drives)"), "{reason}");
}

#[test]
fn drives_without_raid_are_planned_with_three_copies_and_refused_with_two() {
    let of = |copies: u32| {
        let more =
            format!("copies = {copies}\nraid = \"jbod\"\nmax-database = \"700GB\"\narray = \"7.2K SATA\"");
        answered(&users("exchange-2013", 5000, "2GB", 100, &more), &[])
    };
    let answer = of(3);
    let choice = answer.first().expect("it fits");
    let mail = group(choice, Purpose::Mail);
    assert!(mail.drives == mail.pools && mail.drives >= 15, "each drive by itself: {mail:?}");
    shown_is_bought(&answer);
    let site = answer.site().expect("a site");
    assert!(site.groups.iter().all(|group| group.drives == Some(1)));
    let advice = plan::advice::advise(&site, None);
    let wrong: Vec<_> =
        advice.findings.iter().filter(|one| one.severity != plan::advice::Severity::Note).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let two = of(2);
    assert_eq!(
        two.fit.rejected[0].reason,
        "jbod survives no lost drive without further copies: it takes 3 of each database, and 2 are planned (--copies)"
    );
}

#[test]
fn copies_whose_logs_are_shipped_buy_nothing_for_a_write_history() {
    let linked = answered(&DELL.replace("copies = 2", "copies = 2\nlink = \"OC3\""), &[]);
    check(&linked.demand, &[("WHL", "0")]);
    let purposes: Vec<_> = linked.first().expect("it fits").groups.iter().map(|one| one.purpose).collect();
    assert_eq!(purposes, [Purpose::Mail]);
    // Storage that replicates keeps one.
    let alone = answered(&users("exchange-2003", 2000, "100MB", 105, "link = \"OC3\""), &["backup_fulls=0"]);
    assert!(alone.demand.sheet.get("WHL") > 1.0);
    assert!(alone.first().expect("it fits").groups.iter().any(|one| one.purpose == Purpose::Backup));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(21),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_drives_that_are_explained_are_those_that_are_bought(
        count in 20_u64..400_000,
        quota in 50_u64..4_000,
        messages in 10_u32..400,
        copies in 1_u32..5,
        rules in prop::sample::select(vec!["exchange-2003", "exchange-2007", "exchange-2010", "exchange-2013", "open-mail"]),
        product in prop::sample::select(vec!["", "7.2K SATA", "NVMe", "EVA8000", "EVA5000", "StorTrends", "EqualLogic", "gp3"]),
        raid in prop::sample::select(vec!["", "raid10", "raid5", "raid6", "raid50", "jbod"]),
        bound in prop::sample::select(vec!["pool_drives=168", "pool_drives=30", "drive_iops=90", "array_iops=1500", "drives_per_spare=7"]),
    ) {
        let mut more = format!("copies = {copies}");
        if !product.is_empty() {
            more += &format!("\narray = \"{product}\"");
        }
        if !raid.is_empty() {
            more += &format!("\nraid = \"{raid}\"");
        }
        if copies == 1 {
            more += "\nlink = \"OC3\"";
        }
        let answer = answered(&users(rules, count, &format!("{quota}MB"), messages, &more), &[bound]);
        shown_is_bought(&answer);
        for choice in &answer.fit.choices {
            for group in &choice.groups {
                prop_assert!(group.raid != plan::catalogue::Raid::Jbod || group.drives == group.pools);
                let most = if bound == "pool_drives=30" { 30 } else { 168 };
                let of_pool = group.drives / group.pools;
                prop_assert!(of_pool <= most || group.units == group.pools || group.raid == plan::catalogue::Raid::Inside);
            }
        }
    }
}
