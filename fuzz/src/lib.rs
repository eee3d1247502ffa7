//! What the fuzz targets check. A target is one line; the rules are here and with the tests of each room, which try them
//! on seeded changes. `examples/seeds.rs` makes what the fuzzer begins with. Run it with `cargo xtask fuzz`.

pub mod array;
pub mod protocols;
pub mod verify;

#[path = "../../crates/maildb/tests/it/decoders.rs"]
pub mod decoders;
#[allow(dead_code, missing_docs)]
#[path = "../../crates/array/tests/it/examples.rs"]
pub mod examples;
#[allow(dead_code, missing_docs)]
#[path = "../../crates/array/tests/it/image.rs"]
pub mod image;
#[path = "../../crates/maildb/tests/it/memory.rs"]
pub mod memory;
#[allow(dead_code, missing_docs)]
#[path = "../../crates/maildb/tests/it/model.rs"]
pub mod model;
#[allow(dead_code, missing_docs)]
#[path = "../../crates/maildb/tests/it/simulated.rs"]
pub mod simulated;
