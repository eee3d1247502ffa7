//! Pools that were damaged from outside, with tools any user has: their content is shown, served and copied, nothing is
//! written to them, and no advice would cost the last copy.

use crate::{
    exported::{Exported, is_here, judge, noise, text},
    spindle::{Bench, ProgramOutput, json_of},
    storage::{Mount, may_mount},
};
use array::format::{LogRecord, Position};
use nbd::{Client, ClientOptions, NbdUri};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
    sync::Arc,
};
use world::{
    BlockDevice, Buffer, ByteOffset, IoErrorKind, Stability, World,
    real::{self, RealOptions, Sockets},
};

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;

#[track_caller]
fn done(said: &ProgramOutput) -> String {
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    said.stdout.clone()
}

/// Asserts exit code 1 with a message: something is lost.
#[track_caller]
fn lossy(said: &ProgramOutput) -> String {
    assert_eq!(said.code, Some(1), "{}{}", said.stdout, said.stderr);
    said.stdout.clone()
}

/// A line that does not lead anybody astray.
#[track_caller]
fn refused_line(said: &ProgramOutput) -> String {
    assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
    let lines: Vec<&str> = said.stderr.lines().filter(|line| !line.starts_with("warning:")).collect();
    assert_eq!(lines.len(), 1, "{}", said.stderr);
    assert!(!lines[0].contains("read-only") || lines[0].contains("export"), "{}", lines[0]);
    lines[0].to_owned()
}

fn drives(bench: &Bench) -> Vec<PathBuf> {
    let mut drives: Vec<PathBuf> = fs::read_dir(bench.path("mail"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "spindle"))
        .collect();
    drives.sort();
    drives
}

/// All bytes of all drives.
fn images(bench: &Bench) -> BTreeMap<PathBuf, Vec<u8>> {
    drives(bench).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

async fn connect(world: &World, exported: &Exported) -> Client {
    let uri: NbdUri = exported.uris[0].parse().unwrap();
    Client::connect(world, Rc::new(Sockets), uri, ClientOptions::default()).await.unwrap()
}

fn export(bench: &Bench, arguments: &[&str]) -> Exported {
    let place = format!("unix:{}", text(&bench.path("socket")));
    let _ = fs::remove_file(bench.path("socket"));
    Exported::begin(bench, &[arguments, &["--nbd", &place]].concat())
}

fn write(exported: &Exported, at: usize, piece: usize, bytes: &[u8]) {
    real::run(1, RealOptions::default(), async |world: World| {
        let client = connect(&world, exported).await;
        for (number, piece_bytes) in bytes.chunks(piece).enumerate() {
            let data = vec![Arc::new(Buffer::copy_of(piece_bytes))];
            client.write(ByteOffset((at + number * piece) as u64), data, Stability::Stable).await.unwrap();
        }
    });
}

/// The served content, block by block; `None` for a block that cannot be read.
fn read_blocks(exported: &Exported, length: usize) -> Vec<Option<Vec<u8>>> {
    let mut blocks = Vec::new();
    real::run(1, RealOptions::default(), async |world: World| {
        let client = connect(&world, exported).await;
        for at in (0..length).step_by(BLOCK) {
            let read = client.read(ByteOffset(at as u64), vec![Buffer::zeroed(BLOCK)]).await;
            if let Err(error) = &read {
                assert_eq!(error.kind(), IoErrorKind::Medium, "{error}");
            }
            blocks.push(read.ok().map(|read| read[0].to_vec()));
        }
    });
    blocks
}

/// A pool with a volume of 32 MiB that holds `bytes`, closed.
fn make_pool(bench: &Bench, drives: usize, bytes: &[u8]) {
    done(&bench.run(&["pool", "create", "mail", "--size", "64MiB", "--drives", &drives.to_string()]));
    done(&bench.run(&["volume", "create", "mail/store", "32MiB"]));
    let exported = export(bench, &["mail/store"]);
    write(&exported, 0, MIB, bytes);
    exported.end();
}

/// Log records, by position: drive and byte.
fn records(bench: &Bench) -> BTreeMap<Position, Vec<(PathBuf, u64)>> {
    let mut found: BTreeMap<Position, Vec<(PathBuf, u64)>> = BTreeMap::new();
    for (path, image) in images(bench) {
        for (index, block) in image.chunks_exact(BLOCK).enumerate() {
            if let Ok(record) = LogRecord::decode(block) {
                found.entry(record.position).or_default().push((path.clone(), (index * BLOCK) as u64));
            }
        }
    }
    found
}

/// As `dd if=/dev/zero conv=notrunc` does.
fn zero(path: &Path, at: u64, length: usize) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&vec![0; length], at).unwrap();
}

