//! Whole pools under power cuts, kills, faulty and missing drives.

pub mod administrator;
pub mod branching;
pub mod canary;
pub mod comparison;
pub mod connections;
mod content;
pub mod convergence;
mod drive_changes;
pub mod early_end;
pub mod fault_model;
pub mod fixture;
pub mod frozen;
pub mod group_inspection;
pub mod groups;
mod growth;
pub mod host;
pub mod incarnation;
pub mod independent_reader;
pub mod inspection;
pub mod log_corruption;
pub mod model;
pub mod plan;
pub mod platter_device;
pub mod register;
pub mod resized_drive;
pub mod run;
pub mod salvage;
pub mod shortage;
pub mod subscriber;
pub mod violation;

pub use array::simulation::sometimes::Sometimes;
pub use canary::Bug;
pub use fault_model::{DriveFault, PoolFaultGrade};
pub use plan::{Branching, PoolRunOptions, PoolRunPlan};
pub use run::{PoolRunReport, replay_command, run};
pub use violation::{PoolRunError, PoolViolation};
