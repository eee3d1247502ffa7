//! The array's node.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::array::check("node", data));
