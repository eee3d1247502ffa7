//! The workload room.
