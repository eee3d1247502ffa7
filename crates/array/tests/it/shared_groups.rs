//! Groups with volumes in several pools: a snapshot, a clone and a rollback is of all of them or of none, whatever
//! interrupts it.

use crate::{
    clones::{bytes_of, features_on, fill},
    scene::{MIB, make_volume, small},
    two_pools::{TwoPools, open_both},
};
use array::{
    error::Error,
    format::{
        GroupId, PoolId, SnapshotId,
        features::{INCOMPATIBLE_GROUPS, INCOMPATIBLE_SHARED_GROUPS},
        row::{CutState, GroupOperation, IdSeed},
    },
    pool::{
        CutMember, GroupMemberChange, NewGroup, NewGroupClone, NewSnapshot, Pool, UnsettledId,
        UnsettledState, open, open_read_only, settle_cuts,
    },
    volume::VolumeDevice,
};
use std::{cell::Cell, rc::Rc};
use world::World;

const MONDAY: SnapshotId = SnapshotId([0x4d; 16]);
const SEED: IdSeed = IdSeed([0x5e; 16]);
const CLONE_SEED: IdSeed = IdSeed([0xc1; 16]);
const NAMES: [&str; 2] = ["store", "logs"];

/// Databases in one pool and logs in the other, as one group.
async fn group(pools: &[Rc<Pool>; 2]) {
    let ids: Vec<PoolId> = pools.iter().map(|pool| pool.id()).collect();
    for (pool, name, byte) in [(&pools[0], "store", 1), (&pools[1], "logs", 2)] {
        fill(&make_volume(pool, name, MIB).await.expect("it is made"), 0, 4, byte).await;
        let new = NewGroup { name: "mail".to_owned(), group: GroupId([6; 16]), pools: ids.clone() };
        pool.create_group(&new, &[name]).await.expect("it is made");
    }
}

/// Calls a verb for both pools at the same time.
async fn in_both<T: 'static, F: Future<Output = T> + 'static>(
    world: &World,
    pools: &[Rc<Pool>; 2],
    verb: impl Fn(Rc<Pool>, CutMember) -> F,
) -> [T; 2] {
    let parts = CutMember::of_pools(&[pools[0].id(), pools[1].id()]).expect("two pools");
    let parts = parts.into_iter().zip(pools);
    let mut callers: Vec<_> =
        parts.map(|(part, pool)| world.spawn("part", verb(Rc::clone(pool), part))).collect();
    let other = callers.pop().expect("two parts");
    let one = callers.pop().expect("two parts");
    [one.await, other.await]
}

async fn cut(world: &World, pools: &[Rc<Pool>; 2]) {
    let taken = in_both(world, pools, |pool, part| async move {
        let new = NewSnapshot { name: "monday", snapshot: MONDAY, note: b"of both" };
        pool.take_part_in_group_cut("mail", &new, part).await
    });
    assert!(taken.await.iter().all(Result::is_ok));
}

type Changes = Result<Vec<GroupMemberChange>, Error>;

async fn roll_back(world: &World, pools: &[Rc<Pool>; 2]) -> [Changes; 2] {
    in_both(world, pools, |pool, part| async move {
        pool.take_part_in_group_rollback("mail", MONDAY, (SEED, false), part).await
    })
    .await
}

async fn clone(world: &World, pools: &[Rc<Pool>; 2], suffix: &'static str) -> [Changes; 2] {
    in_both(world, pools, move |pool, part| async move {
        let new = NewGroupClone { suffix: suffix.to_owned(), seed: CLONE_SEED, is_independent: false };
        pool.take_part_in_group_clone("mail", "monday", &new, part).await
    })
    .await
}

/// Other bytes than those of the snapshot.
async fn overwrite(pools: &[Rc<Pool>; 2]) {
    for (pool, name) in pools.iter().zip(NAMES) {
        fill(&VolumeDevice(pool.volume(name).expect("it is there")), 0, 4, 9).await;
    }
}

/// The first byte of a volume; none if it is not there.
async fn byte(pool: &Rc<Pool>, name: &str) -> Option<u8> {
    let volume = pool.volume(name).ok()?;
    Some(bytes_of(&VolumeDevice(volume), 4).await[0])
}

/// The state of both pools, as a person would see it: the volume, its clone, and what a rollback left.
async fn seen(pools: &[Rc<Pool>; 2]) -> [[Option<u8>; 3]; 2] {
    let mut all = [[None; 3]; 2];
    for ((pool, name), seen) in pools.iter().zip(NAMES).zip(&mut all) {
        for (made, byte_of) in ["", "-try", "~1"].iter().zip(seen) {
            *byte_of = byte(pool, &format!("{name}{made}")).await;
        }
    }
    all
}

