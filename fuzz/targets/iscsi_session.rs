//! A session at our iSCSI target: its units, logins, texts and commands.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::protocols::iscsi_session(data));
