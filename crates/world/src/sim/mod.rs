//! The simulated world: virtual time, a seeded order of tasks, drives with service times and faults.
//!
//! One seed is one run. A [`Simulation`] owns an executor, a clock that moves only when no task is ready, and
//! [`SimDrive`]s whose contents outlive crashes. Code under test gets an ordinary [`World`](crate::World) and
//! ordinary [`BlockDevice`](crate::BlockDevice)s, and cannot tell the difference.
//!
//! ```text
//! Simulation::run(limits, main)     one incarnation: tasks run, until main ends or a limit stops it
//!   └ ready task, drawn at random   every choice, step of time and completion goes into the trace
//!   └ or the next event in time     a timer, or a drive's completion
//! Simulation::cut_power / kill      what the drives keep of what was under way and unsynced
//! Simulation::run(…)                the next incarnation, over the same drives
//! ```
//!
//! Several machines are [`SimNode`]s: each crashes, pauses and restarts within an incarnation, with clocks, drives and
//! connections of its own.
//!
//! Randomness comes in independent streams: the order of tasks (`scheduling`), and for each drive its service
//! times, its losses and its faults. The code under test draws from its world's own streams, which differ in
//! each incarnation.
//!
//! Reading order: `simulation`, `executor`, `faults`, `filesystem`, `image`, `medium`, `service`,
//! `drive`, `power`, `network`, `node`, `threads`, `folder`, `state_file`, `programs`.

mod drive;
mod drive_options;
#[cfg(test)]
mod drive_tests;
mod executor;
#[cfg(test)]
mod extent_directory_tests;
mod faults;
mod filesystem;
mod folder;
mod image;
mod medium;
mod network;
#[cfg(test)]
mod network_tests;
mod node;
#[cfg(test)]
mod node_tests;
mod power;
mod programs;
mod service;
mod simulation;
mod state_file;
mod threads;
mod trace;

pub use drive::SimDrive;
pub use drive_options::{DriveOptions, DriveStatistics};
pub use faults::{FaultPlan, SimFault};
pub use filesystem::SimFilesystem;
pub use folder::SimFolder;
pub use network::{LinkOptions, NetworkOptions, SimNetwork, WINDOW_BYTES};
pub use node::SimNode;
pub use programs::{ProgramWriter, SimPrograms};
pub use service::{RandomService, ServiceKind, ServiceModel, ServiceQueue, ServiceRequest, ServiceTime};
pub use simulation::{SimLimits, SimOutcome, Simulation, run};
pub use state_file::{SimStateFile, SimStateHandle, StateFileFaults};
pub use threads::SimThreads;
pub use trace::SimTrace;
