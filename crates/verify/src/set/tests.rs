use super::*;
use crate::{
    database::{FormatVersion, HeaderCopyState},
    finding::FindingSeverity,
    log::LogFormat,
};
use maildb::{
    PageSize,
    format::{header::LogPosition, page_size::DbTime},
};

fn mark(random: u32) -> Signature {
    Signature { random, ..Signature::default() }
}

fn minute(minute: u32) -> LogTime {
    LogTime::from_unix_ms(60_000 * u64::from(minute % 1000) + 1_000_000_000)
}

fn database(state: DatabaseState, required: Option<(u32, u32)>, committed: u32) -> FileFacts {
    let facts = DatabaseFacts {
        page_size: PageSize::Kib32,
        copies: [HeaderCopyState::Good; 2],
        version: FormatVersion { major: 0x620, update_major: 20, update_minor: 0 },
        engine_version: 0,
        state: Some(state),
        state_number: state as u32,
        is_temporary: false,
        signature: mark(1),
        log_signature: mark(7),
        dbtime: DbTime(5),
        consistent: LogPosition::default(),
        attach: LogPosition::default(),
        required,
        committed,
        required_max_created: required.map_or(LogTime::default(), |(_, last)| minute(last)),
        repairs: 0,
        flush_map_signature: Signature::default(),
        header_flush_signature: Signature::default(),
    };
    FileFacts { name: "mail.edb".to_owned(), facts: FileContents::Database(facts), is_damaged: false }
}

fn log_facts(generation: u32) -> LogFacts {
    LogFacts {
        format: LogFormat::Segments,
        version: FormatVersion { major: 8, update_major: 5, update_minor: 16 },
        generation,
        created: minute(generation),
        previous_created: minute(generation - 1),
        signature: mark(7),
        database_page_size: Some(PageSize::Kib32),
        is_circular: false,
        previous_accumulated: Some(u64::from(generation - 1)),
        previous_end: None,
        accumulated: vec![u64::from(generation)],
        is_torn: false,
    }
}

fn log_with(name: &str, facts: LogFacts) -> FileFacts {
    FileFacts { name: name.to_owned(), facts: FileContents::Log(facts), is_damaged: false }
}

fn log(generation: u32) -> FileFacts {
    log_with(&format!("E00{generation:08X}.log"), log_facts(generation))
}

fn checkpoint(generation: u32) -> FileFacts {
    let position = LogPosition { generation, segment: 3, offset: 50 };
    let facts = CheckpointFacts { position, log_signature: mark(7) };
    FileFacts { name: "E00.chk".to_owned(), facts: FileContents::Checkpoint(facts), is_damaged: false }
}

/// Checks the recovery result and all findings: severity, file name, a part of the text.
fn check(files: Vec<FileFacts>, recovery: Recoverability, findings: &[(FindingSeverity, &str, &str)]) {
    let verdict = judge_set(&files);
    assert_eq!(verdict.databases.len(), 1);
    assert_eq!(verdict.databases[0].recovery, recovery);
    let fits = |(name, finding): &(String, FileFinding),
                (severity, file, word): &(FindingSeverity, &str, &str)| {
        name == file && finding.severity == *severity && finding.what.contains(word)
    };
    let all_fit = verdict.findings.iter().zip(findings).all(|(found, expected)| fits(found, expected));
    assert!(all_fit && verdict.findings.len() == findings.len(), "{:?}\n{findings:?}", verdict.findings);
}

fn dirty(required: (u32, u32), committed: u32) -> FileFacts {
    database(DatabaseState::DirtyShutdown, Some(required), committed)
}

fn impossible(missing: &[&str], why: &str) -> Recoverability {
    let missing = missing.iter().map(|&name| name.to_owned()).collect();
    Recoverability::Impossible { missing, why: why.to_owned() }
}

#[test]
fn a_database_that_was_shut_down_cleanly_needs_nothing() {
    check(vec![database(DatabaseState::CleanShutdown, None, 0)], Recoverability::NotNeeded, &[]);
}

#[test]
fn a_snapshot_with_its_logs_can_be_recovered() {
    let files =
        vec![dirty((3, 5), 6), log(3), log(4), log(5), log_with("E00.log", log_facts(6)), checkpoint(4)];
    check(files, Recoverability::Possible { required: (3, 5) }, &[]);
}

#[test]
fn logs_that_are_missing_are_named() {
    let lost = "logs that it needs are missing";
    let gap = (
        FindingSeverity::Warning,
        "E0000000006.log",
        "before it E0000000004.log to E0000000005.log are missing",
    );
    check(
        vec![dirty((2, 6), 6), log(3), log(6)],
        impossible(&["E0000000002.log", "E0000000004.log to E0000000005.log"], lost),
        &[gap],
    );
    check(vec![dirty((3, 9), 9), log(3)], impossible(&["E0000000004.log to E0000000009.log"], lost), &[]);
    let none = "it was not shut down cleanly, and none of the required logs is present";
    check(vec![dirty((3, u32::MAX), 9)], impossible(&["E0000000003.log to E00FFFFFFFF.log"], none), &[]);
}

#[test]
fn missing_recent_commits_are_a_warning() {
    let lost = (FindingSeverity::Warning, "mail.edb", "E0000000005.log to E0000000006.log");
    check(vec![dirty((3, 4), 6), log(3), log(4)], Recoverability::Possible { required: (3, 4) }, &[lost]);
}

