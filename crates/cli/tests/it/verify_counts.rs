//! `spindle verify --deep` counts a fault once, whichever of its judges meet it.

use crate::{
    mail_files::{MailState, PAGE, change, last_used, make, page},
    spindle::{Bench, json_of},
};
use serde_json::Value;
use std::fs;

/// Output of a check of `paths`.
#[track_caller]
fn checked(bench: &Bench, paths: &[&str]) -> (Option<i32>, Value) {
    let said = bench.run(&[&["verify", "--deep", "--json"], paths].concat());
    assert!(matches!(said.code, Some(0 | 1)), "{:?} {}", said.code, said.stderr);
    (said.code, json_of(&said.stdout))
}

/// All findings of damage: of files, and of sets.
fn damage(shown: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let mut found = Vec::new();
    for owner in list(&shown["files"]).iter().chain(&list(&shown["sets"])) {
        let all = list(&owner["findings"]);
        let damaged: Vec<&Value> = all.iter().filter(|one| one["severity"] == "damage").collect();
        if let Some(count) = owner["damage"].as_u64() {
            assert_eq!(count, damaged.len() as u64, "the count is that of the list: {owner}");
        }
        found.extend(damaged.iter().map(|one| one.to_string()));
    }
    found
}

type Plant = fn(&mut Vec<u8>);

fn zero(bytes: &mut [u8], number: usize) {
    bytes[(number + 1) * PAGE..(number + 2) * PAGE].fill(0);
}

#[test]
fn a_fault_of_a_database_is_one_finding_of_damage() {
    let bench = Bench::new();
    make(&bench.path("mail"), 0, 900, MailState::default());
    let path = bench.path("mail/priv1.edb");
    let whole = fs::read(&path).expect("a file");
    assert_eq!(checked(&bench, &["mail"]).0, Some(0));
    let faults: [(&str, Plant); 11] = [
        ("a bit of a leaf", |bytes| {
            let at = (last_used(bytes) + 1) * PAGE + 900;
            bytes[at] ^= 1 << 5;
        }),
        ("a bit of a checksum that then is another page's, beyond the end", |bytes| {
            let at = (last_used(bytes) + 1) * PAGE;
            bytes[at + 3] ^= 1 << 6;
        }),
        ("a bit of the catalogue", |bytes| bytes[5 * PAGE + 700] ^= 1),
        ("a bit of the owned extents", |bytes| bytes[3 * PAGE + 700] ^= 1),
        ("a leaf overwritten by another", |bytes| {
            let number = last_used(bytes);
            let other = page(bytes, number - 1).to_vec();
            bytes[(number + 1) * PAGE..(number + 2) * PAGE].copy_from_slice(&other);
        }),
        ("a leaf of zeros", |bytes| {
            let number = last_used(bytes);
            zero(bytes, number);
        }),
        ("the root of the database of zeros", |bytes| zero(bytes, 1)),
        ("the root of the owned extents of zeros", |bytes| zero(bytes, 2)),
        ("the root of the free extents of zeros", |bytes| zero(bytes, 3)),
        ("the root of the catalogue of zeros", |bytes| zero(bytes, 4)),
        ("a file cut off", |bytes| {
            let pages = last_used(bytes) - 3;
            bytes.truncate((pages + 2) * PAGE);
        }),
    ];
    let mut wrong = Vec::new();
    for (name, plant) in faults {
        let mut bytes = whole.clone();
        plant(&mut bytes);
        fs::write(&path, bytes).expect("written");
        let (code, shown) = checked(&bench, &["mail"]);
        let found = damage(&shown);
        if code != Some(1) || found.len() != 1 {
            wrong.push(format!("{name}: ended with {code:?}, {} findings: {found:#?}", found.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_lost_write_is_one_finding_though_the_trees_miss_it_as_well() {
    let bench = Bench::new();
    let how = MailState { stamps: true, ..MailState::default() };
    make(&bench.path("mail"), 0, 600, how);
    let old = fs::read(bench.path("mail/priv1.edb")).expect("a file");
    make(&bench.path("mail"), 10_000, 300, how);
    let path = bench.path("mail/priv1.edb");
    let new = fs::read(&path).expect("a file");
    // The last leaf of before: it has a neighbour now.
    let number = last_used(&old);
    assert!(page(&old, number) != page(&new, number), "it was written since");
    change(&path, |bytes| {
        bytes[(number + 1) * PAGE..(number + 2) * PAGE].copy_from_slice(page(&old, number));
    });
    let (code, shown) = checked(&bench, &["mail"]);
    let found = damage(&shown);
    let of_page = found.iter().filter(|one| one.contains(&format!("\"number\":{number},"))).count();
    assert_eq!((code, of_page), (Some(1), 1), "{found:#?}");
}

#[test]
fn a_fault_of_logs_that_two_folders_of_databases_share_is_one_finding() {
    let bench = Bench::new();
    make(&bench.path("one"), 0, 900, MailState { dirty: true, ..MailState::default() });
    fs::create_dir(bench.path("logs")).expect("a folder");
    for entry in fs::read_dir(bench.path("one")).expect("a folder") {
        let entry = entry.expect("an entry");
        if entry.path().extension().is_none_or(|extension| extension != "edb") {
            fs::rename(entry.path(), bench.path("logs").join(entry.file_name())).expect("moved");
        }
    }
    fs::create_dir(bench.path("two")).expect("a folder");
    fs::copy(bench.path("one/priv1.edb"), bench.path("two/priv2.edb")).expect("copied");
    let paths = ["one", "two", "logs"];
    let (code, shown) = checked(&bench, &paths);
    assert_eq!((code, shown["sets"].as_array().map(Vec::len)), (Some(0), Some(2)), "{shown}");
    // Every checksum is right, and the next log knows better.
    change(&bench.path("logs/E0000000001.log"), |bytes| {
        let half = bytes.len() / 2;
        bytes[half..].fill(0);
    });
    let (code, shown) = checked(&bench, &paths);
    let found = damage(&shown);
    assert_eq!((code, found.len()), (Some(1), 1), "{found:#?}");
    let said = bench.run(&["verify", "one", "two", "logs"]);
    assert!(said.stdout.contains("logs/E0000000001.log: its records are not"), "{}", said.stdout);
}