const BEFORE: [[Option<u8>; 3]; 2] = [[Some(9), None, None]; 2];
const ROLLED_BACK: [[Option<u8>; 3]; 2] = [[Some(1), None, Some(9)], [Some(2), None, Some(9)]];
const CLONED: [[Option<u8>; 3]; 2] = [[Some(9), Some(1), None], [Some(9), Some(2), None]];

#[test]
fn a_group_of_two_pools_is_cut_cloned_and_rolled_back_as_one() {
    let mut both = TwoPools::new(310);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        group(&pools).await;
        cut(&world, &pools).await;
        overwrite(&pools).await;
        for pool in &pools {
            let info = &pool.groups()[0];
            assert_eq!((info.pools.len(), info.snapshots[0].cut.as_ref()), (2, None));
        }
        assert!(clone(&world, &pools, "-try").await.iter().all(Result::is_ok));
        assert_eq!(seen(&pools).await, CLONED);
        for (pool, name) in pools.iter().zip(NAMES) {
            pool.delete_volume(&format!("{name}-try"), false).await.expect("it is a volume like any other");
        }
        let done = roll_back(&world, &pools).await;
        let left =
            |name: &str| vec![GroupMemberChange { volume: name.to_owned(), made: format!("{name}~1") }];
        assert_eq!(done.map(|done| done.expect("it is done")), NAMES.map(left));
        assert_eq!(seen(&pools).await, ROLLED_BACK);
        for pool in &pools {
            assert_eq!(pool.unsettled_cuts(), []);
            pool.checkpoint().await.expect("it is made");
            pool.close().await.expect("it closes");
        }
    });
    for drives in &both.drives {
        assert_ne!(
            features_on(&drives[0]) & INCOMPATIBLE_SHARED_GROUPS,
            0,
            "older programs know no such group"
        );
    }
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        assert_eq!(seen(&pools).await, ROLLED_BACK);
        for pool in &pools {
            pool.delete_group_snapshot("mail", "monday").await.expect("each pool deletes its part");
            pool.delete_group("mail").await.expect("each pool deletes its part");
            pool.checkpoint().await.expect("it is made");
            pool.close().await.expect("it closes");
        }
    });
    for drives in &both.drives {
        let features = features_on(&drives[0]);
        assert_eq!(
            features & (INCOMPATIBLE_SHARED_GROUPS | INCOMPATIBLE_GROUPS),
            0,
            "they may open the pools again"
        );
    }
}

/// Counts the crashes after which nothing had happened, and those after which it had, in both pools.
fn crash_at_any_moment(seed: u64, is_rollback: bool, happened: [[Option<u8>; 3]; 2]) {
    let (mut none, mut all) = (0, 0);
    for polls in 1.. {
        let mut both = TwoPools::new(seed);
        both.run(|world, devices| async move {
            let pools = open_both(&world, &devices).await;
            group(&pools).await;
            cut(&world, &pools).await;
            overwrite(&pools).await;
            for pool in &pools {
                pool.close().await.expect("it closes");
            }
        });
        let cut_short = both.crash(7 * polls, move |world, devices| async move {
            let pools = open_both(&world, &devices).await;
            let done = if is_rollback {
                roll_back(&world, &pools).await
            } else {
                clone(&world, &pools, "-try").await
            };
            done.into_iter().for_each(|done| drop(done.expect("nothing fails")));
        });
        let has_happened = Rc::new(Cell::new(false));
        let found = Rc::clone(&has_happened);
        both.run(move |world, devices| async move {
            let pools = open_both(&world, &devices).await;
            settle_cuts(&pools).await.expect("both can write");
            let seen = seen(&pools).await;
            assert!(seen == BEFORE || seen == happened, "after {} polls: {seen:?}", 7 * polls);
            assert!(pools.iter().all(|pool| pool.unsettled_cuts().is_empty()), "both were seen");
            found.set(seen == happened);
        });
        *if has_happened.get() { &mut all } else { &mut none } += 1;
        if !cut_short {
            break;
        }
    }
    assert!(none > 3 && all > 3, "crashes before and after it: {none} and {all}");
}

#[test]
fn after_a_crash_at_any_moment_both_pools_are_rolled_back_or_none_is() {
    crash_at_any_moment(311, true, ROLLED_BACK);
}

#[test]
fn after_a_crash_at_any_moment_both_pools_have_the_clones_or_none_has() {
    crash_at_any_moment(312, false, CLONED);
}

