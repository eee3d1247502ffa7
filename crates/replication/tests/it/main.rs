//! Integration tests of replication.

mod batches;
mod connect;
mod deleted_volumes;
mod frame_bytes;
mod frames;
mod going_back;
mod group_record;
mod hand_overs;
mod held_answers;
mod joint_clones;
mod joint_lives;
mod joint_marks;
mod joint_sites;
mod lineage;
mod link;
mod link_hello;
mod link_scene;
mod link_tests;
mod link_tls;
mod lives;
mod living_site;
mod locked_snapshots;
mod periodic;
mod record_bytes;
mod resumed_passes;
mod returned_with_more;
mod row_ledger;
mod seeds;
mod session;
mod silent_peers;
mod sites;
mod stopped_pools;
mod streams;
mod suspended_lives;
mod values;
mod verifications;
mod watched_lives;
mod watched_sites;
mod witness;

/// True in full runs (`cargo xtask test --full`); else says that `what` them alone: "planted bugs are of".
fn is_full_run(what: &str) -> bool {
    let is_full = std::env::var_os("SPINDLE_FULL").is_some();
    if !is_full {
        println!("skipped: {what} full runs alone (cargo xtask test --full)");
    }
    is_full
}
