//! `spindle plan`, as administrators meet it.

use crate::spindle::Bench;
use expect_test::expect;
use std::fs;

/// The Dell paper's example of 5,000 users.
const DELL: [&str; 13] = [
    "plan",
    "--users",
    "5000",
    "--quota",
    "2GB",
    "--messages",
    "150",
    "--message-size",
    "75KB",
    "--copies",
    "2",
    "--max-db-size",
    "1024GB",
];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    DELL.iter().copied().chain(more.iter().copied()).collect()
}

#[test]
fn for_the_dell_papers_5000_users_the_answer_is_13806_gb_in_14_databases() {
    let bench = Bench::new();
    let said = bench.run(&with(&["--full"]));
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let top: Vec<&str> = said.stdout.lines().skip(4).take(4).collect();
    expect![[r#"
        Databases     14  (of 986 GB of mail each)
        Mail          13,806 GB  (in all databases of one copy)
        Volumes       18,816 GB  (one copy: 1,302 GB a database, 42 GB its log)
        Database I/O  900 IOPS  (50 % reads, 20 % headroom in it; logs 378 more)"#]]
    .assert_eq(&top.join("\n"));
    // Every part of the plan has its table.
    for part in [
        "Database capacity",
        "Log capacity",
        "Replication link",
        "Memory",
        "What carries it",
        "What does not",
    ] {
        assert!(said.stdout.lines().any(|line| line == part), "{part}");
    }
}

#[test]
fn one_number_is_explained_with_its_numbers_and_sources() {
    let said = Bench::new().run(&with(&["--explain", "dsu", "--set", "retained_days=30"]));
    expect![[r#"
        DSU: Deleted and earlier items a mailbox (dumpster)

          DSU = MSR × AMS / 1024 × retained_days + single_item_recovery × MQ + version_logging × MQ
              = 150 × 75 / 1024 × 30 + 1.2 % × 2,048 + 5.8 % × 2,048
              = 472.9 MB

          MSR                   150       Messages sent and received a day
                                          given (given)
          AMS                   75 KB     Mean message size
                                          given (given)
          retained_days         30 days   deleted messages are kept so long
                                          given (given)
          single_item_recovery  1.2 %     of a quota, kept to recover single messages
                                          Dell 2010, table 14, step 3 (paper)
          MQ                    2,048 MB  Mailbox quota
                                          given (given)
          version_logging       5.8 %     of a quota, kept as earlier versions of calendar entries
                                          Dell 2010, table 14, step 3: calendar version logging, on by default (paper)

        Source: Dell 2010, table 14, step 3 (paper: printed in one of the five papers)
    "#]]
    .assert_eq(&said.stdout);
}

#[test]
fn a_rule_file_of_ones_own_changes_answer_and_explanation() {
    let bench = Bench::new();
    bench.make_file(
        "ours.toml",
        b"name = \"ours\"\ntitle = \"Ours\"\nbased_on = \"exchange-2010\"\n[[figure]]\nkey = \"database_overhead\"\n\
          value = 0\nsource = \"measured in May\"\nconfidence = \"given\"\n",
    );
    let said = bench.run(&with(&["--rules", "ours.toml", "--explain", "DBS"]));
    assert!(said.stdout.contains("= 5,000 × 2,356 × (1 + 0 %) / 1024\n      = 11,505 GB"), "{}", said.stdout);
    assert!(said.stdout.contains("measured in May (given)"), "{}", said.stdout);
    let said = bench.run(&with(&["--rules", "ours.toml", "--quiet"]));
    assert!(said.stdout.contains("Mail          11,505 GB"), "{}", said.stdout);
}

#[test]
fn programs_get_every_number_with_its_formula_and_nothing_else_on_standard_output() {
    let said = Bench::new().run(&with(&["--json"]));
    let plan: serde_json::Value = serde_json::from_str(&said.stdout).expect("JSON alone");
    assert_eq!(
        (plan["needs"]["databases"].as_u64(), plan["format"].as_str()),
        (Some(14), Some("spindle-plan-1"))
    );
    let derived = plan["derived"].as_array().expect("a list");
    let of = |id: &str| derived.iter().find(|one| one["id"] == id).expect("derived");
    assert_eq!(of("DBS")["formula"], "total(NU × MBU) × (1 + database_overhead) / 1024");
    assert_eq!(of("LIOPS")["value"], 378.0);
    assert!(derived.iter().all(|one| one["source"].as_str().is_some_and(|source| !source.is_empty())));
    assert_eq!(said.stderr, "", "the document alone");
}

#[test]
fn a_page_and_a_site_are_written_once_and_never_over_another() {
    let bench = Bench::new();
    let arguments = with(&["--html", "plan.html", "--site", "site.toml", "--quiet"]);
    let said = bench.run(&arguments);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let page = fs::read_to_string(bench.path("plan.html")).expect("a page");
    assert!(page.starts_with("<!doctype html>") && page.contains("13,806"), "{}", &page[..200]);
    let site = fs::read_to_string(bench.path("site.toml")).expect("a site");
    let site = ::plan::site::Site::from_toml(&site).expect("it reads back");
    assert_eq!((site.databases.count, site.users.mailboxes), (Some(14), Some(5000)));
    expect!["spindle: --html: plan.html exists already; give another name, or remove it"]
        .assert_eq(&bench.refused(&arguments));
    let both = with(&["--html", "plan", "--site", "plan"]);
    expect!["spindle: --html and --site are both plan; give each a name of its own"]
        .assert_eq(&bench.refused(&both));
    let nowhere = with(&["--html", "page.html", "--site", "sites/site.toml"]);
    expect!["spindle: --site: sites does not exist; make it first: mkdir -p sites"]
        .assert_eq(&bench.refused(&nowhere));
}

#[test]
fn users_in_tiers_come_from_a_file() {
    let bench = Bench::new();
    let page = include_str!("../../../../docs/planning.md");
    let example = page.split("```toml profile\n").nth(1).and_then(|rest| rest.split("```").next());
    bench.make_file("profile.toml", example.expect("docs/planning.md has a profile").as_bytes());
    let said = bench.run(&["plan", "profile.toml", "--explain", "NU"]);
    let results =
        said.stdout.lines().map(str::trim).filter(|line| line.starts_with("= ") && !line.contains('('));
    assert_eq!(results.collect::<Vec<_>>(), ["= 4,800 users", "= 1,320 users"]);
}

#[test]
fn nothing_that_carries_it_is_exit_1() {
    let said = Bench::new().run(&[
        "plan",
        "--users",
        "2000000000",
        "--quota",
        "100GB",
        "--max-db-size",
        "2TB",
        "--quiet",
    ]);
    assert_eq!(said.code, Some(1), "{}", said.stdout);
    assert!(said.stdout.contains("Nothing in the catalogue carries this"));
}

#[test]
fn what_makes_no_sense_is_one_clear_line() {
    let bench = Bench::new();
    let refused = |arguments: &[&str]| {
        let arguments: Vec<&str> = ["plan"].iter().chain(arguments).copied().collect();
        bench.refused(&arguments)
    };
    let users = |more: &[&'static str]| {
        let arguments: Vec<&str> = ["--users", "5000"].iter().chain(more).copied().collect();
        refused(&arguments)
    };
    let all = [
        refused(&[]),
        refused(&["--users", "0"]),
        refused(&["--users", "-5"]),
        refused(&["--users", "99999999999999999999"]),
        refused(&["missing.toml"]),
        users(&["--quota", "2048"]),
        users(&["--quota", "-2GB"]),
        users(&["--quota", "0GB"]),
        users(&["--quota", "2Gb"]),
        users(&["--messages", "1e400"]),
        users(&["--message-size", "75"]),
        users(&["--copies", "99"]),
        users(&["--copies", "2", "--mode", "stand-alone"]),
        users(&["--mode", "standalone"]),
        users(&["--rules", "exchange-2012"]),
        users(&["--max-db-size", "1GB"]),
        users(&["--growth", "20x"]),
        users(&["--raid", "raid7"]),
        users(&["--array", "EqualLogik"]),
        users(&["--link", "T4"]),
        users(&["--set", "databse_overhead=3%"]),
        users(&["--set", "database_overhead=-3%"]),
        users(&["--set", "backup_rate=100"]),
        users(&["--explain", "DSV"]),
        users(&["--mesages", "3"]),
    ];
    expect![[r#"
        spindle: there are no users to plan for; say how many, such as --users 5000
        spindle: there are no users to plan for; say how many, such as --users 5000
        spindle: --users: "-5" is not a whole number of at least 1
        spindle: --users: "99999999999999999999" is not a whole number of at least 1
        spindle: PROFILE: missing.toml does not exist; give a file, or one of the flags --users, --quota
        spindle: --quota: "2048" has no unit; write KB, MB, GB or TB behind it, such as 2GB
        spindle: --quota: "-2GB" is not a size; write a number and a unit, such as 2GB
        spindle: --quota: 0GB is out of range, 1KB to 1,024TB make sense
        spindle: --quota: "2Gb": Gb are bits; sizes are bytes, such as 2GB
        spindle: --messages: "1e400" is not a number
        spindle: --message-size: "75" has no unit; write KB, MB, GB or TB behind it, such as 2GB
        spindle: 99 copies make no sense; 16 are the most that any mail server keeps
        spindle: mode stand-alone with 2 copies; more copies are mode copies
        spindle: no mode is called "standalone"; did you mean "stand-alone"?
        spindle: --rules: no rule set is called "exchange-2012" (there are exchange-2003, exchange-2007, exchange-2010, exchange-2013, open-mail, or give a file); did you mean "exchange-2013"?
        spindle: one mailbox takes 2.247 GB, and a database may have 1 GB; allow larger databases, or smaller mailboxes
        spindle: --growth: "20x" is not a number of %, such as 12%
        spindle: no RAID level is called "raid7"; did you mean "raid6"?
        spindle: nothing in the catalogue is called "EqualLogik"; did you mean "EqualLogic"?
        spindle: no line is called "T4"; there are t3, oc3, 1gbe, 10gbe
        spindle: no figure is called "databse_overhead"; did you mean "database_overhead"?
        spindle: database_overhead: "-3%" is not a number of %, such as 12%
        spindle: backup_rate: "100" has no unit; write KB, MB, GB or TB behind it, such as 2GB
        spindle: nothing in this plan is called "DSV"; did you mean "DSU"?; 'spindle plan' without --explain shows every number with its name
        spindle: unexpected argument '--mesages' found; a similar argument exists: '--messages'
    "#]].assert_eq(&format!("{}\n", all.join("\n")));
}

#[test]
fn a_bare_number_below_1_is_no_percentage_until_it_says_which() {
    let bench = Bench::new();
    bench.make_file("users.toml", b"[[tier]]\nname = \"office\"\nusers = 500\nconcurrency = 0.8\n");
    bench.make_file(
        "rules.toml",
        b"name = \"ours\"\ntitle = \"Ours\"\n[[figure]]\nkey = \"database_overhead\"\nvalue = 0.15\n\
          source = \"measured\"\nconfidence = \"given\"\n",
    );
    let users = |more: [&str; 2]| bench.refused(&["plan", "--users", "500", more[0], more[1]]);
    let all = [
        bench.refused(&["plan", "users.toml"]),
        users(["--set", "database_overhead=0.15"]),
        users(["--growth", "0.2"]),
        users(["--rules", "rules.toml"]),
    ];
    expect![[r#"
        spindle: users.toml: office: concurrency: 0.8 may mean 0.8% or 80%; write "0.8%" or "80%"
        spindle: database_overhead: 0.15 may mean 0.15% or 15%; write "0.15%" or "15%"
        spindle: --growth: 0.2 may mean 0.2% or 20%; write "0.2%" or "20%"
        spindle: rules.toml: database_overhead: 0.15 may mean 0.15% or 15%; write "0.15%" or "15%"
    "#]]
    .assert_eq(&format!("{}\n", all.join("\n")));
    let said = bench.run(&["plan", "--users", "500", "--set", "database_overhead=0.15%", "--explain", "DBS"]);
    assert!(said.stdout.contains("(1 + 0.15 %)"), "{}", said.stdout);
}

#[test]
fn a_plan_is_one_screen_that_ends_with_what_to_do_next() {
    let bench = Bench::new();
    let many = ["plan", "--users", "1200000", "--copies", "3", "--array", "7.2K", "--link", "OC3"];
    let nothing = ["plan", "--users", "2000000000", "--quota", "100GB", "--max-db-size", "2TB"];
    let alone =
        ["plan", "--users", "600", "--quota", "200MB", "--rules", "exchange-2007", "--array", "StorTrends"];
    for arguments in [&DELL[..], &many, &nothing, &alone] {
        let said = bench.run(arguments);
        let lines: Vec<&str> = said.stdout.lines().collect();
        assert!(lines.len() <= 60, "{} lines: {}", lines.len(), said.stdout);
        assert!(lines.iter().any(|line| line.starts_with("Next: ")), "{}", said.stdout);
        assert!(said.stdout.contains("--full"), "{}", said.stdout);
    }
    let said = bench.run(&with(&["--site", "site.toml"]));
    assert!(said.stdout.contains("Next: spindle advise site.toml"), "{}", said.stdout);
    for aim in ["Fewest drives", "Least raw capacity", "Closest to need"] {
        let after = said.stdout.lines().skip_while(|line| !line.starts_with(aim)).skip(1);
        let products: Vec<&str> =
            after.take_while(|line| line.starts_with("\u{a0}") || line.starts_with("  ")).collect();
        assert_eq!(products.len(), 3, "{aim}: {}", said.stdout);
    }
    assert!(!said.stdout.contains("Formula"), "{}", said.stdout);
}

#[test]
fn a_plan_knows_the_words_of_the_other_verbs_and_servers_without_figures_of_their_own() {
    let bench = Bench::new();
    let plan = |arguments: &[&str]| {
        let said = bench.run(&[&["plan", "--json"], arguments].concat());
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.stderr);
        said.stdout
    };
    let known = plan(&["--users", "1000", "--rules", "exchange-2013"]);
    for server in ["exchange-2016", "Exchange-2019", "EXCHANGE-2013"] {
        assert!(plan(&["--mailboxes", "1000", "--server", server]) == known, "{server}");
    }
}
