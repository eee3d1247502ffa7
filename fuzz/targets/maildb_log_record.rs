//! The mailbox database's log record.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::decoders::log_record(data));
