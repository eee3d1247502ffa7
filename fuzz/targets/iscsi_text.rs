//! Keys and values of logins and texts.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::protocols::iscsi_text(data));
