use crate::written::{self, FORMS};
use verify::{FileKind, SpindleKind, identify, kind::START_BYTES};
use world::ByteCount;

fn kind_of(file: &[u8]) -> FileKind {
    identify(&file[..file.len().min(START_BYTES)], ByteCount(file.len() as u64))
}

#[test]
fn the_type_of_a_file_is_detected_from_its_shadow_header_too() {
    for form in FORMS {
        let mut file = written::database(form, &written::pages());
        assert_eq!(kind_of(&file), FileKind::Database, "{form:?}");
        file[..form.page_bytes].fill(0x5A);
        assert_eq!(kind_of(&file), FileKind::Database, "{form:?}, the first header gone");
    }
    let mut log = written::segments(3, &[written::records(2, 10)], 3);
    assert_eq!(kind_of(&log), FileKind::Log);
    log[..4096].fill(0x5A);
    assert_eq!(kind_of(&log), FileKind::Log, "by its first segment");
    assert_eq!(kind_of(&written::sectors(3, &[written::records(2, 10)], 3)), FileKind::Log);
    let mut checkpoint = written::checkpoint(5);
    assert_eq!(kind_of(&checkpoint), FileKind::Checkpoint);
    checkpoint[..4096].fill(0x5A);
    assert_eq!(kind_of(&checkpoint), FileKind::Checkpoint, "the first copy gone");
    assert_eq!(kind_of(&written::flush_map(2)), FileKind::FlushMap);
}

type Change = fn(&mut [u8]);

/// The header fields of `tmp.edb`: number 0 of its instance, no log, never shut down, with the type of any
/// database.
#[test]
fn a_temporary_database_is_detected_by_number_log_and_state() {
    for form in FORMS {
        let header = |change: Change| {
            let mut header = written::database_header(form, 1);
            written::put(&mut header, 108, &[0; 28]);
            change(&mut header);
            written::seal_header(&mut header);
            kind_of(&[header.clone(), header].concat())
        };
        assert_eq!(header(|_| {}), FileKind::TemporaryDatabase, "{form:?}");
        let in_use: Change = |header| written::put32(header, 52, 2);
        assert_eq!(header(in_use), FileKind::TemporaryDatabase, "{form:?}");
        let by_type: Change = |header| written::put32(header, 667, 5);
        assert_eq!(header(by_type), FileKind::TemporaryDatabase, "{form:?}");
        let others: [(&str, Change); 3] = [
            ("another number", |header| written::put32(header, 104, 1)),
            ("a log", |header| written::put32(header, 108, 815)),
            ("shut down cleanly", |header| written::put32(header, 52, 3)),
        ];
        for (what, change) in others {
            assert_eq!(header(change), FileKind::Database, "{form:?}: {what}");
        }
    }
}

#[test]
fn other_files_are_not_taken_for_files_of_the_engine() {
    assert_eq!(kind_of(&[0; 8192]), FileKind::Blank);
    assert_eq!(kind_of(&[]), FileKind::Unknown);
    assert_eq!(kind_of(b"MZ and so on"), FileKind::Unknown);
    assert_eq!(kind_of(&written::vector(100_000)), FileKind::Unknown);
    let text: Vec<u8> = b"2026-11-22 nothing happened\r\n".iter().copied().cycle().take(100_000).collect();
    assert_eq!(kind_of(&text), FileKind::Unknown);
    let mut stamps = vec![0; 8192];
    stamps[4096..4104].copy_from_slice(b"SPNDLPSH");
    assert_eq!(kind_of(&stamps), FileKind::Spindle(SpindleKind::PageStamps));
}
