//! Integration tests of replication.

mod connect;
mod frame_bytes;
mod frames;
mod lineage;
mod session;
mod values;
