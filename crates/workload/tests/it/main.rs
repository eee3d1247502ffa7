//! The workload's integration tests: one binary, a module for each subject.

mod ami_2008;
mod backups;
mod blanked;
mod compared;
mod compressed;
mod delivered;
mod documented;
mod frozen;
mod held;
mod judged;
mod judged_part;
mod lost_writes;
mod maximum;
mod merged;
mod pools;
mod real_run;
mod record;
mod simulated;

/// True in full runs (`cargo xtask test --full`); else says that `what` them alone: "planted bugs are of".
fn is_full_run(what: &str) -> bool {
    let is_full = std::env::var_os("SPINDLE_FULL").is_some();
    if !is_full {
        println!("skipped: {what} full runs alone (cargo xtask test --full)");
    }
    is_full
}
