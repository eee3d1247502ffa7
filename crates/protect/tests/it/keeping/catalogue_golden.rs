//! Version 1 of the format: what is written, byte by byte, and what an old file is read as.

use super::catalogue_bytes::{TEN_S, entries, example, read};
use expect_test::{expect, expect_file};
use protect::{
    UnixSecond,
    catalogue::{CatalogueScope, SlotFate, slot_accounts},
};
use std::fmt::Write;

const VERSION_1: &[u8] = include_bytes!("version-1.catalogue");

#[test]
fn the_example_is_written_as_version_1() {
    expect_file!["version-1.catalogue"].assert_eq(str::from_utf8(&example()).unwrap());
}

#[test]
fn the_example_has_every_entry() {
    let kinds: std::collections::BTreeSet<String> = entries()
        .iter()
        .map(|(_, entry)| {
            let json = serde_json::to_value(entry).unwrap();
            json.as_object().unwrap().keys().next().unwrap().clone()
        })
        .collect();
    // With `header` and `opened`, which the file itself writes.
    assert_eq!(kinds.len() + 2, 18, "{kinds:?}");
}

#[test]
fn version_1_is_read() {
    let found = read(VERSION_1, CatalogueScope::All, 1 << 20).unwrap().unwrap();
    let mut text = String::new();
    for (sequence, row) in found.catalogue.rows() {
        let label = row.label.map(|label| format!("{label:?}"));
        writeln!(
            text,
            "{sequence} {:?} {} {label:?} {:?} {:?} locked {:?} holds {:?} copies {:?} needs {:?}",
            row.stage,
            row.start.kind,
            row.proof(),
            row.reasons,
            row.locked_s,
            row.holds,
            row.copies,
            row.start.needs
        )
        .unwrap();
    }
    let next = found.catalogue.next_sequence();
    writeln!(text, "next {next}, age {} s, {} lines", found.catalogue.clock().age_s(), found.lines).unwrap();
    expect![[r#"
        1 Cut full Some("Application") Proven [] locked Some(2592000) holds {} copies {"s3://mail-vault"} needs None
        2 Deleted logs Some("Crash") Unproven ["nothing was to be frozen"] locked None holds {} copies {} needs Some(1)
        3 Failed crash None Unproven ["the pool dbs is full"] locked None holds {} copies {} needs None
        4 Cut full Some("Filesystem") Damaged [] locked None holds {"upgrade"} copies {} needs None
        5 Lost full Some("Application") Unproven ["its points are gone: dbs/store"] locked None holds {} copies {} needs None
        6 Deleting full Some("Crash") Unproven ["the catalogue did not have it"] locked None holds {} copies {} needs None
        next 7, age 540 s, 27 lines
    "#]].assert_eq(&text);
}

#[test]
fn every_due_slot_is_accounted_for() {
    let found = read(VERSION_1, CatalogueScope::All, 1 << 20).unwrap().unwrap();
    let mut text = String::new();
    for account in slot_accounts(&found.catalogue, UnixSecond(TEN_S)) {
        let minute = (account.slot.start.0 - TEN_S) / 60;
        let fate = match account.fate {
            SlotFate::Made { backup } => format!("made as {backup}"),
            SlotFate::Failed { backup, problems } => format!("failed as {backup}: {}", problems.join("; ")),
            SlotFate::Missed { count, why, .. } => format!("{count} missed: {why}"),
        };
        writeln!(text, "{} at {minute} min: {fate}", account.slot.period).unwrap();
    }
    expect![[r#"
        1min at 0 min: made as 1
        1min at 1 min: made as 2
        1min at 2 min: failed as 3: the pool dbs is full
        1min at 3 min: 4 missed: the runner was down
        1min at 7 min: made as 6
        1h at 0 min: made as 1
        1h at 7 min: made as 5
        1d at 0 min: made as 1
    "#]]
    .assert_eq(&text);
    let later = slot_accounts(&found.catalogue, UnixSecond(TEN_S + 7 * 60));
    assert_eq!(later.len(), 3, "{later:?}");
}
