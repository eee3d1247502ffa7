//! What a pool keeps of its site.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::site::check_document(bytes));
