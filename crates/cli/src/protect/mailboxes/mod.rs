//! Mailboxes in the databases of a backup: the database engine brings them up in memory, and nothing is cloned or mounted.

mod backup_databases;
mod fetch;
mod live;

pub use backup_databases::{MailDatabases, NamedDatabase};
pub use fetch::{FetchArguments, fetch};
