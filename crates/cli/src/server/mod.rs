//! A running server, reached by the command line: its address, and the verbs about its API (`token`, `audit`, `event`, `drive`, `power`).

pub mod arguments;
mod audit;
pub mod connection;
pub mod drive;
mod event;
pub mod event_arguments;
mod event_commands;
pub mod place;
pub mod power;
mod token;

pub use audit::audit;
pub use drive::drive;
pub use event::{event, test_notifiers};
pub use power::power;
pub use token::token;
