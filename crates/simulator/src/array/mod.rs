//! Whole pools under power cuts, kills, ill and missing drives.

pub mod administrator;
pub mod atlas;
pub mod canary;
pub mod content;
pub mod convergence;
pub mod foreign;
pub mod frozen;
pub mod ground;
pub mod host;
pub mod incarnation;
pub mod inspection;
pub mod model;
pub mod plan;
pub mod platter_device;
pub mod register;
pub mod resized_drive;
pub mod run;
pub mod sabotage;
pub mod salvage;
pub mod shortage;
pub mod trouble;

pub use array::simulation::sometimes::Sometimes;
pub use atlas::{Grade, Ill};
pub use canary::Bug;
pub use plan::{RunOptions, RunPlan};
pub use run::{RunReport, replay_command, run};
pub use trouble::{Trouble, Violation};
