//! Cuts over several pools: the snapshot is in all of them, or in none, and nobody uses it before that is known.

use crate::{
    clones::{bytes_of, features_on, fill},
    scene::{MIB, make_volume, small, write},
    two_pools::{TwoPools, open_both},
};
use array::{
    error::Error,
    format::{PoolId, SnapshotId, VolumeId, features::INCOMPATIBLE_CUTS, row::CutState},
    pool::{
        CutMember, CutSettlement, NewSnapshot, Pool, RollbackGoal, UnsettledId, UnsettledState, open,
        settle_cuts,
    },
};
use std::{cell::Cell, rc::Rc, time::Duration};
use world::{
    World,
    sim::{FaultPlan, SimDrive},
};

const MONDAY: SnapshotId = SnapshotId([0x4d; 16]);
const LEFT: VolumeId = VolumeId([0x77; 16]);

/// Databases in one pool, logs in the other.
async fn volumes(pools: &[Rc<Pool>; 2]) {
    for (pool, name, byte) in [(&pools[0], "store", 1), (&pools[1], "logs", 2)] {
        fill(&make_volume(pool, name, MIB).await.expect("it is made"), 0, 4, byte).await;
    }
}

/// One cut over both pools, named in that order.
async fn cut(
    world: &World,
    pools: &[Rc<Pool>; 2],
    (name, snapshot): (&'static str, SnapshotId),
) -> [Result<Duration, Error>; 2] {
    let parts = CutMember::of_pools(&[pools[0].id(), pools[1].id()]).expect("two pools");
    let mut taken = Vec::new();
    for (part, pool) in parts.into_iter().zip(pools) {
        let pool = Rc::clone(pool);
        let volume = pool.volumes()[0].name.clone();
        taken.push(world.spawn("part of a cut", async move {
            pool.take_part_in_cut(&[&volume], &NewSnapshot { name, snapshot, note: b"" }, part).await
        }));
    }
    let other = taken.pop().expect("two parts");
    let one = taken.pop().expect("two parts");
    [one.await, other.await]
}

/// Takes one cut, then another whose part in the second pool cannot be written. Returns the answer of the first
/// pool.
async fn cut_as_logs_fail(
    world: &World,
    pools: &[Rc<Pool>; 2],
    logs: &[Rc<SimDrive>],
) -> Result<Duration, Error> {
    // The first cut sets a feature, which would be refused before anything is placed.
    assert_taken(cut(world, pools, ("sunday", SnapshotId([1; 16]))).await);
    for drive in logs {
        drive.set_faults(FaultPlan {
            failed_write_percent: 100.0,
            failed_flush_percent: 100.0,
            ..FaultPlan::none()
        });
    }
    let [store, _] = cut(world, pools, ("monday", MONDAY)).await;
    store
}

#[track_caller]
fn assert_taken(held: [Result<Duration, Error>; 2]) {
    assert!(held.iter().all(Result::is_ok), "{held:?}");
}

/// Names of the snapshots of the first volume; those that are not settled with their state.
fn snapshots(pool: &Pool) -> Vec<(String, Option<CutState>)> {
    let volume = pool.volumes()[0].name.clone();
    let all = pool.snapshots(&volume).expect("it is there").into_iter();
    all.map(|snapshot| (snapshot.name, snapshot.cut.map(|cut| cut.state))).collect()
}

fn named(name: &str, state: Option<CutState>) -> Vec<(String, Option<CutState>)> {
    vec![(name.to_owned(), state)]
}

#[test]
fn a_cut_over_two_pools_is_a_snapshot_in_each() {
    let mut both = TwoPools::new(300);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        volumes(&pools).await;
        let held = cut(&world, &pools, ("monday", MONDAY)).await;
        for (pool, held) in pools.iter().zip(held) {
            assert!(held.expect("it is taken") < Duration::from_millis(5), "no I/O while hosts wait");
            assert_eq!(snapshots(pool), named("monday", None));
            assert_eq!(pool.unsettled_cuts(), []);
            pool.checkpoint().await.expect("it is made");
        }
        for (index, pool) in pools.iter().enumerate() {
            let volume = pool.volumes()[0].name.clone();
            write(&array::volume::VolumeDevice(pool.volume(&volume).unwrap()), 0, 9, 4096).await;
            let snapshot = pool.snapshot_device(&volume, "monday").expect("it is offered");
            assert_eq!(bytes_of(&snapshot, 4).await, [index as u8 + 1; 4]);
            pool.delete_snapshot(&volume, "monday").await.expect("it is one like any other");
            pool.close().await.expect("it closes");
        }
    });
    for drives in &both.drives {
        assert_eq!(
            features_on(&drives[0]) & INCOMPATIBLE_CUTS,
            0,
            "programs of before may open the pools again"
        );
    }
}

