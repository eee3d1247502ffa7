//! `spindle volume diff`: what changed between two points of a volume.

use crate::{
    spindle::{Bench, json_of},
    volumes::{connect, done, while_exported},
};
use expect_test::expect;
use nbd::Client;
use serde_json::{Value, json};
use std::sync::Arc;
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, Stability};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Writes a range of an exported volume.
pub async fn write(client: &Client, at: u64, length: u64, value: u8) {
    for at in (at..at + length).step_by(MIB as usize) {
        let mut data = Buffer::zeroed(length.min(MIB) as usize);
        data.fill(value);
        client.write(ByteOffset(at), vec![Arc::new(data)], Stability::Stable).await.unwrap();
    }
}

/// A volume `mail/store` of 64 MiB: from @a to @b, 1 MiB at 1 MiB and 8 KiB at 20 MiB were written, and 64 KiB
/// at 3 MiB discarded; since then, 4 KiB at 0 were written.
pub fn changed_volume(bench: &Bench) {
    done(&bench.run(&["pool", "create", "mail", "--size", "160MiB"]));
    done(&bench.run(&["volume", "create", "mail/store", "64MiB"]));
    while_exported(bench, &["mail/store"], async |world, uri| {
        let client = connect(&world, uri("store")).await;
        write(&client, 0, 8 * MIB, 1).await;
    });
    done(&bench.run(&["volume", "snapshot", "mail/store@a"]));
    while_exported(bench, &["mail/store"], async |world, uri| {
        let client = connect(&world, uri("store")).await;
        write(&client, MIB, MIB, 2).await;
        write(&client, 20 * MIB, 8 * KIB, 3).await;
        client.discard(ByteOffset(3 * MIB), ByteCount(64 * KIB)).await.unwrap();
    });
    done(&bench.run(&["volume", "snapshot", "mail/store@b"]));
    while_exported(bench, &["mail/store"], async |world, uri| {
        let client = connect(&world, uri("store")).await;
        write(&client, 0, 4 * KIB, 4).await;
    });
}

fn range(at: u64, length: u64, change: &str) -> Value {
    json!({ "at": at, "length": length, "change": change })
}

