//! A site file.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| fuzz::site::check(text));
