//! The mailbox database under power cuts, kills and faulty drives.

pub mod bulk_load;
pub mod canary;
pub mod history;
pub mod incarnation;
mod late_log;
pub mod mail;
pub mod plan;
pub mod run;
pub mod session;
mod short_log;
pub mod violation;

pub use canary::Canary;
pub use plan::{GroupFaultGrade, GroupRunOptions, GroupRunPlan};
pub use run::{GroupRunReport, replay_command, run};
pub use violation::{GroupRunError, GroupViolation};
