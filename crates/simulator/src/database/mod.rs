//! The mailbox database under power cuts, kills and faulty drives.

pub mod canary;
pub mod history;
pub mod incarnation;
mod late_log;
pub mod loading;
pub mod mail;
pub mod plan;
pub mod run;
pub mod session;
mod short_log;
pub mod trouble;

pub use canary::Canary;
pub use plan::{Grade, RunOptions, RunPlan};
pub use run::{RunReport, replay_command, run};
pub use trouble::{Trouble, Violation};
