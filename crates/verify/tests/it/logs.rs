use crate::written;
use maildb::{
    PageSize,
    format::header::{LogPosition, LogTime, Signature},
    log::{
        file_header::LogFileHeader,
        segment::{SEGMENT_BYTES, seal_segment},
    },
};
use verify::{
    BitFix, FilePart, FindingSeverity,
    checkpoint::judge_checkpoint,
    flush_map::{judge_map_header, judge_map_pages},
    log::{LogFileVerdict, LogFormat, LogTally, judge_log},
};
use world::ByteOffset;

/// Three full segments, their shadow, then three never written.
fn sound() -> Vec<u8> {
    written::segments(9, &payloads(), 3)
}

fn payloads() -> Vec<Vec<u8>> {
    (1..=3).map(|count| written::records(4 * count, 100)).collect()
}

fn said(verdict: &LogFileVerdict) -> Vec<String> {
    verdict.findings.iter().map(|finding| format!("{:?}: {finding}", finding.severity)).collect()
}

/// Changes a sound log and expects one finding with that severity and text.
fn check(change: impl Fn(&mut Vec<u8>), severity: FindingSeverity, words: &str) -> LogFileVerdict {
    let mut file = sound();
    change(&mut file);
    let verdict = judge_log(&file, true);
    let is_told =
        matches!(verdict.findings.as_slice(), [one] if one.severity == severity && one.what.contains(words));
    assert!(is_told, "{words:?}: {:#?}", said(&verdict));
    verdict
}

fn seal(file: &mut [u8], index: u32) {
    let segment = &mut file[index as usize * 4096..][..4096];
    let checksum = written::new(segment, index, true);
    written::put(segment, 0, &checksum.to_le_bytes());
}

#[test]
fn a_sound_log_of_segments_is_clean_to_its_last_record() {
    let verdict = judge_log(&sound(), true);
    assert_eq!(said(&verdict), [] as [String; 0]);
    let tally = LogTally { good: 3, shadow: 1, empty: 3, records: 3 * (4 + 8 + 12), ..LogTally::default() };
    assert_eq!(verdict.tally, tally);
    let facts = verdict.facts.expect("the header verifies");
    assert_eq!((facts.format, facts.generation), (LogFormat::Segments, 9));
    assert_eq!(facts.version.to_string(), "8.5.16");
    let xor = (1..=3).fold(0, |xor, index: usize| {
        xor ^ u64::from_le_bytes(sound()[index * 4096..][..8].try_into().expect("eight bytes"))
    });
    assert_eq!(facts.accumulated.last(), Some(&xor));
}

#[test]
fn a_damaged_segment_between_records_is_damage_and_its_bit_is_located() {
    let verdict = check(|file| file[2 * 4096 + 77] ^= 8, FindingSeverity::Damage, "records follow");
    assert_eq!(verdict.findings[0].fix, Some(BitFix { byte: ByteOffset(2 * 4096 + 77), bit: 3 }));
    assert_eq!(verdict.findings[0].place.part, FilePart::Segment(2));
    check(|file| file[4096..8192].fill(0), FindingSeverity::Damage, "nothing was written");
    check(|file| file[4096..4196].fill(0x33), FindingSeverity::Damage, "records follow");
    let old =
        |file: &mut Vec<u8>| written::put(file, 2 * 4096, &written::segment(8, 2, &written::records(1, 5)));
    check(old, FindingSeverity::Damage, "earlier use");
    let shadow = |file: &mut Vec<u8>| file.copy_within(4096..2 * 4096, 2 * 4096);
    check(shadow, FindingSeverity::Damage, "a copy of the segment before");
}

#[test]
fn a_torn_last_segment_is_repaired_by_its_shadow() {
    let verdict = check(
        |file| file[3 * 4096 + 2048..4 * 4096].fill(0x77),
        FindingSeverity::Warning,
        "recovery uses that",
    );
    assert_eq!((verdict.tally.good, verdict.tally.repairable, verdict.tally.shadow), (2, 1, 1));
    assert_eq!(verdict.tally.records, 3 * (4 + 8 + 12), "those of the copy count");
    assert_eq!(verdict.facts.expect("a header").accumulated.len(), 3);
}

