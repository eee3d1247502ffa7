//! Verbs on existing pools and volumes: drives added, everything scrubbed, volumes changed.

use crate::{
    exported::{Exported, noise, text},
    spindle::{Bench, json_of},
    storage::{LoopDevice, may_mount},
    volumes::done,
};
use nbd::{Client, ClientOptions, NbdUri};
use std::{fs, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteOffset, Stability, World,
    real::{self, RealOptions, Sockets},
};

fn json(bench: &Bench, arguments: &[&str]) -> serde_json::Value {
    json_of(&done(&bench.run(&[arguments, &["--json"]].concat())))
}

/// A pool with a volume that holds [`letters`].
fn used_pool(bench: &Bench) {
    done(&bench.run(&["pool", "create", "mail", "--size", "160MiB"]));
    done(&bench.run(&["volume", "create", "mail/store", "120MiB"]));
    while_exported(bench, async |client| {
        for (number, piece) in letters().chunks(1 << 20).enumerate() {
            let data = vec![Arc::new(Buffer::copy_of(piece))];
            client.write(ByteOffset((number as u64) << 20), data, Stability::Stable).await.unwrap();
        }
    });
}

fn letters() -> Vec<u8> {
    noise(24 << 20, 5)
}

#[track_caller]
fn has_letters(bench: &Bench) {
    while_exported(bench, async |client| {
        let read = client.read(ByteOffset(0), vec![Buffer::zeroed(24 << 20)]).await.unwrap();
        assert!(read[0][..] == letters()[..], "it is what was written");
    });
}

/// Works as a client of `mail/store`.
pub fn while_exported(bench: &Bench, work: impl AsyncFnOnce(Client)) {
    let place = format!("unix:{}", text(&bench.path("socket")));
    let exported = Exported::begin(bench, &["mail/store", "--nbd", &place]);
    let uri: NbdUri = exported.uris[0].parse().unwrap();
    real::run(1, RealOptions::default(), async |world: World| {
        work(Client::connect(&world, Rc::new(Sockets), uri, ClientOptions::default()).await.unwrap()).await;
    });
    exported.end();
}

#[test]
fn a_pool_that_lost_a_drive_gets_another_one_and_its_copies_back() {
    let bench = Bench::new();
    used_pool(&bench);
    let whole = json(&bench, &["pool", "show", "mail"]);
    assert_eq!((&whole["drives_in_use"], &whole["degraded_segments"]), (&3.into(), &0.into()));
    fs::remove_file(bench.path("mail/drive-2.spindle")).unwrap();
    let shown = json(&bench, &["pool", "show", "mail"]);
    assert_eq!((&shown["drives_in_use"], &shown["lost_segments"]), (&2.into(), &0.into()), "{shown}");
    assert_eq!(shown["drives"][1]["is_there"], false);
    let said = json(&bench, &["pool", "add-drive", "mail", "--size", "160MiB"]);
    assert_eq!(said["path"], "mail/drive-4.spindle", "a name that no drive has: {said}");
    assert_eq!(
        (&said["degraded_segments"], &said["forgotten"][0]),
        (&0.into(), &"mail/drive-2.spindle".into())
    );
    assert!(said["rebuilt_bytes"].as_u64().unwrap() > 0, "{said}");
    let shown = json(&bench, &["pool", "show", "mail"]);
    assert_eq!((&shown["drives_in_use"], &shown["degraded_segments"]), (&3.into(), &0.into()), "{shown}");
    // The one that came carries the pool when another goes.
    fs::remove_file(bench.path("mail/drive-1.spindle")).unwrap();
    has_letters(&bench);
    let said = done(&bench.run(&["pool", "add-drive", "mail", "--size", "200MiB"]));
    assert!(said.contains("mail/drive-2.spindle added, 200 MiB; "), "{said}");
    assert!(said.contains("0 segments still lack one"), "{said}");
    has_letters(&bench);
}

