//! Integration tests of replication.

mod batches;
mod connect;
mod frame_bytes;
mod frames;
mod group_record;
mod hand_overs;
mod held_answers;
mod lineage;
mod link;
mod link_hello;
mod link_scene;
mod link_tests;
mod link_tls;
mod lives;
mod living_site;
mod record_bytes;
mod row_ledger;
mod session;
mod sites;
mod streams;
mod values;
mod watched_lives;
mod watched_sites;
mod witness;
