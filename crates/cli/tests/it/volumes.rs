//! Pools and volumes by their verbs, and exported.

use crate::{
    spindle::{Bench, ProgramOutput, json_of},
    storage::{LoopDevice, may_mount},
};
use nbd::{Client, ClientOptions, NbdUri};
use std::{
    fs,
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
    rc::Rc,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Sparse, Stability, World,
    real::{self, RealOptions, Sockets},
};

#[track_caller]
pub fn done(said: &ProgramOutput) -> String {
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    said.stdout.clone()
}

/// Exports `paths` on a socket of the bench, does `work` with it, and ends it as Ctrl-C does.
pub fn while_exported(bench: &Bench, paths: &[&str], work: impl AsyncFnOnce(World, &dyn Fn(&str) -> NbdUri)) {
    let socket = bench.path("socket");
    let place = format!("unix:{}", socket.display());
    let mut command = bench.command(&["export", "--quiet", "--nbd", &place]);
    let mut child: Child = command.args(paths).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it listens before long");
        thread::sleep(Duration::from_millis(5));
    }
    let uri = |name: &str| format!("nbd+unix:///{name}?socket={}", socket.display()).parse().unwrap();
    real::run(1, RealOptions::default(), async |world: World| work(world, &uri).await);
    let sent = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

pub async fn connect(world: &World, uri: NbdUri) -> Client {
    Client::connect(world, Rc::new(Sockets), uri, ClientOptions::default()).await.unwrap()
}

async fn write(client: &Client, value: u8) {
    let data = vec![Arc::new(Buffer::copy_of(&[value; 65_536]))];
    client.write(ByteOffset(1 << 20), data, Stability::Stable).await.unwrap();
}

async fn read(client: &Client) -> u8 {
    let read = client.read(ByteOffset(1 << 20), vec![Buffer::zeroed(65_536)]).await.unwrap();
    assert!(read[0].iter().all(|byte| *byte == read[0][0]));
    read[0][0]
}

/// Bytes, and whether they are a hole.
async fn extents(client: &Client, length: u64) -> Vec<(u64, bool)> {
    let found = client.extents(ByteOffset(0), ByteCount(length)).await.unwrap();
    found.iter().map(|extent| (extent.length.0, extent.is_hole)).collect()
}

#[test]
fn a_volume_of_a_pool_is_exported_and_its_snapshot_stays_as_it_was() {
    let bench = Bench::new();
    let said = done(&bench.run(&["pool", "create", "mail", "--size", "96MiB"]));
    assert_eq!(said.trim_end(), "mail: a pool of 3 drives, 288 MiB together, everything twice");
    let said = done(&bench.run(&["volume", "create", "mail/store", "1GiB"]));
    assert_eq!(said.trim_end(), "mail/store: a volume of 1.00 GiB");
    while_exported(&bench, &["mail/store"], async |world, uri| {
        let client = connect(&world, uri("store")).await;
        assert_eq!(client.geometry().size, ByteCount::gib(1), "it is thin");
        assert_eq!(read(&client).await, 0);
        write(&client, 7).await;
        let holes = [(1 << 20, true), (65_536, false), ((1 << 30) - (1 << 20) - 65_536, true)];
        assert_eq!(extents(&client, 1 << 30).await, holes, "it says where it holds nothing");
        let busy = bench.run(&["pool", "scrub", "mail"]);
        assert_eq!(busy.code, Some(2));
        assert!(
            busy.stderr.contains("mail: another Spindle has the pool open; end it first"),
            "{}",
            busy.stderr
        );
    });
    done(&bench.run(&["volume", "snapshot", "mail/store@monday"]));
    while_exported(&bench, &["mail/store", "mail/store@monday"], async |world, uri| {
        let (client, monday) =
            (connect(&world, uri("store")).await, connect(&world, uri("store@monday")).await);
        write(&client, 9).await;
        assert_eq!((read(&client).await, read(&monday).await), (9, 7));
        client.discard(ByteOffset(0), ByteCount(2 << 20)).await.unwrap();
        assert_eq!(extents(&client, 2 << 20).await, [(2 << 20, true)]);
        let data_behind = [(1 << 20, true), (65_536, false), ((1 << 20) - 65_536, true)];
        assert_eq!(extents(&monday, 2 << 20).await, data_behind, "the snapshot holds it");
        write(&client, 9).await;
        assert!(monday.is_read_only() && !client.is_read_only());
        let data = vec![Arc::new(Buffer::zeroed(512))];
        let refused = monday.write(ByteOffset(0), data, Stability::Stable).await.unwrap_err();
        assert_eq!(refused.kind(), IoErrorKind::ReadOnly);
    });
    let shown = json_of(&done(&bench.run(&["pool", "show", "mail", "--json"])));
    assert_eq!(shown["volumes"][0]["name"], "store");
    assert_eq!(shown["volumes"][0]["snapshots"], serde_json::json!(["monday"]));
    assert_eq!(shown["drives"].as_array().unwrap().len(), 3);
    assert!(shown["used_bytes"].as_u64().unwrap() >= 131_072, "{shown}");
    // One drive is lost: there are the others.
    fs::remove_file(bench.path("mail/drive-1.spindle")).unwrap();
    while_exported(&bench, &["mail/store"], async |world, uri| {
        assert_eq!(read(&connect(&world, uri("store")).await).await, 9);
    });
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains("drive mail/drive-1.spindle: not there"), "{shown}");
    assert!(shown.contains("snapshot store@monday"), "{shown}");
    let refused = bench.run(&["volume", "delete", "mail/store", "--yes", "store"]);
    assert_eq!(refused.code, Some(2), "it has a snapshot: {}", refused.stdout);
    done(&bench.run(&["volume", "delete", "mail/store@monday", "--yes", "monday"]));
    done(&bench.run(&["volume", "delete", "mail/store", "--yes", "store"]));
}

