//! What the users of a profile need of storage.

mod needs;

pub use needs::{Mode, Needs};
