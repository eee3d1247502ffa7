//! Integration tests of replication.

mod lineage;
mod values;
