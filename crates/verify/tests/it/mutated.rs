//! Random changes to pages and logs: 100,000 in every test run, 5 million with `--full`.
//!
//! A change within one four-byte word must always be detected: both checksums XOR words. Changes across words
//! can cancel, by design of the format: two flips in one column of an old page, four in a rectangle of a new
//! one, a page turned to zeros. Such a change may go undetected only if the writer of these tests, which
//! shares no code with the checks, computes the same checksum for the changed bytes.

use crate::{
    whole::{facts, judge},
    written::{self, FORMS, Form, OWNED_LAST},
};
use maildb::PageNumber;
use verify::{
    FindingSeverity,
    database::{OwnedPages, PageChecker, owned_extents},
    log::judge_log,
};
use world::{ByteCount, Random};

fn changes() -> u64 {
    if std::env::var_os("SPINDLE_FULL").is_some() { 5_000_000 } else { 100_000 }
}

fn change_word(bytes: &mut [u8], random: &mut Random) {
    let at = random.below(bytes.len() as u64 / 4) as usize * 4;
    let word = &mut bytes[at..at + 4];
    let before = word.to_vec();
    match random.below(3) {
        0 => word[random.below(4) as usize] ^= 1 << random.below(8),
        1 => word[random.below(4) as usize] ^= 1 + random.below(255) as u8,
        _ => {
            word.copy_from_slice(&(random.below(1 << 32) as u32).to_le_bytes());
            if word == before {
                word[0] ^= 1;
            }
        }
    }
}

/// Changes distant bytes, moves some, zeroes some.
fn change_widely(bytes: &mut [u8], random: &mut Random) {
    let length = bytes.len() as u64;
    match random.below(40) {
        0..=19 => {
            for _ in 0..2 + random.below(3) {
                bytes[random.below(length) as usize] ^= 1 << random.below(8);
            }
        }
        20..=29 => {
            let (from, to) = (random.below(length / 2) as usize, random.below(length / 2) as usize);
            let count = random.below(length / 2) as usize;
            bytes.copy_within(from..from + count, to);
        }
        30..=38 => {
            let at = random.below(length / 512) as usize * 512;
            bytes[at..at + 512].fill(0);
        }
        _ => bytes.fill(0),
    }
}

/// Counts of changes, and of those the format cannot show.
#[derive(Default)]
struct ChangeCounts {
    changes: u64,
    blanked: u64,
    cancelled: u64,
}

fn change_pages(form: Form, count: u64, tried: &mut ChangeCounts) {
    let mut pages = written::pages();
    pages[7].nodes.push((vec![0xFF], written::vector(800)));
    let whole = written::database(form, &pages);
    let facts = facts(&whole).0.expect("its headers verify");
    let owned = OwnedPages::Unknown("all count".to_owned());
    let judge = PageChecker::new(&facts, owned, ByteCount(whole.len() as u64));
    let numbers: Vec<u32> = pages.iter().map(|page| page.number).collect();
    let mut random = Random::new(7, &format!("{form:?}"));
    let mut page = vec![0; form.page_bytes];
    for change in 0..count {
        let number = numbers[random.below(numbers.len() as u64) as usize];
        let at = (number as usize + 1) * form.page_bytes;
        page.copy_from_slice(&whole[at..at + form.page_bytes]);
        let is_small = change % 4 > 0;
        if is_small {
            change_word(&mut page, &mut random)
        } else {
            change_widely(&mut page, &mut random)
        }
        tried.changes += 1;
        let tally = judge.judge_chunk(PageNumber(number), &page);
        if tally.damaged == 1 || page == whole[at..at + form.page_bytes] {
            continue;
        }
        let is_blank = page.iter().all(|&byte| byte == 0);
        assert!(
            !is_small && (is_blank && tally.blank == 1 || written::verifies(&page, number)),
            "{form:?}, change {change} of page {number} is not told"
        );
        *if is_blank { &mut tried.blanked } else { &mut tried.cancelled } += 1;
    }
}

