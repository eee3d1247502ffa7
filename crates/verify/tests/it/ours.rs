//! Files made by our engine: databases that were shut down, and copies taken while in use.

use crate::{
    model::{self, Mix, Rows},
    whole::judge,
};
use maildb::PageSize;
use std::{collections::BTreeMap, path::Path};
use verify::{
    FileKind, FindingSeverity,
    checkpoint::judge_checkpoint,
    identify,
    kind::START_BYTES,
    log::{LogFacts, judge_log},
    set::{FileContents, FileFacts, Recoverability, SetVerdict, judge_set},
};
use world::{ByteCount, Random, real};

pub type Files = BTreeMap<String, Vec<u8>>;

pub fn files_of(path: &Path) -> Files {
    let entries = std::fs::read_dir(path).expect("the folder is there").map(|entry| entry.expect("readable"));
    let file = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().expect("a plain name");
        (name, std::fs::read(entry.path()).expect("readable"))
    };
    entries.map(file).collect()
}

/// A group's files while in use, its files after the close, and its rows.
pub struct GroupFiles {
    running: Files,
    closed: Files,
    rows: Rows,
}

/// Runs a group for a number of changes.
pub fn run_group(path: &Path, page_size: PageSize, changes: usize) -> GroupFiles {
    real::run(3, real::RealOptions::default(), async |world| {
        let mut config = model::config(page_size, ByteCount(128 * page_size.bytes() as u64));
        config.log_file = ByteCount::kib(256);
        let instance = model::open(&world, path, 1, config).await;
        let database = instance.databases().remove(0);
        let table = model::mail_table(&database).await;
        let mut rows = Rows::new();
        let mut random = Random::new(5, "verify");
        let mix = Mix { body_bytes_max: 700, mailboxes: 20, delete_percent: 20.0 };
        let mut session = instance.session();
        model::change_at_random(&mut session, &table, &mut rows, &mut random, changes, mix).await;
        drop(session);
        let running = files_of(path);
        instance.close().await.expect("the group closes");
        GroupFiles { running, closed: files_of(path), rows }
    })
}

fn is_log(name: &str) -> bool {
    name.ends_with(".log")
}

/// The facts of each file.
fn facts_of(files: &Files) -> Vec<FileFacts> {
    let facts = |name: &str, bytes: &[u8]| {
        let start = &bytes[..bytes.len().min(START_BYTES)];
        Some(match identify(start, ByteCount(bytes.len() as u64)) {
            FileKind::Database => {
                FileContents::Database(crate::whole::facts(bytes).0.expect("a header verifies"))
            }
            FileKind::Log => FileContents::Log(log_facts(name, bytes)),
            FileKind::Blank if is_log(name) => FileContents::PreparedLog,
            FileKind::Checkpoint => {
                FileContents::Checkpoint(judge_checkpoint(bytes).facts.expect("it verifies"))
            }
            FileKind::Spindle(_) => return None,
            other => panic!("{name} is {other:?}"),
        })
    };
    let file = |(name, bytes): (&String, &Vec<u8>)| {
        Some(FileFacts { name: name.clone(), facts: facts(name, bytes)?, is_damaged: false })
    };
    files.iter().filter_map(file).collect()
}

fn log_facts(name: &str, bytes: &[u8]) -> LogFacts {
    let verdict = judge_log(bytes, true);
    let worst = verdict.findings.iter().map(|finding| finding.severity).max();
    assert!(worst < Some(FindingSeverity::Damage), "{name}: {:#?}", verdict.findings);
    verdict.facts.expect("the header verifies")
}

fn recovery(verdict: &SetVerdict) -> &Recoverability {
    assert_eq!(verdict.databases.len(), 1);
    &verdict.databases[0].recovery
}

#[test]
fn a_closed_database_of_our_engine_is_clean_and_its_rows_are_counted() {
    for page_size in [PageSize::Kib4, PageSize::Kib8, PageSize::Kib32] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let left = run_group(folder.path(), page_size, 2000);
        let found = judge(&left.closed["priv1.edb"]).expect("a header verifies");
        assert_eq!(found.said(), [] as [String; 0], "{page_size:?}");
        let mail = found.deep.tables.iter().find(|table| table.name == "Mail").expect("it is there");
        assert_eq!(mail.rows, left.rows.len() as u64, "{page_size:?}");
        assert_eq!(Some(found.deep.pages_in_use + found.deep.pages_free), found.owned.pages());
        let set = judge_set(&facts_of(&left.closed));
        assert_eq!(
            (recovery(&set), set.findings.as_slice()),
            (&Recoverability::NotNeeded, &[][..]),
            "{page_size:?}"
        );
    }
}

#[test]
fn a_copy_taken_while_in_use_is_recoverable_unless_a_log_is_missing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let left = run_group(folder.path(), PageSize::Kib8, 3000);
    let found = judge(&left.running["priv1.edb"]).expect("a header verifies");
    assert!(found.facts.is_dirty() && found.tally.damaged == 0, "{:?}", found.tally);
    let facts = facts_of(&left.running);
    let set = judge_set(&facts);
    assert!(matches!(recovery(&set), Recoverability::Possible { .. }), "{set:#?}");
    assert!(set.findings.iter().all(|(_, finding)| finding.severity < FindingSeverity::Damage), "{set:#?}");
    let (first, last) = found.facts.required.expect("it is dirty");
    for lost in [first, last] {
        let is_lost =
            |file: &FileFacts| matches!(&file.facts, FileContents::Log(log) if log.generation == lost);
        let (gone, rest): (Vec<_>, Vec<_>) = facts.iter().cloned().partition(is_lost);
        assert_eq!(gone.len(), 1);
        let set = judge_set(&rest);
        let Recoverability::Impossible { missing, .. } = recovery(&set) else { panic!("{set:#?}") };
        assert_eq!(missing, &[format!("E00{lost:08X}.log")]);
    }
}

#[test]
fn every_log_of_ours_ends_where_its_successor_says() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let left = run_group(folder.path(), PageSize::Kib4, 4000);
    let mut logs: Vec<(String, LogFacts)> = facts_of(&left.running)
        .into_iter()
        .filter_map(|file| match file.facts {
            FileContents::Log(log) => Some((file.name, log)),
            _ => None,
        })
        .collect();
    logs.sort_by_key(|(_, log)| log.generation);
    assert!(logs.len() > 3, "{} generations", logs.len());
    // A segment that was never written: every checksum in the file is right, but the next log shows the loss.
    let (name, log) = &logs[logs.len() - 2];
    let mut cut = left.running[name].clone();
    let last = log.accumulated.len();
    cut[last * 4096..].fill(0);
    let mut files = left.running.clone();
    files.insert(name.clone(), cut);
    let set = judge_set(&facts_of(&files));
    let told = set.findings.iter().any(|(file, finding)| {
        file == name && finding.severity == FindingSeverity::Damage && finding.what.contains("ended with")
    });
    assert!(told, "{set:#?}");
}
