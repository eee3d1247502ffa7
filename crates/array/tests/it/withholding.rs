//! Volumes that forced rollbacks withhold from clients: the pool names the clients as long as they must not have it.

use crate::{
    clones::{bytes_of, features, snapshot},
    scene::{MIB, Scene, make_volume, small, write},
    two_pools::{TwoPools, open_both},
};
use array::{
    error::Error,
    format::{
        VolumeId,
        features::INCOMPATIBLE_WITHHOLDING,
        row::WithheldClient::{self, AllNbd},
    },
    pool::{OpenSetting, Pool, RollbackGoal, WITHHELD_BY_ROLLBACK_MAX, open, open_read_only},
    volume::VolumeDevice,
};
use std::{cell::Cell, rc::Rc};
use world::{
    BlockDevice, Job, World,
    sim::{SimLimits, SimOutcome},
};

fn port(number: usize) -> WithheldClient {
    WithheldClient::InitiatorPort(format!("iqn.2026-11.test:host-{number},i,0x800000000001"))
}

async fn force(pool: &Rc<Pool>, to: &str, id: u8, clients: &[WithheldClient]) -> Result<String, Error> {
    pool.force_rollback("store", RollbackGoal::Snapshot(to.into()), VolumeId([id; 16]), clients).await
}

fn withheld(pool: &Rc<Pool>, volume: &str) -> Vec<WithheldClient> {
    let rows = pool.withheld_from(volume).expect("it is there");
    let info = pool.volumes().into_iter().find(|info| info.name == volume).expect("it is listed");
    assert_eq!(info.withheld_from, rows);
    rows.into_iter().map(|row| row.client).collect()
}

fn device(pool: &Rc<Pool>, volume: &str) -> VolumeDevice {
    VolumeDevice(pool.volume(volume).expect("it is there"))
}

/// "store" with a block of 1 at "monday", of 2 now.
async fn store(pool: &Rc<Pool>) {
    let volume = make_volume(pool, "store", MIB).await.expect("it is made");
    write(&volume, 0, 1, 4096).await;
    snapshot(pool, "store", "monday").await;
    write(&volume, 0, 2, 4096).await;
}

async fn opened(world: &World, devices: &[Rc<dyn BlockDevice>]) -> Rc<Pool> {
    open(world, devices, small()).await.expect("it opens")
}

fn has_feature(scene: &Scene) -> bool {
    features(scene) & INCOMPATIBLE_WITHHOLDING != 0
}

#[test]
fn clients_come_back_from_the_log_and_from_the_catalogue_until_they_are_readmitted() {
    let mut scene = Scene::new(180, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        store(&pool).await;
        assert_eq!(withheld(&pool, "store"), []);
        force(&pool, "monday", 7, &[port(1), AllNbd, port(1)]).await.expect("it is rolled back");
        assert_eq!(withheld(&pool, "store"), [AllNbd, port(1)]);
        assert_eq!(withheld(&pool, "store~1"), [], "nobody writes it");
    });
    assert!(has_feature(&scene), "an older program would serve the volume to them");
    scene.simulation.cut_power();
    scene.run(|world, devices| async move {
        let pool = opened(&world, &devices).await;
        assert_eq!(withheld(&pool, "store"), [AllNbd, port(1)], "from the log");
        force(&pool, "monday", 8, &[port(2), port(1)]).await.expect("once more");
        pool.roll_back("store", RollbackGoal::Left("store~1".into()), VolumeId([9; 16]), true)
            .await
            .expect("it is undone");
        pool.rename_volume("store", "mail").await.expect("it is renamed");
        assert_eq!(withheld(&pool, "mail"), [AllNbd, port(1), port(2)]);
        pool.close().await.expect("it closes");
    });
    assert!(has_feature(&scene));
    scene.run(|world, devices| async move {
        let pool = opened(&world, &devices).await;
        assert_eq!(withheld(&pool, "mail"), [AllNbd, port(1), port(2)], "from the catalogue");
        let readmitted = pool.readmit("mail", |client| *client != port(1)).await.expect("it can write");
        assert_eq!(readmitted, [AllNbd, port(2)]);
        assert_eq!(pool.readmit("mail", |client| *client == port(2)).await.expect("nothing to do"), []);
        assert_eq!(withheld(&pool, "mail"), [port(1)]);
    });
    scene.simulation.cut_power();
    scene.run(|world, devices| async move {
        let pool = opened(&world, &devices).await;
        assert_eq!(withheld(&pool, "mail"), [port(1)]);
        pool.readmit("mail", |_| true).await.expect("it can write");
        pool.close().await.expect("it closes");
    });
    assert!(!has_feature(&scene), "programs of before may open it again");
}

