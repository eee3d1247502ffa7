//! Integration tests of the daemon's threads: simulated, and real ones with clients of others; and of its
//! journal and its metrics.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod api;
mod api_crashes;
mod api_failures;
mod api_rows;
mod closed_pools;
mod conditions_seen;
mod dr_crashes;
mod dr_half_made;
mod dr_hosts;
mod dr_in_file;
mod dr_modes;
mod dr_rows;
mod dr_scene;
mod dr_sets;
mod dr_site;
mod dr_steps;
mod dr_views;
mod dr_withholding;
mod event_delivery;
mod event_kinds;
mod group_crashes;
mod hanging_pools;
mod history;
mod journal;
mod journal_damage;
mod kept_sets;
mod metrics;
mod monitoring;
mod planted;
mod presentations;
mod real_threads;
mod recovery;
mod row_crashes;
mod schedules;
mod seeds;
mod served_changes;
mod served_drives;
mod served_moves;
mod set_contents;
mod sim_schedules;
mod sim_site;
mod simulated;
mod site_crashes;
mod site_documents;
mod transfer_crashes;

/// True in full runs (`cargo xtask test --full`); else says that `what` them alone: "planted bugs are of".
fn is_full_run(what: &str) -> bool {
    let is_full = std::env::var_os("SPINDLE_FULL").is_some();
    if !is_full {
        println!("skipped: {what} full runs alone (cargo xtask test --full)");
    }
    is_full
}
