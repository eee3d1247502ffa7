//! The workload's integration tests: one binary, a module for each subject.

mod ami_2008;
mod backups;
mod blanked;
mod compared;
mod compressed;
mod documented;
mod frozen;
mod held;
mod judged;
mod judged_part;
mod lost_writes;
mod maximum;
mod pools;
mod real_run;
mod record;
mod simulated;
