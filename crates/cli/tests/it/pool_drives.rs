//! Drives taken out of pools: retired, replaced, kept, forgotten, and killed in the middle of it.

use crate::{
    exported::noise,
    pool_verbs::while_exported,
    spindle::{Bench, ProgramOutput, json_of},
};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
    sync::Arc,
};
use world::{BlockDevice, Buffer, ByteOffset, Stability};

const MIB: usize = 1 << 20;

#[track_caller]
pub fn done(said: &ProgramOutput) -> String {
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    said.stdout.clone()
}

#[track_caller]
pub fn json(bench: &Bench, arguments: &[&str]) -> serde_json::Value {
    json_of(&done(&bench.run(&[arguments, &["--json"]].concat())))
}

#[track_caller]
pub fn refused(bench: &Bench, arguments: &[&str], why: &str) {
    let said = bench.run(arguments);
    assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
    assert!(said.stderr.contains(why), "{}", said.stderr);
}

/// A pool with a volume of so many MiB of noise.
pub fn used_pool(bench: &Bench, drives: &str, mib: usize) {
    done(&bench.run(&["pool", "create", "mail", "--size", "200MiB", "--drives", drives]));
    done(&bench.run(&["volume", "create", "mail/store", "120MiB"]));
    let letters = noise(mib * MIB, 5);
    while_exported(bench, async |client| {
        for (number, piece) in letters.chunks(MIB).enumerate() {
            let data = vec![Arc::new(Buffer::copy_of(piece))];
            client.write(ByteOffset((number * MIB) as u64), data, Stability::Stable).await.unwrap();
        }
    });
}

#[track_caller]
pub fn has_letters(bench: &Bench, mib: usize) {
    let letters = noise(mib * MIB, 5);
    while_exported(bench, async |client| {
        let read = client.read(ByteOffset(0), vec![Buffer::zeroed(mib * MIB)]).await.unwrap();
        assert!(read[0][..] == letters[..], "it is what was written");
    });
}

#[test]
fn a_retired_drive_can_be_removed_and_the_pool_needs_it_no_more() {
    let bench = Bench::new();
    used_pool(&bench, "4", 24);
    let record = fs::read(bench.path("mail/spindle-pool.json")).unwrap();
    let retire = || {
        let said = done(&bench.run(&["pool", "retire", "mail", "drive-2.spindle"]));
        let text = "mail/drive-2.spindle has left, and can be taken out; 3 drives are in use";
        assert!(said.contains(text), "{said}");
    };
    retire();
    // As if the verb had been killed before it removed the drive from the record.
    fs::write(bench.path("mail/spindle-pool.json"), record).unwrap();
    retire();
    let shown = json(&bench, &["pool", "show", "mail"]);
    assert_eq!((&shown["drives_in_use"], &shown["degraded_segments"]), (&3.into(), &0.into()), "{shown}");
    assert_eq!((shown["drives"].as_array().unwrap().len(), &shown["leaving"]), (3, &serde_json::json!([])));
    fs::remove_file(bench.path("mail/drive-2.spindle")).unwrap();
    has_letters(&bench, 24);
    refused(&bench, &["pool", "retire", "mail", "drive-2.spindle"], "the pool has no drive drive-2.spindle");
    let said = json(&bench, &["pool", "retire", "mail", "drive-1.spindle"]);
    assert_eq!((&said["done"], &said["drives_in_use"]), (&"left".into(), &2.into()), "{said}");
    refused(&bench, &["pool", "retire", "mail", "drive-3.spindle"], "it keeps 2 copies");
    has_letters(&bench, 24);
}

#[test]
fn a_drive_of_two_is_replaced_and_the_others_are_too_small_for_a_retirement() {
    let bench = Bench::new();
    used_pool(&bench, "2", 100);
    let said = json(&bench, &["pool", "replace", "mail", "drive-1.spindle", "--size", "220MiB"]);
    assert_eq!(
        (&said["done"], &said["replaced_by"]),
        (&"left".into(), &"mail/drive-3.spindle".into()),
        "{said}"
    );
    fs::remove_file(bench.path("mail/drive-1.spindle")).unwrap();
    has_letters(&bench, 100);
    done(&bench.run(&["pool", "add-drive", "mail", "--size", "60MiB"]));
    refused(&bench, &["pool", "retire", "mail", "drive-3.spindle"], "the other drives lack ");
    refused(&bench, &["pool", "forget", "mail", "drive-3.spindle"], "is in use");
    has_letters(&bench, 100);
}

#[test]
fn a_drive_that_is_gone_is_forgotten_once_nothing_needs_it() {
    let bench = Bench::new();
    used_pool(&bench, "3", 24);
    fs::remove_file(bench.path("mail/drive-3.spindle")).unwrap();
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains(" may be lost at once ("), "{shown}");
    refused(&bench, &["pool", "retire", "mail", "drive-3.spindle"], "only a drive in use can leave");
    // The verb opens the pool, whose copies are made in the background.
    let forgotten = (0..50).any(|_| {
        let said = bench.run(&["pool", "forget", "mail", "drive-3.spindle"]);
        let is_refused = said.code == Some(2) && said.stderr.contains("cannot be forgotten");
        assert!(said.code == Some(0) || is_refused, "{}{}", said.stdout, said.stderr);
        if said.code != Some(0) {
            done(&bench.run(&["pool", "scrub", "mail"]));
        }
        said.code == Some(0)
    });
    assert!(forgotten, "nothing needs it");
    assert_eq!(json(&bench, &["pool", "show", "mail"])["drives"].as_array().unwrap().len(), 2);
    has_letters(&bench, 24);
}

