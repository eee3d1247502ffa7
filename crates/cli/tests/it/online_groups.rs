//! Groups, and snapshots over several pools, while a server has the pools open: the same words as with stopped pools, under
//! clients.

use crate::{
    pool_drives::done,
    qemu_io::QemuIo,
    sites_served::{SITE, Served, qemu_is_here},
    spindle::{Bench, ProgramOutput},
};
use serde_json::{Value, json};
use world::{World, real};

const MAIL: &str = "state/pools/mail";
const LOGS: &str = "state/pools/logs";

fn bench() -> Bench {
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    done(&bench.run(&["apply", "site.toml", "--state", "state"]));
    for pool in [MAIL, LOGS] {
        done(&bench.run(&["volume", "create", &format!("{pool}/cold"), "8MiB"]));
    }
    bench
}

/// Output of a command, without times and measured durations.
fn said(bench: &Bench, arguments: &[&str]) -> (Option<i32>, String, String) {
    let ProgramOutput { code, stdout, stderr, .. } = bench.run(arguments);
    let stdout = match serde_json::from_str::<Value>(&stdout) {
        Ok(mut json) => {
            without_times(&mut json);
            json.to_string()
        }
        Err(_) => lines_without_times(&stdout),
    };
    // With --json, the words are on standard error.
    (code, stdout, lines_without_times(&stderr))
}

fn lines_without_times(text: &str) -> String {
    text.lines().map(without_time).collect::<Vec<_>>().join("\n")
}

fn without_time(line: &str) -> String {
    match line.split_once("a group since ") {
        Some((before, _)) => format!("{before}a group since then"),
        None => line.to_owned(),
    }
}

fn without_times(json: &mut Value) {
    match json {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| match name.as_str() {
            "created_at" | "held_ms" | "group" => *value = Value::Null,
            _ => without_times(value),
        }),
        Value::Array(all) => all.iter_mut().for_each(without_times),
        _ => {}
    }
}

