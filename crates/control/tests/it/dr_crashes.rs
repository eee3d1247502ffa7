//! DR groups of two whole servers in simulated time: groups are made, moved, taken over, given up and removed over the API,
//! while lines are cut, either server is killed or loses its power between any two awaits, and hosts write over NBD.
//!
//! Checked are: both sites never serve hosts at one moment; what hosts were answered is there wherever they are served next,
//! unless a person accepted its loss; a primary that returns serves nothing before it compared, or a person said so; a change
//! that was answered with success stays; a refused one changes nothing; each is answered in bounded time; in the end both
//! sites have the same blocks.

use crate::{
    dr_scene::{DrCounts, DrScene, in_scene_of_pools},
    seeds::Seeds,
};
use control::dr::mode::DrMode;
use std::{cell::Cell, rc::Rc};

/// Seeds that a planted bug may escape.
const PLANTED_SEEDS_MAX: u64 = 20;
/// Things that happen in a life.
const STEPS: usize = 16;

/// A life of a group, which is removed in the end, or compared.
async fn life(scene: Rc<DrScene>, removes: bool) -> DrCounts {
    scene.start(0);
    scene.start(1);
    scene.until_up(0).await;
    scene.until_up(1).await;
    drop(scene.world.spawn("hosts", Rc::clone(&scene.hosts).live()));
    // Hosts use the volumes before there is a group.
    scene.sleep_ms(300).await;
    scene.create().await;
    for _ in 0..STEPS {
        scene.step().await;
        scene.person().await;
    }
    scene.heal().await;
    let answers = || scene.hosts.answers.iter().map(Cell::get).sum::<u64>();
    let before = answers();
    scene.sleep_ms(10_000).await;
    assert!(answers() > before, "hosts are served\n{}", scene.describe().await);
    if removes {
        scene.remove().await;
    } else {
        scene.compare().await;
    }
    scene.count(|counts| counts.answers = answers());
    scene.done.get()
}

fn live_in_one_pool(seed: u64) -> (DrCounts, u64) {
    let modes = [
        DrMode::Sync { hold_ms: 500, failsafe: false },
        DrMode::Async { behind_ms: 2_000, behind_bytes: 64 << 20, push_back: false },
        DrMode::Sync { hold_ms: 3_000, failsafe: true },
    ];
    let removes = seed % 4 == 3;
    // A group whose hosts use rows that came with it is not removed.
    let rows_travel = !removes && seed.is_multiple_of(2);
    let mode = modes[seed as usize % 3].clone();
    in_scene_of_pools(1, seed, (mode, rows_travel), move |scene| life(scene, removes))
}

fn live_in_two_pools(seed: u64) -> (DrCounts, u64) {
    let failsafe = seed % 4 == 1;
    let mode = DrMode::Sync { hold_ms: if failsafe { 3_000 } else { 500 }, failsafe };
    let removes = seed % 4 == 3;
    let rows_travel = !removes && seed.is_multiple_of(2);
    in_scene_of_pools(2, seed, (mode, rows_travel), move |scene| life(scene, removes))
}

fn live_in_two_pools_by_marks(seed: u64) -> (DrCounts, u64) {
    let mode = DrMode::Async { behind_ms: 2_000, behind_bytes: 64 << 20, push_back: seed.is_multiple_of(2) };
    in_scene_of_pools(2, seed, (mode, seed % 4 == 2), move |scene| life(scene, false))
}

fn live_all(few: u64, live: fn(u64) -> (DrCounts, u64)) {
    let mut all = DrCounts::default();
    Seeds::of(few, 2_000).live_all(|seed| {
        let (counts, polls) = live(seed);
        println!("    {counts:?}, {polls} polls");
        all.moved += counts.moved;
        all.refused += counts.refused;
        all.unclear += counts.unclear;
        all.taken_over += counts.taken_over;
        all.crashes += counts.crashes;
        all.answers += counts.answers;
        Ok(())
    });
    println!("{all:?}");
}

#[test]
fn two_sites_keep_what_hosts_were_answered_whatever_is_asked_and_whatever_crashes() {
    live_all(4, live_in_one_pool);
}

/// A writer goes on once it was answered, in whichever pool: so the prefixes that hosts must find are those over both pools.
#[test]
fn a_group_over_two_pools_is_found_as_one_state_whatever_is_asked_and_whatever_crashes() {
    live_all(4, live_in_two_pools);
}

/// As long as no site is lost, nothing that was answered is: then it is found as of a moment before.
#[test]
fn a_group_over_two_pools_that_is_not_in_sync_is_found_as_one_state_whatever_crashes() {
    live_all(4, live_in_two_pools_by_marks);
}

#[cfg(debug_assertions)]
#[test]
fn each_planted_bug_of_dr_groups_is_noticed_within_a_few_seeds() {
    if !crate::is_full_run("planted bugs of DR groups are of") {
        return;
    }
    use control::planted::DrBug;
    let remembered_seed = |bug| match bug {
        DrBug::ConnectionNotCut => 7,
        DrBug::RecordLeftBehind => 3,
        _ => 0,
    };
    let bugs = DrBug::ALL.map(|bug| (bug, remembered_seed(bug)));
    crate::planted::assert_dr_bugs_panic(bugs, PLANTED_SEEDS_MAX, live_in_one_pool);
}

#[cfg(debug_assertions)]
#[test]
fn each_planted_bug_of_groups_over_two_pools_is_noticed() {
    use control::planted::DrBug;
    let bugs = [(DrBug::NamedPartRemovedFirst, 39), (DrBug::ServedByParts, 2)];
    crate::planted::assert_dr_bugs_panic(bugs, 60, live_in_two_pools);
}

/// Bugs of the flows below, which `replication`'s own lives show, too.
#[cfg(debug_assertions)]
#[test]
fn parts_that_do_not_fit_are_noticed_by_hosts() {
    if !crate::is_full_run("bugs of parts that do not fit are of") {
        return;
    }
    use replication::planted::{ReplicationBug, with_replication_bug};
    let bugs = [
        (ReplicationBug::JoinedTooEarly, 0),
        (ReplicationBug::JointStateIgnored, 14),
        (ReplicationBug::JoinNotSettled, 7),
    ];
    let live = |bug, seed| with_replication_bug(bug, || live_in_two_pools(seed));
    crate::planted::assert_panics(bugs, 60, live);
}
