//! The array's summary.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::array::check("summary", data));
