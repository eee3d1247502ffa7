//! A running server, reached by the command line: its address, and the verbs about its API (`token`, `audit`).

pub mod arguments;
mod audit;
pub mod connection;
pub mod place;
mod token;

pub use audit::audit;
pub use token::token;
