//! The papers' own examples through the built program: what they bought carries what they had.

use crate::spindle::{Bench, ProgramOutput, json_of};
use serde_json::Value;

/// The plan for a profile of this text, with these arguments beside it.
fn planned(profile: &str, arguments: &[&str]) -> (ProgramOutput, Value) {
    let bench = Bench::new();
    bench.make_file("profile.toml", profile.as_bytes());
    let mut all = vec!["plan", "profile.toml", "--json"];
    all.extend(arguments);
    let said = bench.run(&all);
    let plan = json_of(&said.stdout);
    (said, plan)
}

/// Purpose, level, drives and spares of each group of the first choice.
#[track_caller]
fn groups(plan: &Value) -> Vec<String> {
    let choice = plan["choices"].as_array().expect("a list").first();
    let choice = choice.unwrap_or_else(|| panic!("nothing carries it: {}", plan["rejected"]));
    let groups = choice["groups"].as_array().expect("a list").iter();
    let shown = |one: &Value| {
        format!(
            "{} {} + {} {}",
            one["purpose"].as_str().expect("a word"),
            one["drives"],
            one["spares"],
            one["raid"].as_str().expect("a word")
        )
    };
    groups.map(shown).collect()
}

fn derived(plan: &Value, id: &str) -> f64 {
    let all = plan["derived"].as_array().expect("a list");
    all.iter().find(|one| one["id"] == id).expect("derived")["value"].as_f64().expect("a number")
}

/// AMI 2008: 600 mailboxes of 200 MB at 0.45 IOPS, which have 20 % headroom in them.
const AMI: &str = r#"
rules = "exchange-2007"
max-database = "300GB"
array = "StorTrends"
raid = "raid10"
[[tier]]
name = "all"
users = 600
quota = "200MB"
[set]
iops_per_mailbox = 0.45
iops_headroom = "0%"
"#;

