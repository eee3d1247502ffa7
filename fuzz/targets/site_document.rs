//! The document of a site in a pool.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::site::check_document(bytes));
