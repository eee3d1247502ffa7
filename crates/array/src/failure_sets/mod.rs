//! Failure sets of the member table: the set of each drive, as drives come and go.

mod assignment;
mod division;

pub use assignment::{SETS_FROM_DRIVES, assign_rows, assign_sets, divide_by_domains, failure_set_count};
