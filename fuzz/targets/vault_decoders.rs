//! Content of a vault, unsealed: headers of packs, indexes, trees, key files, records, snapshots; the first byte chooses.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::decoder_bytes::check(data);
});
