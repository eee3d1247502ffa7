//! The checks of databases.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::verify::hostile::database(data));
