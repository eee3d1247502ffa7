//! The map: which version of a block is where.

mod version;

pub use version::Version;