#[test]
fn a_pool_whose_log_has_a_hole_is_shown_served_and_copied_up_to_it() {
    let bench = Bench::new();
    let before = noise(8 * MIB, 1);
    make_pool(&bench, 3, &before);
    let after = noise(10 * BLOCK, 2);
    let exported = export(&bench, &["mail/store"]);
    write(&exported, 0, BLOCK, &after);
    // Killed, as by a power cut.
    drop(exported);
    // Ten records, one for each write: the sixth is lost in all copies.
    let records = records(&bench);
    let (_, copies) = records.iter().rev().nth(4).unwrap();
    assert_eq!(copies.len(), 2, "each record has two copies");
    copies.iter().for_each(|(path, at)| zero(path, *at, BLOCK));

    let line = refused_line(&bench.run(&["volume", "create", "mail/more", "1MiB"]));
    assert!(line.contains("'spindle pool show mail' says what can be read as it is"), "{line}");
    assert!(line.contains("the log ends at record") && !line.contains("force-open"), "{line}");
    let line = refused_line(&bench.run(&["pool", "force-open", "mail", "--yes", "mail"]));
    assert!(line.contains("'spindle pool salvage' copies it") && !line.contains("force-open"), "{line}");
    let images_before = images(&bench);

    let said = lossy(&bench.run(&["pool", "show", "mail"]));
    assert!(said.contains("mail: damaged, and open for reading only: the log ends at record"), "{said}");
    assert!(said.contains(" records of the log that were acknowledged are missing"), "{said}");
    assert!(
        said.contains("volume store: 32.0 MiB, 8.00 MiB of data, a copy of all of it is there"),
        "{said}"
    );
    assert!(said.contains("spindle pool salvage mail/VOLUME OUT") && !said.contains("force-open"), "{said}");
    let shown = json_of(&lossy(&bench.run(&["pool", "show", "mail", "--json"])));
    assert_eq!((&shown["damaged"], &shown["may_be_older"]), (&true.into(), &true.into()), "{shown}");
    assert_eq!(shown["log"]["missing_records"], 4, "the last one does not know of itself: {shown}");
    assert_eq!(shown["volumes"][0]["unreadable_bytes"], 0, "{shown}");

    let said = json_of(&lossy(&bench.run(&["pool", "salvage", "mail/store", "store.img", "--json"])));
    assert_eq!((&said["unreadable_bytes"], &said["may_be_older"]), (&0.into(), &true.into()), "{said}");
    assert_eq!(said["copied_bytes"], 8 * MIB, "{said}");
    let copy = fs::read(bench.path("store.img")).unwrap();
    let mut expected = [&after[..5 * BLOCK], &before[5 * BLOCK..]].concat();
    expected.resize(32 * MIB, 0);
    assert!(copy == expected, "what was acknowledged up to the hole, and what was there before");
    let blocks =
        fs::metadata(bench.path("store.img")).map(|about| std::os::unix::fs::MetadataExt::blocks(&about));
    assert!(blocks.unwrap() * 512 < 12 * MIB as u64, "holes take no room");

    let exported = export(&bench, &["mail/store", "--read-only"]);
    let served: Vec<u8> = read_blocks(&exported, 32 * MIB).into_iter().flatten().flatten().collect();
    assert!(served == expected, "what is served is what was copied");
    if is_here("nbdcopy", "libnbd-bin") {
        judge("nbdcopy", &[&exported.uris[0], &text(&bench.path("served.img"))]);
        assert!(fs::read(bench.path("served.img")).unwrap() == expected);
    }
    if is_here("qemu-img", "qemu-utils") {
        let copy = text(&bench.path("store.img"));
        judge("qemu-img", &["compare", "-f", "raw", "-F", "raw", &copy, &exported.uris[0]]);
    }
    exported.end();
    assert!(images(&bench) == images_before, "nothing was written to any drive");
}