#[test]
fn a_difference_shows_what_was_written_discarded_and_resized() {
    let bench = Bench::new();
    changed_volume(&bench);
    let shown = done(&bench.run(&["volume", "diff", "mail/store@a", "mail/store@b"]));
    expect![[r#"
        mail/store, from @a to @b: 1.07 MiB of 64.0 MiB changed (1.7 %)
          data          1.01 MiB        2 ranges    1.6 %
          discarded     64.0 KiB        1 range   < 0.1 %
    "#]]
    .assert_eq(&shown);
    let shown = json_of(&done(&bench.run(&["volume", "diff", "mail/store@a", "mail/store@b", "--json"])));
    let changed =
        [range(MIB, MIB, "data"), range(3 * MIB, 64 * KIB, "discarded"), range(20 * MIB, 8 * KIB, "data")];
    let nothing = json!({ "bytes": 0, "ranges": 0 });
    let expected = json!({
        "volume": "mail/store",
        "from": "a",
        "to": "b",
        "from_bytes": 64 * MIB,
        "to_bytes": 64 * MIB,
        "ranges": changed,
        "totals": {
            "data": { "bytes": MIB + 8 * KIB, "ranges": 2 },
            "zeroes": nothing,
            "discarded": { "bytes": 64 * KIB, "ranges": 1 },
            "beyond_size": nothing,
        },
    });
    assert_eq!(shown, expected);
    done(&bench.run(&["volume", "resize", "mail/store", "80MiB"]));
    let since = done(&bench.run(&["volume", "diff", "mail/store@b"]));
    expect![[r#"
        mail/store, from @b to now: 16.0 MiB of 80.0 MiB changed (20.0 %)
          data          4.00 KiB        1 range   < 0.1 %
          beyond size   16.0 MiB        1 range    20.0 %
          the size was 64.0 MiB and is 80.0 MiB
    "#]]
    .assert_eq(&since);
    assert_eq!(done(&bench.run(&["volume", "diff", "mail/store@b", "mail/store"])), since);
    let shown = json_of(&done(&bench.run(&["volume", "diff", "mail/store@b", "--json"])));
    assert_eq!(shown["ranges"], json!([range(0, 4 * KIB, "data"), range(64 * MIB, 16 * MIB, "beyond_size")]));
    assert_eq!((&shown["to"], &shown["to_bytes"]), (&Value::Null, &json!(80 * MIB)));
    let same = done(&bench.run(&["volume", "diff", "mail/store@b", "mail/store@b"]));
    assert!(same.contains("0 B of 64.0 MiB changed (0.0 %)"), "{same}");
    // Nothing is left of the comparisons: both snapshots and the volume can go.
    for path in ["mail/store@a", "mail/store@b", "mail/store"] {
        let name = path.rsplit(['/', '@']).next().unwrap();
        done(&bench.run(&["volume", "delete", path, "--yes", name]));
    }
}

#[test]
fn a_clone_and_a_rolled_back_volume_are_compared_with_the_snapshots_they_left() {
    let bench = Bench::new();
    changed_volume(&bench);
    done(&bench.run(&["volume", "clone", "mail/store@a", "mail/try"]));
    while_exported(&bench, &["mail/try"], async |world, uri| {
        let client = connect(&world, uri("try")).await;
        write(&client, 2 * MIB, 4 * KIB, 5).await;
        client.discard(ByteOffset(5 * MIB), ByteCount(8 * KIB)).await.unwrap();
    });
    let shown = done(&bench.run(&["volume", "diff", "mail/store@a", "mail/try"]));
    expect![[r#"
        mail/store, from @a to mail/try now: 12.0 KiB of 64.0 MiB changed (< 0.1 %)
          data          4.00 KiB        1 range   < 0.1 %
          zeroes        8.00 KiB        1 range   < 0.1 %
    "#]]
    .assert_eq(&shown);
    // From a newer state of the source: what it changed since is undone, so 8 KiB at 20 MiB read as zeroes.
    let shown = json_of(&done(&bench.run(&["volume", "diff", "mail/store@b", "mail/try", "--json"])));
    let expected = [
        range(MIB, MIB + 4 * KIB, "data"),
        range(3 * MIB, 64 * KIB, "data"),
        range(5 * MIB, 8 * KIB, "zeroes"),
        range(20 * MIB, 8 * KIB, "zeroes"),
    ];
    assert_eq!((&shown["ranges"], &shown["to_volume"]), (&json!(expected), &json!("mail/try")));
    done(&bench.run(&["volume", "rollback", "mail/store@a", "--yes", "store"]));
    let since = json_of(&done(&bench.run(&["volume", "diff", "mail/store@b", "--json"])));
    let undone =
        [range(MIB, MIB, "data"), range(3 * MIB, 64 * KIB, "data"), range(20 * MIB, 8 * KIB, "zeroes")];
    assert_eq!((&since["ranges"], &since["to_volume"]), (&json!(undone), &Value::Null));
    let same = done(&bench.run(&["volume", "diff", "mail/store@a"]));
    assert!(same.contains("0 B of 64.0 MiB changed"), "{same}");
    let left = done(&bench.run(&["volume", "diff", "mail/store@b", "mail/store~1"]));
    assert!(left.starts_with("mail/store, from @b to mail/store~1 now: 4.00 KiB of 64.0 MiB"), "{left}");
    // Nothing is left of the comparisons.
    for path in ["mail/try", "mail/store~1", "mail/store@a", "mail/store@b", "mail/store"] {
        let name = path.rsplit(['/', '@']).next().unwrap();
        done(&bench.run(&["volume", "delete", path, "--yes", name]));
    }
}

#[test]
fn points_that_cannot_be_compared_are_refused_in_a_line() {
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "mail", "--size", "96MiB", "--drives", "1"]));
    done(&bench.run(&["volume", "create", "mail/store", "1MiB"]));
    done(&bench.run(&["volume", "create", "mail/other", "1MiB"]));
    for snapshot in ["mail/store@a", "mail/store@b"] {
        done(&bench.run(&["volume", "snapshot", snapshot]));
    }
    for (points, story) in [
        (&["mail/store"][..], "mail/store names no snapshot to begin with; say POOL/VOLUME@SNAPSHOT first"),
        (&["store@a"], "store@a names no volume of a pool"),
        (&["mail/store@a", "mail/logs"], "the pool has no volume \"logs\"; see 'spindle pool show mail'"),
        (&["mail/store@a", "mail/other"], "\"store@a\" and \"other\" have no snapshot in common"),
        (&["mail/store@a", "other/store@b"], "other/store@b is in another pool than mail/store@a"),
        (&["mail/store@b", "mail/store@a"], "snapshot \"a\" is older than \"b\"; give the older one first"),
        (&["mail/store@c"], "volume \"store\" has no snapshot \"c\"; see 'spindle pool show mail'"),
        (&["mail/store@a", "mail/store@c"], "volume \"store\" has no snapshot \"c\""),
        (&["mail/none@a"], "the pool has no volume \"none\""),
        (&["none/store@a"], "none"),
    ] {
        let refused = bench.run(&[&["volume", "diff"], points].concat());
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{points:?}");
        let said = refused.stderr;
        assert!(said.contains(story) && said.lines().count() == 1, "{points:?}: {said}");
    }
}