#[test]
fn a_volume_that_is_deleted_is_withheld_from_nobody() {
    let mut scene = Scene::new(181, 2);
    scene.run(|world, devices| async move {
        let pool = opened(&world, &devices).await;
        make_volume(&pool, "other", MIB).await.expect("it is made");
        store(&pool).await;
        force(&pool, "monday", 7, &[port(1), port(2)]).await.expect("it is rolled back");
        pool.checkpoint().await.expect("it is made");
        pool.delete_volume("store", true).await.expect("it is deleted");
        assert!(matches!(pool.withheld_from("store"), Err(Error::NoVolume(_))));
    });
    scene.simulation.cut_power();
    scene.run(|world, devices| async move {
        let pool = opened(&world, &devices).await;
        make_volume(&pool, "store", MIB).await.expect("the name is free");
        assert_eq!(withheld(&pool, "store"), []);
        pool.close().await.expect("it closes");
    });
    assert!(!has_feature(&scene));
}

#[test]
fn a_rollback_that_is_refused_withholds_from_nobody() {
    let mut scene = Scene::new(182, 2);
    scene.run(|world, devices| async move {
        let pool = opened(&world, &devices).await;
        store(&pool).await;
        let many: Vec<_> = (0..=WITHHELD_BY_ROLLBACK_MAX).map(port).collect();
        let refused = force(&pool, "monday", 7, &many).await;
        assert!(matches!(refused, Err(Error::TooManyWithheld { clients: 121, at_most: 120 })), "{refused:?}");
        let refused = force(&pool, "nothing", 7, &[port(1)]).await;
        assert!(matches!(refused, Err(Error::NoSnapshot { .. })), "{refused:?}");
        let unnamed = WithheldClient::InitiatorPort("iqn.x:\n".to_owned());
        let refused = force(&pool, "monday", 7, &[unnamed]).await;
        assert!(matches!(refused, Err(Error::BadName(_))), "{refused:?}");
        assert_eq!((withheld(&pool, "store"), bytes_of(&device(&pool, "store"), 1).await), (vec![], vec![2]));
        // The most there can be, and as many more later.
        force(&pool, "monday", 7, &many[1..]).await.expect("they fit into the record");
        let more: Vec<_> = (1000..1000 + WITHHELD_BY_ROLLBACK_MAX).map(port).collect();
        force(&pool, "monday", 8, &[&many[1..], &more].concat()).await.expect("the new ones fit");
        assert_eq!(withheld(&pool, "store").len(), 240);
    });
    scene.simulation.cut_power();
    scene.run(|world, devices| async move {
        let pool = opened(&world, &devices).await;
        assert_eq!(withheld(&pool, "store").len(), 240);
        assert_eq!(pool.readmit("store", |_| true).await.expect("in two records").len(), 240);
        assert_eq!(withheld(&pool, "store"), []);
    });
}

#[test]
fn after_a_crash_at_any_moment_a_volume_is_rolled_back_and_withheld_or_neither() {
    let (mut neither, mut both) = (0, 0);
    for polls in 1.. {
        let mut scene = Scene::new(183, 3);
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
            store(&pool).await;
            pool.close().await.expect("it closes");
        });
        let devices: Vec<_> =
            scene.drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect();
        let begun = Rc::new(Cell::new(false));
        let (begins, limits) = (Rc::clone(&begun), SimLimits { polls: Some(polls), ..SimLimits::generous() });
        let outcome = scene.simulation.run(limits, |world| async move {
            let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
            begins.set(true);
            force(&pool, "monday", 7, &[port(1), AllNbd]).await.expect("it is rolled back");
            pool.checkpoint().await.expect("it is made");
        });
        scene.simulation.cut_power();
        if !begun.get() {
            continue;
        }
        let is_rolled_back = Rc::new(Cell::new(false));
        let found = Rc::clone(&is_rolled_back);
        scene.run(move |world, devices| async move {
            let read = open_read_only(&devices, 1 << 20).await.expect("it can be read").volumes();
            let pool = opened(&world, &devices).await;
            found.set(bytes_of(&device(&pool, "store"), 1).await == [1]);
            let expected = if found.get() { vec![AllNbd, port(1)] } else { Vec::new() };
            assert_eq!(withheld(&pool, "store"), expected, "after {polls} polls");
            assert_eq!(read.iter().map(|info| info.withheld_from.len()).sum::<usize>(), expected.len());
        });
        *(if is_rolled_back.get() { &mut both } else { &mut neither }) += 1;
        if outcome != SimOutcome::Crashed {
            assert!(is_rolled_back.get(), "it was answered");
            break;
        }
    }
    println!("note: {neither} crashes before the rollback, {both} behind it");
    assert!(neither > 3 && both > 3, "{neither} {both}");
}

#[test]
fn a_withheld_volume_is_not_moved_to_a_pool_that_does_not_know() {
    let mut both = TwoPools::new(184);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        store(&pools[0]).await;
        force(&pools[0], "monday", 7, &[port(1)]).await.expect("it is rolled back");
        let job = Job::new(&world);
        let refused = pools[1].move_from(&pools[0], "store", "store", None, &job).await;
        assert!(
            matches!(&refused, Err(Error::NotMovable(why)) if why.contains("readmit them")),
            "{refused:?}"
        );
        pools[0].readmit("store", |_| true).await.expect("it can write");
        pools[0].delete_volume("store~1", false).await.expect("it is deleted");
        pools[1].move_from(&pools[0], "store", "store", None, &job).await.expect("it is moved");
        assert_eq!(withheld(&pools[1], "store"), []);
    });
}
