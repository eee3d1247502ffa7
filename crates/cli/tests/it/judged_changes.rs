//! Others' tools on changes since snapshots: nbdinfo, nbdcopy and qemu-img read the dirty bitmaps of exports, and
//! find exactly what was written.

use crate::{
    exported::{Exported, is_here, judge, text},
    spindle::{Bench, json_of},
    volume_diff::changed_volume,
    volumes::done,
};
use serde_json::Value;
use std::fs;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;
/// Changed from @a to @b, and from @a to now.
const UNTIL_B: [(u64, u64); 3] = [(MIB, MIB), (3 * MIB, 64 * KIB), (20 * MIB, 8 * KIB)];
const UNTIL_NOW: [(u64, u64); 4] = [(0, 4 * KIB), (MIB, MIB), (3 * MIB, 64 * KIB), (20 * MIB, 8 * KIB)];
const SINCE_A: &str = "qemu:dirty-bitmap:since-a";

/// The volume and its later snapshot, exported: with the address of each.
fn exported(bench: &Bench) -> Exported {
    changed_volume(bench);
    Exported::begin(bench, &["mail/store", "mail/store@b", "mail/store@a", "--nbd", "127.0.0.1:0"])
}

/// Offsets and lengths of the extents for which `is_it`, which must cover the export in order.
fn extents(map: &str, offset: &str, is_it: impl Fn(&Value) -> bool) -> Vec<(u64, u64)> {
    let (mut found, mut next): (Vec<(u64, u64)>, u64) = (Vec::new(), 0);
    for extent in json_of(map).as_array().expect("a list") {
        let number = |key: &str| extent[key].as_u64().unwrap_or_else(|| panic!("{key} of {extent}"));
        assert_eq!(number(offset), next, "extents are adjacent: {map}");
        next += number("length");
        match found.last_mut().filter(|(at, length)| at + length == number(offset)) {
            _ if !is_it(extent) => {}
            Some((_, length)) => *length += number("length"),
            None => found.push((number(offset), number("length"))),
        }
    }
    assert_eq!(next, SIZE, "extents cover the export: {map}");
    found
}

#[test]
fn nbdinfo_shows_what_changed_since_a_snapshot() {
    if !is_here("nbdinfo", "libnbd-bin") {
        return;
    }
    let bench = Bench::new();
    let exported = exported(&bench);
    let [volume, later, earlier] = &exported.uris[..] else { panic!("three exports") };
    let is_dirty = |extent: &Value| extent["type"] == 1;
    for (uri, context, expected) in [
        (later, SINCE_A, &UNTIL_B[..]),
        (volume, SINCE_A, &UNTIL_NOW),
        (volume, "qemu:dirty-bitmap:since-b", &UNTIL_NOW[..1]),
    ] {
        let map = judge("nbdinfo", &["--json", &format!("--map={context}"), uri]);
        assert_eq!(extents(&map, "offset", is_dirty), expected, "{context} of {uri}");
    }
    let map = judge("nbdinfo", &["--json", "--map", later]);
    let data = [(0, 3 * MIB), (3 * MIB + 64 * KIB, 5 * MIB - 64 * KIB), (20 * MIB, 8 * KIB)];
    assert_eq!(extents(&map, "offset", |extent| extent["type"] == 0), data);
    for (uri, count) in [(volume, 2), (later, 1), (earlier, 0)] {
        let info = json_of(&judge("nbdinfo", &["--json", uri]));
        let contexts: Vec<&str> =
            info["exports"][0]["contexts"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(contexts.contains(&"base:allocation"), "{contexts:?}");
        assert_eq!(contexts.len(), 1 + count, "older snapshots of {uri}: {contexts:?}");
    }
}

#[test]
fn after_a_rollback_nbdinfo_shows_what_is_not_as_in_newer_snapshots() {
    if !is_here("nbdinfo", "libnbd-bin") {
        return;
    }
    let bench = Bench::new();
    changed_volume(&bench);
    done(&bench.run(&["volume", "rollback", "mail/store@a", "--yes", "store"]));
    let exported = Exported::begin(&bench, &["mail/store", "--nbd", "127.0.0.1:0"]);
    let [volume] = &exported.uris[..] else { panic!("one export") };
    for (context, expected) in [(SINCE_A, &[][..]), ("qemu:dirty-bitmap:since-b", &UNTIL_B)] {
        let map = judge("nbdinfo", &["--json", &format!("--map={context}"), volume]);
        assert_eq!(extents(&map, "offset", |extent| extent["type"] == 1), expected, "{context}");
    }
}

#[test]
fn qemu_img_shows_the_same_and_a_copy_with_the_changes_is_the_later_state() {
    if !is_here("qemu-img", "qemu-utils") || !is_here("nbdcopy", "libnbd-bin") {
        return;
    }
    let bench = Bench::new();
    let exported = exported(&bench);
    let [_, later, earlier] = &exported.uris[..] else { panic!("three exports") };
    let port = later.trim_start_matches("nbd://127.0.0.1:").split('/').next().expect("a port");
    let options = format!(
        "driver=nbd,server.type=inet,server.host=127.0.0.1,server.port={port},export=store@b,x-dirty-bitmap={SINCE_A}"
    );
    let map = judge("qemu-img", &["map", "--output=json", "--image-opts", &options]);
    // QEMU takes bit 0 for a hole.
    let dirty = extents(&map, "start", |extent| extent["data"] == false);
    assert_eq!(dirty, UNTIL_B);
    let (copy, whole) = (text(&bench.path("copy")), text(&bench.path("whole")));
    judge("nbdcopy", &[earlier, &copy]);
    judge("qemu-img", &["convert", "-f", "raw", "-O", "raw", later, &whole]);
    let (mut bytes, later) = (fs::read(&copy).unwrap(), fs::read(&whole).unwrap());
    assert!(bytes != later, "something changed");
    for (at, length) in dirty {
        let range = at as usize..(at + length) as usize;
        bytes[range.clone()].copy_from_slice(&later[range]);
    }
    assert!(bytes == later, "what is not dirty has not changed");
}
