//! Measures the rate at which one thread verifies pages in memory, without reading.
//!
//! `judge_pages PAGE_BYTES SECONDS` prints one line of JSON: bytes, seconds, processor seconds.

use maildb::{
    PageNumber, PageSize,
    format::{checksum::seal_page, header::DatabaseHeader, page_size::ObjectId},
};
use std::{env, process::ExitCode, time::Duration};
use verify::database::{OwnedPages, PageChecker, judge_headers};
use world::{
    ByteCount, Random, World,
    real::{RealOptions, host::process_use, run},
};

/// Bytes of pages verified again and again: the size of one read of a file.
const CHUNK_BYTES: usize = 1 << 20;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let parsed = match &arguments[..] {
        [page_bytes, seconds] => page_bytes.parse().ok().zip(seconds.parse().ok()),
        _ => None,
    };
    let sized = parsed.and_then(|(page_bytes, seconds)| Some((PageSize::from_bytes(page_bytes)?, seconds)));
    let Some((page_size, seconds)) = sized else {
        eprintln!("usage: judge_pages PAGE_BYTES SECONDS");
        return ExitCode::from(2);
    };
    println!("{}", run(1, RealOptions::default(), async |world| measure(&world, page_size, seconds)));
    ExitCode::SUCCESS
}

fn measure(world: &World, page_size: PageSize, seconds: f64) -> String {
    let chunk = pages(page_size);
    let length = ByteCount((CHUNK_BYTES + 2 * page_size.bytes()) as u64);
    let mut header = DatabaseHeader::new(page_size, Default::default(), ObjectId(10)).encode();
    header.extend(header.clone());
    let facts = judge_headers(&header, length).facts.expect("a header that was just made");
    let judge = PageChecker::new(&facts, OwnedPages::Unknown("all are".to_owned()), length);
    let (start, used, span) = (world.now(), process_use(), Duration::from_secs_f64(seconds));
    let (mut bytes, mut good) = (0_u64, 0);
    while world.now().since(start) < span {
        let tally = judge.judge_chunk(PageNumber(1), &chunk);
        good += tally.good.iter().sum::<u64>();
        bytes += chunk.len() as u64;
    }
    assert_eq!(good, bytes / page_size.bytes() as u64, "every page verifies");
    let seconds = world.now().since(start).as_secs_f64();
    let cpu_seconds = process_use().cpu().saturating_sub(used.cpu()).as_secs_f64();
    format!("{{\"bytes\": {bytes}, \"seconds\": {seconds}, \"cpu_seconds\": {cpu_seconds}}}")
}

/// Pages of random bytes, from number 1 on, with their checksums.
fn pages(page_size: PageSize) -> Vec<u8> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut random = Random::new(1, "pages");
    for (number, page) in (1_u32..).zip(chunk.chunks_exact_mut(page_size.bytes())) {
        random.fill(page);
        // Flags: a leaf with the new checksum.
        page[36..40].copy_from_slice(&0x2802_u32.to_le_bytes());
        if !page_size.is_small() {
            page[64..68].copy_from_slice(&number.to_le_bytes());
        }
        seal_page(page, page_size, PageNumber(number));
    }
    chunk
}
