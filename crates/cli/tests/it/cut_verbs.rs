//! `volume snapshot --as` and `pool settle`: snapshots of volumes in several pools.

use crate::{
    spindle::{Bench, json_of},
    volumes::done,
};
use array::{
    error::Error,
    format::SnapshotId,
    pool::{CutMember, NewSnapshot},
    volume::VolumeDevice,
};
use serving::{notices::Notices, pool::folder::OpenPool};
use std::{rc::Rc, sync::Arc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteOffset, Stability, World,
    real::{self, RealOptions},
    with_deadline,
};

#[track_caller]
fn refused(bench: &Bench, arguments: &[&str], why: &str) {
    let said = bench.run(arguments);
    assert_eq!(said.code, Some(2), "{}", said.stdout);
    assert!(said.stderr.contains(why), "{}", said.stderr);
}

struct NoNotices;

impl Notices for NoNotices {
    fn warn(&self, _: &str) {}

    fn note(&self, _: &str) {}
}

/// A pool for databases and one for logs.
fn two_pools() -> Bench {
    let bench = Bench::new();
    for (pool, volume) in [("mail", "mail/store"), ("logs", "logs/store-log")] {
        done(&bench.run(&["pool", "create", pool, "--size", "64MiB"]));
        done(&bench.run(&["volume", "create", volume, "8MiB"]));
    }
    bench
}

#[test]
fn volumes_of_two_pools_get_one_snapshot() {
    let bench = two_pools();
    done(&bench.run(&["volume", "create", "mail/queue", "8MiB"]));
    let cut = ["volume", "snapshot", "mail/store", "logs/store-log", "mail/queue", "--as", "monday"];
    let said = done(&bench.run(&cut));
    assert_eq!(
        said,
        "mail/store@monday: a snapshot\nmail/queue@monday: a snapshot\nlogs/store-log@monday: a snapshot\n"
    );
    for pool in ["mail", "logs"] {
        let shown = json_of(&done(&bench.run(&["pool", "show", pool, "--json"])));
        assert_eq!(shown["volumes"][0]["snapshots"], serde_json::json!(["monday"]));
        assert_eq!(shown["volumes"][0].get("cuts"), None, "it is settled: {shown}");
    }
    assert_eq!(done(&bench.run(&["pool", "settle", "mail", "logs"])), "no snapshot of several pools waits\n");
    refused(&bench, &cut, "\"monday\" exists already; choose another name");
    done(&bench.run(&["volume", "delete", "logs/store-log@monday", "--yes", "monday"]));
    let said =
        bench.run(&["volume", "snapshot", "mail/store", "logs/store-log", "--as", "tuesday", "--json"]);
    let said = json_of(&done(&said));
    assert_eq!(said["snapshots"], serde_json::json!(["mail/store@tuesday", "logs/store-log@tuesday"]));
    assert!(said["held_ms"].as_f64().is_some(), "{said}");
}

#[test]
fn volumes_of_one_pool_get_one_snapshot_too() {
    let bench = two_pools();
    done(&bench.run(&["volume", "create", "mail/queue", "8MiB"]));
    let said = done(&bench.run(&["volume", "snapshot", "mail/store", "mail/queue", "--as", "monday"]));
    assert_eq!(said, "mail/store@monday: a snapshot\nmail/queue@monday: a snapshot\n");
    done(&bench.run(&["volume", "delete", "mail/queue@monday", "--yes", "monday"]));
}

#[test]
fn a_snapshot_without_one_name_is_refused_in_one_line() {
    let bench = two_pools();
    let cases = [
        (&["mail/store"][..], "mail/store names no snapshot"),
        (&["mail/store@a", "logs/store-log@a"], "a snapshot of several volumes has one name for all of them"),
        (&["mail/store@a", "logs/store-log", "--as", "b"], "mail/store@a names a snapshot, and so does --as"),
        (&["mail/store", "mail/store", "--as", "b"], "mail/store is named twice"),
        (&["mail/store", "logs/other", "--as", "b"], "the pool has no volume \"other\""),
    ];
    for (arguments, why) in cases {
        refused(&bench, &[&["volume", "snapshot"], arguments].concat(), why);
    }
    let shown = json_of(&done(&bench.run(&["pool", "show", "mail", "--json"])));
    assert_eq!(shown["volumes"][0]["snapshots"], serde_json::json!([]), "nothing was left");
}

