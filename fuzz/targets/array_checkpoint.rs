//! The array's checkpoint.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::array::check("checkpoint", data));
