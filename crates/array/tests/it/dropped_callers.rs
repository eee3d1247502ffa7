//! Verbs whose callers go away while their records are on their way into the log: the next verb sees them.

use crate::{
    clones::{bytes_of, fill, snapshot},
    scene::{MIB, Scene, make_volume, small},
};
use array::{
    format::VolumeId,
    pool::{NewClone, Pool, open},
    volume::VolumeDevice,
};
use std::{cell::Cell, rc::Rc, time::Duration};
use world::{World, with_deadline};

async fn clone(pool: &Rc<Pool>, name: &str, id: u8) {
    let new = NewClone { name: name.to_owned(), volume: VolumeId([id; 16]), is_independent: false };
    pool.clone_volume("store", Some("monday".into()), &new).await.expect("it is made");
}

/// A clone whose caller waits so long and no longer, and another one behind it.
async fn clone_twice(world: &World, pool: &Rc<Pool>, patience: Duration) -> bool {
    let given_up = with_deadline(world.sleep(patience), Box::pin(clone(pool, "first", 11))).await.is_none();
    clone(pool, "second", 12).await;
    given_up
}

#[test]
fn a_clone_whose_caller_goes_away_counts_for_the_clone_behind_it() {
    let mut both_there = 0;
    for step in 0..60 {
        let mut scene = Scene::new(700, 2);
        let patience = Duration::from_micros(25 * step);
        let found = Rc::new(Cell::new(false));
        let seen = Rc::clone(&found);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let store = make_volume(&pool, "store", MIB).await.expect("it is made");
            fill(&store, 0, 40, 1).await;
            snapshot(&pool, "store", "monday").await;
            let given_up = clone_twice(&world, &pool, patience).await;
            fill(&store, 0, 40, 2).await;
            pool.delete_snapshot("store", "monday").await.expect("it is deleted");
            pool.delete_volume("second", true).await.expect("it is deleted");
            for _ in 0..3 {
                pool.checkpoint().await.expect("it is made");
            }
            fill(&store, 0, 40, 3).await;
            let names: Vec<String> = pool.volumes().into_iter().map(|info| info.name).collect();
            seen.set(given_up && names.contains(&"first".to_owned()));
            assert!(given_up || names.len() == 2, "what was answered is there: {names:?}");
            pool.close().await.expect("it closes");
        });
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            if let Ok(first) = pool.volume("first") {
                assert_eq!(bytes_of(&VolumeDevice(first), 40).await, [1; 40], "its data stayed");
            }
            pool.checkpoint().await.expect("it is made");
        });
        both_there += u32::from(found.get());
    }
    assert!(both_there > 3, "{both_there} callers went away from a clone that was made");
}

#[test]
fn a_checkpoint_whose_caller_goes_away_is_made_to_its_end() {
    let mut given_up = 0;
    for step in 0..40 {
        let mut scene = Scene::new(701, 2);
        let patience = Duration::from_micros(40 * step);
        let gone = Rc::new(Cell::new(false));
        let seen = Rc::clone(&gone);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let store = make_volume(&pool, "store", MIB).await.expect("it is made");
            fill(&store, 0, 40, 1).await;
            seen.set(with_deadline(world.sleep(patience), Box::pin(pool.checkpoint())).await.is_none());
            fill(&store, 0, 40, 2).await;
            pool.checkpoint().await.expect("the next one is made");
            assert_eq!(bytes_of(&store, 40).await, [2; 40]);
            pool.close().await.expect("it closes");
        });
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let store = VolumeDevice(pool.volume("store").expect("it is there"));
            assert_eq!(bytes_of(&store, 40).await, [2; 40]);
        });
        given_up += u32::from(gone.get());
    }
    assert!(given_up > 10, "{given_up} callers went away from a checkpoint");
}
