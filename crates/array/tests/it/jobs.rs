//! Jobs: rebuild and scrub show their progress and can be cancelled.

use crate::scene::{MIB, Scene, make_volume, small, write};
use array::{
    mover::{JobKind, ThrottleSetting},
    pool::{OpenSetting, Pool},
};
use std::{rc::Rc, time::Duration};
use world::{JobProgress, sim::FaultPlan};

fn job(pool: &Pool, kind: JobKind) -> JobProgress {
    let job = pool.jobs().into_iter().find(|job| job.kind == kind);
    job.expect("a pool has a job of each kind").progress
}

/// So slow that jobs take longer than the tests wait.
fn slow() -> OpenSetting {
    let throttle = ThrottleSetting { ceiling_bytes_per_second: 4 * MIB, ..ThrottleSetting::default() };
    OpenSetting { throttle, scrub_every: Duration::ZERO, ..small() }
}

#[test]
fn a_cancelled_scrub_ends_early_and_the_next_one_checks_everything() {
    let mut scene = Scene::new(81, 3);
    scene.run(|world, devices| async move {
        let pool = array::pool::open(&world, &devices, slow()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 32 * MIB).await.expect("it is made");
        for at in 0..32 {
            write(&volume, at * MIB, 7, MIB as usize).await;
        }
        pool.checkpoint().await.expect("it is made");
        let scrubbing = Rc::clone(&pool);
        let scrub = world.spawn("scrub", async move { scrubbing.scrub().await });
        world.sleep(Duration::from_secs(2)).await;
        let running = job(&pool, JobKind::Scrub);
        assert!(running.is_running && running.total >= 32 * MIB, "{running:?}");
        pool.cancel(JobKind::Scrub);
        let found = scrub.await.expect("it ends");
        assert!(found.lost.is_empty() && found.blocks < 32 * 256, "{found:?}");
        assert_eq!((pool.scrub_progress().rounds, job(&pool, JobKind::Scrub).is_running), (0, false));
        pool.set_throttle(ThrottleSetting::default());
        let found = pool.scrub().await.expect("it ends");
        assert!(found.blocks >= 32 * 256, "{found:?}");
        assert_eq!(pool.scrub_progress().rounds, 1);
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_cancelled_rebuild_begins_again_on_request() {
    let mut scene = Scene::new(82, 4);
    let drives = scene.drives.clone();
    scene.run(move |world, devices| async move {
        let pool = array::pool::open(&world, &devices, slow()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 32 * MIB).await.expect("it is made");
        for at in 0..32 {
            write(&volume, at * MIB, 7, MIB as usize).await;
        }
        pool.checkpoint().await.expect("it is made");
        drives[3].set_faults(FaultPlan { failed_write_percent: 100.0, ..FaultPlan::none() });
        for at in 0..8 {
            write(&volume, at * MIB, 9, MIB as usize).await;
        }
        world.sleep(Duration::from_secs(2)).await;
        assert!(job(&pool, JobKind::Rebuild).is_running, "{:?}", pool.jobs());
        pool.cancel(JobKind::Rebuild);
        world.sleep(Duration::from_secs(30)).await;
        let held = job(&pool, JobKind::Rebuild);
        assert!(!held.is_running && pool.degraded().segments > 0, "{held:?}");
        pool.set_throttle(ThrottleSetting::default());
        pool.rebuild().await.expect("nothing fails");
        let done = job(&pool, JobKind::Rebuild);
        assert_eq!((pool.degraded().segments, done.done), (0, done.total), "{done:?}");
        pool.close().await.expect("it closes");
    });
}
