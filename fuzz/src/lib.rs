//! The checks of the fuzz targets. A target is one line; its rule is here or with the tests of its room,
//! which apply it to seeded changes. `examples/seeds.rs` writes the initial corpus. Run it with `cargo xtask
//! fuzz`.

pub mod array;
pub mod history;
pub mod protocols;
pub mod site;
pub mod verify;

#[allow(missing_docs)]
#[path = "../../crates/protect/tests/it/keeping/catalogue_bytes.rs"]
pub mod catalogue_bytes;
#[allow(missing_docs)]
#[path = "../../crates/vault/tests/it/decoder_bytes.rs"]
pub mod decoder_bytes;
#[path = "../../crates/maildb/tests/it/decoders.rs"]
pub mod decoders;
#[allow(dead_code, missing_docs)]
#[path = "../../crates/array/tests/it/examples.rs"]
pub mod examples;
#[allow(missing_docs)]
#[path = "../../crates/replication/tests/it/frame_bytes.rs"]
pub mod frame_bytes;
#[allow(dead_code, missing_docs)]
#[path = "../../crates/array/tests/it/image.rs"]
pub mod image;
#[path = "../../crates/maildb/tests/it/memory.rs"]
pub mod memory;
#[allow(dead_code, missing_docs)]
#[path = "../../crates/maildb/tests/it/model.rs"]
pub mod model;
#[allow(missing_docs)]
#[path = "../../crates/replication/tests/it/record_bytes.rs"]
pub mod record_bytes;
#[allow(dead_code, missing_docs)]
#[path = "../../crates/maildb/tests/it/simulated.rs"]
pub mod simulated;
