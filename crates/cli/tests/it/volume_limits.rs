//! Limits of a volume, set and shown by the program, and enforced while it is exported.

use crate::{
    spindle::{Bench, json_of},
    volumes::{connect, done, while_exported},
};
use nbd::Client;
use std::sync::Arc;
use world::{BlockDevice, Buffer, ByteOffset, IoErrorKind, Stability};

/// Writes 64 KiB pieces from `from` on until one is refused; how many were taken, of `most`.
async fn fill(client: &Client, from: u64, most: u64) -> u64 {
    for index in 0..most {
        let data = vec![Arc::new(Buffer::copy_of(&[index as u8 | 1; 65_536]))];
        match client.write(ByteOffset(from + index * 65_536), data, Stability::Stable).await {
            Ok(()) => {}
            Err(refused) => {
                assert_eq!(refused.kind(), IoErrorKind::NoSpace, "{refused}");
                return index;
            }
        }
    }
    most
}

#[test]
fn limits_of_a_volume_are_set_shown_and_kept_to() {
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "mail", "--size", "96MiB"]));
    let said = done(&bench.run(&["volume", "create", "mail/logs", "1GiB", "--limit", "2MiB"]));
    assert_eq!(said.trim_end(), "mail/logs: a volume of 1.00 GiB, limit 2.00 MiB");
    done(&bench.run(&["volume", "create", "mail/store", "1GiB"]));
    let said = done(&bench.run(&[
        "volume",
        "set",
        "mail/store",
        "--reserve",
        "8MiB",
        "--iops",
        "900",
        "--mbps",
        "50",
    ]));
    assert_eq!(said.trim_end(), "mail/store: set, reserve 8.00 MiB, at most 900 IOPS, at most 50.0 MiB/s");
    while_exported(&bench, &["mail/logs", "mail/store"], async |world, uri| {
        let logs = connect(&world, uri("logs")).await;
        assert_eq!(fill(&logs, 0, 100).await, 32, "2 MiB in pieces of 64 KiB");
        assert_eq!(fill(&logs, 0, 32).await, 32, "what it has it may overwrite");
    });
    // // Options that are not given stay.
    done(&bench.run(&["volume", "set", "mail/logs", "--limit", "4MiB", "--write-cache", "on"]));
    done(&bench.run(&["volume", "set", "mail/store", "--mbps", "none"]));
    while_exported(&bench, &["mail/logs"], async |world, uri| {
        let logs = connect(&world, uri("logs")).await;
        assert_eq!(fill(&logs, 2 << 20, 100).await, 32);
    });
    let shown = json_of(&done(&bench.run(&["pool", "show", "mail", "--json"])));
    let volume = |index: usize| {
        let volume = &shown["volumes"][index];
        ["name", "limit_bytes", "reserve_bytes", "iops_max", "kib_per_second_max", "write_cache"]
            .map(|field| volume[field].to_string())
    };
    assert_eq!(volume(0), ["\"logs\"", "4194304", "0", "0", "0", "true"]);
    assert_eq!(volume(1), ["\"store\"", "0", "8388608", "900", "0", "false"]);
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains("volume logs: 1.00 GiB, write cache on, limit 4.00 MiB\n"), "{shown}");
    assert!(shown.contains("write cache off, reserve 8.00 MiB, at most 900 IOPS\n"), "{shown}");
}

#[test]
fn limits_that_cannot_be_are_refused_in_a_line_and_change_nothing() {
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "mail", "--size", "96MiB"]));
    done(&bench.run(&["volume", "create", "mail/store", "1GiB", "--limit", "8MiB"]));
    for (arguments, story) in [
        (&["volume", "set", "mail/store"][..], "required"),
        (&["volume", "set", "mail/none", "--iops", "5"], "no volume \"none\""),
        (&["volume", "set", "mail/store@monday", "--iops", "5"], "is a snapshot, which stays as it is"),
        (&["volume", "set", "mail/store", "--limit", "1000"], "no multiple of 4 KiB"),
        (&["volume", "set", "mail/store", "--limit", "0"], "say none for no bound"),
        (&["volume", "set", "mail/store", "--iops", "0"], "say none for no limit"),
        (&["volume", "set", "mail/store", "--mbps", "fast"], "is no number from 1 to"),
        (&["volume", "set", "mail/store", "--reserve", "16MiB"], "the limit is not below the reserve"),
        (&["volume", "set", "mail/store", "--limit", "none", "--reserve", "1GiB"], "cannot be reserved"),
        (&["volume", "create", "mail/other", "1GiB", "--reserve", "1GiB"], "cannot be reserved"),
    ] {
        let refused = bench.run(arguments);
        assert_eq!(refused.code, Some(2), "{arguments:?}: {}", refused.stdout);
        assert!(refused.stderr.contains(story), "{arguments:?}: {}", refused.stderr);
    }
    let shown = json_of(&done(&bench.run(&["pool", "show", "mail", "--json"])));
    assert_eq!(shown["volumes"].as_array().unwrap().len(), 1);
    assert_eq!(shown["volumes"][0]["limit_bytes"], 8 << 20);
    assert_eq!(shown["volumes"][0]["iops_max"], 0);
}

#[test]
fn a_pool_of_three_copies_lives_without_two_drives() {
    let bench = Bench::new();
    let said =
        done(&bench.run(&["pool", "create", "mail", "--size", "64MiB", "--drives", "5", "--copies", "3"]));
    assert_eq!(said.trim_end(), "mail: a pool of 5 drives, 320 MiB together, everything three times");
    done(&bench.run(&["volume", "create", "mail/store", "1GiB"]));
    while_exported(&bench, &["mail/store"], async |world, uri| {
        assert_eq!(fill(&connect(&world, uri("store")).await, 0, 64).await, 64);
    });
    for drive in [2, 4] {
        std::fs::remove_file(bench.path(&format!("mail/drive-{drive}.spindle"))).unwrap();
    }
    while_exported(&bench, &["mail/store"], async |world, uri| {
        let store = connect(&world, uri("store")).await;
        for index in 0..64 {
            let at = ByteOffset(index * 65_536);
            let read = store.read(at, vec![Buffer::zeroed(65_536)]).await.unwrap();
            assert!(read[0].iter().all(|&byte| byte == index as u8 | 1), "64 KiB at {at:?}");
        }
    });
    for (arguments, story) in [
        (["--drives", "2", "--copies", "3"], "3 copies take 3 drives, and 2 were given"),
        (["--drives", "3", "--copies", "1"], "a pool of 3 drives keeps two copies or three"),
        (["--drives", "3", "--copies", "4"], "is no number of copies"),
    ] {
        let create = ["pool", "create", "new", "--size", "64MiB"];
        let refused = bench.refused(&[&create[..], &arguments].concat());
        assert!(refused.contains(story), "{arguments:?}: {refused}");
        assert!(!bench.path("new").exists(), "what is refused leaves nothing");
    }
}