#[test]
fn amis_array_carries_its_own_600_users_in_the_groups_that_it_had() {
    let (said, plan) = planned(AMI, &[]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(groups(&plan), ["databases 8 + 1 raid10", "logs 2 + 1 raid1", "backup 3 + 1 raid5"]);
    assert_eq!((derived(&plan, "DBIOP"), derived(&plan, "DRVT")), (270.0, 16.0), "all its bays");
}

#[test]
fn the_rate_of_log_writes_is_explained_with_what_was_measured() {
    let bench = Bench::new();
    bench.make_file("ami.toml", AMI.as_bytes());
    let said = bench.run(&["plan", "ami.toml", "--explain", "EACHL"]);
    for expected in [
        "EACHL = 1000 × log_drive_use / log_write_time",
        "= 1000 × 25 % / 0.3",
        "= 833.3 IOPS",
        "0.0003 s a write, 104.4 writes a second, on a mirrored pair of 7.2K drives (paper)",
    ] {
        assert!(said.stdout.contains(expected), "{expected}: {}", said.stdout);
    }
    let slow = bench.run(&["plan", "ami.toml", "--explain", "DIOL", "--set", "log_write_time=1ms"]);
    assert!(slow.stdout.contains("= 1\n"), "{}", slow.stdout);
}

const DELL: &str = r#"
copies = 2
max-database = "1024GB"
array = "EqualLogic"
[[tier]]
name = "all"
users = 5000
quota = "2GB"
messages = 150
message-size = "75KB"
"#;

#[test]
fn dells_choice_of_500_gb_drives_holds_by_its_own_arithmetic_and_not_by_its_formula() {
    // Table 18 forgets the overhead of table 14, and nothing is kept for snapshots.
    let printed = ["database_overhead=0%", "snapshot_reserve=0%", "snapshots_kept=0"];
    let set: Vec<&str> = printed.iter().flat_map(|one| ["--set", one]).collect();
    let (said, plan) = planned(DELL, &set);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let first = |plan: &Value, key: &str| plan["choices"][0][key].clone();
    assert_eq!((first(&plan, "product"), first(&plan, "drive_size")), ("PS6500E".into(), 500.0.into()));
    assert_eq!((groups(&plan), derived(&plan, "DRVT")), (vec!["mail 46 + 2 raid50".to_owned()], 96.0));
    let (_, plan) = planned(DELL, &[]);
    assert_eq!((first(&plan, "product"), first(&plan, "drive_size")), ("PS6500E".into(), 1000.0.into()));
}

#[test]
fn hps_appendix_a_buys_37_spindles_of_180_and_45_of_150() {
    let profile = r#"
rules = "exchange-2003"
array = "EVA8000"
raid = "raid10"
[[tier]]
name = "all"
users = 5000
quota = "20MB"
messages = 140
[set]
iops_headroom = "0%"
database_writes = "33%"
backup_fulls = 0
snapshots_kept = 0
snapshot_reserve = "0%"
"#;
    let (_, plan) = planned(profile, &[]);
    assert_eq!(groups(&plan)[0], "databases 37 + 1 raid10");
    assert_eq!(
        [derived(&plan, "DRIO"), derived(&plan, "EACH"), derived(&plan, "SPIN")],
        [6650.0, 180.0, 37.0]
    );
    let (_, plan) = planned(profile, &["--set", "drive_iops=150"]);
    assert_eq!(groups(&plan)[0], "databases 45 + 1 raid10");
    assert_eq!([derived(&plan, "EACH"), derived(&plan, "SPIN")], [150.0, 45.0]);
}

#[test]
fn continuous_access_fits_the_eva5000_that_the_paper_filled() {
    // 5,000 mailboxes of 100 MB at 0.5 IOPS each, on two servers of four storage groups with five databases each. The
    // paper had 72 drives for databases, 16 for logs, 52 for backups and write history.
    let profile = r#"
rules = "exchange-2003"
array = "EVA5000"
raid = "raid10"
max-database = "24GB"
[[tier]]
name = "all"
users = 5000
quota = "100MB"
[set]
databases_per_log = 5
iops_per_mailbox = 0.5
iops_headroom = "0%"
"#;
    let (said, plan) = planned(profile, &[]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(groups(&plan), ["databases 70 + 1 raid10", "logs 16 + 1 raid10", "backup 40 + 1 raid5"]);
    let numbers = ["DBIOP", "SRV", "DRVT"].map(|id| derived(&plan, id));
    assert_eq!(numbers, [2500.0, 2.0, 129.0], "two servers; the array has 168 bays");
}

#[test]
fn an_array_whose_paper_prints_no_io_says_which_setting_it_lacks() {
    let profile = "rules = \"exchange-2007\"\narray = \"N5500\"\n[[tier]]\nname = \"all\"\nusers = 2000\nquota = \"200MB\"\n";
    let (said, plan) = planned(profile, &[]);
    assert_eq!(said.code, Some(1));
    let reason = plan["rejected"][0]["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("The paper prints no IOPS") && reason.ends_with("(--set drive_iops=N says it)"),
        "{reason}"
    );
    let (said, plan) = planned(profile, &["--set", "drive_iops=150"]);
    assert_eq!((said.code, derived(&plan, "EACH")), (Some(0), 150.0));
}

#[test]
fn copies_over_a_link_buy_no_drives_for_a_write_history() {
    let (_, plan) = planned(DELL, &["--link", "OC3"]);
    assert_eq!(groups(&plan).len(), 1, "mail alone: {:?}", groups(&plan));
    assert_eq!(derived(&plan, "WHL"), 0.0);
}

#[test]
fn a_full_backup_beyond_its_window_is_found_with_copies_too() {
    let bench = Bench::new();
    let warned = |copies: &str| {
        bench.make_file("profile.toml", DELL.replace("copies = 2", copies).as_bytes());
        bench.run(&["plan", "profile.toml"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(warned("copies = 1").contains("warning A full backup takes 39.27 h, 491 % of its window"));
    let two = warned("copies = 2");
    assert!(two.contains("warning A full backup takes 39.27 h, 491 % of its window"), "{two}");
    let three = warned("copies = 3");
    assert!(three.contains("note A full backup takes 39.27 h, 491 % of its window"), "{three}");
}

#[test]
fn pools_stay_within_their_bound_and_drives_without_raid_have_three_copies() {
    let many = "copies = 2\narray = \"7.2K SATA\"\n[[tier]]\nname = \"all\"\nusers = 2000000\n";
    let (_, plan) = planned(many, &[]);
    let group = &plan["choices"][0]["groups"][0];
    let of = |key: &str| group[key].as_u64().expect("a number");
    assert!(of("drives") > 5_000 && of("drives") / of("pools") <= 168, "{group}");
    assert!(of("spares") * 23 >= of("drives"), "{group}");
    let jbod = "rules = \"exchange-2013\"\ncopies = 3\nraid = \"JBOD\"\nmax-database = \"700GB\"\narray = \"7.2K SATA\"\n\
                [[tier]]\nname = \"all\"\nusers = 5000\n";
    let (said, plan) = planned(jbod, &[]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let group = &plan["choices"][0]["groups"][0];
    assert_eq!((&group["raid"], &group["pools"]), (&"jbod".into(), &group["drives"]));
    let (said, plan) = planned(&jbod.replace("copies = 3", "copies = 2"), &[]);
    assert_eq!(said.code, Some(1));
    let reason = plan["rejected"][0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("it takes 3 of each database, and 2 are planned"), "{reason}");
}