#[test]
fn with_half_of_the_drives_gone_the_rest_is_served_and_what_is_missing_is_mapped() {
    let bench = Bench::new();
    let bytes = noise(24 * MIB, 3);
    make_pool(&bench, 4, &bytes);
    done(&bench.run(&["volume", "snapshot", "mail/store@monday"]));
    let all = drives(&bench);
    // Not every half leads to the catalogue: the first that does.
    let mut read = None;
    for [one, other] in [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]] {
        let away = [&all[one], &all[other]];
        let away = away.map(|path| (path, bench.path(path.file_name().unwrap().to_str().unwrap())));
        away.iter().for_each(|(path, aside)| fs::rename(path, aside).unwrap());
        let shown = json_of(&lossy(&bench.run(&["pool", "show", "mail", "--json"])));
        if shown["volumes"].as_array().is_some_and(|volumes| !volumes.is_empty()) {
            read = Some(shown);
            break;
        }
        assert!(!shown["catalogue_gaps"].as_array().unwrap().is_empty(), "it is said why: {shown}");
        away.iter().for_each(|(path, aside)| fs::rename(aside, path).unwrap());
    }
    let shown = read.expect("some half leads to the catalogue");
    let images_before = images(&bench);
    assert_eq!(images_before.len(), 2);
    let lost = shown["volumes"][0]["unreadable_bytes"].as_u64().unwrap();
    assert!(lost > 0 && lost < 24 * MIB as u64, "{shown}");
    let said = lossy(&bench.run(&["pool", "show", "mail"]));
    assert!(said.contains(" cannot be read: bytes ") && said.contains(": not there"), "{said}");
    let offers_force = said.contains("force-open");
    assert!(!offers_force || said.contains("first copy what can be read"), "{said}");
    let line = refused_line(&bench.run(&["export", "mail/store"]));
    assert!(line.contains("'spindle pool show mail' says what can be read as it is"), "{line}");
    assert_eq!(line.contains("force-open"), offers_force, "{line}");

    let said = json_of(&lossy(&bench.run(&["pool", "salvage", "mail/store", "store.img", "--json"])));
    let unreadable = said["unreadable_bytes"].as_u64().unwrap();
    assert_eq!(unreadable, lost, "no sector is bad: what the map knows is all: {said}");
    let copy = fs::read(bench.path("store.img")).unwrap();
    assert_eq!(copy.len(), 32 * MIB);
    let exported = export(&bench, &["mail/store", "--read-only"]);
    let mut original = bytes.clone();
    original.resize(32 * MIB, 0);
    let mut refused = Vec::new();
    for (index, served) in read_blocks(&exported, 32 * MIB).into_iter().enumerate() {
        let range = index * BLOCK..(index + 1) * BLOCK;
        match served {
            Some(served) => {
                assert!(served == original[range.clone()], "block {index}");
                assert!(served == copy[range], "block {index} is the same in the copy");
            }
            None => {
                refused.push(index);
                assert!(copy[range].iter().all(|byte| *byte == 0), "block {index} is zero in the copy");
            }
        }
    }
    exported.end();
    assert_eq!(refused.len() as u64 * BLOCK as u64, unreadable);
    if Command::new("ddrescuelog").arg("--version").output().is_ok() {
        let map = text(&bench.path("store.img.map"));
        let listed = judge("ddrescuelog", &["--block-size=4096", "--list-blocks=-", &map]);
        let listed: Vec<usize> = listed.lines().map(|line| line.trim().parse().unwrap()).collect();
        assert_eq!(listed, refused, "what ddrescuelog reads in the map is what cannot be read");
        judge("ddrescuelog", &["--show-status", &map]);
    } else {
        println!("skipped: ddrescuelog is not installed (apt-get install gddrescue)");
    }
    // A snapshot is read as well, and served over iSCSI with a medium error where it cannot be.
    let said = json_of(&lossy(&bench.run(&["pool", "salvage", "mail/store@monday", "monday.img", "--json"])));
    assert_eq!(said["may_be_older"], false, "a snapshot is as it was made: {said}");
    assert_eq!(said["unreadable_bytes"], unreadable);
    assert!(fs::read(bench.path("monday.img")).unwrap() == copy);
    assert!(images(&bench) == images_before, "nothing was written to any drive");
}

