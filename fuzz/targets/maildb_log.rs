//! The mailbox database's log.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::decoders::log(data));
