//! Checking a database without the engine.
//!
//! [`checksums`] reads a whole file in order and checks every page's own checksum: what `eseutil /k` does; and
//! that no page in use is blank, which `blank` tells. [`deep`] walks the trees: links, key order, separators,
//! and that the space trees partition the file. [`stamps`] holds pages against the stamps kept beside the
//! database, if there are any. None writes a byte.

mod blank;
pub mod checksums;
pub mod deep;
mod journal;
pub mod stamps;
mod walking;

pub use checksums::{DatabaseVerdict, PageDamage, verify_database, verify_database_beside};
pub use deep::{DeepFinding, DeepVerdict, verify_deep};
pub use journal::JournalBeside;
pub use stamps::StampsVerdict;
