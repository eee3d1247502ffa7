//! Backups of a set proven through a server: databases that `prove` made on a volume, checked in the snapshots of backups.

use crate::{
    exported::{is_here, judge},
    fetched_mail::mails_are_fetched,
    online_verbs::make_token,
    pool_drives::done,
    sites_served::Served,
    spindle::{Bench, ProgramOutput, answered, json_of, short},
};
use serde_json::Value;
use std::{os::unix::fs::PermissionsExt, process::Command, thread, time::Duration};

pub const SITE: &str = "
[serve]
nbd = '127.0.0.1:0'
iscsi = '127.0.0.1:0'
[[group]]
name = 'mail'
drives = 2
drive_gb = 0.5
[[volume]]
name = 'store'
group = 'mail'
gb = 0.125
[[nbd]]
name = 'store'
volume = 'store'
[[protect]]
set = 'post'
volumes = ['store']
schedules = ['24x1h']
";

fn run(bench: &Bench, arguments: &[&str]) -> ProgramOutput {
    bench.run(&[arguments, &["--state", "state", "--json"]].concat())
}

fn back_up(bench: &Bench) -> u64 {
    let made = run(bench, &["protect", "now", "post", "--hold", "test"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    json_of(&made.stdout)["number"].as_u64().unwrap()
}

/// The row of a backup in the list.
fn row(bench: &Bench, number: u64) -> Value {
    let listed = json_of(&run(bench, &["protect", "list", "post"]).stdout);
    let rows = listed["backups"].as_array().unwrap();
    rows.iter().find(|row| row["number"] == number).unwrap().clone()
}

/// The row of a backup once this holds; fails after 30 s.
fn row_when(bench: &Bench, number: u64, holds: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..150 {
        let row = row(bench, number);
        if holds(&row) {
            return row;
        }
        thread::sleep(Duration::from_millis(200));
    }
    panic!("it stays so: {}", row(bench, number))
}

/// A drill with each of both backups, and one by a command.
fn drills_tell(bench: &Bench, good: u64, bad: u64) {
    let held = run(bench, &["protect", "drill", "post", &good.to_string()]);
    assert_eq!(held.code, Some(0), "{}{}", held.stdout, held.stderr);
    let answer = json_of(&held.stdout);
    assert_eq!((&answer["is_good"], &answer["is_noted"]), (&true.into(), &true.into()), "{answer}");
    assert!(answer["rto_seconds"].as_f64().unwrap() > 0.0 && answer["rpo_seconds"].as_u64().unwrap() < 60);
    let held = run(bench, &["protect", "drill", "post", &bad.to_string()]);
    assert_eq!(held.code, Some(1), "{}{}", held.stdout, held.stderr);
    assert!(!json_of(&held.stdout)["findings"].as_array().unwrap().is_empty(), "{}", held.stdout);
    let size =
        "qemu-img info --output=json \"$1\" | grep -q 'virtual-size\": 134217728' && echo $SPINDLE_SET";
    let held = run(bench, &["protect", "drill", "post", "--check", size]);
    assert_eq!(held.code, Some(0), "{}{}", held.stdout, held.stderr);
    assert_eq!(json_of(&held.stdout)["output"], "post", "{}", held.stdout);
    let pool = done(&bench.run(&["pool", "show", "state/pools/mail", "--json"]));
    assert!(!pool.contains("drill"), "{pool}");
}

/// Only the good one has what was written over after it; nothing was written after the bad one.
fn space_tells(bench: &Bench, good: u64, bad: u64) {
    let listed = json_of(&run(bench, &["protect", "list", "post", "--space"]).stdout);
    let freed = |number: u64| listed["frees_bytes"][number.to_string()].as_u64().unwrap();
    let written = 28 << 16;
    assert!(freed(good) > 0 && freed(good) <= written, "{listed}");
    assert_eq!(freed(bad), 0, "{listed}");
    let listed = done(&bench.run(&["protect", "list", "--space", "--state", "state"]));
    assert_eq!(listed.matches("; frees ").count(), 3, "{listed}");
}

/// An auditor reads what became of both backups, after one was cloned.
fn report_tells(bench: &Bench, good: u64, bad: u64) {
    // The logs would be those of the volume: its own log may have been written over, too.
    let look = ["protect", "restore", "post", &good.to_string(), "--as", "look", "--logs", "none"];
    let restored = run(bench, &look);
    assert_eq!(restored.code, Some(0), "{}", restored.stderr);
    let reported = run(bench, &["protect", "report", "post", "--since", "1d", "--html", "report.html"]);
    assert_eq!(reported.code, Some(0), "{}", reported.stderr);
    let report = json_of(&reported.stdout);
    let backup = |number: u64| {
        let rows = report["backups"].as_array().unwrap();
        rows.iter().find(|row| row["number"] == number).unwrap().clone()
    };
    assert_eq!((&backup(good)["proof"], &backup(bad)["proof"]), (&"proven".into(), &"damaged".into()));
    let verifications = backup(good)["verifications"].as_array().unwrap().clone();
    let levels: Vec<&Value> = verifications.iter().map(|one| &one["level"]).collect();
    assert_eq!(levels, ["pages", "recover"], "{report}");
    assert_eq!((&verifications[0]["by"], &report["slots"][0]["fate"]), (&"user 0".into(), &"made".into()));
    let restore = &report["restores"][0];
    assert_eq!((&restore["to"], &restore["is_good"]), (&"beside, as look".into(), &true.into()), "{report}");
    let drills = report["drills"].as_array().unwrap();
    let is_good: Vec<bool> = drills.iter().map(|drill| drill["is_good"].as_bool().unwrap()).collect();
    assert_eq!(is_good, [true, false, true], "{report}");
    let page = std::fs::read_to_string(bench.path("report.html")).unwrap();
    assert!(page.contains("Slots that were due") && page.contains("is damaged"), "{page}");
    // The same from the file, where no server is.
    let file = run(bench, &["protect", "report", "post", "--catalogue", "state/sets/post.catalogue"]);
    assert_eq!(json_of(&file.stdout)["backups"], report["backups"], "{}", file.stderr);
    for (arguments, why) in [
        (["--since", "someday"], "is no day and no span; say a day such as 2026-01-01"),
        (["--html", "report.html"], "report.html"),
        (["--catalogue", "site.toml"], "it is no catalogue of backups"),
    ] {
        let refused = run(bench, &[&["protect", "report", "post"][..], &arguments].concat());
        assert_eq!(refused.code, Some(2), "{arguments:?} {}", refused.stdout);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
}

#[test]
fn the_server_verifies_what_is_due_and_says_what_it_could_not_check() {
    let bench = Bench::new();
    let site = format!("{SITE}[protect.verify]\nlevel = 'recover'\nthrottle = '500MB/s'\n");
    bench.make_file("site.toml", site.as_bytes());
    let served = Served::begin(&bench);
    // Nothing lies on the volume yet.
    let empty = back_up(&bench);
    let row = row_when(&bench, empty, |row| !row["not_verified"].is_null());
    assert_eq!(row["proof"], "unproven", "{row}");
    assert!(row["not_verified"].as_str().unwrap().contains("no database was ever put there"), "{row}");
    let listed = bench.run(&["protect", "list", "post", "--state", "state"]);
    assert!(listed.stdout.contains("verified: recover, 500MB/s"), "{}", listed.stdout);
    assert!(listed.stdout.contains("not verified yet: "), "{}", listed.stdout);
    answered(&bench.run(&short(&[served.uri("/store")])));
    let full = back_up(&bench);
    let row = row_when(&bench, full, |row| row["proof"] != "unproven");
    assert_eq!((&row["proof"], &row["verified_level"]), (&"proven".into(), &"recover".into()), "{row}");
    let exports = json_of(&run(&bench, &["export", "list"]).stdout);
    assert_eq!(exports.as_array().unwrap().len(), 1, "{exports}");
    served.end();
}

/// A drill by the clock: its time is a minute from now.
#[test]
fn the_server_holds_the_drill_that_is_due() {
    if std::env::var_os("SPINDLE_FULL").is_none() {
        return;
    }
    let bench = Bench::new();
    let date = Command::new("date").args(["-u", "-d", "+70 seconds", "+%H:%M"]).output().unwrap();
    let at = String::from_utf8(date.stdout).unwrap();
    let site = format!("{SITE}[protect.drill]\nevery = '1d'\nat = '{}'\n", at.trim());
    bench.make_file("site.toml", site.as_bytes());
    let served = Served::begin(&bench);
    answered(&bench.run(&short(&[served.uri("/store")])));
    back_up(&bench);
    let drills = || {
        let report = json_of(&run(&bench, &["protect", "report", "post"]).stdout);
        report["drills"].as_array().unwrap().clone()
    };
    for _ in 0..200 {
        if drills().is_empty() {
            thread::sleep(Duration::from_secs(1));
        }
    }
    let drills = drills();
    assert_eq!((drills.len(), &drills[0]["is_good"]), (1, &true.into()), "{drills:?}");
    served.end();
}

#[test]
fn another_machine_verifies_what_is_due_and_an_agent_notes_its_own_results() {
    let bench = Bench::new();
    let elsewhere = format!("{SITE}[protect.verify]\nlevel = 'pages'\nelsewhere = true\n");
    let hooks = "[protect.freeze]\nkind = 'hooks'\nbefore = ['/bin/true']\nafter = ['/bin/true']\n";
    let password = bench.make_file("secret", b"a good password");
    std::fs::set_permissions(password, std::fs::Permissions::from_mode(0o600)).unwrap();
    done(&bench.run(&["protect", "vault", "init", "vault", "--password-file", "secret"]));
    let [vault, password] = ["vault", "secret"].map(|name| bench.path(name).display().to_string());
    let agent = format!(
        "{}{hooks}[protect.verify]\nlevel = 'chain'\n[protect.vault]\nto = '{vault}'\ncopy = '3x1d'\n\
         password_file = '{password}'\n",
        SITE.replace("'post'", "'mine'")
    );
    let (_, agents_set) = agent.split_once("[[protect]]").unwrap();
    bench.make_file("site.toml", format!("{elsewhere}[[protect]]{agents_set}").as_bytes());
    let served = Served::begin(&bench);
    answered(&bench.run(&short(&[served.uri("/store")])));
    let number = back_up(&bench);
    let socket = format!("unix:{}", bench.path("state/spindle.sock").display());
    make_token(&bench, "operate", &["--role", "operate"]);
    let place = ["--server", &socket, "--token-file", "operate"];
    let answer = bench.run(&[&["protect", "verify", "--due", "--json"][..], &place].concat());
    let lines: Vec<Value> = answer.stdout.lines().map(json_of).collect();
    assert!(lines.iter().all(|line| line["set"] == "post"), "{}", answer.stdout);
    assert_eq!(lines[0]["result"], "proven", "{}", answer.stdout);
    // The first one was made before anything was on the volume.
    assert_eq!((lines.len(), &lines[1]["result"]), (2, &"unfinished".into()), "{}", answer.stdout);
    assert_eq!(answer.code, Some(2));
    assert_eq!(row(&bench, number)["proof"], "proven");
    let again = bench.run(&["protect", "verify", "--due", "--state", "state"]);
    assert_eq!((again.code, again.stdout.trim()), (Some(0), "nothing is due"), "{}", again.stderr);
    let refused = bench.run(&["protect", "verify", "mine", "--due", "--state", "state"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stdout);
    assert!(refused.stderr.contains("the agent that keeps mine verifies its backups"), "{}", refused.stderr);
    let agent = ["protect", "run", "site.toml", "--catalogues", "sets", "--once"];
    let said = bench.run(&[&agent[..], &place].concat());
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("is proven (chain)"), "{}", said.stderr);
    assert!(said.stderr.contains("is copied to DIR/vault"), "{}", said.stderr);
    let catalogue = std::fs::read_to_string(bench.path("sets/mine.catalogue")).unwrap();
    assert_eq!(catalogue.matches("\"copied\"").count(), 1, "{catalogue}");
    let list = ["protect", "vault", "list", "vault", "--password-file", "secret", "--json"];
    let copies = json_of(&done(&bench.run(&list)));
    assert_eq!((copies.as_array().unwrap().len(), &copies[0]["set"]), (1, &"mine".into()), "{copies}");
    let exports = json_of(&run(&bench, &["export", "list"]).stdout);
    assert_eq!(exports.as_array().unwrap().len(), 1, "{exports}");
    served.end();
}

#[test]
fn a_backup_is_proven_or_damaged_by_what_its_snapshots_hold() {
    if !is_here("qemu-io", "qemu-utils") {
        return;
    }
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let served = Served::begin(&bench);
    answered(&bench.run(&short(&[served.uri("/store")])));
    let good = back_up(&bench);
    assert_eq!(row(&bench, good)["proof"], "unproven");
    for level in ["pages", "recover"] {
        let verified = run(&bench, &["protect", "verify", "post", &good.to_string(), "--level", level]);
        assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
        let answer = json_of(&verified.stdout);
        assert_eq!((&answer["result"], &answer["is_noted"]), (&"proven".into(), &true.into()), "{answer}");
        assert_eq!(
            (&row(&bench, good)["proof"], &row(&bench, good)["verified_level"]),
            (&"proven".into(), &level.into())
        );
    }
    mails_are_fetched(&bench, good);
    // Every fourth MiB of the volume is another's.
    let writes: Vec<String> = (8..120).step_by(4).map(|at| format!("write -P 238 {at}M 64k")).collect();
    let commands = writes.iter().flat_map(|write| ["-c", write]);
    let arguments: Vec<&str> =
        ["-f", "raw"].into_iter().chain(commands).chain([served.uri("/store")]).collect();
    judge("qemu-io", &arguments);
    let bad = back_up(&bench);
    let verified = run(&bench, &["protect", "verify", "post"]);
    assert_eq!(verified.code, Some(1), "{}{}", verified.stdout, verified.stderr);
    let answer = json_of(&verified.stdout);
    assert_eq!(answer["result"], "damaged", "{answer}");
    assert!(!answer["findings"].as_array().unwrap().is_empty(), "{answer}");
    assert_eq!(
        (&row(&bench, bad)["proof"], &row(&bench, good)["proof"]),
        (&"damaged".into(), &"proven".into())
    );
    space_tells(&bench, good, bad);
    drills_tell(&bench, good, bad);
    report_tells(&bench, good, bad);
    // The proven one is the last of its kind.
    let number = &*good.to_string();
    for why in ["held: test", "last proven one"] {
        let refused = run(&bench, &["protect", "delete", "post", number]);
        assert_eq!(refused.code, Some(2), "{}", refused.stdout);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
        run(&bench, &["protect", "release", "post", number, "test"]);
    }
    // Nothing is left of it.
    let exports = json_of(&run(&bench, &["export", "list"]).stdout);
    assert_eq!(exports.as_array().unwrap().len(), 1, "{exports}");
    let none = run(&bench, &["protect", "verify", "post", "99"]);
    assert!(none.stderr.contains("there is no backup 99"), "{}", none.stderr);
    served.end();
}
