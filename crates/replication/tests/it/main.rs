//! Integration tests of replication.

mod connect;
mod lineage;
mod values;
