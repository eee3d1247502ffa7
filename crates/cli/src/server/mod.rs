//! A running server, reached by the command line: its address, and the verbs about its API (`token`, `audit`, `event`).

pub mod arguments;
mod audit;
pub mod connection;
mod event;
pub mod event_arguments;
mod event_commands;
pub mod place;
mod token;

pub use audit::audit;
pub use event::event;
pub use token::token;
