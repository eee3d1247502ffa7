//! Properties of all profiles.

use crate::planned::planned;
use plan::{
    demand::Demand,
    rules::Rules,
    units::{Gib, parse_size},
};
use proptest::{prelude::*, test_runner::RngSeed};

fn profile(rules: &str, users: u64, quota_mb: u32, messages: u32, size_kb: u32, copies: u32) -> String {
    // A mailbox must fit a database, or there is no plan.
    format!(
        "rules = \"{rules}\"\ncopies = {copies}\nmax-database = \"2TB\"\nlink = \"OC3\"\n[[tier]]\nusers = {users}\n\
         quota = \"{quota_mb}MB\"\nmessages = {messages}\nmessage-size = \"{size_kb}KB\"\n"
    )
}

/// Everything that is needed of storage and links for all users together.
const NEEDED: [&str; 18] = [
    "NUT", "DBS", "DBC", "DCAP", "OMS", "RDB", "RCAP", "LPD", "LCAP", "CAP", "DBIOP", "LIOPS", "MNT", "LNK",
    "WHL", "SNS", "CACHE", "BKC",
];

#[track_caller]
fn never_less(few: &Demand, many: &Demand) {
    for id in NEEDED {
        let (few, many) = (few.sheet.get(id), many.sheet.get(id));
        assert!(many >= few * (1.0 - 1e-12), "{id} falls from {few} to {many}");
    }
    // Volumes are whole, and mailboxes of a database too: by less than a GB and a mailbox's log a database.
    let slack = many.sheet.get("DBC") * (1.0 + many.sheet.get("LVS") / many.sheet.get("NDB") + 1.0);
    for id in ["PROV", "SNR"] {
        assert!(many.sheet.get(id) + slack >= few.sheet.get(id), "{id} falls");
    }
}

fn rule_set() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(Rules::names().collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150, failure_persistence: None, rng_seed: RngSeed::Fixed(6), ..ProptestConfig::default()
    })]

    #[test]
    fn more_users_never_need_less(
        rules in rule_set(),
        users in 1_u64..2_000_000,
        more in 1_u64..100_000,
        quota in 1_u32..200_000,
        messages in 1_u32..1000,
        size in 1_u32..1000,
        copies in 1_u32..5,
    ) {
        let plan = |users| planned(&profile(rules, users, quota, messages, size, copies), &["recovery_databases=1"]);
        never_less(&plan(users), &plan(users + more));
        never_less(&plan(users), &plan(users + 1));
    }

    #[test]
    fn larger_mailboxes_and_more_messages_never_need_less(
        rules in rule_set(),
        users in 1_u64..100_000,
        quota in 1_u32..100_000,
        messages in 1_u32..1000,
        size in 1_u32..1000,
        more in 1_u32..500,
    ) {
        let plan = |quota, messages, size| planned(&profile(rules, users, quota, messages, size, 2), &[]);
        let few = plan(quota, messages, size);
        never_less(&few, &plan(quota + more, messages, size));
        never_less(&few, &plan(quota, messages + more, size));
        never_less(&few, &plan(quota, messages, size + more));
    }

    #[test]
    fn sizes_survive_being_written_and_read(mib in 0.001_f64..1e9, unit in 0_usize..8) {
        let (name, bytes_of) = [
            ("KB", 1.0 / 1024.0), ("MB", 1.0), ("GB", 1024.0), ("TB", 1048576.0),
            ("KiB", 1.0 / 1024.0), ("MiB", 1.0), ("GiB", 1024.0), ("TiB", 1048576.0),
        ][unit];
        let read = parse_size(&format!("{:.12}{name}", mib / bytes_of)).unwrap();
        prop_assert!((read.get() / mib - 1.0).abs() < 1e-6, "{mib} MB as {name} is {}", read.get());
        let there_and_back = Gib::new(mib).as_sold().gib().mib().gib().get();
        prop_assert!((there_and_back / mib - 1.0).abs() < 1e-12);
    }

    #[test]
    fn no_text_of_a_size_or_a_profile_panics(text in ".{0,40}", cut in 0_usize..120) {
        let _ = parse_size(&text);
        let whole = profile("exchange-2010", 10, 100, 10, 10, 1);
        let broken = format!("{}{text}", &whole[..cut.min(whole.len())]);
        let _ = plan::profile::Profile::parse(&broken);
        let _ = Rules::parse(&broken);
    }
}