#[test]
fn an_erased_raw_device_is_added_again() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let made: Vec<_> = (0..3).map_while(|_| LoopDevice::new(96 << 20)).collect();
    let [first, second, third] = &made[..] else { return };
    let [first, second, third] = [first, second, third].map(|device| text(device.path()));
    let devices = ["--device", &first, "--device", &second, "--device", &third];
    done(&bench.run(&[&["pool", "create", "mail"], &devices[..]].concat()));
    let refused = bench.run(&["pool", "add-drive", "mail", "--device", &second]);
    assert!(refused.stderr.contains("is not empty"), "it is the pool's: {}", refused.stderr);
    fs::write(&second, vec![0; 96 << 20]).unwrap();
    assert_eq!(json(&bench, &["pool", "show", "mail"])["drives_in_use"], 2);
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(
        shown.contains(&format!("drive {second}: not there: {second} holds no drive of a pool")),
        "{shown}"
    );
    done(&bench.run(&["pool", "add-drive", "mail", "--device", &second]));
    let shown = json(&bench, &["pool", "show", "mail"]);
    assert_eq!((&shown["drives_in_use"], &shown["degraded_segments"]), (&3.into(), &0.into()), "{shown}");
    assert_eq!(shown["drives"].as_array().unwrap().len(), 3, "each is named once");
}

#[test]
fn a_scrub_fixes_wrong_copies_and_names_lost_blocks() {
    let bench = Bench::new();
    used_pool(&bench);
    let found = json(&bench, &["pool", "scrub", "mail"]);
    assert!(found["blocks"].as_u64().unwrap() >= (24 << 20) / 4096, "{found}");
    assert_eq!((&found["mended"], &found["lost_places"]), (&0.into(), &0.into()), "{found}");
    // Most of one drive rots: its beginning and its end, where superblocks are, do not.
    let path = bench.path("mail/drive-1.spindle");
    let mut bytes = fs::read(&path).unwrap();
    let length = bytes.len();
    bytes[8 << 20..length - (8 << 20)].iter_mut().for_each(|byte| *byte ^= 0x5a);
    fs::write(&path, bytes).unwrap();
    let found = json(&bench, &["pool", "scrub", "mail"]);
    assert!(found["mended"].as_u64().unwrap() > 0 && found["lost_places"] == 0, "{found}");
    let said = done(&bench.run(&["pool", "scrub", "mail"]));
    assert!(said.contains(" 0 wrong copies were fixed, 0 places are lost"), "{said}");
    has_letters(&bench);
}

#[test]
fn volumes_are_resized_renamed_and_kept_once_if_so_wanted() {
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "mail", "--size", "96MiB"]));
    let said = json(&bench, &["volume", "create", "mail/store", "64MiB"]);
    let limits = ["limit_bytes", "reserve_bytes", "iops_max", "kib_per_second_max"].map(|name| (name, 0));
    let limits = serde_json::Value::from_iter(limits);
    let made = serde_json::json!({
        "path": "mail/store", "done": "created", "size_bytes": 64 << 20, "limits": limits
    });
    assert_eq!(said, made);
    done(&bench.run(&["volume", "create", "mail/scratch", "64MiB", "--raid0"]));
    let said = done(&bench.run(&["volume", "resize", "mail/store", "96MiB"]));
    assert_eq!(said.trim_end(), "mail/store: 96.0 MiB from now on");
    let refused = bench.run(&["volume", "resize", "mail/store", "32MiB"]);
    assert_eq!(refused.code, Some(2));
    let story = "spindle: mail/store has 96.0 MiB, and what lies behind 32.0 MiB would be lost; say --shrink";
    assert!(refused.stderr.starts_with(story), "{}", refused.stderr);
    let said = json(&bench, &["volume", "resize", "mail/store", "32MiB", "--shrink", "--yes", "store"]);
    assert_eq!(said["size_bytes"], 32 << 20);
    done(&bench.run(&["volume", "snapshot", "mail/store@monday"]));
    let said = json(&bench, &["volume", "rename", "mail/store", "letters"]);
    assert_eq!((&said["done"], &said["name"]), (&"renamed".into(), &"letters".into()));
    let shown = json(&bench, &["pool", "show", "mail"]);
    let volumes: Vec<_> = shown["volumes"].as_array().unwrap().iter().collect();
    let letters = volumes.iter().find(|volume| volume["name"] == "letters").unwrap();
    let scratch = volumes.iter().find(|volume| volume["name"] == "scratch").unwrap();
    assert_eq!((&letters["size_bytes"], &letters["raid0"]), (&(32 << 20).into(), &false.into()));
    assert_eq!((&letters["snapshots"][0], &scratch["raid0"]), (&"monday".into(), &true.into()));
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains("scratch: 64.0 MiB, write cache off, raid0: one copy at rest"), "{shown}");
}