#[test]
fn logs_of_another_signature_do_not_count() {
    let stranger = LogFacts { signature: mark(8), ..log_facts(3) };
    let why = "the logs present belong to another log: none of the required ones is among them";
    let told = (FindingSeverity::Warning, "E0000000003.log", "another log");
    check(
        vec![dirty((3, 3), 3), log_with("E0000000003.log", stranger)],
        impossible(&["E0000000003.log"], why),
        &[told],
    );
}

#[test]
fn a_broken_chain_is_reported() {
    let other = LogFacts { previous_created: minute(77), ..log_facts(4) };
    let why = "E0000000004.log is not the successor of the log before it";
    let told = (FindingSeverity::Damage, "E0000000004.log", "successor");
    check(vec![dirty((3, 4), 4), log(3), log_with("E0000000004.log", other)], impossible(&[], why), &[told]);
}

#[test]
fn a_log_that_ends_too_early_or_torn_before_its_successor_is_damaged() {
    let why = "E0000000003.log, which it needs, is damaged";
    let short = LogFacts { accumulated: vec![99], ..log_facts(3) };
    let told = (FindingSeverity::Damage, "E0000000003.log", "ended with");
    let files = vec![dirty((3, 4), 4), log(2), log_with("E0000000003.log", short.clone()), log(4)];
    check(files, impossible(&[], why), &[told]);
    // No consecutive logs of Exchange were available: if none matches, this code may misread them.
    let told = (FindingSeverity::Warning, "E0000000003.log", "ended with");
    let files = vec![dirty((3, 4), 4), log_with("E0000000003.log", short), log(4)];
    check(files, Recoverability::Possible { required: (3, 4) }, &[told]);
    let torn = LogFacts { is_torn: true, ..log_facts(3) };
    let next = LogFacts { previous_accumulated: None, ..log_facts(4) };
    let told = (FindingSeverity::Damage, "E0000000003.log", "had been begun");
    let files = vec![dirty((3, 4), 4), log_with("E0000000003.log", torn.clone()), log_with("E00.log", next)];
    check(files, impossible(&[], why), &[told]);
    // The newest log may end so.
    check(
        vec![dirty((3, 3), 3), log_with("E00.log", torn)],
        Recoverability::Possible { required: (3, 3) },
        &[],
    );
}

#[test]
fn the_last_required_log_must_be_the_one_the_database_was_used_with() {
    let later = LogFacts { created: minute(50), ..log_facts(3) };
    let why = "generation 0x3 of the log is not the one it was used with: it was made at another time";
    check(vec![dirty((3, 3), 3), log_with("E00.log", later)], impossible(&[], why), &[]);
}

#[test]
fn between_two_renames_the_next_log_has_its_temporary_name() {
    let files = vec![dirty((3, 3), 3), log(3), log_with("E00tmp.log", log_facts(4))];
    let told = (FindingSeverity::Note, "E00tmp.log", "between two renames");
    check(files, Recoverability::Possible { required: (3, 3) }, &[told]);
}

#[test]
fn an_old_log_prepared_for_reuse_is_not_part_of_the_log() {
    let reused = log_with("E00tmp.log", LogFacts { is_circular: true, ..log_facts(1) });
    let files = vec![dirty((3, 4), 4), log(3), log_with("E00.log", log_facts(4)), reused];
    check(files, Recoverability::Possible { required: (3, 4) }, &[]);
}

#[test]
fn a_checkpoint_must_point_at_a_log_that_is_there() {
    let possible = || Recoverability::Possible { required: (3, 3) };
    let behind = (FindingSeverity::Damage, "E00.chk", "behind the newest");
    check(vec![dirty((3, 3), 3), log(3), checkpoint(4)], possible(), &[behind]);
    let before = (FindingSeverity::Warning, "E00.chk", "is not here");
    check(vec![dirty((3, 3), 3), log(3), checkpoint(2)], possible(), &[before]);
}

#[test]
fn a_wrong_file_name_is_reported() {
    let told = (FindingSeverity::Warning, "E0000000009.log", "its header 0x3");
    check(
        vec![dirty((3, 3), 3), log_with("E0000000009.log", log_facts(3))],
        Recoverability::Possible { required: (3, 3) },
        &[told],
    );
}

/// Each flush of the header changes its own signature; the shared one is the map's.
#[test]
fn a_flush_map_with_the_signature_of_its_database_is_current() {
    let told = |map_mark: u32, header_mark: u32| {
        let mut mail = database(DatabaseState::CleanShutdown, None, 0);
        let FileContents::Database(facts) = &mut mail.facts else { unreachable!() };
        (facts.flush_map_signature, facts.header_flush_signature) = (mark(3), mark(4));
        let map =
            FlushMapFacts { flush_map_signature: mark(map_mark), header_flush_signature: mark(header_mark) };
        let map =
            FileFacts { name: "mail.jfm".to_owned(), facts: FileContents::FlushMap(map), is_damaged: false };
        judge_set(&[mail, map]).findings
    };
    assert_eq!(told(3, 4), []);
    assert_eq!(told(3, 9), [], "its header was flushed since");
    assert_eq!(told(9, 4).len(), 1, "it is of another state");
}