#[test]
fn ten_million_mailboxes_do_not_overflow() {
    for rules in Rules::names() {
        let demand = planned(&profile(rules, 10_000_000, 102_400, 500, 1000, 3), &[]);
        assert!(demand.sheet.all().iter().all(|one| one.value.is_finite() && one.value >= 0.0));
        assert_eq!(demand.needs.users, 10_000_000);
        assert!(demand.needs.database_capacity.get() > 1e9, "an exabyte and more");
        assert!(demand.needs.databases > 400_000 && demand.needs.servers > 4000);
    }
}

#[test]
fn a_mailbox_larger_than_a_database_is_refused() {
    let mut profile =
        plan::profile::Profile::parse(&profile("exchange-2010", 5, 102_400, 10, 10, 1)).unwrap();
    profile.database_max = Some(Gib::new(64.0));
    let refused = Demand::of(&profile, Rules::named("exchange-2010").unwrap()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "one mailbox takes 107 GB, and a database may have 64 GB; allow larger databases, or smaller mailboxes"
    );
}

/// A plan of hostile figures: each at its least, its most, or as it is.
fn extremes(rules: &str, extremes: &[u8], profile: &str) -> Result<(), String> {
    let mut profile = plan::profile::Profile::parse(profile).map_err(|error| error.to_string())?;
    let rules = Rules::named(rules).expect("a rule set");
    for (figure, extreme) in rules.figures().iter().zip(extremes) {
        let value = match extreme {
            0 => figure.least,
            1 => figure.most,
            _ => continue,
        };
        profile.set.push(format!("{}={value}{}", figure.key, figure.unit));
    }
    let catalogue = plan::catalogue::Catalogue::built_in();
    let answer =
        plan::answer::StoragePlan::of(profile, rules, &catalogue).map_err(|error| error.to_string())?;
    let _ = answer.site().map(|site| site.to_toml()).map_err(|error| error.to_string());
    let _ = report::html::render(&answer.document(report::Meta::default()));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100, failure_persistence: None, rng_seed: RngSeed::Fixed(7), ..ProptestConfig::default()
    })]

    #[test]
    fn figures_at_their_bounds_are_planned_or_refused_and_never_more_than_a_number(
        rules in rule_set(),
        each in proptest::collection::vec(0_u8..4, 80),
        users in proptest::sample::select(vec![1_u64, 5000, 10_000_000_000]),
        quota in proptest::sample::select(vec!["1KB", "2GB", "1024TB"]),
        messages in proptest::sample::select(vec!["0.001", "150", "1000000"]),
        size in proptest::sample::select(vec!["1B", "75KB", "1GB"]),
        copies in proptest::sample::select(vec![1, 2, 16]),
        largest in proptest::sample::select(vec!["1MB", "1TB", "1000000000GB"]),
        raid in proptest::sample::select(vec!["", "raid = \"raid5\"", "raid = \"inside\""]),
        at_work in proptest::sample::select(vec!["0", "0.000001", "100"]),
    ) {
        let text = format!(
            "copies = {copies}\nlink = \"T3\"\ngrowth = 10000\nmax-database = \"{largest}\"\n{raid}\n[[tier]]\nusers = {users}\n\
             quota = \"{quota}\"\nmessages = {messages}\nmessage-size = \"{size}\"\nconcurrency = {at_work}\n"
        );
        let refused = extremes(rules, &each, &text).err();
        prop_assert!(refused.is_none_or(|line| !line.is_empty() && !line.contains('\n')));
    }
}

#[test]
fn users_of_tiers_grow_by_what_was_asked_however_much_that_is() {
    let text = profile("exchange-2010", 1000, 500, 100, 75, 2);
    for (growth, users) in [("0%", 1000), ("10%", 1100), ("250%", 3500)] {
        let demand = planned(&format!("growth = \"{growth}\"\n{text}"), &[]);
        assert_eq!(demand.needs.users, users);
        assert_eq!(demand.needs.growth.get(), users as f64 / 1000.0 - 1.0, "{growth}");
    }
}
