//! A day of the performance over time. The first byte says whether it is given a right checksum.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::history::check_day(bytes));