#[test]
fn a_pool_that_fails_leaves_the_snapshot_pending_until_both_are_seen() {
    let mut both = TwoPools::new(301);
    let logs = both.drives[1].clone();
    both.run(move |world, devices| async move {
        let pools = open_both(&world, &devices).await;
        volumes(&pools).await;
        let store = cut_as_logs_fail(&world, &pools, &logs).await;
        assert!(matches!(store, Err(Error::CutUnsettled { .. })), "{store:?}");
        let pool = &pools[0];
        assert_eq!(snapshots(pool)[1], ("monday".to_owned(), Some(CutState::Pending)));
        assert_eq!(settle_cuts(&[Rc::clone(pool)]).await.expect("it can write"), []);
        pool.close().await.expect("it closes");
    });
    both.simulation.cut_power();
    both.drives[1].iter().for_each(|drive| drive.set_faults(FaultPlan::none()));
    both.run(|world, devices| async move {
        let alone = open(&world, &devices[0], small()).await.expect("it opens");
        let refused = |result: Result<(), Error>| {
            let text = result.expect_err("it is pending").to_string();
            assert!(text.starts_with("snapshot \"monday\" is of several pools, and not all"), "{text}");
        };
        assert_eq!(alone.unsettled_cuts()[0].state, UnsettledState::Pending);
        assert_eq!(alone.unsettled_cuts()[0].name, "monday");
        refused(alone.snapshot_device("store", "monday").map(drop));
        refused(alone.delete_snapshot("store", "monday").await);
        refused(alone.delete_volume("store", true).await);
        refused(
            alone.roll_back("store", RollbackGoal::Snapshot("monday".into()), LEFT, false).await.map(drop),
        );
        alone.snapshot_device("store", "sunday").expect("that one is settled");
        alone.close().await.expect("it closes");
    });
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        let done = settle_cuts(&pools).await.expect("both can write");
        let steps: Vec<_> = done.iter().map(|(pool, cut, step)| (*pool, cut.name.as_str(), *step)).collect();
        assert_eq!(steps, [(PoolId([0xa; 16]), "monday", CutSettlement::Remove)]);
        assert_eq!(snapshots(&pools[0]), named("sunday", None));
        assert_eq!(snapshots(&pools[1]), named("sunday", None));
    });
}

#[test]
fn after_a_crash_at_any_moment_both_pools_have_the_cut_or_none_has() {
    let (mut whole, mut none) = (0, 0);
    for polls in 1.. {
        let mut both = TwoPools::new(302);
        both.run(|world, devices| async move {
            let pools = open_both(&world, &devices).await;
            volumes(&pools).await;
            for pool in &pools {
                pool.close().await.expect("it closes");
            }
        });
        let cut_short = both.crash(5 * polls, |world, devices| async move {
            let pools = open_both(&world, &devices).await;
            for taken in cut(&world, &pools, ("monday", MONDAY)).await {
                taken.expect("nothing fails");
            }
        });
        let is_there = Rc::new(Cell::new(false));
        let seen = Rc::clone(&is_there);
        both.run(|world, devices| async move {
            let pools = open_both(&world, &devices).await;
            settle_cuts(&pools).await.expect("both can write");
            let found = pools.each_ref().map(|pool| snapshots(pool));
            assert_eq!(found[0], found[1], "after {polls} polls");
            assert!(found[0].is_empty() || found[0] == named("monday", None), "it is settled: {found:?}");
            seen.set(!found[0].is_empty());
        });
        if is_there.get() {
            whole += 1
        } else {
            none += 1
        }
        if !cut_short {
            break;
        }
    }
    assert!(whole > 3 && none > 3, "crashes before and after the cut: {none} and {whole}");
}

