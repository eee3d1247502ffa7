//! The catalogue of a set's backups. The first byte says whether lines are given right checksums.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::catalogue_bytes::check_input(data);
});
