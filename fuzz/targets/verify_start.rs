//! The checks of the start of a file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::verify::hostile::start(data));
