//! Versions 1 and 2 of the format: what is written, byte by byte, and what an old file is read as.

use super::catalogue_bytes::{TEN_S, compacted_example, entries, example, read};
use expect_test::{expect, expect_file};
use protect::{
    UnixSecond,
    catalogue::{BackupCatalogue, CatalogueScope, SlotFate, slot_accounts},
    set_report::CatalogueReport,
};
use report::{Meta, text};
use std::fmt::Write;

const VERSION_1: &[u8] = include_bytes!("version-1.catalogue");
const VERSION_2: &[u8] = include_bytes!("version-2.catalogue");

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
    let mut text = rows_text(&found.catalogue);
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

fn rows_text(catalogue: &BackupCatalogue) -> String {
    let mut text = String::new();
    for (sequence, row) in catalogue.rows() {
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
    text
}

#[test]
fn the_example_is_compacted_as_version_2() {
    expect_file!["version-2.catalogue"].assert_eq(str::from_utf8(&compacted_example()).unwrap());
}

#[test]
fn version_2_is_read() {
    let found = read(VERSION_2, CatalogueScope::All, 1 << 20).unwrap().unwrap();
    let mut text = rows_text(&found.catalogue);
    for day in found.catalogue.summed() {
        writeln!(text, "{day:?}").unwrap();
    }
    let next = found.catalogue.next_sequence();
    writeln!(text, "next {next}, age {} s, {} lines", found.catalogue.clock().age_s(), found.lines).unwrap();
    expect![[r#"
        1 Cut full Some("Application") Proven [] locked Some(2592000) holds {} copies {"s3://mail-vault"} needs None
        4 Lost full Some("Filesystem") Damaged ["its points are gone: logs/log"] locked None holds {"legal 8/26", "upgrade"} copies {} needs None
        5 Lost full Some("Application") Unproven ["its points are gone: dbs/store"] locked None holds {} copies {} needs None
        6 Deleting full Some("Crash") Unproven ["the catalogue did not have it"] locked None holds {} copies {} needs None
        SummedDay { day_s: 1795910400, backups: Some((2, 2)), slots: [SummedSlots { of: SchedulePeriod { unit: Minute, number: 1 }, made: 1, failed: 0, missed: 0 }], application: 0, filesystem: 0, crash: 1, ordered: 0, found: 0, failed: 0, failure: "", missed_why: "", proven: 0, copied: 0, copied_bytes: 0, deleted: [], window_ms_max: Some(43) }
        SummedDay { day_s: 1795996800, backups: Some((3, 3)), slots: [SummedSlots { of: SchedulePeriod { unit: Minute, number: 1 }, made: 0, failed: 1, missed: 0 }], application: 0, filesystem: 0, crash: 0, ordered: 0, found: 0, failed: 1, failure: "the pool dbs is full", missed_why: "", proven: 0, copied: 0, copied_bytes: 0, deleted: [], window_ms_max: None }
        SummedDay { day_s: 1796169600, backups: None, slots: [], application: 0, filesystem: 0, crash: 0, ordered: 0, found: 0, failed: 0, failure: "", missed_why: "", proven: 0, copied: 0, copied_bytes: 0, deleted: [SummedDeletions { rule: Surplus, count: 1 }], window_ms_max: None }
        SummedDay { day_s: 1796428800, backups: None, slots: [SummedSlots { of: SchedulePeriod { unit: Minute, number: 1 }, made: 0, failed: 0, missed: 4 }], application: 0, filesystem: 0, crash: 0, ordered: 0, found: 0, failed: 0, failure: "", missed_why: "the runner was down", proven: 0, copied: 0, copied_bytes: 0, deleted: [], window_ms_max: None }
        next 7, age 1382400 s, 27 lines
    "#]].assert_eq(&text);
}

#[test]
fn the_report_says_what_was_summed_up() {
    let found = read(VERSION_2, CatalogueScope::All, 1 << 20).unwrap().unwrap();
    let text_since = |since_s| {
        let report = CatalogueReport::of(&found.catalogue, UnixSecond(since_s));
        let meta = Meta {
            generator: "spindle test".to_owned(),
            created_utc: String::new(),
            machine: String::new(),
            seed: None,
            command: None,
        };
        text::render(&report.document(meta), text::TextOptions { width: 140, colour: false })
    };
    let all = text_since(TEN_S - 86_400);
    let (_, summed) = all.split_once("Days that were summed up").expect("it has days");
    expect![[r#"

        ────────────────────────────────────────────────────────────────────────────────────────────────
        Older records: a line for each day of UTC. None of these backups exists.

                              Made  Missed  Failed
        Day         Backups  slots   slots   slots  Labels   Proven  Copied  Deleted    Reasons
        ──────────  ───────  ─────  ──────  ──────  ───────  ──────  ──────  ─────────  ────────────────────
        2026-11-29  2 to 2       1       0       0  1 crash       0       0
        2026-11-30  3 to 3       0       0       1                0       0             the pool dbs is full
        2026-12-02               0       0       0                0       0  1 surplus
        2026-12-05               0       4       0                0       0             the runner was down

        Not shown by this
        ────────────────────────────────────────────────────────────────────────────────────────────────
        The catalogue begins at 2026-11-28T10:00:00Z and ends at 2026-12-14T10:00:00Z: a slot that is
        due since then is not in it. Whether a volume has everything that its application needs; what
        nobody verified; copies that were deleted elsewhere. Single records before 2026-12-07T10:00:00Z,
        which are summed up, a line a day; those of backups that exist, were held, locked, restored,
        drilled, damaged or lost, or deleted by a person, are shown whole.

        spindle test
    "#]]
    .assert_eq(summed);
    let later = text_since(TEN_S + 100 * 86_400);
    assert!(!later.contains("Days that were summed up"), "{later}");
    assert!(later.contains("which are summed up, a line a day"), "{later}");
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