#[test]
fn a_part_that_goes_away_before_all_are_placed_leaves_nothing() {
    let mut both = TwoPools::new(303);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        volumes(&pools).await;
        let mut parts = CutMember::of_pools(&[pools[0].id(), pools[1].id()]).expect("two pools");
        drop(parts.pop());
        let new = NewSnapshot { name: "monday", snapshot: MONDAY, note: b"" };
        let store = pools[0].take_part_in_cut(&["store"], &new, parts.pop().expect("one is left")).await;
        let text = store.expect_err("the other part is gone").to_string();
        assert_eq!(text, "no snapshot was taken in any pool: the cut was given up in another pool");
        assert_eq!(snapshots(&pools[0]), []);
        assert_taken(cut(&world, &pools, ("monday", MONDAY)).await);
    });
}

#[test]
fn a_pool_that_does_not_come_is_waited_for_a_bounded_time() {
    let mut both = TwoPools::new(304);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        volumes(&pools).await;
        for (index, volume) in [(0, "store"), (1, "logs")] {
            // One of them waits with its catalogue locked, the other one for its turn.
            let mut parts = CutMember::of_pools(&[pools[0].id(), pools[1].id()]).expect("two pools");
            let part = parts.remove(index);
            let began = world.now();
            let new = NewSnapshot { name: "monday", snapshot: MONDAY, note: b"" };
            let error = pools[index].take_part_in_cut(&[volume], &new, part).await.expect_err("it is alone");
            assert_eq!(
                error.to_string(),
                "no snapshot was taken in any pool: a pool took longer than 10000 ms"
            );
            assert!(world.now().since(began) < Duration::from_secs(11), "and no longer");
            drop(parts);
        }
        assert_taken(cut(&world, &pools, ("monday", MONDAY)).await);
    });
}

#[test]
fn a_name_that_is_taken_in_one_pool_is_refused_in_both() {
    let mut both = TwoPools::new(304);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        volumes(&pools).await;
        pools[1].snapshot(&["logs"], "monday", SnapshotId([2; 16])).await.expect("it is taken");
        let [store, logs] = cut(&world, &pools, ("monday", MONDAY)).await;
        assert!(matches!(logs, Err(Error::NameTaken(_))), "{logs:?}");
        let text = store.expect_err("the other refused").to_string();
        assert_eq!(text, "no snapshot was taken in any pool: \"monday\" exists already; choose another name");
        assert_eq!(snapshots(&pools[0]), []);
    });
}

#[test]
fn two_cuts_at_once_take_turns() {
    let mut both = TwoPools::new(305);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        volumes(&pools).await;
        let [one, other] = pools.clone();
        let own = (world.clone(), [other, one]);
        let second = world
            .spawn("second cut", async move { cut(&own.0, &own.1, ("tuesday", SnapshotId([3; 16]))).await });
        assert_taken(cut(&world, &pools, ("monday", MONDAY)).await);
        assert_taken(second.await);
        assert_eq!(snapshots(&pools[0]).len(), 2);
        assert_eq!(snapshots(&pools[1]).len(), 2);
    });
}

#[test]
fn given_up_a_pending_snapshot_goes() {
    let mut both = TwoPools::new(306);
    let logs = both.drives[1].clone();
    both.run(move |world, devices| async move {
        let pools = open_both(&world, &devices).await;
        volumes(&pools).await;
        cut_as_logs_fail(&world, &pools, &logs).await.expect_err("the logs could not be written");
        let pool = &pools[0];
        pool.give_up_cut(UnsettledId::Snapshot(MONDAY)).await.expect("it waits");
        assert_eq!(snapshots(pool), named("sunday", None));
        let again = pool.give_up_cut(UnsettledId::Snapshot(MONDAY)).await.expect_err("nothing waits");
        assert!(matches!(again, Error::NoCut(UnsettledId::Snapshot(MONDAY))));
        pool.delete_volume("store", true).await.expect("nothing keeps it");
    });
}

#[test]
fn a_cut_has_at_least_two_pools_each_once() {
    let refusal = |pools: &[PoolId]| CutMember::of_pools(pools).expect_err("it is refused").to_string();
    let pool = |number| PoolId([number; 16]);
    assert_eq!(
        refusal(&[pool(1)]),
        "a cut over several pools cannot have 1 of them: at least two different ones, and at most 32"
    );
    refusal(&[pool(1), pool(1)]);
    refusal(&(0..33).map(pool).collect::<Vec<_>>());
}
