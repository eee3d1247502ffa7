//! The mailbox database's checkpoint.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::decoders::checkpoint(data));
