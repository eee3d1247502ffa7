//! The workload's integration tests: one binary, a module for each subject.

mod frozen;
mod judged;
mod real_run;
