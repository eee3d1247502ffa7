//! The mailbox database's page.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::decoders::page(data));
