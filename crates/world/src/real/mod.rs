//! The real world: the kernel's clocks, io_uring, O_DIRECT files and folders, raw drives.
//!
//! Start with [`run`]: it creates the thread's [`Engine`], an executor and a [`World`](crate::World), and runs
//! one async function in it. [`spawn_thread`] does the same on a new
//! thread. Inside, [`FileDevice`] and [`FolderDirectory`] are real storage behind the traits of this crate.
//!
//! Reading order: [`runtime`], [`engine`] (io_uring or helper threads), `ring` and `executor`, which waits in it,
//! `plain` (without io_uring, under tokio's executor), `busy_poll` (polling before blocking), `step_times` (durations of polls), [`file`](mod@file), [`folder`], [`sockets`]; then
//! `thread_start`, [`workers`], [`programs`], [`user`], [`freeze`] (of mounted filesystems), [`clock`], [`signals`], [`service_manager`], [`host`] (facts about this machine), `process_limits` (file handles
//! and file sizes), [`host_files`] (ordinary small files), [`append_file`] (files that grow line by line) and [`state_file`].

// The one module that may use the operating system directly.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod clock;

pub mod append_file;

pub mod engine;

pub mod companions;

pub mod file;

pub mod folder;

pub mod freeze;

pub mod host;

pub mod host_files;

pub mod programs;

pub mod runtime;

pub mod service_manager;

pub mod signals;

pub mod sockets;

pub mod state_file;

pub mod user;

pub mod workers;

mod busy_poll;
mod edge;
mod executor;
mod oneshot;
mod plain;
mod process_limits;
mod program_code;
mod ring;
mod step_times;
mod thread_start;

/// The instant of libraries that have timers of their own.
pub type HostInstant = std::time::Instant;

pub use append_file::{AppendFile, LineFile};
pub use engine::{Engine, RealIoKind};
pub use file::{AccessMode, Allocation, FileDevice};
pub use folder::FolderDirectory;
pub use process_limits::{prepare_process, use_small_pages};
pub use program_code::unmap_code_of_start;
pub use programs::RealPrograms;
pub use runtime::{RealOptions, ThreadHandle, run, spawn_thread, yield_now};
pub use sockets::Sockets;
pub use state_file::HostStateFile;
pub use step_times::{LONG_STEP, LongSteps, StepTimes};
pub use thread_start::RealThreads;
pub use workers::Workers;