#[test]
fn verbs_of_groups_say_the_same_served_or_not() {
    let (served_bench, stopped) = (bench(), bench());
    let served = Served::begin(&served_bench);
    let (mail, logs) = (&format!("{MAIL}/cold"), &format!("{LOGS}/cold"));
    let (all, snapshot) = (&format!("{MAIL}/all"), &format!("{LOGS}/all@monday"));
    let tuesday = &format!("{MAIL}/all@tuesday");
    let commands: &[&[&str]] = &[
        &["group", "create", "all", mail, logs],
        &["group", "create", "all", mail, logs],
        &["group", "create", "other", mail],
        &["group", "create", "other", &format!("{MAIL}/nobody")],
        &["group", "show", MAIL, "--json"],
        &["group", "snapshot", snapshot, "--note", "vor dem Update"],
        &["group", "snapshot", snapshot, "--note", "vor dem Update"],
        &["group", "snapshot", tuesday, "--json"],
        &["group", "show", all],
        &["group", "show", LOGS, "--json"],
        &["group", "show", &format!("{MAIL}/nobody")],
        &["group", "clone", snapshot, "--suffix", "-try"],
        &["group", "clone", snapshot, "--suffix", "-try"],
        &["group", "clone", tuesday, "--suffix", "-two", "--json"],
        &["group", "rollback", snapshot],
        &["group", "rollback", snapshot, "--yes", "cold"],
        &["group", "rollback", snapshot, "--yes", "all"],
        &["group", "rollback", tuesday, "--yes", "all", "--json"],
        &["group", "rollback", &format!("{MAIL}/all@friday"), "--yes", "all"],
        &["volume", "snapshot", mail, logs, "--as", "both"],
        &["volume", "snapshot", mail, logs, "--as", "both"],
        &["volume", "snapshot", mail, logs, "--as", "three", "--json"],
        &["volume", "diff", &format!("{mail}@both"), &format!("{mail}@three")],
        &["volume", "diff", &format!("{mail}@three"), &format!("{mail}@both")],
        &["volume", "diff", &format!("{mail}@nothing")],
        &["volume", "diff", &format!("{mail}@both"), "--json"],
        &["volume", "diff", &format!("{mail}@monday"), &format!("{MAIL}/cold-try"), "--json"],
        &["pool", "settle", MAIL, LOGS],
        &["pool", "settle", MAIL, LOGS, "--json"],
        &["pool", "settle", MAIL, "--give-up", "nothing"],
        &["group", "delete", tuesday, "--yes", "tuesday"],
        &["group", "delete", tuesday, "--yes", "tuesday"],
        &["group", "delete", all, "--json"],
        &["group", "show", MAIL],
    ];
    let mut differences = Vec::new();
    for command in commands {
        let (online, offline) = (said(&served_bench, command), said(&stopped, command));
        // A server names its pools, a command their folders; of two pools that refuse, one does so first.
        let plain = |text: &str| text.replace("state/pools/", "").replace("logs: ", "mail: ");
        if (online.0, &online.1, plain(&online.2)) != (offline.0, &offline.1, plain(&offline.2)) {
            differences.push(format!("{command:?}: {online:?}\nand {offline:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    served.end();
    // The pools have the server's work.
    for bench in [&served_bench, &stopped] {
        for pool in [MAIL, LOGS] {
            let shown = said(bench, &["pool", "show", pool]).1;
            for volume in ["cold-try", "cold-two", "cold~1", "cold~2"] {
                assert!(shown.contains(&format!("volume {volume}:")), "{shown}");
            }
            let snapshots = ["cold@monday", "cold@both", "cold@three"];
            assert!(
                snapshots.iter().all(|name| shown.contains(name)) && !shown.contains("snapshot cold@tuesday"),
                "{shown}"
            );
        }
    }
}

#[test]
fn a_group_under_clients_is_cut_cloned_and_rolled_back_by_force() {
    if !qemu_is_here() {
        return;
    }
    let bench = bench();
    let served = Served::begin(&bench);
    let run = |arguments: &[&str]| done(&bench.run(arguments));
    run(&["group", "create", "all", "state/pools/mail/store", "state/pools/logs/log"]);
    real::run(0, Default::default(), async |world: World| {
        let mut store = QemuIo::begin(&bench, &world, "store", served.uri("/store"));
        let mut log = QemuIo::begin(&bench, &world, "log", served.uri("/log"));
        for client in [&mut store, &mut log] {
            client.says("write -P 1 0 1M", "wrote", 1).await;
        }
        let snapshot = "state/pools/mail/all@monday";
        assert_eq!(
            run(&["group", "snapshot", snapshot]),
            format!("{snapshot}: a snapshot of 2 volumes\n"),
            "under writers"
        );
        for client in [&mut store, &mut log] {
            client.says("write -P 2 0 1M", "wrote", 2).await;
        }
        run(&["group", "clone", snapshot, "--suffix", "-try"]);
        let store = "state/pools/mail/store@monday";
        let said = run(&["volume", "diff", store]);
        assert!(said.contains("1.00 MiB of 16.0 MiB changed") && said.contains("data"), "{said}");
        let ranges: Value = serde_json::from_str(&run(&["volume", "diff", store, "--json"])).unwrap();
        assert_eq!(ranges["ranges"], json!([{ "at": 0, "length": 1 << 20, "change": "data" }]));
        assert_eq!(ranges["totals"]["data"], json!({ "bytes": 1 << 20, "ranges": 1 }));
        let rollback = ["group", "rollback", snapshot, "--yes", "all"];
        let refused = bench.run(&rollback);
        assert_eq!(refused.code, Some(2), "{}", refused.stdout);
        for part in ["mail/store is served as NBD export store, unit mail/3", "say --force", "are withheld"] {
            assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
        }
        // One pool refused for its clients, so the other one did nothing either, and its clients lost nothing.
        log.says("write -P 2 1M 1M", "wrote", 3).await;
        let shown = run(&["pool", "show", LOGS]);
        assert!(!shown.contains("log~1"), "{shown}");

        let said = bench.run(&[&rollback[..], &["--force"]].concat());
        let text = done(&said);
        for part in [
            "state/pools/mail/store: now → as of @monday; what it was is state/pools/mail/store~1\n",
            "state/pools/logs/log: now → as of @monday; what it was is state/pools/logs/log~1\n",
            "state/pools/logs/log: withheld from all NBD clients; ",
            "undo: spindle volume rollback state/pools/mail/store~1 --force\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(said.stderr.contains("is served as NBD export store"), "{}", said.stderr);
        // The clients know what is gone: nothing of theirs is written any more.
        log.says("write -P 3 0 1M", "failed", 1).await;
        for volume in ["mail/store", "logs/log"] {
            run(&["volume", "readmit", &format!("state/pools/{volume}"), "--all"]);
        }
        run(&["export", "create", "try", "logs/log-try", "--state", "state"]);
        let try_uri = served.uri("/log").replace("/log", "/try");
        for (name, uri) in [("s", served.uri("/store")), ("l", served.uri("/log")), ("t", &*try_uri)] {
            let mut client = QemuIo::begin(&bench, &world, name, uri);
            client.says("read -P 1 0 1M", "read 1048576", 1).await;
            let all = client.end().await;
            assert!(!all.contains("verification failed"), "{name}: {all}");
        }
    });
    let shown = bench.run(&["group", "show", MAIL, "--json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["groups"][0]["snapshots"], json!(["monday"]));
    served.end();
}
