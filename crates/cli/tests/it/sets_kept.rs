//! Sets that a real server keeps, and the verbs about their backups.

use crate::{
    judged_exports::until,
    online_verbs::make_token,
    pool_drives::done,
    sites_served::{SITE, Served},
    spindle::{Bench, json_of},
};
use serde_json::Value;

const SET: &str = "
[[protect]]
set = 'post'
volumes = ['store', 'logs/log']
logs = ['log']
schedules = ['60x1min', '24x1h']
[[snapshots]]
name = 'hourly'
groups = ['mail']
schedules = ['24x1h']
";

fn backups(bench: &Bench) -> Vec<Value> {
    let listed = bench.run(&["protect", "list", "post", "--state", "state", "--json"]);
    json_of(&done(&listed))["backups"].as_array().unwrap().clone()
}

/// A verb that is refused, with the reason.
fn refused(bench: &Bench, arguments: &[&str]) -> String {
    let output = bench.run(&[arguments, &["--state", "state"]].concat());
    assert_eq!(output.code, Some(2), "{}{}", output.stdout, output.stderr);
    output.stderr
}

fn order(bench: &Bench, arguments: &[&str]) -> Value {
    json_of(&done(&bench.run(&[arguments, &["--state", "state", "--json"]].concat())))
}

/// Callers with tokens of each role, who do what it may do and no more.
fn check_roles(bench: &Bench) {
    for (role, pools) in [("read", &[][..]), ("operate", &[]), ("admin", &["--pool", "mail"])] {
        make_token(bench, role, &[&["--role", role], pools].concat());
    }
    let socket = format!("unix:{}", bench.path("state/spindle.sock").display());
    let call = |role: &str, arguments: &[&str]| {
        let said = bench.run(&[arguments, &["--server", &socket, "--token-file", role]].concat());
        (said.code, said.stderr)
    };
    for (role, arguments, expected) in [
        ("read", &["protect", "list", "post"][..], None),
        ("read", &["protect", "now", "post"], Some("it takes the role operate")),
        ("operate", &["protect", "hold", "post", "1", "operator"], None),
        ("operate", &["protect", "lock", "post", "1", "--for", "15d"], Some("it takes the role admin")),
        ("operate", &["protect", "delete", "post", "1"], Some("it takes the role admin")),
        // It may see one of the set's pools alone.
        ("admin", &["protect", "list", "post"], Some("there is no set post")),
        ("admin", &["protect", "delete", "post", "1"], Some("there is no set post")),
    ] {
        let (code, said) = call(role, arguments);
        assert_eq!(code, Some(if expected.is_some() { 2 } else { 0 }), "{role} {arguments:?}: {said}");
        assert!(said.contains(expected.unwrap_or_default()), "{role} {arguments:?}: {said}");
    }
    let audit = done(&bench.run(&["audit", "export", "--state", "state"]));
    assert!(audit.contains("PUT /v1/sets/post/backups/1/holds/operator"), "{audit}");
}

/// A site file cannot destroy a volume with a locked backup, or let go of its set.
fn expect_locked_against_files(bench: &Bench, backup: &str) {
    bench.make_file("no-set.toml", SITE.as_bytes());
    let why = refused(bench, &["apply", "no-set.toml"]);
    assert!(
        why.contains(&format!("the file lacks set post, whose backup {backup} is locked until")),
        "{why}"
    );
    let mut file = format!("{SITE}{SET}");
    for (text, instead) in [
        ("[[volume]]\nname = 'log'\ngroup = 'logs'\ngb = 0.0078125\n", ""),
        ("[[nbd]]\nname = 'log'\nvolume = 'logs/log'\n", ""),
        ("volumes = ['store', 'logs/log']\nlogs = ['log']\n", "volumes = ['store']\n"),
    ] {
        assert!(file.contains(text), "{file}");
        file = file.replace(text, instead);
    }
    bench.make_file("no-log.toml", file.as_bytes());
    let why = refused(bench, &["apply", "no-log.toml", "--destroy", "logs/log"]);
    assert!(why.contains(&format!("{backup} is a backup that is locked until")), "{why}");
    let plan = bench.run(&["apply", "site.toml", "--state", "state", "--dry-run"]);
    assert!(plan.stdout.contains("nothing to change"), "nothing was begun: {}{}", plan.stdout, plan.stderr);
}

