//! The array's superblock.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::array::check("superblock", data));