#[test]
fn a_torn_end_without_a_shadow_may_be_the_last_write() {
    let torn = |file: &mut Vec<u8>| {
        file[3 * 4096 + 2048..4 * 4096].fill(0x77);
        file[4 * 4096..5 * 4096].fill(0);
    };
    let verdict = check(torn, FindingSeverity::Warning, "an incomplete write");
    assert!(verdict.facts.expect("a header").is_torn);
    check(|file| file[6 * 4096 + 9] = 1, FindingSeverity::Warning, "behind the end");
    check(|file| file[4 * 4096 + 90] ^= 1, FindingSeverity::Warning, "the copy of the segment before");
}

#[test]
fn remains_of_an_earlier_use_are_no_damage() {
    let mut file = sound();
    for index in 5..8 {
        written::put(&mut file, index as usize * 4096, &written::segment(5, index, &written::records(1, 5)));
    }
    let verdict = judge_log(&file, true);
    assert_eq!((said(&verdict).len(), verdict.tally.stale, verdict.tally.empty), (0, 3, 0));
}

/// A segment of a log of Spindle. Numbers are the first segment of the write that it was part of.
#[derive(Clone, Copy, Debug)]
enum StoredSegment {
    Good(u16),
    Shadow(u16),
    Stale,
    Empty,
    Bad,
}

use StoredSegment::{Bad, Empty, Good, Shadow, Stale};

/// Generation 9 of a log of Spindle with these segments, from segment 1.
fn stamped(segments: &[StoredSegment]) -> Vec<u8> {
    let header = LogFileHeader {
        generation: 9,
        segments: segments.len() as u16 + 1,
        database_page_size: PageSize::Kib8,
        created: LogTime::default(),
        previous_created: LogTime::default(),
        signature: Signature::default(),
        circular: false,
        previous_accumulated: 0,
        previous_end: Some(LogPosition { generation: 8, segment: 1, offset: 40 }),
    };
    let mut file = header.encode().to_vec();
    for (index, written) in (1_u16..).zip(segments) {
        let mut segment = vec![0; SEGMENT_BYTES];
        let mut seal = |generation, own, write_first| {
            segment[40..200].fill(0x29);
            seal_segment(&mut segment, generation, own, LogTime::default(), write_first);
        };
        match *written {
            Good(write_first) => seal(9, index, write_first),
            Shadow(write_first) => seal(9, index - 1, write_first),
            Stale => seal(8, index, index),
            Empty => {}
            Bad => segment.fill(0x77),
        }
        file.extend(segment);
    }
    file
}

#[test]
fn the_segments_behind_a_bad_segment_decide_its_verdict() {
    let check = |segments: &[StoredSegment], expected: LogTally, is_torn: bool| {
        let verdict = judge_log(&stamped(segments), false);
        assert_eq!(verdict.tally, expected, "{segments:?}: {:#?}", said(&verdict));
        let has_damage = verdict.findings.iter().any(|finding| finding.severity == FindingSeverity::Damage);
        assert_eq!(has_damage, expected.damaged > 0, "{segments:?}: {:#?}", said(&verdict));
        assert_eq!(verdict.facts.expect("the header verifies").is_torn, is_torn, "{segments:?}");
    };
    let none = LogTally::default();
    let tally = |good, shadow| LogTally { good, shadow, ..none };
    check(&[Good(1), Shadow(1), Empty], LogTally { empty: 1, ..tally(1, 1) }, false);
    check(&[Good(1), Bad, Shadow(2)], LogTally { repairable: 1, ..tally(1, 1) }, false);
    check(&[Good(1), Bad, Stale], LogTally { stale: 1, ..tally(1, 0) }, true);
    // A later write began behind the bad segment, which was acknowledged before.
    check(&[Bad, Good(2), Empty], LogTally { empty: 1, damaged: 1, ..tally(1, 0) }, false);
    check(&[Empty, Good(2)], LogTally { damaged: 1, ..tally(1, 0) }, false);
    check(&[Good(1), Empty, Good(2), Good(4)], LogTally { damaged: 1, ..tally(3, 0) }, false);
}

