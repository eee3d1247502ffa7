//! A group with volumes in two pools of each site that is not in sync: hosts are answered at once, and what the other site shows,
//! clones or promotes is all the same one state in which each write has all that was answered before it began, whatever fails;
//! it has everything that was answered by the time that is said, and in the end all that there is.

use crate::{
    joint_clones::live_in,
    seeds::{assert_noticed, live_all, seeds},
};
use replication::{
    planted::ReplicationBug,
    session::{BoundPolicy, ReplicationMode},
};
use std::{cell::Cell, time::Duration};

fn mode_of(seed: u64) -> ReplicationMode {
    let over = if seed.is_multiple_of(3) { BoundPolicy::PushBack } else { BoundPolicy::Behind };
    ReplicationMode::Async { behind_max: Duration::from_millis(500), behind_bytes_max: 1 << 20, over }
}

#[test]
fn parts_that_are_not_in_sync_are_shown_as_of_one_moment_whatever_fails() {
    let clones = Cell::new(0);
    live_all(seeds(8, 2_000), |seed| {
        let checked = live_in(seed, mode_of(seed));
        clones.update(|sum| sum + checked.apart.get());
    });
    println!("{} clones of marks", clones.get());
    if std::env::var_os("SPINDLE_SEED").is_none() {
        assert!(clones.get() > 50, "{} clones", clones.get());
    }
}

#[test]
fn mistakes_of_marks_are_noticed() {
    assert_noticed(ReplicationBug::OF_MARKS, 400, |seed| drop(live_in(seed, mode_of(seed))));
}
