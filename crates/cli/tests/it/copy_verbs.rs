//! `spindle volume clone --independent` to another pool, and `spindle volume refresh`.

use crate::{
    spindle::{Bench, json_of},
    volume_diff::{changed_volume, write},
    volumes::{connect, done, while_exported},
};
use expect_test::expect;
use serde_json::json;
use world::{BlockDevice, Buffer, ByteOffset};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// `mail/store` with its snapshots @a and @b, and an empty pool `safe`.
fn two_pools() -> Bench {
    let bench = Bench::new();
    changed_volume(&bench);
    done(&bench.run(&["pool", "create", "safe", "--size", "160MiB"]));
    bench
}

const COPY: [&str; 5] = ["volume", "clone", "mail/store@a", "safe/copy", "--independent"];

/// The bytes of an exported volume at some offsets.
fn bytes_at(bench: &Bench, path: &str, offsets: &[u64]) -> Vec<u8> {
    let (name, mut found) = (path.split('/').next_back().expect("a name").to_owned(), Vec::new());
    while_exported(bench, &[path], async |world, uri| {
        let client = connect(&world, uri(&name)).await;
        for &at in offsets {
            let read = client.read(ByteOffset(at), vec![Buffer::zeroed(512)]).await.unwrap();
            found.push(read[0][0]);
        }
    });
    found
}

