//! The record of a DR group.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::record_bytes::check(data);
});
