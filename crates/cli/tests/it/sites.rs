//! A site file: criticised by `advise`, run by `prove --site`.

use crate::spindle::{Bench, answered, json_of};
use expect_test::{Expect, expect};
use std::fs;

/// A small site whose log lies with its database, which is an error in one copy.
const SITE: &str = r#"
[users]
mailboxes = 40
iops_each = 0.5
rules = "exchange-2010"
[databases]
mode = "stand-alone"
copies = 1
count = 2
gb = 1
[demand]
database_iops = 20
headroom_percent = 20
[backup]
to = "disk"
[[group]]
name = "all"
raid = "raid10"
cache_gb = 1
host_iops = 500
[[volume]]
name = "db1"
group = "all"
databases = ["db1"]
[[volume]]
name = "db2"
group = "all"
databases = ["db2"]
[[volume]]
name = "log1"
group = "all"
role = "log"
databases = ["db1"]
"#;

fn bench_with(site: &str) -> Bench {
    let bench = Bench::new();
    bench.make_file("site.toml", site.as_bytes());
    bench
}

#[track_caller]
fn refused(site: &str, arguments: &[&str], expected: Expect) {
    expected.assert_eq(&bench_with(site).refused(arguments));
}

/// Short names of what was found.
fn ids(stdout: &str) -> Vec<String> {
    let json = json_of(stdout);
    let findings = json["findings"].as_array().expect("a list");
    findings.iter().map(|finding| finding["id"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn advice_says_what_is_wrong_why_and_what_to_do_and_ends_with_1() {
    let bench = bench_with(SITE);
    let said = bench.run(&["advise", "site.toml"]);
    assert_eq!(said.code, Some(1), "{}{}", said.stdout, said.stderr);
    let words = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "Advice for site.toml",
        "1 error, 0 warnings, 1 note",
        "error Databases and their logs share a group, and there is one copy [logs-apart]: all holds both.",
        "Fix: put logs on drives of their own",
        "HP EVA8000, \"Comparing disk group configurations\"",
        "Skipped",
    ] {
        assert!(words.contains(expected), "{expected}: {words}");
    }
    assert!(!said.stdout.contains('\x1b'), "no colours where there is no terminal");
    let quiet = bench.run(&["advise", "site.toml", "--quiet"]);
    assert!(quiet.stdout.starts_with("1 error, 0 warnings, 1 note; "), "{}", quiet.stdout);
}

#[test]
fn advice_as_json_has_the_same_and_a_site_without_errors_ends_with_0() {
    let said = bench_with(SITE).run(&["advise", "site.toml", "--json"]);
    assert_eq!((said.code, ids(&said.stdout)), (Some(1), vec!["logs-apart".to_owned(), "tested".to_owned()]));
    let mended = SITE.replace("name = \"log1\"\ngroup = \"all\"", "name = \"log1\"");
    assert_ne!(mended, SITE);
    let said = bench_with(&mended).run(&["advise", "site.toml", "--json"]);
    assert_eq!((said.code, ids(&said.stdout)), (Some(0), vec!["tested".to_owned()]));
    assert_eq!(json_of(&said.stdout)["errors"], 0);
}

#[test]
fn a_site_that_is_not_understood_is_refused_with_its_line() {
    refused(
        "[users]\nmailboxs = 5\n",
        &["advise", "site.toml"],
        expect![[
            r#"spindle: site.toml: line 2: no key is called "mailboxs" here; did you mean "mailboxes"?"#
        ]],
    );
    refused(
        "[users]\nmailboxs = 5\n",
        &["prove", "--site", "site.toml"],
        expect![[
            r#"spindle: site.toml: line 2: no key is called "mailboxs" here; did you mean "mailboxes"?"#
        ]],
    );
    refused(
        "",
        &["advise", "sight.toml"],
        expect!["spindle: SITE: sight.toml does not exist; give a site file, as 'spindle plan' writes it"],
    );
    refused(
        "",
        &["advise", "site.toml", "--run", "site.toml"],
        expect![
            "spindle: site.toml: it is no run record; give a file that 'spindle prove' left, such as spindle-report-DATE.run"
        ],
    );
}

#[test]
fn prove_takes_from_a_site_what_is_not_said_beside_it() {
    let bench = bench_with(SITE);
    let said = bench.run(&["prove", "--site", "site.toml", "--dry-run"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let asked = "profile exchange-2010, 2 groups of 1 database, 40 mailboxes at 0.6 IOPS";
    assert!(said.stdout.contains(asked), "{}", said.stdout);
    let said = bench.run(&["prove", "--site", "site.toml", "--dry-run", "--groups", "1", "--threads", "3"]);
    assert!(said.stdout.contains("1 group of 1 database, 3 threads"), "{}", said.stdout);
}

#[test]
fn a_run_of_a_site_answers_for_it_in_the_advice() {
    let bench = bench_with(SITE);
    let run = ["prove", "--site", "site.toml", "--duration", "1s", "--size", "16MiB", "--threads", "2"];
    answered(&bench.run(&[&run[..], &["--report", "night", "--quiet"]].concat()));
    assert!(fs::exists(bench.path("night.json")).expect("asked"));
    for given in ["night.run", "night.json"] {
        let said = bench.run(&["advise", "site.toml", "--run", given, "--json"]);
        assert_eq!(said.code, Some(1), "{}", said.stderr);
        let found = ids(&said.stdout);
        for expected in ["test-length", "test-against-cache", "test-against-production", "test-layout"] {
            assert!(found.contains(&expected.to_owned()), "{expected}: {found:?}");
        }
        assert!(!found.contains(&"tested".to_owned()), "{found:?}");
    }
}

#[test]
fn a_plan_is_a_site_that_prove_and_advise_take_as_it_is() {
    let bench = Bench::new();
    let users = ["plan", "--users", "200", "--quota", "100MB", "--messages", "50", "--message-size", "50KB"];
    let said = bench.run(&[&users[..], &["--copies", "2", "--site", "site.toml"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let said = bench.run(&["advise", "site.toml", "--json"]);
    assert_eq!((said.code, json_of(&said.stdout)["errors"].as_u64()), (Some(0), Some(0)), "{}", said.stdout);
    let said = bench.run(&["prove", "--site", "site.toml", "--dry-run"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let asked = "profile exchange-2010, 1 group of 1 database, 200 mailboxes at 0.06 IOPS";
    assert!(said.stdout.contains(asked), "{}", said.stdout);
    // Threads, for a second of 12 I/O is too short to answer.
    let run = ["prove", "--site", "site.toml", "--threads", "2", "--duration", "1s", "--size", "8MiB"];
    answered(&bench.run(&[&run[..], &["--report", "night", "--quiet"]].concat()));
    assert!(fs::exists(bench.path("night.run")).expect("asked"));
}

#[test]
fn what_a_run_of_a_site_made_is_removed_where_the_site_says() {
    let bench = bench_with(&SITE.replace("name = \"db1\"\ngroup", "name = \"db1\"\npath = \"db\"\ngroup"));
    bench.make_folder("db");
    let run = ["prove", "--site", "site.toml", "--threads", "1", "--duration", "1s", "--size", "16MiB"];
    answered(&bench.run(&[&run[..], &["--report", "night", "--quiet"]].concat()));
    assert!(fs::read_dir(bench.path("db")).expect("a folder").next().is_some());
    let said = bench.run(&["prove", "--site", "site.toml", "--clean"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(fs::read_dir(bench.path("db")).expect("a folder").next().is_none(), "{}", said.stdout);
}

#[test]
fn numbers_in_advice_have_their_thousands_apart_and_keep_their_powers() {
    let site = "[users]\nmailboxes = 125000\n[databases]\ncount = 1\n[demand]\ndatabase_iops = 1e30\n\
                [[group]]\nname = \"g\"\nhost_iops = 1e15\n[[volume]]\nname = \"v\"\ngroup = \"g\"\ndatabases = [\"db1\"]\n";
    let said = bench_with(site).run(&["advise", "site.toml", "--json"]);
    let json = json_of(&said.stdout);
    let places = |id: &str| {
        let finding = json["findings"].as_array().expect("a list").iter().find(|one| one["id"] == id);
        finding.expect("it is found")["places"][0].as_str().expect("a place").to_owned()
    };
    assert_eq!(places("iops-carried"), "g does 1e15 IOPS, 1e30 are asked");
    assert_eq!(places("several-copies"), "125,000 mailboxes");
}

/// Four databases of 100 GB with two copies of each, on two arrays and two servers.
const SOUND: &str = r#"
[users]
mailboxes = 400
quota_mb = 1000
iops_each = 0.1
rules = "exchange-2010"
[databases]
mode = "copies"
copies = 2
count = 4
gb = 100
[demand]
database_iops = 40
log_gb_per_day = 1
log_days = 3
[backup]
to = "disk"
every_days = 1
[[server]]
name = "one"
[[server]]
name = "two"
[[group]]
name = "mail-1"
array = "A"
raid = "raid10"
drives = 8
drive_gb = 300
usable_gb = 1000
snapshot_reserve_percent = 20
[[group]]
name = "mail-2"
array = "B"
raid = "raid10"
drives = 8
drive_gb = 300
usable_gb = 1000
snapshot_reserve_percent = 20
[[group]]
name = "backup"
raid = "raid5"
drives = 4
drive_gb = 300
usable_gb = 800
[[volume]]
name = "dbs"
group = "mail-1"
server = "one"
databases = ["db1", "db2", "db3", "db4"]
gb = 500
[[volume]]
name = "dbs-copy2"
group = "mail-2"
server = "two"
databases = ["db1", "db2", "db3", "db4"]
copy = 2
gb = 500
[[volume]]
name = "logs"
role = "log"
group = "mail-1"
databases = ["db1", "db2", "db3", "db4"]
gb = 40
[[volume]]
name = "backups"
role = "backup"
group = "backup"
gb = 800
"#;

#[test]
fn a_site_that_contradicts_itself_is_refused_with_the_line() {
    let about_itself = |site: &str| -> Vec<(String, String)> {
        let said = bench_with(site).run(&["advise", "site.toml", "--json"]);
        let json = json_of(&said.stdout);
        let findings = json["findings"].as_array().expect("a list").iter();
        let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
        let of_itself = [
            "copies-laid-out",
            "copies-in-one-array",
            "copies-in-one-server",
            "quota-fits",
            "demand-of-users",
            "logs-until-backup",
            "backup-room",
            "raid-arithmetic",
            "reserve-left",
        ];
        let all = findings.map(|one| (text(&one["id"]), text(&one["places"][0])));
        all.filter(|(id, _)| of_itself.contains(&id.as_str())).collect()
    };
    assert_eq!(about_itself(SOUND), []);
    let spoiled: [(&str, &str, &str, &str); 10] = [
        ("copies = 2", "copies = 3", "copies-laid-out", "db1 has volumes for 2, copies is 3"),
        (
            "mode = \"copies\"",
            "mode = \"stand-alone\"",
            "copies-laid-out",
            "mode is stand-alone, and copies is 2",
        ),
        ("array = \"B\"", "array = \"A\"", "copies-in-one-array", "db1: copies 1 and 2 in A"),
        ("server = \"two\"", "server = \"one\"", "copies-in-one-server", "db1: copies 1 and 2 in one"),
        (
            "quota_mb = 1000",
            "quota_mb = 2000",
            "quota-fits",
            "full mailboxes are 781.2 GB, databases are 400 GB",
        ),
        ("iops_each = 0.1", "iops_each = 0.5", "demand-of-users", "mailboxes ask 200 IOPS, the demand is 40"),
        (
            "every_days = 1",
            "every_days = 7",
            "logs-until-backup",
            "log_days is 3, and backups come every 7 days",
        ),
        ("log_gb_per_day = 1", "log_gb_per_day = 20", "logs-until-backup", "logs is full after 0.5 days"),
        (
            "drives = 4\n",
            "drives = 3\n",
            "raid-arithmetic",
            "backup has 800 usable GB, 2 of 3 drives as raid5 hold 558.8",
        ),
        (
            "snapshot_reserve_percent = 20",
            "snapshot_reserve_percent = 50",
            "reserve-left",
            "mail-1 keeps 50 % free, its volumes leave 46 %",
        ),
    ];
    for (from, to, id, place) in spoiled {
        let site = SOUND.replacen(from, to, 1);
        assert_ne!(site, SOUND, "{from}");
        let found = about_itself(&site);
        assert!(found.contains(&(id.to_owned(), place.to_owned())), "{from} → {to}: {found:?}");
    }
    let small = SOUND.replace("group = \"backup\"\ngb = 800", "group = \"backup\"\ngb = 300");
    let expected = ("backup-room".to_owned(), "backups have 300 GB, the databases are 400 GB".to_owned());
    assert_eq!(about_itself(&small), [expected]);
}

#[test]
fn a_rule_with_nothing_to_look_at_is_not_applicable() {
    let said = bench_with("[users]\nmailboxes = 100\n").run(&["advise", "site.toml", "--json"]);
    let json = json_of(&said.stdout);
    let names = |key: &str| -> Vec<&str> {
        json[key].as_array().expect("a list").iter().map(|id| id.as_str().expect("a name")).collect()
    };
    assert_eq!(names("passed"), ["several-copies"], "the one rule that a number of mailboxes answers");
    for id in
        ["logs-apart", "no-raid0", "copies-apart", "owners-set", "no-domain-controller", "raid-arithmetic"]
    {
        assert!(names("not_applicable").contains(&id), "{id}");
    }
    assert!(said.stderr.contains("1 passed, "), "{}", said.stderr);
}

#[test]
fn a_template_has_every_key_and_is_a_site_as_it_is() {
    let bench = Bench::new();
    let template = bench.run(&["advise", "--template"]);
    assert_eq!((template.code, template.stderr.as_str()), (Some(0), ""));
    bench.make_file("site.toml", template.stdout.as_bytes());
    let said = bench.run(&["advise", "site.toml", "--quiet"]);
    assert!(said.code.is_some_and(|code| code < 2), "it is understood: {}", said.stderr);
    // The same with every example taken in.
    let prose = |line: &&str| line.starts_with("# ");
    let all = template.stdout.lines().filter(|line| !prose(line)).map(|line| line.trim_start_matches('#'));
    bench.make_file("all.toml", all.collect::<Vec<_>>().join("\n").as_bytes());
    let said = bench.run(&["advise", "all.toml", "--quiet"]);
    assert!(said.code.is_some_and(|code| code < 2), "it is understood: {}", said.stderr);
    let page = include_str!("../../../../docs/site.md");
    let keys = template.stdout.lines().filter_map(|line| line.strip_prefix('#')?.split_once(" = "));
    for (key, _) in keys.filter(|(key, _)| !key.contains(' ')) {
        assert!(page.contains(&format!("| `{key}` | ")), "docs/site.md has {key}");
    }
}

#[test]
fn advice_is_a_page_too_and_never_written_over_another() {
    let bench = bench_with(SITE);
    let said = bench.run(&["advise", "site.toml", "--html", "advice.html", "--quiet"]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stdout.contains("Advice: advice.html"), "{}", said.stdout);
    let page = fs::read_to_string(bench.path("advice.html")).expect("a page");
    assert!(
        page.starts_with("<!doctype html>") && page.contains("[logs-apart]") && !page.contains("<script")
    );
    expect!["spindle: --html: advice.html exists already; give another name, or remove it"]
        .assert_eq(&bench.refused(&["advise", "site.toml", "--html", "advice.html"]));
    expect![
        "spindle: the following required arguments were not provided: <SITE>; see 'spindle advise --help'"
    ]
    .assert_eq(&bench.refused(&["advise"]));
}
