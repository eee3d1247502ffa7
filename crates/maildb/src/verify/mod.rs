//! The files beside a database, as a verifier needs them: its page stamps ([`stamps`]) and the pages that its flush
//! journal would restore. The group need not be open, and nothing is written. The crate `verify` does the rest.

mod journal;
pub mod stamps;

pub use journal::JournalBeside;
pub use stamps::StampsVerdict;
