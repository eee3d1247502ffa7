//! Integration tests of replication.

mod connect;
mod frame_bytes;
mod frames;
mod held_answers;
mod lineage;
mod session;
mod values;
mod witness;
