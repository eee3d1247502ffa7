//! `spindle group`: groups of volumes by their paths.

use crate::{
    exported::{Exported, text},
    spindle::{Bench, json_of},
    volumes::done,
};
use nbd::{Client, ClientOptions, NbdUri};
use serde_json::json;
use std::{rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteOffset, Stability, World,
    real::{self, RealOptions, Sockets},
};

#[track_caller]
fn refused(bench: &Bench, arguments: &[&str], why: &str) {
    let said = bench.run(arguments);
    assert_eq!(said.code, Some(2), "{}", said.stdout);
    assert!(said.stderr.contains(why), "{}", said.stderr);
}

/// Writes a byte to the beginning of a volume, or only reads the one there.
fn first_byte(bench: &Bench, volume: &str, write: Option<u8>) -> u8 {
    let place = format!("unix:{}", text(&bench.path("socket")));
    let exported = Exported::begin(bench, &[volume, "--nbd", &place]);
    let uri: NbdUri = exported.uris[0].parse().unwrap();
    let mut found = 0;
    real::run(1, RealOptions::default(), async |world: World| {
        let client = Client::connect(&world, Rc::new(Sockets), uri, ClientOptions::default()).await.unwrap();
        if let Some(byte) = write {
            let mut data = Buffer::zeroed(4096);
            data.fill(byte);
            client.write(ByteOffset(0), vec![Arc::new(data)], Stability::Stable).await.unwrap();
        }
        found = client.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap()[0][0];
    });
    exported.end();
    found
}

fn pool(bench: &Bench) {
    done(&bench.run(&["pool", "create", "mail", "--size", "64MiB"]));
    for volume in ["mail/store", "mail/queue", "mail/other"] {
        done(&bench.run(&["volume", "create", volume, "8MiB"]));
    }
}

#[test]
fn a_group_is_cut_cloned_rolled_back_and_deleted_by_its_path() {
    let bench = Bench::new();
    pool(&bench);
    let said = done(&bench.run(&["group", "create", "mail-all", "mail/store", "mail/queue"]));
    assert_eq!(said, "mail/mail-all: a group of 2 volumes\n");
    assert_eq!(first_byte(&bench, "mail/queue", Some(1)), 1);
    let note = ["--note", "vor dem Update"];
    let said = done(&bench.run(&[&["group", "snapshot", "mail/mail-all@monday"], &note[..]].concat()));
    assert_eq!(said, "mail/mail-all@monday: a snapshot of 2 volumes\n");
    assert_eq!(first_byte(&bench, "mail/queue", Some(2)), 2);
    let shown = json_of(&done(&bench.run(&["group", "show", "mail", "--json"])));
    let group = &shown["groups"][0];
    assert_eq!((&group["name"], &group["volumes"]), (&json!("mail-all"), &json!(["store", "queue"])));
    assert_eq!(group["notes"], json!([{ "snapshot": "monday", "note": "vor dem Update" }]));
    let shown = done(&bench.run(&["group", "show", "mail/mail-all"]));
    let lines: Vec<&str> = shown.lines().skip(1).collect();
    assert_eq!(lines, ["  volume store", "  volume queue", "  snapshot mail-all@monday: vor dem Update"]);
    assert!(shown.starts_with("mail/mail-all: a group since 20"), "{shown}");
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains("volume store: 8.00 MiB, write cache off, in group mail-all\n"), "{shown}");

    let cloning = ["group", "clone", "mail/mail-all@monday", "--suffix", "-try"];
    let said = done(&bench.run(&cloning));
    let expected =
        "mail/store-try: a clone of mail/store@monday\nmail/queue-try: a clone of mail/queue@monday\n";
    assert_eq!(said, expected);
    assert_eq!(first_byte(&bench, "mail/queue-try", None), 1);
    let suffix = ["--suffix", ".copy", "--independent", "--json"];
    let said = json_of(&done(&bench.run(&[&cloning[..3], &suffix[..]].concat())));
    assert_eq!((&said["done"], &said["made"][1]["made"]), (&json!("cloned"), &json!("mail/queue.copy")));
    let shown = json_of(&done(&bench.run(&["pool", "show", "mail", "--json"])));
    let copy = shown["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "queue.copy");
    assert_eq!(copy.unwrap().get("begun_at"), None, "it is independent: {shown}");

    let rollback = ["group", "rollback", "mail/mail-all@monday", "--yes"];
    refused(
        &bench,
        &[&rollback[..], &["store"]].concat(),
        "\"store\" is not the group of mail/mail-all@monday",
    );
    let said = json_of(&done(&bench.run(&[&rollback[..], &["mail-all", "--json"]].concat())));
    assert_eq!(
        said["made"],
        json!([
            { "volume": "mail/store", "made": "mail/store~1" },
            { "volume": "mail/queue", "made": "mail/queue~1" },
        ])
    );
    assert_eq!((first_byte(&bench, "mail/queue", None), first_byte(&bench, "mail/queue~1", None)), (1, 2));
    let said = done(&bench.run(&[&rollback[..], &["mail-all"]].concat()));
    assert!(said.contains("mail/queue: now → as of @monday; what it was is mail/queue~2\n"), "{said}");

    assert_eq!(
        done(&bench.run(&["group", "delete", "mail/mail-all@monday", "--yes", "monday"])),
        "mail/mail-all@monday: deleted\n"
    );
    let said = done(&bench.run(&["group", "delete", "mail/mail-all"]));
    assert_eq!(said, "mail/mail-all: deleted; its volumes and their snapshots stay\n");
    assert_eq!(done(&bench.run(&["group", "show", "mail"])), "mail: no groups\n");
    done(&bench.run(&["volume", "delete", "mail/store", "--yes", "store"]));
}