#[test]
fn a_rollback_that_the_other_pool_may_have_keeps_the_volume_closed() {
    let mut both = TwoPools::new(313);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        group(&pools).await;
        cut(&world, &pools).await;
        overwrite(&pools).await;
        pools[1].close().await.expect("it closes");
        // The other pool never begins, and this one has no time to hear of it: its caller is gone.
        let part = CutMember::of_pools(&[pools[0].id(), pools[1].id()]).expect("two pools").remove(0);
        let pool = Rc::clone(&pools[0]);
        let caller = world.spawn("part", async move {
            pool.take_part_in_group_rollback("mail", MONDAY, (SEED, false), part).await
        });
        assert!(matches!(caller.await, Err(Error::OperationFailed(_))), "the other part was dropped");
        assert_eq!(byte(&pools[0], "store").await, Some(9), "nothing has happened");
        pools[0].close().await.expect("it closes");
    });
    // Crashes until one leaves the intent pending.
    for polls in 1.. {
        let cut_short = both.crash(3 * polls, |world, devices| async move {
            let pools = open_both(&world, &devices).await;
            settle_cuts(&pools).await.expect("both can write");
            roll_back(&world, &pools).await.into_iter().for_each(|done| drop(done.expect("nothing fails")));
        });
        assert!(cut_short, "no crash left an intent that is pending");
        let is_pending = Rc::new(Cell::new(false));
        let found = Rc::clone(&is_pending);
        both.run(move |world, devices| async move {
            let reader = open_read_only(&devices[0], 1 << 20).await.expect("it opens");
            drop(reader);
            let pool = open(&world, &devices[0], small()).await.expect("it opens");
            let unsettled = pool.unsettled_cuts();
            let Some(operation) = unsettled.iter().find(|cut| cut.operation.is_some()) else { return };
            if operation.state != UnsettledState::Pending {
                return;
            }
            found.set(true);
            assert_eq!(operation.id, UnsettledId::Operation(SEED));
            assert_eq!(
                (&operation.name[..], &operation.operation),
                ("mail@monday", &Some(GroupOperation::RollBack))
            );
            macro_rules! refused {
                ($verb:expr) => {
                    let refused = $verb.map(drop);
                    assert!(matches!(refused, Err(Error::OperationPending(_))), "{refused:?}");
                };
            }
            refused!(pool.volume("store"));
            refused!(make_volume(&pool, "another", MIB).await);
            refused!(pool.rename_volume("store", "other").await);
            refused!(pool.delete_group("mail").await);
            refused!(pool.delete_group_snapshot("mail", "monday").await);
            assert_eq!(
                settle_cuts(&[Rc::clone(&pool)]).await.expect("it can write"),
                [],
                "the other is needed"
            );
            pool.give_up_cut(operation.id).await.expect("it is given up");
            assert_eq!(byte(&pool, "store").await, Some(9), "it has not happened here");
            pool.close().await.expect("it closes");
        });
        if is_pending.get() {
            return;
        }
    }
}

#[test]
fn a_group_of_two_pools_does_nothing_in_one_alone() {
    let mut both = TwoPools::new(314);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        group(&pools).await;
        cut(&world, &pools).await;
        macro_rules! refused {
            ($verb:expr, $error:pat) => {
                let refused = $verb.await.map(drop);
                assert!(matches!(refused, Err($error)), "{refused:?}");
            };
        }
        let pool = &pools[0];
        let tuesday = NewSnapshot { name: "tuesday", snapshot: SnapshotId([7; 16]), note: b"" };
        refused!(pool.snapshot_group("mail", &tuesday), Error::GroupOfSeveralPools(_));
        let new = NewGroupClone { suffix: "-try".to_owned(), seed: SEED, is_independent: false };
        refused!(pool.clone_group("mail", "monday", &new), Error::GroupOfSeveralPools(_));
        refused!(pool.roll_back_group("mail", "monday", SEED, true), Error::GroupOfSeveralPools(_));
        make_volume(pool, "other", MIB).await.expect("it is made");
        let with = |pools: &[PoolId]| {
            let pools = pools.to_vec();
            NewGroup { name: "wide".to_owned(), group: GroupId([8; 16]), pools }
        };
        refused!(pool.create_group(&with(&[pool.id()]), &["other"]), Error::BadCutSize { .. });
        refused!(
            pool.create_group(&with(&[PoolId([1; 16]), PoolId([2; 16])]), &["other"]),
            Error::BadCutSize { .. }
        );
        // A part that cannot be: a volume of that name is there.
        make_volume(&pools[1], "logs-try", MIB).await.expect("it is made");
        let [one, other] = clone(&world, &pools, "-try").await;
        assert!(matches!(one, Err(Error::OperationFailed(_))), "{one:?}");
        assert!(matches!(other, Err(Error::NameTaken(_))), "{other:?}");
        assert_eq!(byte(pool, "store-try").await, None);
        assert_eq!(pool.unsettled_cuts(), []);
        // Pools of another group.
        pools[1].delete_group("mail").await.expect("each pool deletes its part");
        let [one, other] = roll_back(&world, &pools).await;
        assert!(matches!(one, Err(Error::OperationFailed(_))), "{one:?}");
        assert!(matches!(other, Err(Error::NoGroup(_))), "{other:?}");
        let snapshot = &pool.groups()[0].snapshots[0];
        assert_eq!(snapshot.cut.as_ref().map(|cut| cut.state), None::<CutState>);
    });
}
