//! The note of a point of a backup.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::catalogue_bytes::check_note(data);
});