#[test]
fn force_is_offered_where_it_helps_and_what_fell_behind_is_not_to_be_erased() {
    let bench = Bench::new();
    let bytes = noise(24 * MIB, 4);
    make_pool(&bench, 4, &bytes);
    let all = drives(&bench);
    // With two drives of four the pool opens by force if log and catalogue lie there; what both others had is lost.
    let mut kept = None;
    for keep in [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]] {
        let keep = keep.map(|number| &all[number]);
        let away: Vec<&PathBuf> = all.iter().filter(|path| !keep.contains(path)).collect();
        let aside = |path: &Path| bench.path(path.file_name().unwrap().to_str().unwrap());
        away.iter().for_each(|path| fs::rename(path, aside(path)).unwrap());
        let said = lossy(&bench.run(&["pool", "show", "mail"]));
        let is_offered = said.contains("'spindle pool force-open mail'");
        let images = keep.map(|path| fs::read(path).unwrap());
        let forced = bench.run(&["pool", "force-open", "mail", "--yes", "mail"]);
        assert_eq!(
            forced.code == Some(0),
            is_offered,
            "offered exactly where it helps: {said}{}",
            forced.stderr
        );
        if is_offered {
            assert!(said.contains("first copy what can be read"), "{said}");
        }
        // // Where the newest checkpoint is on absent drives, their content is unknown here.
        let is_known = said.contains("lie on them alone");
        if !is_known {
            keep.iter().zip(images).for_each(|(path, image)| fs::write(path, image).unwrap());
        }
        away.iter().for_each(|path| fs::rename(aside(path), path).unwrap());
        if is_offered && is_known {
            kept = Some(keep);
            break;
        }
    }
    assert!(kept.is_some(), "one of the pairs has log and catalogue");
    // The others are back, and stale; what lies on them alone is to be kept.
    let said = done(&bench.run(&["pool", "show", "mail"]));
    let behind: Vec<&str> = said.lines().filter(|line| line.contains("fell behind")).collect();
    assert_eq!(behind.len(), 2, "{said}");
    assert!(behind.iter().all(|line| line.contains("do not erase it; 'spindle pool readmit mail")), "{said}");
    assert!(!said.contains("erase it (") && said.contains("spindle pool salvage"), "{said}");
    let shown = json_of(&done(&bench.run(&["pool", "show", "mail", "--json"])));
    assert_eq!(shown["only_elsewhere"].as_array().unwrap().len(), 2, "{shown}");
    let copied = bench.run(&["pool", "salvage", "mail/store", "store.img"]);
    let said = done(&copied);
    assert!(said.contains("all of it could be read"), "drives that fell behind are read, too: {said}");
    assert!(fs::read(bench.path("store.img")).unwrap()[..bytes.len()] == bytes[..]);
    // Taken back one after the other, they bring what they alone have.
    let kept = kept.expect("found above");
    for away in all.iter().filter(|path| !kept.contains(path)) {
        done(&bench.run(&["pool", "readmit", "mail", away.file_name().unwrap().to_str().unwrap()]));
    }
    let shown = json_of(&done(&bench.run(&["pool", "show", "mail", "--json"])));
    assert_eq!(shown["only_elsewhere"].as_array().unwrap().len(), 0, "{shown}");
    assert_eq!((&shown["drives_in_use"], &shown["degraded_segments"]), (&4.into(), &0.into()), "{shown}");
    done(&bench.run(&["pool", "salvage", "mail/store", "again.img"]));
    assert!(fs::read(bench.path("again.img")).unwrap()[..bytes.len()] == bytes[..]);
}

#[test]
fn a_whole_pool_is_exported_for_reading_without_a_byte_written() {
    let bench = Bench::new();
    let bytes = noise(4 * MIB, 5);
    make_pool(&bench, 2, &bytes);
    let before = images(&bench);
    let exported = export(&bench, &["mail/store", "--read-only"]);
    let served: Vec<u8> = read_blocks(&exported, 4 * MIB).into_iter().flatten().flatten().collect();
    assert!(served == bytes);
    let busy = refused_line(&bench.run(&["pool", "salvage", "mail/store", "store.img"]));
    assert!(busy.contains("another Spindle has the pool open"), "{busy}");
    exported.end();
    let said = done(&bench.run(&["pool", "salvage", "mail/store", "store.img"]));
    assert!(said.contains("all of it could be read"), "{said}");
    assert!(images(&bench) == before);
    let map = fs::read_to_string(bench.path("store.img.map")).unwrap();
    assert!(map.ends_with("0x00000000  0x02000000  +\n"), "{map}");
}

#[test]
fn what_cannot_be_salvaged_is_refused_in_a_line_and_leaves_all_as_it_was() {
    let bench = Bench::new();
    make_pool(&bench, 2, &noise(4 * MIB, 6));
    bench.make_file("there.img", b"");
    bench.make_file("mapped.img.map", b"");
    for (arguments, story) in [
        (&["mail/store", "there.img"][..], "there.img exists already, and nothing is overwritten"),
        (&["mail/store", "mapped.img"], "mapped.img.map exists already"),
        (&["mail/none", "out.img"], "mail: the pool has no volume \"none\"; 'spindle pool show mail'"),
        (&["mail/store@never", "out.img"], "has no snapshot \"never\""),
        (&["none/store", "out.img"], "none is no pool"),
        (&["store", "out.img"], "store names no volume of a pool; say POOL/VOLUME"),
        (&["mail/store", "nowhere/out.img"], "nowhere"),
    ] {
        let refused = bench.refused(&[&["pool", "salvage"], arguments].concat());
        assert!(refused.contains(story), "{arguments:?}: {refused}");
    }
    if !may_mount() {
        return;
    }
    let _mount = Mount::tmpfs(&bench, "small", "size=2m");
    let refused = bench.refused(&["pool", "salvage", "mail/store", "small/out.img"]);
    assert!(refused.contains("no room for small/out.img: 4.00 MiB are to be copied"), "{refused}");
    // // All superblocks of all drives are gone: the pool cannot be identified.
    for drive in drives(&bench) {
        zero(&drive, 0, MIB);
    }
    let refused = bench.run(&["pool", "show", "mail"]);
    assert_eq!(refused.code, Some(2), "{}{}", refused.stdout, refused.stderr);
    assert!(
        !refused.stderr.contains("force-open") && !refused.stderr.contains("erase"),
        "{}",
        refused.stderr
    );
}
