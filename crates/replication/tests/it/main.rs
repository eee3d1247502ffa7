//! Integration tests of replication.

mod connect;
mod frame_bytes;
mod frames;
mod held_answers;
mod lineage;
mod lives;
mod session;
mod sites;
mod streams;
mod values;
