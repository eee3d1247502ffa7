//! The mailbox database's database.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::decoders::database(data));
