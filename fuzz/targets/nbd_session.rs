//! A session at our NBD server: its handshake and requests.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::protocols::nbd_session(data));
