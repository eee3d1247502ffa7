//! The array's row.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::array::check("row", data));
