//! The checks of checkpoints and flush maps.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::verify::hostile::small(data));
