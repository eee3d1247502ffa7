//! Integration tests: backups in simulated time, histories of schedules, and what keeps the backups of sets.

/// Backups of things that fail, hang and die.
mod backups;

mod histories;
mod keeping;

/// Sets and their keepers.
mod kept_sets;

/// Backups of this machine's filesystems.
mod real;

/// All of these by one seed.
mod seeded;

/// True in full runs (`cargo xtask test --full`); else says that `what` them alone: "planted bugs are of".
fn is_full_run(what: &str) -> bool {
    let is_full = std::env::var_os("SPINDLE_FULL").is_some();
    if !is_full {
        println!("skipped: {what} full runs alone (cargo xtask test --full)");
    }
    is_full
}