#[test]
fn what_cannot_be_a_pool_or_a_volume_is_refused_in_a_line() {
    let bench = Bench::new();
    bench.make_folder("full");
    bench.make_file("full/letter", b"dear");
    bench.make_file("file", b"");
    for (arguments, story) in [
        (
            &["pool", "create", "full", "--size", "96MiB"][..],
            "full is not empty; give a folder that is not there yet",
        ),
        (&["pool", "create", "file", "--size", "96MiB"], "file is no folder"),
        (&["pool", "create", "new", "--size", "4MiB"], "bytes, and"),
        (&["pool", "create", "new", "--device", "file"], "file is no block device"),
        (&["pool", "create", "new"], "required"),
        (&["pool", "show", "full"], "full is no pool: it has no spindle-pool.json"),
        (&["volume", "create", "full/store", "1GiB"], "full is no pool"),
        (&["volume", "create", "store", "1GiB"], "store names no volume of a pool; say POOL/VOLUME"),
        (&["volume", "create", "full/store@now", "1GiB"], "use 'spindle volume snapshot'"),
        (&["volume", "snapshot", "full/store"], "say POOL/VOLUME@SNAPSHOT"),
    ] {
        let refused = bench.refused(arguments);
        assert!(refused.contains(story), "{arguments:?}: {refused}");
    }
    assert!(!bench.path("new").exists(), "nothing is left of what came to nothing");
    done(&bench.run(&["pool", "create", "mail", "--size", "96MiB", "--drives", "1"]));
    let place = format!("unix:{}", bench.path("socket").display());
    for (path, story) in [("mail/none", "none"), ("mail/none@monday", "none")] {
        let refused = bench.run(&["export", "--nbd", &place, path]);
        assert_eq!(refused.code, Some(2));
        assert!(refused.stderr.contains(story) && refused.stderr.lines().count() == 1, "{}", refused.stderr);
    }
    done(&bench.run(&["pool", "create", "two", "--size", "96MiB", "--drives", "2"]));
    fs::remove_file(bench.path("two/drive-2.spindle")).unwrap();
    let refused = bench.run(&["volume", "create", "two/store", "1MiB"]);
    let offer = "with 'spindle pool salvage'; then 'spindle pool force-open two' goes on without them";
    assert!(refused.code == Some(2) && refused.stderr.contains(offer), "{}", refused.stderr);
    let shown = bench.run(&["pool", "show", "two"]);
    assert!(shown.code == Some(1) && shown.stdout.contains(offer), "{}", shown.stdout);
    let said = done(&bench.run(&["pool", "force-open", "two", "--yes", "two"]));
    assert!(said.starts_with("two: open with 1 drives"), "{said}");
    done(&bench.run(&["pool", "show", "two"]));
    fs::write(bench.path("mail/spindle-pool.json"), "{\"format\": 9, \"drives\": []}").unwrap();
    let refused = bench.refused(&["pool", "show", "mail"]);
    assert!(refused.contains("it has format 9, and 1 to 3 are known"), "{refused}");
}

#[test]
fn raw_devices_that_hold_nothing_become_a_pool_and_others_do_not() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let (Some(first), Some(second)) = (LoopDevice::new(96 << 20), LoopDevice::new(96 << 20)) else { return };
    let paths = [&first, &second].map(|device| device.path().display().to_string());
    let arguments = ["pool", "create", "mail", "--device", &paths[0], "--device", &paths[1]];
    second.make_ext4();
    let refused = bench.refused(&arguments);
    assert!(refused.contains("is not empty: it holds ext"), "{refused}");
    drop(second);
    let Some(second) = LoopDevice::new(96 << 20) else { return };
    let path = second.path().display().to_string();
    done(&bench.run(&["pool", "create", "mail", "--device", &paths[0], "--device", &path]));
    done(&bench.run(&["volume", "create", "mail/store", "64MiB", "--write-cache"]));
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains("volume store: 64.0 MiB, write cache on"), "{shown}");
    let refused = bench.refused(&["pool", "create", "other", "--device", &paths[0]]);
    assert!(refused.contains("is not empty"), "a pool is not made over a pool: {refused}");
}
