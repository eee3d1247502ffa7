//! The array's slot header.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::array::check("slot_header", data));