#[test]
fn any_subset_of_the_last_write_may_be_missing() {
    let check = |segments: &[StoredSegment], expected: LogTally| {
        let verdict = judge_log(&stamped(segments), false);
        assert_eq!(verdict.tally, expected, "{segments:?}: {:#?}", said(&verdict));
        assert!(verdict.findings.iter().all(|finding| finding.severity == FindingSeverity::Warning));
        let records = expected.good + expected.repairable;
        let accumulated = verdict.facts.expect("the header verifies").accumulated.len();
        assert_eq!(accumulated as u64, records, "{segments:?}");
    };
    let none = LogTally::default();
    check(&[Bad, Good(1), Empty], LogTally { empty: 1, ..none });
    check(&[Empty, Good(1), Good(1)], LogTally { empty: 1, ..none });
    check(&[Good(1), Stale, Good(2), Empty, Shadow(2)], LogTally { good: 1, stale: 1, empty: 1, ..none });
    check(&[Good(1), Empty, Stale, Shadow(2)], LogTally { good: 1, stale: 1, empty: 1, ..none });
    // The shadow of segment 1 was to be overwritten by segment 2.
    check(&[Good(1), Shadow(1), Good(2), Shadow(2)], LogTally { good: 1, shadow: 1, ..none });
    check(&[Good(1), Shadow(1), Shadow(2)], LogTally { good: 1, shadow: 1, repairable: 1, ..none });
}

#[test]
fn invalid_records_are_found_though_every_checksum_is_right() {
    let put = |at: usize, bytes: &'static [u8]| {
        move |file: &mut Vec<u8>| {
            for segment in [3, 4] {
                written::put(file, segment * 4096 + at, bytes);
            }
            seal(file, 3);
            let shadow = file[3 * 4096..4 * 4096].to_vec();
            written::put(file, 4 * 4096, &shadow);
        }
    };
    check(put(40, &[111]), FindingSeverity::Damage, "unknown record type 111");
    check(put(48 + 48, &[0xFF, 0xFF]), FindingSeverity::Damage, "longer than its space");
    check(put(4000, &[8]), FindingSeverity::Damage, "unexpected bytes follow");
    check(put(40, &[77, 4, 0]), FindingSeverity::Damage, "without its beginning");
}

#[test]
fn a_long_record_in_parts_is_one_record() {
    let mut record = vec![0; 50 + 9000];
    record[0] = 29;
    written::put16(&mut record, 48, 9000);
    let mut payloads = Vec::new();
    let mut rest = record.as_slice();
    while !rest.is_empty() {
        let mut payload = vec![];
        if payloads.is_empty() {
            payload.push(76);
            payload.extend((record.len() as u32).to_le_bytes());
        } else {
            payload.push(77);
        }
        let part;
        (part, rest) = rest.split_at(rest.len().min(4000));
        payload.extend((part.len() as u16).to_le_bytes());
        payload.extend(part);
        payloads.push(payload);
    }
    payloads.last_mut().expect("there are parts").extend(written::records(1, 3));
    let verdict = judge_log(&written::segments(2, &payloads, 1), true);
    assert_eq!((said(&verdict).len(), verdict.tally.records), (0, 4));
    payloads.pop();
    let verdict = judge_log(&written::segments(2, &payloads, 1), true);
    assert!(said(&verdict)[0].contains("the rest was never written"), "{:?}", said(&verdict));
}

#[test]
fn a_log_without_its_header_is_still_checked() {
    let verdict = check(|file| file[700] ^= 1, FindingSeverity::Damage, "there is no other copy");
    assert_eq!((verdict.facts, verdict.tally.good), (None, 3));
    let short = judge_log(&sound()[..5 * 4096], true);
    assert!(short.findings.iter().any(|finding| finding.what.contains("it ends after")));
    let prepared = judge_log(&[0; 65536], true);
    assert!(matches!(prepared.findings.as_slice(), [one] if one.severity == FindingSeverity::Note));
}