#[test]
fn a_copy_in_another_pool_outlives_its_source_and_is_refreshed() {
    let bench = two_pools();
    let copied = done(&bench.run(&COPY));
    expect![[r#"
        safe/copy: a copy of mail/store@a, 64.0 MiB; 8.00 MiB copied
    "#]]
    .assert_eq(&copied);
    assert_eq!(bytes_at(&bench, "safe/copy", &[MIB, 3 * MIB, 20 * MIB]), [1, 1, 0]);
    let refresh = ["volume", "refresh", "safe/copy", "--from", "mail/store@b"];
    let refreshed = done(&bench.run(&refresh));
    expect![[r#"
        safe/copy: @a → as of mail/store@b, 64.0 MiB; 1.01 MiB copied, 64.0 KiB discarded
    "#]]
    .assert_eq(&refreshed);
    assert_eq!(bytes_at(&bench, "safe/copy", &[0, MIB, 3 * MIB, 20 * MIB]), [1, 2, 0, 3]);
    let again = json_of(&done(&bench.run(&[&refresh[..], &["--json"]].concat())));
    let nothing = json!({
        "path": "safe/copy", "done": "refreshed", "size_bytes": 64 * MIB,
        "copied_bytes": 0, "discarded_bytes": 0, "since": "b", "snapshot": "b",
    });
    assert_eq!(again, nothing);
    for path in ["mail/store@a", "mail/store@b", "mail/store"] {
        let name = path.rsplit(['/', '@']).next().unwrap();
        done(&bench.run(&["volume", "delete", path, "--yes", name]));
    }
    let shown = done(&bench.run(&["pool", "show", "safe"]));
    assert!(shown.contains("copy@a") && shown.contains("copy@b"), "{shown}");
    assert_eq!(bytes_at(&bench, "safe/copy", &[0, MIB]), [1, 2]);
}

#[test]
fn what_cannot_be_copied_or_refreshed_is_refused_in_a_line() {
    let bench = two_pools();
    let to_safe =
        |from: &'static str, name: &'static str| vec!["volume", "clone", from, name, "--independent"];
    done(&bench.run(&COPY));
    done(&bench.run(&["volume", "create", "mail/other", "1MiB"]));
    done(&bench.run(&["volume", "snapshot", "mail/other@a"]));
    while_exported(&bench, &["safe/copy"], async |world, uri| {
        let client = connect(&world, uri("copy")).await;
        write(&client, 0, 4 * KIB, 7).await;
    });
    let refresh = |copy: &'static str, from: &'static str| vec!["volume", "refresh", copy, "--from", from];
    for (words, story) in [
        (to_safe("mail/store", "safe/now"), "a copy in another pool is one of a snapshot"),
        (to_safe("mail/store", "safe/now"), "spindle volume snapshot mail/store@NAME"),
        (to_safe("mail/store@a", "safe/copy"), "safe: \"copy\" exists already; choose another name"),
        (to_safe("mail/store@c", "safe/new"), "mail: volume \"store\" has no snapshot \"c\""),
        (vec!["volume", "clone", "mail/store@a", "safe/shared"], "or say --independent"),
        (refresh("safe/copy", "mail/store@b"), "was written since its snapshot \"a\"; roll it back"),
        (refresh("safe/copy", "mail/store@b"), "; spindle volume rollback safe/copy@a"),
        (refresh("safe/copy", "mail/other@a"), "have no snapshot in common"),
        (refresh("safe/none", "mail/store@b"), "safe: the pool has no volume \"none\""),
        (refresh("safe/copy", "safe/copy@a"), "a refresh is for copies in another pool"),
        (refresh("safe/copy", "mail/store"), "is one of a snapshot"),
        (refresh("safe/copy@a", "mail/store@b"), "safe/copy@a is a snapshot, which stays as it is"),
    ] {
        let refused = bench.run(&words);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{words:?}: {}", refused.stderr);
        let said = refused.stderr;
        assert!(said.contains(story) && said.lines().count() == 1, "{words:?}: {said}");
    }
    done(&bench.run(&["volume", "rollback", "safe/copy@a", "--yes", "copy"]));
    done(&bench.run(&refresh("safe/copy", "mail/store@b")));
    assert_eq!(bytes_at(&bench, "safe/copy", &[0, 20 * MIB]), [1, 3]);
    assert_eq!(bytes_at(&bench, "safe/copy~1", &[0]), [7], "what was written stays");
}

#[test]
fn a_volume_is_moved_to_another_pool_with_its_snapshots() {
    let bench = two_pools();
    let before = bytes_at(&bench, "mail/store", &[0, MIB, 3 * MIB, 20 * MIB]);
    let moved = done(&bench.run(&["volume", "move", "mail/store", "safe/inbox"]));
    let words: Vec<&str> = moved.split("; ").collect();
    assert_eq!(words[0], "safe/inbox: moved from mail/store, 64.0 MiB");
    assert!(words[1].ends_with("MiB copied, 2 snapshots came along\n"), "{moved}");
    assert_eq!(bytes_at(&bench, "safe/inbox", &[0, MIB, 3 * MIB, 20 * MIB]), before);
    let shown = done(&bench.run(&["pool", "show", "safe"]));
    assert!(shown.contains("snapshot inbox@a") && shown.contains("snapshot inbox@b"), "{shown}");
    assert!(!shown.contains('~'), "nothing of the move is left: {shown}");
    assert!(!done(&bench.run(&["pool", "show", "mail"])).contains("store"));
    let back = json_of(&done(&bench.run(&["volume", "move", "safe/inbox", "mail/store", "--json"])));
    assert_eq!(
        (&back["done"], &back["snapshots"], &back["path"]),
        (&json!("moved"), &json!(2), &json!("mail/store"))
    );
}

#[test]
fn what_cannot_be_moved_is_refused_in_a_line() {
    let bench = two_pools();
    done(&bench.run(&["volume", "create", "safe/taken", "1MiB"]));
    for (words, story) in [
        (["mail/store", "safe/taken"], "safe: \"taken\" exists already"),
        (["mail/nobody", "safe/store"], "mail: the pool has no volume \"nobody\""),
        (["mail/store@a", "safe/store"], "mail/store@a names no volume of a pool"),
        (["mail/store", "mail/other"], "are in one pool; 'spindle volume rename'"),
    ] {
        let said = bench.run(&[&["volume", "move"], &words[..]].concat());
        assert_eq!(said.code, Some(2), "{}", said.stdout);
        assert!(said.stderr.contains(story), "{}", said.stderr);
    }
    done(&bench.run(&["group", "create", "all", "mail/store"]));
    let said = bench.run(&["volume", "move", "mail/store", "safe/store"]);
    assert!(said.stderr.contains("volume \"store\" is in group \"all\""), "{}", said.stderr);
}
