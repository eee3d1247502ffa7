//! Files that are no journals, journals of another format, and damaged ones.

use crate::journal::{Contents, contents};
use control::{ApplyRecord, DaemonJournal, JournalError, journal::audit::check_audit};
use redb::{Database, TableDefinition};
use std::sync::Arc;
use world::{
    Random,
    real::{HostStateFile, host_files},
    sim::SimStateFile,
};

fn open(bytes: Vec<u8>) -> Result<DaemonJournal, JournalError> {
    DaemonJournal::open(Arc::new(SimStateFile::with_contents("state/journal", 1, bytes).open()))
}

fn good() -> Contents {
    let apply =
        ApplyRecord { text: "a = 2\n".repeat(2000), destroy: vec!["old".into()], ..Default::default() };
    Contents { served: Some("a = 1\n".repeat(1000)), apply: Some(apply) }
}

/// A file that was closed, or one whose daemon was killed.
fn good_file(is_closed: bool) -> Vec<u8> {
    let file = SimStateFile::new("journal", 1);
    let journal = DaemonJournal::open(Arc::new(file.open())).unwrap();
    journal.set_served_site(&good().served.unwrap()).unwrap();
    journal.begin_apply(&good().apply.unwrap()).unwrap();
    let killed = file.contents();
    drop(journal);
    if is_closed { file.contents() } else { killed }
}

/// Damages a part of `bytes`.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    let length = bytes.len() as u64;
    // The header and the first pages are a small part of the file, and the most interesting one.
    let place = |random: &mut Random| match random.below(3) {
        0 => random.below(320) as usize,
        1 => random.below(length.min(24 << 10)) as usize,
        _ => random.below(length) as usize,
    };
    match random.below(6) {
        0 | 1 => {
            let at = place(random);
            bytes[at] ^= 1 << random.below(8);
        }
        2 => {
            for _ in 0..=random.below(64) {
                let at = place(random);
                bytes[at] = random.next_u64() as u8;
            }
        }
        3 => {
            let sector = place(random) / 512 * 512;
            bytes[sector..sector + 512].fill(0);
        }
        4 => {
            let (from, to) = (place(random) / 4096 * 4096, place(random) / 4096 * 4096);
            let page = bytes[from..from + 4096].to_vec();
            bytes[to..to + 4096].copy_from_slice(&page);
        }
        _ => bytes.resize(random.below(length * 3 / 2) as usize, random.next_u64() as u8),
    }
}

#[test]
fn a_damaged_journal_opens_right_or_is_refused_in_one_line() {
    let mut refused = 0;
    for seed in 0..600 {
        let mut random = Random::new(seed, "damage");
        let mut bytes = good_file(seed % 2 == 0);
        damage(&mut bytes, &mut random);
        let cut_off = bytes.is_empty();
        match open(bytes) {
            Ok(journal) => {
                let found = contents(&journal).unwrap();
                // No checksum covers the bit that says which of redb's two commit slots counts.
                let is_previous = found == Contents { apply: None, ..good() };
                assert!(found == good() || is_previous || cut_off, "seed {seed}");
                journal.end_apply().unwrap();
                journal.set_served_site("next").unwrap();
            }
            Err(error) => {
                refused += 1;
                assert!(matches!(error, JournalError::Damaged { .. }), "seed {seed}: {error}");
                let line = error.refusal().to_string();
                assert!(line.starts_with("the journal state/journal is damaged: "), "{line}");
                assert!(line.contains("; move it aside") && !line.contains('\n'), "{line}");
            }
        }
    }
    assert!((150..550).contains(&refused), "{refused} of 600");
}

#[test]
fn a_file_that_is_no_journal_is_refused() {
    for bytes in [b"[site]\nname = 1\n".to_vec(), vec![0xff; 100_000]] {
        let line = open(bytes).unwrap_err().to_string();
        assert!(line.contains("Not a redb database"), "{line}");
    }
}

/// A database with one number in a table.
fn database(table: &str, key: &str, number: u64) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("database");
    let database = Database::create(&path).unwrap();
    let writing = database.begin_write().unwrap();
    writing.open_table(TableDefinition::<&str, u64>::new(table)).unwrap().insert(key, number).unwrap();
    writing.commit().unwrap();
    drop(database);
    host_files::read(&path).unwrap()
}

#[test]
fn a_journal_of_another_format_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    host_files::write_atomically(&path, &database("settings", "format", 2)).unwrap();
    let error = DaemonJournal::open(Arc::new(HostStateFile::open(&path).unwrap())).unwrap_err();
    assert!(matches!(error, JournalError::Format { found: 2, .. }), "{error}");
    let line = error.refusal().to_string();
    assert!(line.contains("has format 2") && line.contains("reads format 1"), "{line}");
    let found = Database::open(&path).unwrap();
    let table = TableDefinition::<&str, u64>::new("settings");
    let reading = redb::ReadableDatabase::begin_read(&found).unwrap();
    assert_eq!(reading.open_table(table).unwrap().get("format").unwrap().unwrap().value(), 2);
}

#[test]
fn a_database_of_another_program_is_refused() {
    for (table, key) in [("settings", "colour"), ("cookies", "format")] {
        let line = open(database(table, key, 1)).unwrap_err().to_string();
        assert!(line.contains("its format has no number"), "{line}");
    }
}

/// The journal that a program of 2026-11-29 left when it was killed: the file itself, packed.
fn golden_journal() -> Vec<u8> {
    let lines = include_str!("golden/journal-1.hex");
    let digits: Vec<u8> = lines.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let packed: Vec<u8> = digits.chunks(2).map(byte).collect();
    zstd::bulk::decompress(&packed, 1 << 20).unwrap()
}

#[test]
fn a_journal_of_an_earlier_program_is_read_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    host_files::write_atomically(&path, &golden_journal()).unwrap();
    let open = || DaemonJournal::open(Arc::new(HostStateFile::open(&path).unwrap())).unwrap();
    for is_first in [true, false] {
        let journal = open();
        let site = journal.served_site().unwrap().expect("a site is served");
        assert!(site.contains("iqn.2026-11.org.example:mail1"), "{site}");
        assert!(journal.applied_file().unwrap().expect("it was a file").contains("before-levels"));
        assert_eq!(journal.apply_under_way().unwrap(), None);
        let pools = journal.pools().unwrap();
        assert_eq!(pools.keys().collect::<Vec<_>>(), ["logs", "mail"]);
        let tokens = journal.tokens().unwrap();
        let [token] = &tokens[..] else { panic!("{tokens:?}") };
        assert_eq!((&*token.name, &token.pools[..]), ("shop", &["mail".to_owned()][..]));
        assert!(journal.recovery_key().unwrap().is_some());
        assert!(journal.audit_lines(0, 100).unwrap().len() >= 4, "each change is in it");
        check_audit(&journal.audit_lines(0, 1_000).unwrap()).expect("the chain holds");
        if is_first {
            // It is written to by this program, and read again.
            journal.set_served_site(&site).unwrap();
        }
    }
}
