//! Copies, refreshes and moves between the pools of a server, beside clients of QEMU and over kills of the server.

use crate::{
    online_pools::WaitingVerb,
    pool_drives::done,
    qemu_io::QemuIo,
    sites_served::{SITE, Served, qemu_is_here},
    spindle::{Bench, ProgramOutput, is_full_run, json_of},
};
use serde_json::json;
use world::{World, real};

const MAIL: &str = "state/pools/mail";
const LOGS: &str = "state/pools/logs";
const MIB: u64 = 1 << 20;

/// Two pools, the first with a volume of 128 MiB that is served.
fn served_bench() -> (Bench, Served) {
    let bench = Bench::new();
    let site = SITE.replace("drive_gb = 0.11", "drive_gb = 0.3").replace("gb = 0.015625", "gb = 0.125");
    bench.make_file("site.toml", site.as_bytes());
    let served = Served::begin(&bench);
    (bench, served)
}

#[track_caller]
fn refused_with(said: &ProgramOutput, problem: &str) {
    assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
    assert!(said.stderr.contains(problem), "{}", said.stderr);
}

fn socket(bench: &Bench) -> String {
    format!("unix:{}", bench.path("state/spindle.sock").display())
}

/// Has `spindle` serve a volume over NBD, and a client read or write it.
fn through_an_export(bench: &Bench, served: &Served, volume: &str, commands: &[(&str, &str)]) {
    let at = ["--server", &socket(bench)];
    done(&bench.run(&[&["export", "create", "tested", volume], &at[..]].concat()));
    real::run(0, Default::default(), async |world: World| {
        let uri = served.uri("/store").replace("/store", "/tested");
        let mut client = QemuIo::begin(bench, &world, "tested", &uri);
        for (command, says) in commands {
            client.says(command, says, 1).await;
        }
        client.says("flush", "qemu-io>", commands.len() + 2).await;
        let said = client.end().await;
        assert!(!said.contains("failed") && !said.contains("error"), "{said}");
    });
    done(&bench.run(&[&["export", "delete", "tested", "--force"], &at[..]].concat()));
}