const MONDAY: NewSnapshot<'static> = NewSnapshot { name: "monday", snapshot: SnapshotId([7; 16]), note: b"" };

/// Takes a snapshot of both pools. The part of the logs goes away once it is durable, while that of the store
/// still waits behind many writes: so neither knows of the other.
fn interrupt_a_cut(bench: &Bench) {
    done(&bench.run(&["volume", "snapshot", "mail/store", "logs/store-log", "--as", "sunday"]));
    let (mail, logs) = (bench.path("mail"), bench.path("logs"));
    real::run(1, RealOptions::default(), async |world: World| {
        let notices: Rc<dyn Notices> = Rc::new(NoNotices);
        let mail = OpenPool::open(&world, &mail, &notices).await.unwrap();
        let logs = OpenPool::open(&world, &logs, &notices).await.unwrap();
        let ids = [mail.pool.id(), logs.pool.id()];
        let mut parts = CutMember::of_pools(&ids).unwrap().into_iter();
        let (part, other) = (parts.next().unwrap(), parts.next().unwrap());
        let store = VolumeDevice(mail.pool.volume("store").unwrap());
        let data = Arc::new(Buffer::zeroed(256 << 10));
        let writes = (0..32).map(|index| {
            store.write(ByteOffset(index * (256 << 10)), vec![Arc::clone(&data)], Stability::Stable)
        });
        let writes: Vec<_> = writes.collect();
        let pool = Rc::clone(&mail.pool);
        let taken =
            world.spawn("part", async move { pool.take_part_in_cut(&["store"], &MONDAY, part).await });
        let mut placed = Box::pin(logs.pool.take_part_in_cut(&["store-log"], &MONDAY, other));
        let has = |open: &OpenPool, volume| open.pool.snapshots(volume).unwrap().len() > 1;
        while !has(&logs, "store-log") {
            let short = world.sleep(Duration::from_micros(20));
            assert!(with_deadline(short, &mut placed).await.is_none(), "it waits for the store");
        }
        assert!(!has(&mail, "store"), "its writes come first");
        drop(placed);
        let taken = taken.await;
        assert!(matches!(taken, Err(Error::CutUnsettled { .. })), "{taken:?}");
        for write in writes {
            write.await.unwrap();
        }
        mail.close().await.unwrap();
        logs.close().await.unwrap();
    });
}

#[test]
fn an_interrupted_snapshot_is_pending_until_its_pools_are_seen_together() {
    let bench = two_pools();
    interrupt_a_cut(&bench);
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains("snapshot store@monday, pending, it cannot be used until its 2 pools"), "{shown}");
    let why = "snapshot \"monday\" is of several pools, and not all are known to have their part";
    refused(&bench, &["volume", "clone", "mail/store@monday", "mail/try"], why);
    refused(&bench, &["volume", "delete", "mail/store@monday", "--yes", "monday"], why);
    let alone = bench.run(&["pool", "settle", "mail"]);
    assert_eq!(alone.code, Some(1), "{}", alone.stderr);
    assert!(alone.stdout.starts_with("monday: waits for "), "{}", alone.stdout);
    let said = done(&bench.run(&["pool", "settle", "mail", "logs"]));
    assert_eq!(said, "monday: in all its pools\n");
    done(&bench.run(&["volume", "clone", "mail/store@monday", "mail/try"]));
}

#[test]
fn a_snapshot_whose_other_pool_is_lost_is_given_up_by_name() {
    let bench = two_pools();
    interrupt_a_cut(&bench);
    refused(
        &bench,
        &["pool", "settle", "mail", "--give-up", "tuesday"],
        "no snapshot \"tuesday\" of several pools waits in these pools",
    );
    let said = done(&bench.run(&["pool", "settle", "mail", "--give-up", "monday"]));
    assert_eq!(said, "monday: removed, without waiting for its other pools\n");
    done(&bench.run(&["volume", "snapshot", "mail/store@monday"]));
    // The other pool was not lost after all: its part alone is no snapshot of both.
    let said = done(&bench.run(&["pool", "settle", "mail", "logs"]));
    assert_eq!(said, "monday: removed, since one of its pools never had its part\n");
}