#[test]
fn what_cannot_be_done_to_a_pool_or_a_volume_is_refused_in_a_line() {
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "mail", "--size", "96MiB"]));
    done(&bench.run(&["volume", "create", "mail/store", "32MiB"]));
    done(&bench.run(&["volume", "create", "mail/logs", "32MiB"]));
    bench.make_file("file", b"");
    for (arguments, story) in [
        (&["pool", "add-drive", "none", "--size", "96MiB"][..], "none is no pool"),
        (&["pool", "add-drive", "mail"], "the following required arguments were not provided"),
        (&["pool", "add-drive", "mail", "--device", "file"], "file is no block device"),
        (&["pool", "scrub", "none"], "none is no pool"),
        (&["volume", "resize", "mail/store@monday", "1GiB"], "mail/store@monday is a snapshot"),
        (&["volume", "rename", "mail/store", "mail/letters"], "\"mail/letters\" is no name of a volume"),
    ] {
        let refused = bench.refused(arguments);
        assert!(refused.contains(story), "{arguments:?}: {refused}");
    }
    // Opening a pool writes superblocks; its folder, volumes and drives are as they were.
    for (arguments, story) in [
        (&["pool", "add-drive", "mail", "--size", "4MiB"][..], "bytes, and"),
        (&["volume", "resize", "mail/none", "1GiB"], "mail: the pool has no volume \"none\""),
        (&["volume", "resize", "mail/store", "40000001"], "a volume cannot have 40000001 bytes"),
        (&["volume", "rename", "mail/none", "letters"], "mail: the pool has no volume \"none\""),
        (&["volume", "rename", "mail/store", "logs"], "\"logs\" exists already; choose another name"),
    ] {
        let said = bench.run(arguments);
        assert_eq!(said.code, Some(2), "{arguments:?}: {}", said.stdout);
        assert!(said.stderr.contains(story), "{arguments:?}: {}", said.stderr);
        assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    }
    assert!(!bench.path("mail/drive-4.spindle").exists(), "nothing is left of what came to nothing");
    assert_eq!(json(&bench, &["pool", "show", "mail"])["drives"].as_array().unwrap().len(), 3);
}

/// The first bytes of what a path exports, and whether writing there is refused.
fn first_bytes(bench: &Bench, path: &str) -> (Vec<u8>, bool) {
    let place = format!("unix:{}", text(&bench.path("socket")));
    let exported = Exported::begin(bench, &[path, "--nbd", &place]);
    let uri: NbdUri = exported.uris[0].parse().unwrap();
    let found = real::run(1, RealOptions::default(), async |world: World| {
        let client = Client::connect(&world, Rc::new(Sockets), uri, ClientOptions::default()).await.unwrap();
        let read = client.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap();
        let data = vec![Arc::new(Buffer::copy_of(&[0xbb; 4096]))];
        let written = client.write(ByteOffset(1 << 20), data, Stability::Stable).await;
        (read[0].to_vec(), written.is_err())
    });
    exported.end();
    found
}

