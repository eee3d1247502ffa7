//! Checking a database without the engine.
//!
//! [`checksums`] reads a whole file in order and checks every page's own checksum: what `eseutil /k`
//! does. [`deep`] walks the trees: links, key order, separators, and that the space trees partition
//! the file. Neither writes a byte.

pub mod checksums;
pub mod deep;

pub use checksums::{DatabaseVerdict, PageDamage, verify_database};
pub use deep::{DeepFinding, DeepVerdict, verify_deep};
