//! The records of DR groups: whole after a crash at any moment, and replaced on a full pool, too.

use crate::{
    clones::features,
    scene::{MIB, Scene, make_volume, small},
};
use array::{
    error::Error,
    format::{GroupId, features::INCOMPATIBLE_REPLICATION, row::REPLICATION_BYTES_MAX},
    pool::{OpenSetting, Pool, open, open_read_only},
};
use std::{cell::Cell, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteOffset, Stability, World,
    sim::{SimLimits, SimOutcome},
};

const MAIL: GroupId = GroupId([7; 16]);
const WEB: GroupId = GroupId([8; 16]);

/// Records of more and of fewer rows than the one before.
fn record(generation: u8) -> Vec<u8> {
    let length = [5_000, 64 << 10, 900][usize::from(generation) % 3];
    (0..length).map(|index: usize| (index as u8).wrapping_mul(31).wrapping_add(generation)).collect()
}

async fn opened(world: &World, devices: &[Rc<dyn BlockDevice>]) -> Rc<Pool> {
    open(world, devices, small()).await.expect("it opens")
}

async fn put(pool: &Rc<Pool>, group: GroupId, generation: u8) {
    pool.put_replication_record(group, record(generation)).await.expect("it is stored");
}

fn whole(records: Vec<(GroupId, Result<Vec<u8>, Error>)>) -> Vec<(GroupId, Vec<u8>)> {
    records.into_iter().map(|(group, bytes)| (group, bytes.expect("it is whole"))).collect()
}

#[test]
fn records_come_back_from_the_log_and_from_the_catalogue_until_they_are_removed() {
    let mut scene = Scene::new(193, 3);
    let both = || vec![(MAIL, record(3)), (WEB, record(1))];
    scene.run(move |world, devices| async move {
        let pool = opened(&world, &devices).await;
        assert_eq!(whole(pool.replication_records()), []);
        for generation in 0..=3 {
            put(&pool, MAIL, generation).await;
        }
        put(&pool, WEB, 1).await;
        let large = pool.put_replication_record(WEB, vec![1; REPLICATION_BYTES_MAX + 1]).await;
        assert!(matches!(large, Err(Error::ReplicationRecordTooLarge { .. })), "{large:?}");
        assert_eq!(whole(pool.replication_records()), both());
    });
    assert!(features(&scene) & INCOMPATIBLE_REPLICATION != 0, "an older program does not know the table");
    scene.simulation.cut_power();
    for _ in ["from the log", "from the catalogue"] {
        scene.run(move |world, devices| async move {
            let read = open_read_only(&devices, 1 << 20).await.expect("it can be read");
            assert_eq!(whole(read.replication_records()), both());
            let pool = opened(&world, &devices).await;
            assert_eq!(whole(pool.replication_records()), both());
            pool.close().await.expect("it closes");
        });
        assert!(features(&scene) & INCOMPATIBLE_REPLICATION != 0);
    }
    scene.run(move |world, devices| async move {
        let pool = opened(&world, &devices).await;
        pool.remove_replication_record(MAIL).await.expect("it is removed");
        assert_eq!(whole(pool.replication_records()), [(WEB, record(1))]);
        pool.remove_replication_record(WEB).await.expect("it is removed");
        pool.remove_replication_record(WEB).await.expect("nothing is left to remove");
        pool.close().await.expect("it closes");
    });
    assert!(features(&scene) & INCOMPATIBLE_REPLICATION == 0, "older programs may open it again");
}

#[test]
fn a_record_is_replaced_on_a_pool_that_hosts_have_filled() {
    let mut scene = Scene::new(194, 2);
    scene.run(|world, devices| async move {
        let pool = opened(&world, &devices).await;
        put(&pool, MAIL, 0).await;
        let volume = make_volume(&pool, "mail", 200 * MIB).await.expect("it is made");
        let mut is_full = false;
        for mib in 0..200 {
            let mut data = Buffer::zeroed(MIB as usize);
            data.fill(mib as u8 + 1);
            let written = volume.write(ByteOffset(mib * MIB), vec![Arc::new(data)], Stability::Stable).await;
            is_full |= written.is_err();
        }
        assert!(is_full, "hosts have filled it");
        for generation in 1..100 {
            put(&pool, MAIL, generation).await;
        }
        assert_eq!(whole(pool.replication_records()), [(MAIL, record(99))]);
        drop(volume);
        pool.close().await.expect("it closes");
    });
}

#[test]
fn after_a_crash_at_any_moment_the_record_is_the_one_before_or_the_new_one() {
    for (old, new) in [(0, 1), (1, 2)] {
        let (mut before, mut behind) = (0, 0);
        for polls in 1.. {
            let mut scene = Scene::new(195, 3);
            scene.run(move |world, devices| async move {
                let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
                put(&pool, MAIL, old).await;
                pool.close().await.expect("it closes");
            });
            let devices: Vec<_> =
                scene.drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect();
            let begun = Rc::new(Cell::new(false));
            let begins = Rc::clone(&begun);
            let limits = SimLimits { polls: Some(polls), ..SimLimits::generous() };
            let outcome = scene.simulation.run(limits, move |world| async move {
                let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
                begins.set(true);
                put(&pool, MAIL, new).await;
                pool.checkpoint().await.expect("it is made");
            });
            scene.simulation.cut_power();
            if !begun.get() {
                continue;
            }
            let is_new = Rc::new(Cell::new(false));
            let finds = Rc::clone(&is_new);
            scene.run(move |world, devices| async move {
                let read = open_read_only(&devices, 1 << 20).await.expect("it can be read");
                let pool = opened(&world, &devices).await;
                let records = whole(pool.replication_records());
                assert_eq!(whole(read.replication_records()), records, "after {polls} polls");
                finds.set(records == [(MAIL, record(new))]);
                assert!(finds.get() || records == [(MAIL, record(old))], "after {polls} polls");
                pool.remove_replication_record(MAIL).await.expect("it is removed");
                pool.close().await.expect("it closes");
            });
            assert!(features(&scene) & INCOMPATIBLE_REPLICATION == 0, "no row is left");
            *(if is_new.get() { &mut behind } else { &mut before }) += 1;
            if outcome != SimOutcome::Crashed {
                assert!(is_new.get(), "it was answered");
                break;
            }
        }
        assert!(before > 3 && behind > 3, "{before} {behind}");
    }
}
