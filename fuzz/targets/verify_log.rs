//! The checks of logs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::verify::hostile::log(data));
