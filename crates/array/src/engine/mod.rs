//! The engine of an open pool: its state, segments, trees, log sink and checkpoints.
//!
//! ```text
//! pool ─▶ mover ──▶ engine ─▶ log, map, tree, segments, format
//!    └──▶ volume ─┘
//! ```
//!
//! Uses go one way: the engine knows neither the mover nor volumes, those two do not know each other, and
//! only `pool` knows all of them.
//!
//! Reading order: `shared` (state), `log_sink` (durable records), `log_subscribers` (sinks
//! beside the tables), `checkpoint`, `membership` (failed drives),
//! `space` (accounting), `events`.

mod absences;
mod answer_holds;
mod background;
mod block_reads;
mod branch_stamps;
mod catalogue;
mod change_lock;
mod checkpoint;
mod domains;
mod drive_losses;
mod ended_hosts;
pub mod events;
mod failure_sets;
mod hedged_read;
mod log_pins;
mod log_sink;
mod log_subscribers;
mod map_reader;
mod membership;
mod node_cleaning;
mod node_writes;
mod nodes;
mod old_slots;
mod pinned_log;
mod read_gates;
mod readers;
mod recent_writes;
mod reverse_map;
mod row_commands;
mod row_features;
mod setting;
mod shared;
mod space;
mod space_demand;
mod space_wait;
mod stages;
mod throttle;
mod usage;

pub use answer_holds::AnswerHold;
pub use domains::{DomainLoss, DomainStatus};
pub use drive_losses::{LossLimit, LossTolerance};
pub use failure_sets::{FailureSetsStatus, SetStatus};
pub use log_pins::LogPin;
pub use log_subscribers::{DeliveredChange, DeliveredRecord, LogSubscriber, LogSubscription};
pub use node_cleaning::NodeRoom;
pub use read_gates::ReadGate;
pub(crate) use row_commands::OWN_POINT_BEGIN;
pub use row_commands::RowCommand;
pub use setting::OpenSetting;
pub use space::{Alarm, PoolSpace};
pub use stages::StageCounts;
pub use throttle::{ThrottleFigures, ThrottleSetting};

pub(crate) use absences::Absences;
pub(crate) use background::{TaskOwner, Wakes, spawn_repeated};
pub(crate) use block_reads::StoredRun;
pub(crate) use catalogue::{
    BranchLoss, Catalogue, ForkPoint, NewVolumeLabel, PlannedDeletion, clone_row, left_name, left_row,
};
pub(crate) use change_lock::ChangeLock;
pub(crate) use checkpoint::{Checkpoints, LastCheckpoint};
pub(crate) use ended_hosts::HostsEnds;
pub(crate) use log_sink::PoolLog;
pub(crate) use map_reader::MapReader;
pub(crate) use membership::draw_mark;
pub(crate) use nodes::Nodes;
pub(crate) use readers::ReadGuard;
pub(crate) use reverse_map::stored_blocks;
pub(crate) use row_features::FeatureUse;
pub(crate) use shared::{Phase, Shared, State};
pub(crate) use space::{Purpose, VICTIMS_MAX};
pub(crate) use space_demand::{RoomWait, SpaceDemand};
pub(crate) use stages::{CommandStages, DeviceTime, StageClock};
pub(crate) use throttle::{HostCommand, PARALLELISM_MAX, Permit, Throttle, Urgency};
pub(crate) use usage::{SpacePromise, UsageCounter};
