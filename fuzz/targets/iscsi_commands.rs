//! Command descriptor blocks and their data.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::protocols::iscsi_commands(data));
