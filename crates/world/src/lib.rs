//! Every dependency on the outside: clocks, randomness, tasks, disks, folders and networks.
//!
//! Two worlds implement one set of traits. The *real* one ([`real`]) is io_uring, O_DIRECT files, the
//! kernel's clocks and a current-thread executor. The *simulated* one ([`sim`]) implements the same traits in
//! virtual time. Every other room is written against the traits and cannot tell which world it runs in; no
//! other room may name a wall clock, a sleep, a thread, a socket, a file, or unseeded randomness
//! (`clippy.toml` bans them).
//!
//! Reading order: [`units`], [`buffer`], [`block_device`], [`latency`], [`metered_device`], [`directory`],
//! [`state_file`], [`extent_directory`], [`overlay`], [`network`], [`program`], [`mount_freeze`], [`clock`], [`random`],
//! [`world`](mod@world), [`threads`], [`job`], [`checked_line`](mod@checked_line), then [`real`], [`sim`].

pub mod units;

pub mod buffer;

pub mod error;

pub mod block_device;

pub mod latency;

pub mod metered_device;

pub mod directory;

pub mod state_file;

pub mod extent_directory;

pub mod overlay;

pub mod network;

pub mod program;

pub mod mount_freeze;

pub mod payload;

pub mod flush_tracker;

pub mod kept_writes;

pub mod event_log;

pub mod job;

pub mod clock;

pub mod random;

pub mod world;

pub mod threads;

pub mod crc32c;

pub mod checked_line;

mod plain_name;

mod sampled_latencies;

pub mod real;

pub mod sim;

pub use block_device::{BlockDevice, Extent, Geometry, Resizable, Sparse, Stability};
pub use buffer::Buffer;
pub use checked_line::{CheckedLineError, checked_line, checked_object, is_whole_line};
pub use clock::{Clock, MachineUptime, Moment, WallTime};
pub use crc32c::Crc32c;
pub use directory::{Directory, DirectoryEntry, File};
pub use error::{IoError, IoErrorKind, IoResult};
pub use event_log::{EventLog, EventReader, FollowedEvent, RecordedEvent};
pub use extent_directory::{ExtentDirectory, Probe};
pub use job::{Cancellation, Job, JobProgress, RunningJob, WorkUnit};
pub use latency::{LatencyCounts, LatencyHistogram};
pub use metered_device::{
    DeviceCounts, DeviceMeter, DeviceOperation, MeteredDevice, MeteredSparse, OperationCounts,
};
pub use mount_freeze::{FreezableMount, MountThaw};
pub use network::{Address, IncomingConnection, Listener, Network, Stream};
pub use plain_name::NAME_BYTES_MAX;
pub use program::{OUTPUT_BYTES_MAX, ProgramCall, ProgramEnd, ProgramResult, ProgramText, Programs};
pub use random::Random;
pub use real::yield_now;
pub use sampled_latencies::{SAMPLED_EVERY, SampledLatencies, is_sampled};
pub use state_file::StateFile;
pub use threads::{ThreadEnd, ThreadMain, ThreadStarter};
pub use units::{ByteCount, ByteOffset};
pub use world::{JoinHandle, Spawn, World, with_deadline};

use std::{future::Future, pin::Pin};

/// A future bound to the thread that created it; every device operation returns one.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// A future that borrows. A function that returns one is compiled in its own crate; an `async fn` once more in each crate
/// that awaits it, with all that it awaits.
pub type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