#[test]
fn volumes_are_copied_refreshed_and_moved_through_the_server_beside_its_clients() {
    if !qemu_is_here() {
        return;
    }
    let (bench, served) = served_bench();
    let (store, copy) = (format!("{MAIL}/store"), format!("{LOGS}/copy"));
    real::run(0, Default::default(), async |world: World| {
        let mut client = QemuIo::begin(&bench, &world, "client", served.uri("/store"));
        client.says("write -P 1 0 8M", "wrote", 1).await;
        done(&bench.run(&["volume", "snapshot", &format!("{store}@a")]));
        client.says("write -P 9 0 1M", "wrote", 2).await;
        let clone = ["volume", "clone", &format!("{store}@a"), &copy, "--independent"];
        let said = json_of(&done(&bench.run(&[&clone[..], &["--json"]].concat())));
        let copied = json!({
            "path": copy, "done": "copied", "size_bytes": 128 * MIB, "copied_bytes": 8 * MIB,
            "found_bytes": 0, "snapshot": "a",
        });
        assert_eq!(said, copied);
        refused_with(&bench.run(&clone), "\"copy\"");
        client.says("write -P 2 4M 2M", "wrote", 3).await;
        done(&bench.run(&["volume", "snapshot", &format!("{store}@b")]));
        let refresh = ["volume", "refresh", &copy, "--from", &format!("{store}@b")];
        let said = done(&bench.run(&refresh));
        let text = format!("{copy}: @a → as of {store}@b, 128 MiB; 3.00 MiB copied, 0 B discarded\n");
        assert_eq!(said, text);
        // By names at the server, too, and nothing is left to be done.
        let named = ["volume", "refresh", "logs/copy", "--from", "mail/store@b", "--server", &socket(&bench)];
        let said = json_of(&done(&bench.run(&[&named[..], &["--json"]].concat())));
        assert_eq!((&said["copied_bytes"], &said["since"]), (&0.into(), &"b".into()));
        client.says("read -P 9 0 1M", "read 1048576", 1).await;
        client.says("flush", "qemu-io>", 5).await;
        client.end().await;
    });
    let reads = [("read -P 9 0 1M", "read 1048576"), ("read -P 2 4M 2M", "read 2097152")];
    through_an_export(&bench, &served, "logs/copy", &reads);
    // A volume of its own moves, with its snapshots and its identity.
    done(&bench.run(&["volume", "create", &format!("{MAIL}/box"), "8MiB"]));
    through_an_export(&bench, &served, "mail/box", &[("write -P 5 0 4M", "wrote 4194304")]);
    done(&bench.run(&["volume", "snapshot", &format!("{MAIL}/box@monday")]));
    let id_of = |pool: &str| {
        let shown = json_of(&done(&bench.run(&["pool", "show", pool, "--json"])));
        let volumes = shown["volumes"].as_array().unwrap().clone();
        volumes.into_iter().find(|volume| volume["name"] == "box").map(|volume| volume["id"].clone())
    };
    let before = id_of(MAIL).unwrap();
    let relocate = ["volume", "move", &format!("{MAIL}/box"), &format!("{LOGS}/box")];
    let said = done(&bench.run(&relocate));
    assert!(said.contains("8.00 MiB; 4.00 MiB copied, 1 snapshot came along"), "{said}");
    assert_eq!((id_of(MAIL), id_of(LOGS)), (None, Some(before)));
    refused_with(&bench.run(&relocate), "box");
    let listed = done(&bench.run(&["job", "list", "--state", "state"]));
    for job in [
        "logs/copy: idle, failed: \"copy\" exists",
        "logs/refresh: idle, done at",
        "logs/move: idle, done at",
    ] {
        assert!(listed.contains(job), "{listed}");
    }
    refused_with(&bench.run(&["job", "cancel", &format!("{LOGS}/move")]), "is not under way");
    // One that the site file has, and nothing serves: a start with the same file makes none in its place.
    let own = ["volume", "move", &format!("{LOGS}/log"), &format!("{MAIL}/log")];
    done(&bench.run(&["export", "delete", "log", "--server", &socket(&bench)]));
    done(&bench.run(&own));
    served.kill();
    let served = Served::begin(&bench);
    through_an_export(&bench, &served, "logs/box", &[("read -P 5 0 4M", "read 4194304")]);
    let has_log = |pool: &str| {
        let shown = json_of(&done(&bench.run(&["pool", "show", pool, "--json"])));
        shown["volumes"].as_array().unwrap().iter().any(|volume| volume["name"] == "log")
    };
    assert_eq!((has_log(LOGS), has_log(MAIL)), (false, true));
    served.end();
    for pool in [MAIL, LOGS] {
        done(&bench.run(&["pool", "scrub", pool]));
    }
}

#[test]
fn a_copy_and_a_move_go_on_although_the_server_is_killed() {
    if !is_full_run("transfers beside kills of the server") {
        return;
    }
    if !qemu_is_here() {
        return;
    }
    let (bench, served) = served_bench();
    done(&bench.run(&["volume", "create", &format!("{MAIL}/box"), "64MiB"]));
    through_an_export(&bench, &served, "mail/box", &[("write -P 7 0 64M", "wrote 67108864")]);
    // So that it takes some seconds.
    done(&bench.run(&["volume", "set", &format!("{MAIL}/box"), "--mbps", "16"]));
    done(&bench.run(&["volume", "snapshot", &format!("{MAIL}/box@monday")]));
    let mut served = served;
    for (job, arguments, there) in [
        (
            "copy",
            vec![
                "volume".into(),
                "clone".into(),
                format!("{MAIL}/box@monday"),
                format!("{LOGS}/copy"),
                "--independent".into(),
            ],
            "logs/copy",
        ),
        (
            "move",
            vec!["volume".into(), "move".into(), format!("{MAIL}/box"), format!("{LOGS}/box")],
            "logs/box",
        ),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let waiting = WaitingVerb::begin(&bench, &arguments);
        served.kill();
        let (code, said) = waiting.end();
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(&format!("'spindle job wait {LOGS}/{job}' waits for it then")), "{said}");
        served = Served::begin(&bench);
        done(&bench.run(&["job", "wait", &format!("{LOGS}/{job}")]));
        through_an_export(&bench, &served, there, &[("read -P 7 0 64M", "read 67108864")]);
    }
    let shown = done(&bench.run(&["pool", "show", MAIL]));
    assert!(!shown.contains("box"), "{shown}");
    served.end();
    for pool in [MAIL, LOGS] {
        done(&bench.run(&["pool", "scrub", pool]));
    }
}
