//! A frame of a replication session.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::frame_bytes::check(data);
});