#[test]
fn backups_of_two_pools_are_made_held_locked_and_deleted_and_outlive_a_restart() {
    let bench = Bench::new();
    bench.make_file("site.toml", format!("{SITE}{SET}").as_bytes());
    let served = Served::begin(&bench);
    assert!(served.changes.contains(&"create set post".to_owned()), "{:?}", served.changes);
    until("the set has a backup", || !backups(&bench).is_empty());
    let first = backups(&bench)[0].clone();
    assert_eq!(
        (&first["number"], &first["label"], &first["by"]),
        (&1.into(), &"crash".into(), &"schedule".into())
    );
    assert_eq!(first["points"].as_array().unwrap().len(), 2, "{first}");
    let hourly = || done(&bench.run(&["protect", "list", "hourly", "--state", "state"]));
    until("snapshots are a set, too", || hourly().contains("full, crash, unproven"));
    assert!(hourly().starts_with("hourly: 24x1h in UTC: mail/store\n"), "{}", hourly());
    let schedules = done(&bench.run(&["schedule", "list", "--state", "state"]));
    assert!(!schedules.contains("hourly"), "{schedules}");

    let made = order(&bench, &["protect", "now", "post", "--hold", "upgrade"]);
    assert_eq!((&made["kind"], &made["holds"][0]), (&"full".into(), &"upgrade".into()), "{made}");
    let number = made["number"].to_string();
    let why = refused(&bench, &["protect", "delete", "post", &number]);
    assert!(why.contains("stays: held: upgrade"), "{why}");
    order(&bench, &["protect", "release", "post", &number, "upgrade"]);
    assert!(refused(&bench, &["protect", "release", "post", &number, "upgrade"]).contains("is not held by"));
    let deleted = order(&bench, &["protect", "delete", "post", &number]);
    assert_eq!(deleted["done"], "deleted");
    assert!(refused(&bench, &["protect", "delete", "post", &number]).contains("there is no backup"));

    order(&bench, &["protect", "hold", "post", "1", "audit"]);
    let locked = order(&bench, &["protect", "lock", "post", "1", "--for", "14d"]);
    assert!(locked["locked_for_seconds"].as_i64().unwrap() > 13 * 86_400, "{locked}");
    // Its snapshots are those of nobody else, either.
    let (name, point) = (first["name"].as_str().unwrap(), first["points"][0].clone());
    let [pool, volume] = ["pool", "volume"].map(|key| point[key].as_str().unwrap());
    let path = format!("state/pools/{pool}/{volume}@{name}");
    let deleted = bench.run(&["volume", "delete", &path, "--yes", name]);
    assert_eq!(deleted.code, Some(2), "{}", deleted.stdout);
    assert!(deleted.stderr.contains("nobody can delete it before"), "{}", deleted.stderr);
    let why = refused(&bench, &["protect", "lock", "post", "1", "--for", "1d"]);
    assert!(why.contains("only longer is possible"), "{why}");
    assert!(refused(&bench, &["protect", "list", "none"]).contains("there is no set none"));
    check_roles(&bench);
    expect_locked_against_files(&bench, name);
    served.end();

    // Nobody has the pools open: the catalogue says how long it is locked.
    let deleted = bench.run(&["volume", "delete", &path, "--yes", name]);
    assert_eq!(deleted.code, Some(2), "{}", deleted.stdout);
    assert!(deleted.stderr.contains("nobody can delete it before"), "{}", deleted.stderr);
    assert!(bench.path("state/sets/post.catalogue").exists());
    let shown = json_of(&done(&bench.run(&["pool", "show", "state/pools/logs", "--json"])));
    let snapshots = shown["volumes"][0]["snapshots"].as_array().unwrap().clone();
    assert!(snapshots.contains(&first["name"]), "{snapshots:?}");
    let served = Served::begin(&bench);
    assert_eq!(served.changes, Vec::<String>::new());
    until("the set has a backup", || !backups(&bench).is_empty());
    let kept = backups(&bench).pop().unwrap();
    assert_eq!((&kept["name"], &kept["points"]), (&first["name"], &first["points"]));
    assert_eq!(kept["holds"][0], "audit");
    let text = done(&bench.run(&["protect", "list", "--state", "state"]));
    assert!(text.contains("post: 60x1min, 24x1h in UTC: mail/store, logs/log (logs)"), "{text}");
    assert!(
        text.contains("full, crash, unproven; stays: held: audit, held: operator, locked for "),
        "{text}"
    );
    served.end();

    // A state folder that lost the catalogue.
    std::fs::remove_file(bench.path("state/sets/post.catalogue")).unwrap();
    let served = Served::begin(&bench);
    let has_strays = || {
        let listed = bench.run(&["protect", "list", "post", "--state", "state", "--json"]);
        let problems = json_of(&done(&listed))["problems"].clone();
        problems["strays"].as_str().is_some_and(|text| text.contains("points are of another catalogue"))
    };
    until("the lost catalogue is missed", has_strays);
    let rebuilt = order(&bench, &["protect", "rebuild", "post"]);
    assert!(rebuilt["backups"].as_array().unwrap().contains(&first["name"]), "{rebuilt}");
    assert!(rebuilt["copy"].as_str().unwrap().contains("sets/post.catalogue.before-"), "{rebuilt}");
    until("the backups are back", || backups(&bench).iter().any(|backup| backup["number"] == 1));
    let kept = backups(&bench).pop().unwrap();
    assert_eq!((&kept["name"], kept["points"].as_array().unwrap().len()), (&first["name"], 2));
    served.end();
}
