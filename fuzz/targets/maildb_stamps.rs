//! The mailbox database's stamps.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::decoders::stamps(data));
