//! The `spindle` program.
fn main() {}