#[test]
fn a_snapshot_is_cloned_and_rolled_back_to_and_the_rollback_is_undone() {
    let bench = Bench::new();
    used_pool(&bench);
    let before = letters()[..4096].to_vec();
    done(&bench.run(&["volume", "snapshot", "mail/store@monday"]));
    while_exported(&bench, async |client| {
        let data = vec![Arc::new(Buffer::copy_of(&[0xaa; 4096]))];
        client.write(ByteOffset(0), data, Stability::Stable).await.unwrap();
    });
    let said = json(&bench, &["volume", "clone", "mail/store@monday", "mail/try"]);
    let made = serde_json::json!({ "path": "mail/try", "done": "cloned", "size_bytes": 120 << 20 });
    assert_eq!(said, made);
    assert_eq!(first_bytes(&bench, "mail/try"), (before.clone(), false));
    // Nothing was typed, and there is no terminal.
    for (arguments, story) in [
        (
            &["volume", "rollback", "mail/store@monday"][..],
            "confirmed with the volume's name; say --yes store",
        ),
        (&["volume", "rollback", "mail/store@monday", "--yes", "try"], "\"try\" is not the volume of"),
        (
            &["volume", "rollback", "mail/store", "--yes", "store"],
            "neither a snapshot nor what a rollback left",
        ),
        (&["volume", "rollback", "mail/store@friday", "--yes", "store"], "has no snapshot \"friday\""),
        (&["volume", "clone", "mail/store", "mail/store"], "\"store\" exists already"),
        (&["volume", "clone", "mail/store", "other/store"], "are in different pools"),
        (&["volume", "clone", "mail/store", "mail/a~1"], "\"a~1\" is not a valid name"),
    ] {
        let said = bench.run(arguments);
        assert_eq!(said.code, Some(2), "{arguments:?}: {}", said.stdout);
        assert!(said.stderr.contains(story), "{arguments:?}: {}", said.stderr);
        assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    }
    let said = done(&bench.run(&["volume", "rollback", "mail/store@monday", "--yes", "store"]));
    let lines = "mail/store: now → as of mail/store@monday, 120 MiB; what it was is mail/store~1, read-only\n\
                 undo: spindle volume rollback mail/store~1\n";
    assert_eq!(said, lines);
    assert_eq!(first_bytes(&bench, "mail/store"), (before, false));
    assert_eq!(first_bytes(&bench, "mail/store~1"), (vec![0xaa; 4096], true));
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    for line in [
        "  volume store: 120 MiB, write cache off, from store@monday\n    snapshot store@monday\n",
        "  volume try: 120 MiB, write cache off, from store@monday\n",
        "  volume store~1: 120 MiB, read-only, left by a rollback of store\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    let said = json(&bench, &["volume", "rollback", "mail/store~1", "--yes", "store~1"]);
    let undone = serde_json::json!({
        "path": "mail/store", "done": "rolled back", "size_bytes": 120 << 20, "left": "mail/store~2"
    });
    assert_eq!(said, undone);
    assert_eq!(first_bytes(&bench, "mail/store").0, vec![0xaa; 4096]);
    done(&bench.run(&["volume", "delete", "mail/store~2", "--yes", "store~2"]));
    done(&bench.run(&["volume", "delete", "mail/store@monday", "--yes", "monday"]));
    done(&bench.run(&["volume", "delete", "mail/store", "--yes", "store"]));
    assert_eq!(first_bytes(&bench, "mail/try").0, letters()[..4096].to_vec(), "it outlives all of them");
}

#[test]
fn an_independent_clone_outlives_its_source_and_a_filling_is_given_up() {
    let bench = Bench::new();
    used_pool(&bench);
    let before = letters()[..4096].to_vec();
    done(&bench.run(&["volume", "snapshot", "mail/store@monday"]));
    let said = done(&bench.run(&["volume", "clone", "mail/store@monday", "mail/copy", "--independent"]));
    let lines = "mail/copy: a clone of mail/store@monday, 120 MiB\n\
                 mail/copy: filled, shares nothing with its source any more\n";
    assert_eq!(said, lines);
    done(&bench.run(&["volume", "clone", "mail/store", "mail/try"]));
    done(&bench.run(&["volume", "set", "mail/try", "--limit", "4MiB"]));
    for (arguments, story) in [
        (
            &["volume", "fill", "mail/try"][..],
            "mail/try: not filled yet: volume number 3 has reached its limit",
        ),
        (&["volume", "fill", "mail/store@monday"], "is a snapshot, which stays as it is"),
        (&["volume", "fill", "mail/nobody"], "no volume \"nobody\""),
    ] {
        let said = bench.run(arguments);
        assert_eq!(said.code, Some(2), "{arguments:?}: {}", said.stdout);
        assert!(said.stderr.contains(story), "{arguments:?}: {}", said.stderr);
    }
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(
        shown.contains("volume try: 120 MiB, write cache off, limit 4.00 MiB, from store, 0 % filled"),
        "{shown}"
    );
    let said = json(&bench, &["volume", "fill", "mail/try", "--cancel"]);
    assert_eq!(said, serde_json::json!({ "path": "mail/try", "done": "given up" }));
    done(&bench.run(&["volume", "set", "mail/try", "--limit", "60MiB"]));
    let said = json(&bench, &["volume", "fill", "mail/try"]);
    assert_eq!(said, serde_json::json!({ "path": "mail/try", "done": "independent" }));
    let said = done(&bench.run(&["volume", "fill", "mail/try"]));
    assert_eq!(said, "mail/try: independent already, it has no source\n");
    done(&bench.run(&["volume", "delete", "mail/store@monday", "--yes", "monday"]));
    done(&bench.run(&["volume", "delete", "mail/store", "--yes", "store"]));
    for name in ["mail/copy", "mail/try"] {
        assert_eq!(first_bytes(&bench, name), (before.clone(), false));
    }
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains("  volume copy: 120 MiB, write cache off\n"), "{shown}");
}