#[test]
fn a_retirement_killed_in_the_middle_goes_on_or_is_cancelled() {
    let bench = Bench::new();
    used_pool(&bench, "4", 100);
    let mut was_leaving = false;
    for attempt in 0..10 {
        let mut command = bench.command(&["pool", "retire", "mail", "drive-2.spindle"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let is_told = lines.any(|line| line.unwrap().contains("drive-2.spindle leaves"));
        assert!(is_told, "attempt {attempt}: it leaves");
        child.kill().unwrap();
        child.wait().unwrap();
        let shown = json(&bench, &["pool", "show", "mail"]);
        if shown["leaving"][0]["name"] == "mail/drive-2.spindle" {
            was_leaving = true;
            assert!(shown["leaving"][0]["left_bytes"].as_u64().unwrap() > 0, "{shown}");
            if attempt == 0 {
                let said = done(&bench.run(&["pool", "retire", "mail", "drive-2.spindle", "--keep"]));
                assert!(said.contains("is kept; 4 drives are in use"), "{said}");
                assert_eq!(json(&bench, &["pool", "show", "mail"])["leaving"], serde_json::json!([]));
                continue;
            }
        }
        break;
    }
    assert!(was_leaving, "the kill came too late each time");
    has_letters(&bench, 100);
    let said = bench.run(&["pool", "retire", "mail", "drive-2.spindle"]);
    // It may have left while the pool was exported.
    assert!(said.code == Some(0) || said.stderr.contains("the pool has no drive"), "{}", said.stderr);
    fs::remove_file(bench.path("mail/drive-2.spindle")).unwrap();
    has_letters(&bench, 100);
    assert_eq!(json(&bench, &["pool", "show", "mail"])["drives_in_use"], 3);
}

#[test]
fn a_drive_that_fell_behind_is_taken_back_and_gets_what_changed() {
    let bench = Bench::new();
    used_pool(&bench, "3", 40);
    let (drive, aside) = (bench.path("mail/drive-2.spindle"), bench.path("aside"));
    fs::rename(&drive, &aside).unwrap();
    done(&bench.run(&["volume", "create", "mail/more", "8MiB"]));
    refused(&bench, &["pool", "readmit", "mail", "drive-2.spindle"], "is not there");
    fs::rename(&aside, &drive).unwrap();
    let said = done(&bench.run(&["pool", "show", "mail"]));
    let advice = "'spindle pool readmit mail DRIVE'";
    assert!(said.contains("fell behind") && said.contains(advice) && !said.contains("erase it ("), "{said}");
    refused(&bench, &["pool", "readmit", "mail", "drive-1.spindle"], "is in use");
    refused(&bench, &["pool", "readmit", "mail", "drive-9.spindle"], "the pool has no drive drive-9.spindle");
    let answer = json(&bench, &["pool", "readmit", "mail", "drive-2.spindle"]);
    let (compared, matched) =
        (answer["rebuilt_bytes"].as_u64().unwrap(), answer["matched_bytes"].as_u64().unwrap());
    println!("note: {compared} bytes compared or copied, {matched} of them were there");
    assert!(matched > 0 && compared - matched < 16 << 20, "{answer}");
    assert_eq!((&answer["degraded_segments"], &answer["lost_segments"]), (&0.into(), &0.into()));
    let shown = json(&bench, &["pool", "show", "mail"]);
    assert_eq!(
        (&shown["drives_in_use"], shown["drives"].as_array().unwrap().len()),
        (&3.into(), 3),
        "{shown}"
    );
    // Without either of the others, it has what they had.
    for other in ["mail/drive-1.spindle", "mail/drive-3.spindle"] {
        fs::rename(bench.path(other), &aside).unwrap();
        has_letters(&bench, 40);
        fs::rename(&aside, bench.path(other)).unwrap();
        done(&bench.run(&["pool", "readmit", "mail", other.strip_prefix("mail/").unwrap()]));
    }
    has_letters(&bench, 40);
}

#[test]
fn a_file_that_became_larger_is_used_when_it_is_said() {
    let bench = Bench::new();
    used_pool(&bench, "2", 24);
    refused(&bench, &["pool", "grow", "mail", "drive-1.spindle"], "has not become larger");
    let before = json(&bench, &["pool", "show", "mail"])["usable_bytes"].as_u64().unwrap();
    for number in 1..=2 {
        let path = bench.path(&format!("mail/drive-{number}.spindle"));
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(400 << 20).unwrap();
    }
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(
        shown.contains("drive-1.spindle has become larger by 200 MiB, which 'spindle pool grow mail DRIVE'"),
        "{shown}"
    );
    let gained = json(&bench, &["pool", "grow", "mail", "drive-1.spindle"]);
    assert_eq!(gained["gained_bytes"], 200 << 20, "{gained}");
    let said = done(&bench.run(&["pool", "grow", "mail", "drive-2.spindle"]));
    assert!(said.contains("drive-2.spindle has 200 MiB more; "), "{said}");
    let after = json(&bench, &["pool", "show", "mail"]);
    assert!(after["usable_bytes"].as_u64().unwrap() > before + (180 << 20), "{after}");
    assert_eq!(after["grown"], serde_json::json!([]));
    has_letters(&bench, 24);
}