#[test]
fn a_newer_version_is_a_note_and_never_damage() {
    let newer = |file: &mut Vec<u8>| {
        written::put32(file, 40, 500);
        written::seal_header(&mut file[..4096]);
    };
    check(newer, FindingSeverity::Note, "newer than any known");
}

/// Three flushes of one, three and one sectors, the last with its shadow, then two never written.
fn sound_sectors() -> Vec<u8> {
    let flushes = [written::records(2, 60), written::records(6, 150), written::records(1, 100)];
    written::sectors(7, &flushes, 2)
}

#[test]
fn a_sound_log_of_sectors_is_clean_to_its_last_record() {
    let verdict = judge_log(&sound_sectors(), true);
    assert_eq!(said(&verdict), [] as [String; 0]);
    let expected = LogTally { good: 5, shadow: 1, empty: 2, records: 3 * 9 + 3, ..LogTally::default() };
    assert_eq!(verdict.tally, expected);
    let facts = verdict.facts.expect("the header verifies");
    assert_eq!((facts.format, facts.version.to_string().as_str()), (LogFormat::Sectors, "7.3704.17"));
}

#[test]
fn a_damaged_flush_and_a_torn_end_are_distinguished() {
    let check = |change: &dyn Fn(&mut Vec<u8>), severity, words: &str, good| {
        let mut file = sound_sectors();
        change(&mut file);
        let verdict = judge_log(&file, true);
        let is_told = verdict.findings.iter().any(|one| one.severity == severity && one.what.contains(words));
        assert!(is_told && verdict.findings.len() == 1, "{words:?}: {:#?}", said(&verdict));
        assert_eq!(verdict.tally.good, good, "{words:?}");
    };
    let second = 4096 + 512;
    let third = second + 3 * 512;
    check(&|file| file[second + 700] ^= 1, FindingSeverity::Damage, "does not verify", 1);
    check(&|file| file[second + 100] ^= 1, FindingSeverity::Damage, "does not verify", 1);
    check(&|file| file[third + 100] ^= 1, FindingSeverity::Warning, "recovery uses that", 4);
    let torn = |file: &mut Vec<u8>| {
        file[third + 100] ^= 1;
        file[third + 512 + 100] ^= 3;
    };
    check(&torn, FindingSeverity::Warning, "an incomplete write", 4);
    check(&|file| file[third..].fill(0), FindingSeverity::Warning, "an incomplete write", 4);
}

#[test]
fn one_good_copy_of_a_checkpoint_suffices_and_two_bad_ones_are_damage() {
    let mut file = written::checkpoint(12);
    let verdict = judge_checkpoint(&file);
    assert_eq!(verdict.facts.as_ref().map(|facts| facts.position.generation), Some(12));
    assert_eq!(verdict.findings, []);
    file[100] ^= 1;
    let verdict = judge_checkpoint(&file);
    assert!(verdict.facts.is_some() && verdict.findings[0].severity == FindingSeverity::Warning);
    file[4096 + 100] ^= 1;
    let verdict = judge_checkpoint(&file);
    assert!(verdict.facts.is_none() && verdict.findings[0].severity == FindingSeverity::Damage);
}

#[test]
fn pages_of_a_flush_map_are_checked_and_their_bits_located() {
    let mut file = written::flush_map(3);
    assert_eq!(judge_map_header(&file[..8192]).findings, []);
    assert_eq!(judge_map_pages(0, &file[8192..]).good, 3);
    file[2 * 8192 + 5000] ^= 0x10;
    let tally = judge_map_pages(0, &file[8192..]);
    assert_eq!((tally.good, tally.damaged), (2, 1));
    assert_eq!(tally.findings[0].fix, Some(BitFix { byte: ByteOffset(2 * 8192 + 5000), bit: 4 }));
    file[9] ^= 1;
    assert!(judge_map_header(&file[..8192]).facts.is_none());
}
