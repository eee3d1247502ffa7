//! Notes of snapshots: bytes of their owner, kept with each point as long as the snapshot.

use crate::{
    clones::{clone_of, features, snapshot, used_at_rest},
    scene::{MIB, Scene, make_volume, small},
};
use array::{
    error::Error,
    format::{SnapshotId, VolumeId, features::INCOMPATIBLE_NOTES},
    pool::{NewSnapshot, NewVolume, OpenSetting, Pool, VolumeSetting, open},
};
use std::rc::Rc;

async fn noted(pool: &Rc<Pool>, volumes: &[&str], name: &str, note: &[u8]) -> Result<(), Error> {
    let snapshot = SnapshotId([name.as_bytes()[0]; 16]);
    pool.take_snapshot(volumes, &NewSnapshot { name, snapshot, note }).await
}

/// Snapshots of a volume with their notes.
fn notes(pool: &Rc<Pool>, volume: &str) -> Vec<(String, Vec<u8>)> {
    let snapshots = pool.snapshots(volume).expect("the volume is there");
    snapshots.into_iter().map(|snapshot| (snapshot.name, snapshot.note)).collect()
}

/// 768 bytes of all values.
fn longest() -> Vec<u8> {
    (0..768).map(|index| index as u8).collect()
}

#[test]
fn a_note_comes_back_from_the_log_and_from_the_catalogue() {
    let mut scene = Scene::new(140, 3);
    let expected = || {
        [("monday", vec![0, 255, b'\n']), ("tuesday", Vec::new()), ("wednesday", longest())]
            .map(|(name, note)| (name.to_owned(), note))
    };
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        for volume in ["store", "other"] {
            make_volume(&pool, volume, MIB).await.expect("it is made");
        }
        for (name, note) in expected() {
            noted(&pool, &["store", "other"], &name, &note).await.expect("it is taken");
        }
        assert_eq!(notes(&pool, "store"), expected());
    });
    scene.simulation.cut_power();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens again");
        assert_eq!((notes(&pool, "store"), notes(&pool, "other")), (expected().into(), expected().into()));
        pool.close().await.expect("it closes");
    });
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens once more");
        assert_eq!((notes(&pool, "store"), notes(&pool, "other")), (expected().into(), expected().into()));
    });
}

#[test]
fn a_note_that_is_too_long_is_refused_and_nothing_is_taken() {
    let mut scene = Scene::new(141, 2);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        make_volume(&pool, "store", MIB).await.expect("it is made");
        let refused = noted(&pool, &["store"], "monday", &[1; 769]).await;
        assert!(matches!(refused, Err(Error::NoteTooLong(769))), "{refused:?}");
        assert_eq!(notes(&pool, "store"), []);
    });
}

#[test]
fn the_longest_notes_and_names_of_124_volumes_are_one_record() {
    const VOLUMES: u8 = 124;
    let mut scene = Scene::new(142, 3);
    let name = "n".repeat(128);
    let volume = |number: u8| format!("volume {number}");
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        for number in 0..VOLUMES {
            let new = NewVolume {
                name: volume(number),
                volume: VolumeId([number + 1; 16]),
                size_bytes: MIB,
                setting: VolumeSetting::default(),
            };
            pool.create_volume(&new).await.expect("it is made");
        }
        let all: Vec<String> = (0..VOLUMES).map(volume).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        noted(&pool, &all, &name, &longest()).await.expect("it fits");
    });
    scene.simulation.cut_power();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens again");
        for number in 0..VOLUMES {
            let expected = [("n".repeat(128), longest())];
            assert_eq!(notes(&pool, &volume(number)), expected, "volume {number}");
        }
    });
}

#[test]
fn the_feature_comes_with_the_first_note_and_goes_with_the_last() {
    let has_feature = |scene: &Scene| features(scene) & INCOMPATIBLE_NOTES != 0;
    let mut scene = Scene::new(143, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        make_volume(&pool, "store", MIB).await.expect("it is made");
        snapshot(&pool, "store", "plain").await;
        pool.checkpoint().await.expect("it is made");
    });
    assert!(!has_feature(&scene), "a snapshot without a note needs none");
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        noted(&pool, &["store"], "monday", b"a note").await.expect("it is taken");
        clone_of(&pool, "store", Some("monday"), "try").await.expect("it is made");
    });
    assert!(has_feature(&scene), "before any checkpoint");
    scene.simulation.cut_power();
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        assert_eq!(notes(&pool, "store")[1], ("monday".to_owned(), b"a note".to_vec()));
        pool.delete_snapshot("store", "monday").await.expect("it is deleted");
        used_at_rest(&pool).await;
    });
    assert!(!has_feature(&scene), "the clone keeps the point, and the note went with the snapshot");
}
