//! Arbitrary input: no check panics, and each gives the same result twice. The fuzzer calls these functions
//! too.

use super::{
    whole::{facts, judge},
    written::{self, FORMS, Form},
};
use std::sync::OnceLock;
use verify::{
    checkpoint::judge_checkpoint,
    database::OwnedPages,
    flush_map::{judge_map_header, judge_map_pages},
    identify,
    kind::START_BYTES,
    log::{judge_log, record_length},
};
use world::ByteCount;

/// Checks arbitrary bytes as the start of any file.
pub fn start(data: &[u8]) {
    let start = &data[..data.len().min(START_BYTES)];
    let _ = identify(start, ByteCount(data.len() as u64));
    let _ = facts(data);
    // A header that verifies, with arbitrary fields.
    for form in FORMS {
        let mut header = written::database_header(form, 3);
        let length = data.len().min(500);
        header[8..8 + length].copy_from_slice(&data[..length]);
        written::put32(&mut header, 236, form.page_bytes);
        written::seal_header(&mut header);
        let (found, _) = facts(&header);
        assert!(found.is_some_and(|facts| facts.page_size.bytes() == form.page_bytes));
    }
}

/// Checks a log of either format: as it is, and with valid checksums.
pub fn log(data: &[u8]) {
    let verdict = judge_log(data, true);
    assert_eq!(judge_log(data, true), verdict);
    let payloads: Vec<Vec<u8>> = data.chunks(4056).take(8).map(<[u8]>::to_vec).collect();
    let verdict = judge_log(&written::segments(5, &payloads, 1), true);
    assert_eq!(verdict.tally.damaged, 0);
    let flushes: Vec<Vec<u8>> = data.chunks(700).take(8).map(<[u8]>::to_vec).collect();
    if !flushes.is_empty() {
        let verdict = judge_log(&written::sectors(5, &flushes, 1), true);
        assert_eq!(verdict.tally.damaged, 0);
    }
    if let Ok(length) = record_length(data) {
        assert!((1..=data.len()).contains(&length));
    }
}

/// Checks a checkpoint or a flush map.
pub fn small(data: &[u8]) {
    let _ = judge_checkpoint(data);
    let _ = judge_map_header(data);
    let _ = judge_map_pages(u32::MAX, data);
    let mut copy = data.to_vec();
    copy.resize(4096, 0);
    written::put32(&mut copy, 667, 4);
    written::seal_header(&mut copy);
    assert!(judge_checkpoint(&copy).facts.is_some());
}

/// Checks a database of a few pages with valid checksums and arbitrary contents.
pub fn database(data: &[u8]) {
    let _ = judge(data);
    let Some((&choice, data)) = data.split_first() else { return };
    let form = FORMS[usize::from(choice) % FORMS.len()];
    let file = database_of(form, data);
    let found = judge(&file).expect("the headers verify");
    // If ownership is unknown, the pages behind count.
    assert!(found.tally.damaged == 0 || matches!(found.owned, OwnedPages::Unknown(_)));
    assert_eq!(judge(&file), Some(found));
}

/// The written database, with `data` applied as changes to its pages.
fn database_of(form: Form, data: &[u8]) -> Vec<u8> {
    // Written once: its checksums are computed slowly, bit by bit.
    static WRITTEN: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let written_all = || FORMS.iter().map(|&form| written::database(form, &written::pages())).collect();
    let which = FORMS.iter().position(|other| *other == form).expect("it is one of them");
    let mut file = WRITTEN.get_or_init(written_all)[which].clone();
    let numbers: Vec<u32> = written::pages().iter().map(|page| page.number).collect();
    // Four bytes select page, offset and length; the bytes to write follow.
    let mut rest = data;
    while let Some((&[page, high, low, count], after)) = rest.split_first_chunk::<4>() {
        let number = numbers[usize::from(page) % numbers.len()];
        let (bytes, after) = after.split_at(after.len().min(usize::from(count)));
        rest = after;
        let at = (number as usize + 1) * form.page_bytes;
        let page = &mut file[at..at + form.page_bytes];
        let into = 8 + usize::from(u16::from_be_bytes([high, low])) % (form.page_bytes - 8);
        let length = bytes.len().min(form.page_bytes - into);
        page[into..into + length].copy_from_slice(&bytes[..length]);
        // The checksum flag stays unchanged.
        page[37] = page[37] & !0x20 | if form.is_old { 0 } else { 0x20 };
        written::seal(page, number);
    }
    file
}

#[test]
fn no_input_makes_a_check_panic() {
    let mut random = world::Random::new(11, "hostile");
    for round in 0..400 {
        let mut bytes = vec![0; random.below(9000) as usize];
        random.fill(&mut bytes);
        if round % 2 == 0 {
            // Mostly small numbers: nearly valid lengths and types.
            bytes.iter_mut().for_each(|byte| *byte = if *byte < 160 { 0 } else { *byte % 80 });
        }
        start(&bytes);
        log(&bytes);
        small(&bytes);
        bytes.truncate(300);
        database(&bytes);
    }
}