#[test]
fn what_a_group_cannot_be_or_do_is_refused_in_a_line() {
    let bench = Bench::new();
    pool(&bench);
    let create = |volumes: &[&'static str]| [&["group", "create", "all"], volumes].concat();
    refused(&bench, &create(&["mail/store", "mail/store"]), "volume \"store\" is named twice");
    refused(&bench, &create(&["mail/store@monday"]), "names no volume of a pool");
    refused(&bench, &create(&["mail/nobody"]), "the pool has no volume \"nobody\"");
    done(&bench.run(&create(&["mail/store", "mail/queue"])));
    refused(&bench, &create(&["mail/other"]), "\"all\" exists already");
    refused(&bench, &["group", "create", "two", "mail/store"], "volume \"store\" is in group \"all\"");
    refused(
        &bench,
        &["volume", "delete", "mail/store", "--yes", "store"],
        "volume \"store\" is in group \"all\"",
    );
    done(&bench.run(&["group", "snapshot", "mail/all@monday"]));
    refused(
        &bench,
        &["volume", "delete", "mail/store@monday", "--yes", "monday"],
        "is one of all volumes of group \"all\"",
    );
    refused(&bench, &["group", "snapshot", "mail/all@monday"], "\"monday\" exists already");
    refused(&bench, &["group", "snapshot", "mail/all"], "mail/all names no snapshot");
    refused(&bench, &["group", "show", "mail/nobody"], "the pool has no group \"nobody\"");
    refused(
        &bench,
        &["group", "rollback", "mail/all@friday", "--yes", "all"],
        "group \"all\" has no snapshot",
    );
    refused(
        &bench,
        &["group", "rollback", "mail/all@monday"],
        "a rollback is confirmed with the group's name",
    );
}

/// A group of a volume in each of two pools.
fn two_pools(bench: &Bench) {
    for (pool, volume) in [("mail", "mail/store"), ("logs", "logs/log")] {
        done(&bench.run(&["pool", "create", pool, "--size", "64MiB"]));
        done(&bench.run(&["volume", "create", volume, "8MiB"]));
    }
    let said = done(&bench.run(&["group", "create", "all", "mail/store", "logs/log"]));
    assert_eq!(said, "mail/all, logs/all: a group of 2 volumes\n");
}

#[test]
fn a_group_of_two_pools_is_cut_cloned_rolled_back_and_deleted_by_the_path_of_either() {
    let bench = Bench::new();
    two_pools(&bench);
    for volume in ["mail/store", "logs/log"] {
        first_byte(&bench, volume, Some(1));
    }
    let said = done(&bench.run(&["group", "snapshot", "logs/all@monday", "--note", "vor dem Update"]));
    assert_eq!(said, "logs/all@monday: a snapshot of 2 volumes\n");
    for volume in ["mail/store", "logs/log"] {
        first_byte(&bench, volume, Some(2));
    }
    let shown = done(&bench.run(&["group", "show", "mail/all"]));
    let lines: Vec<&str> = shown.lines().skip(1).collect();
    assert_eq!(lines, ["  volume store", "  and volumes in logs", "  snapshot all@monday: vor dem Update"]);
    let said = done(&bench.run(&["group", "clone", "mail/all@monday", "--suffix", "-try", "--independent"]));
    assert!(
        said.starts_with("mail/store-try: a clone of mail/store@monday\nlogs/log-try: a clone of "),
        "{said}"
    );
    assert_eq!(
        (first_byte(&bench, "mail/store-try", None), first_byte(&bench, "logs/log-try", None)),
        (1, 1)
    );
    let rollback = ["group", "rollback", "mail/all@monday", "--yes", "all", "--json"];
    let said = json_of(&done(&bench.run(&rollback)));
    assert_eq!(
        said["made"],
        json!([
            { "volume": "mail/store", "made": "mail/store~1" },
            { "volume": "logs/log", "made": "logs/log~1" },
        ])
    );
    assert_eq!((first_byte(&bench, "mail/store", None), first_byte(&bench, "logs/log", None)), (1, 1));
    assert_eq!((first_byte(&bench, "mail/store~1", None), first_byte(&bench, "logs/log~1", None)), (2, 2));
    assert_eq!(
        done(&bench.run(&["group", "delete", "logs/all@monday", "--yes", "monday"])),
        "logs/all@monday: deleted\n"
    );
    done(&bench.run(&["group", "delete", "mail/all"]));
    for pool in ["mail", "logs"] {
        assert_eq!(done(&bench.run(&["group", "show", pool])), format!("{pool}: no groups\n"));
        assert!(
            !done(&bench.run(&["pool", "show", pool])).contains("snapshot "),
            "its snapshots went before it"
        );
    }
}

#[test]
fn a_group_of_two_pools_needs_both_and_goes_on_where_it_was_interrupted() {
    let bench = Bench::new();
    two_pools(&bench);
    let create = ["group", "create", "all", "mail/store", "logs/log"];
    refused(&bench, &create, "\"all\" exists already");
    refused(&bench, &["group", "create", "all", "mail/store"], "volume \"store\" is in group \"all\"");
    refused(&bench, &["group", "create", "two", "mail/nobody", "logs/log"], "no volume \"nobody\"");
    // A pool that is not beside the other one.
    std::fs::create_dir(bench.path("elsewhere")).unwrap();
    std::fs::rename(bench.path("logs"), bench.path("elsewhere/logs")).unwrap();
    let snapshot = ["group", "snapshot", "mail/all@monday"];
    refused(&bench, &snapshot, "which was not found; say where it is: --with POOL");
    let said = done(&bench.run(&[&snapshot[..], &["--with", "elsewhere/logs"]].concat()));
    assert_eq!(said, "mail/all@monday: a snapshot of 2 volumes\n");
    std::fs::rename(bench.path("elsewhere/logs"), bench.path("logs")).unwrap();
    // One of the clones cannot be made, so none is.
    done(&bench.run(&["volume", "create", "logs/log-try", "8MiB"]));
    refused(
        &bench,
        &["group", "clone", "mail/all@monday", "--suffix", "-try"],
        "logs: \"log-try\" exists already",
    );
    assert!(!done(&bench.run(&["pool", "show", "mail"])).contains("store-try"));
}
