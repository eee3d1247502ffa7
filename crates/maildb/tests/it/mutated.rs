//! Files of a group with random changes, seed by seed: a small fuzzer for every test run.

use crate::decoders::{self, SampleFiles};
use world::Random;

/// A copy of `bytes` with a few changes: single bytes, whole words, moved or truncated parts.
fn mutated(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    const TELLING: [u64; 6] = [0, 1, 0x7fff, 0x8000, 0xffff, u64::MAX];
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(6) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len() as u64) as usize;
        let left = bytes.len() - at;
        match random.below(8) {
            0..=2 => bytes[at] ^= 1 << random.below(8),
            3 => bytes[at] = random.below(256) as u8,
            4 | 5 => {
                let width = [1, 2, 4, 8][random.below(4) as usize].min(left);
                let value = TELLING[random.below(TELLING.len() as u64) as usize].to_le_bytes();
                bytes[at..at + width].copy_from_slice(&value[..width]);
            }
            6 => {
                let length = random.below(left.min(64) as u64 + 1) as usize;
                let from = random.below((bytes.len() - length) as u64 + 1) as usize;
                bytes.copy_within(from..from + length, at);
            }
            _ => bytes.truncate(bytes.len() - random.below(left.min(600) as u64 + 1) as usize),
        }
    }
    bytes
}

/// Tries `count` changes of each of `seeds`.
fn try_all<'a>(
    name: &str,
    seeds: impl IntoIterator<Item = &'a [u8]>,
    count: u64,
    check: impl Fn(&[u8]) + std::panic::RefUnwindSafe,
) {
    for (which, seed) in seeds.into_iter().enumerate() {
        check(seed);
        for number in 0..count {
            let mut random = Random::new(number, &format!("{name} {which}"));
            let bytes = mutated(seed, &mut random);
            let outcome = std::panic::catch_unwind(|| check(&bytes));
            assert!(outcome.is_ok(), "{name}, seed {which}, change {number}");
        }
    }
}

#[test]
fn no_corruption_of_a_file_makes_a_reader_panic() {
    let SampleFiles { database, stamps, log, checkpoint } = decoders::sample_files();
    let pages: Vec<Vec<u8>> = database.chunks_exact(4096).skip(2).map(|page| [&[0], page].concat()).collect();
    let records = || log.chunks_exact(4096).skip(1).take(8).map(|segment| &segment[40..]);
    try_all("page", pages.iter().map(Vec::as_slice), 300, decoders::page);
    try_all("header", [&database[..4096], &log[..4096]], 3000, decoders::header);
    try_all("log record", records(), 2000, decoders::log_record);
    try_all("log", [log.as_slice()].into_iter().chain(records()), 100, decoders::log);
    try_all("checkpoint", [checkpoint.as_slice()], 3000, decoders::checkpoint);
    try_all("database", [database.as_slice()], 300, decoders::database);
    try_all("stamps", [stamps.as_slice()], 300, decoders::stamps);
}