#[test]
fn every_detectable_change_of_a_page_is_detected() {
    let mut tried = ChangeCounts::default();
    for form in FORMS {
        change_pages(form, changes() * 9 / 10 / FORMS.len() as u64, &mut tried);
    }
    let ChangeCounts { changes, blanked, cancelled } = tried;
    println!(
        "measured: {changes} changed pages, all told but {blanked} turned to zeros and {cancelled} that cancel"
    );
}

#[test]
fn every_change_of_a_log_is_detected() {
    let segments = written::segments(9, &[written::records(20, 90), written::records(12, 100)], 1);
    let sectors = written::sectors(7, &[written::records(2, 60), written::records(6, 150)], 0);
    let count = changes() / 20;
    for (name, log) in [("segments", segments), ("sectors", sectors)] {
        assert_eq!(judge_log(&log, true).findings, []);
        let mut random = Random::new(8, name);
        let mut file = log.clone();
        for change in 0..count {
            file.copy_from_slice(&log);
            // In sectors a checksum is a record: its own fields are read byte by byte.
            if name == "segments" {
                change_word(&mut file, &mut random);
            } else {
                let at = random.below(file.len() as u64) as usize;
                file[at] ^= 1 + random.below(255) as u8;
            }
            assert!(!judge_log(&file, false).findings.is_empty(), "{name}, change {change} is not told");
        }
    }
}

#[test]
fn no_change_behind_the_owned_pages_is_damage() {
    for form in FORMS {
        let whole = written::database(form, &written::pages());
        let facts = facts(&whole).0.expect("its headers verify");
        let mut source = crate::whole::InMemory { file: &whole, page_bytes: form.page_bytes };
        let owned = owned_extents(&mut source, &facts).expect("nobody stops it");
        let judge = PageChecker::new(&facts, owned, ByteCount(whole.len() as u64));
        let slack = (OWNED_LAST as usize + 2) * form.page_bytes;
        let mut file = whole[slack..].to_vec();
        let mut random = Random::new(9, &format!("{form:?}"));
        for _ in 0..300 {
            change_word(&mut file, &mut random);
            change_widely(&mut file, &mut random);
            assert_eq!(judge.judge_chunk(PageNumber(OWNED_LAST + 1), &file).damaged, 0, "{form:?}");
        }
    }
}

/// Changes below the checksums, which are recomputed: no panic, and the walk ends.
#[test]
fn no_change_with_valid_checksums_makes_the_walk_panic_or_loop() {
    for form in [FORMS[0], FORMS[3], FORMS[6]] {
        let whole = written::database(form, &written::pages());
        let numbers: Vec<u32> = written::pages().iter().map(|page| page.number).collect();
        let mut random = Random::new(10, &format!("{form:?}"));
        let mut told = 0;
        for _ in 0..changes() / 500 {
            let mut file = whole.clone();
            for _ in 0..=random.below(2) {
                let number = numbers[random.below(numbers.len() as u64) as usize];
                let at = (number as usize + 1) * form.page_bytes;
                let page = &mut file[at..at + form.page_bytes];
                // The structural parts: header, tags, first nodes.
                let places = [8..80, 80..400, form.page_bytes - 60..form.page_bytes];
                let place = places[random.below(3) as usize].clone();
                let offset = place.start + random.below(place.len() as u64) as usize;
                page[offset] =
                    if random.percent(50.0) { random.below(40) as u8 } else { random.below(256) as u8 };
                written::seal(page, number);
            }
            let found = judge(&file).expect("the headers are as they were");
            assert!(found.deep.pages_in_use + found.deep.pages_free <= u64::from(OWNED_LAST) + 4);
            told += u64::from(
                found.said().iter().any(|said| !said.starts_with(&format!("{:?}", FindingSeverity::Note))),
            );
        }
        println!("measured: {told} of {} changes below right checksums told, {form:?}", changes() / 500);
    }
}
