//! The `spindle` program.
mod arguments;
mod prove;
mod quantity;
mod refusal;
fn main() {}
mod console;
