//! Clones: each reads its point and its own writes, whatever becomes of its parent; deleted in any order,
//! everything comes back.

use crate::scene::{MIB, Scene, identity_of, make_volume, read, small, write};
use array::{
    error::Error,
    format::{SnapshotId, Superblock, VolumeId, features::INCOMPATIBLE_BRANCHES},
    pool::{NewClone, OpenSetting, Pool, open},
    volume::{Bounds, VolumeDevice},
};
use std::rc::Rc;
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Stability, sim::SimDrive};

const BLOCK: u64 = 4096;

pub async fn snapshot(pool: &Rc<Pool>, volume: &str, name: &str) {
    let id = SnapshotId([name.as_bytes()[name.len() - 1]; 16]);
    pool.snapshot(&[volume], name, id).await.expect("it is taken");
}

/// Clones a volume, now or at a snapshot, as a device.
pub async fn clone_of(
    pool: &Rc<Pool>,
    source: &str,
    at: Option<&str>,
    name: &str,
) -> Result<VolumeDevice, Error> {
    let id = identity_of(b'c', name);
    let new = NewClone { name: name.to_owned(), volume: id, is_independent: false };
    pool.clone_volume(source, at.map(Into::into), &new).await?;
    Ok(VolumeDevice(pool.volume(name)?))
}

/// Writes whole blocks of one byte.
pub async fn fill(device: &VolumeDevice, first: u64, count: u64, byte: u8) {
    write(device, first * BLOCK, byte, (count * BLOCK) as usize).await;
}

pub async fn discard(device: &VolumeDevice, first: u64, count: u64) {
    device.discard(ByteOffset(first * BLOCK), ByteCount(count * BLOCK)).await.expect("it is discarded");
}

/// The first byte of each block; every block must have one byte only.
pub async fn bytes_of(device: &impl BlockDevice, count: u64) -> Vec<u8> {
    let found = read(device, 0, (count * BLOCK) as usize).await;
    let of_block = |block: &[u8]| {
        assert!(block.iter().all(|byte| *byte == block[0]), "a block of one write");
        block[0]
    };
    found.chunks_exact(BLOCK as usize).map(of_block).collect()
}

/// Makes checkpoints until nothing is left to reclaim. Returns the bytes in use.
pub async fn used_at_rest(pool: &Rc<Pool>) -> u64 {
    for _ in 0..12 {
        pool.checkpoint().await.expect("it is made");
    }
    pool.space().used_bytes
}

#[test]
fn a_clone_reads_its_point_and_its_own_writes() {
    for has_checkpoints in [false, true] {
        let mut scene = Scene::new(131, 3);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
            let pause = async || {
                if has_checkpoints {
                    pool.checkpoint().await.expect("it is made");
                }
            };
            let store = make_volume(&pool, "store", MIB).await.expect("it is made");
            fill(&store, 0, 8, 1).await;
            pause().await;
            snapshot(&pool, "store", "monday").await;
            fill(&store, 1, 1, 2).await;
            discard(&store, 2, 1).await;
            let at_monday = clone_of(&pool, "store", Some("monday"), "try").await.expect("it is made");
            let now = clone_of(&pool, "store", None, "now").await.expect("it is made");
            pause().await;
            assert_eq!(bytes_of(&at_monday, 8).await, [1; 8]);
            assert_eq!(bytes_of(&now, 8).await, [1, 2, 0, 1, 1, 1, 1, 1]);
            // Each goes its own way, and a discard hides what the parent has.
            fill(&at_monday, 3, 2, 3).await;
            discard(&at_monday, 4, 2).await;
            fill(&store, 0, 8, 9).await;
            discard(&store, 6, 2).await;
            write(&now, 512, 7, 512).await;
            pause().await;
            assert_eq!(bytes_of(&at_monday, 8).await, [1, 1, 1, 3, 0, 0, 1, 1]);
            assert_eq!(bytes_of(&store, 8).await, [9, 9, 9, 9, 9, 9, 0, 0]);
            let first = read(&now, 0, 4096).await;
            assert!(first[..512] == [1; 512] && first[512..1024] == [7; 512] && first[1024..] == [1; 3072]);
            let monday = pool.snapshot_device("store", "monday").expect("it is there");
            assert_eq!(bytes_of(&monday, 8).await, [1; 8]);
            // Clones of clones, with snapshots and sizes of their own.
            snapshot(&pool, "try", "tuesday").await;
            pool.resize_volume("try", 2 * BLOCK).await.expect("it is resized");
            let again = clone_of(&pool, "try", Some("tuesday"), "again").await.expect("it is made");
            assert_eq!(again.geometry().size.0, MIB, "as large as its point");
            fill(&again, 0, 1, 8).await;
            pause().await;
            assert_eq!(bytes_of(&again, 8).await, [8, 1, 1, 3, 0, 0, 1, 1]);
            let info = pool.volumes().into_iter().find(|info| info.name == "again").expect("it is listed");
            let origin = info.origin.expect("it is a clone");
            assert_eq!((origin.volume.as_str(), origin.snapshot.as_deref()), ("try", Some("tuesday")));
        });
        scene.simulation.cut_power();
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens again");
            let device = |name: &str| VolumeDevice(pool.volume(name).expect("it is there"));
            assert_eq!(bytes_of(&device("again"), 8).await, [8, 1, 1, 3, 0, 0, 1, 1]);
            assert_eq!(bytes_of(&device("try"), 2).await, [1, 1]);
            assert_eq!(bytes_of(&device("store"), 8).await, [9, 9, 9, 9, 9, 9, 0, 0]);
        });
    }
}

/// Deletes one of the three things of the next test.
async fn delete(pool: &Rc<Pool>, what: usize) {
    match what {
        0 if pool.volume("store").is_ok() => pool.delete_snapshot("store", "monday").await,
        // It went with its volume.
        0 => Ok(()),
        1 => pool.delete_volume("store", true).await,
        _ => pool.delete_volume("try", true).await,
    }
    .expect("it is deleted");
}

#[test]
fn snapshot_volume_and_clone_go_in_any_order_and_all_comes_back() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut scene = Scene::new(133, 3);
        let setting = OpenSetting { reclaimed_at_once: 10, ..small() };
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, setting).await.expect("it opens");
            let store = make_volume(&pool, "store", MIB).await.expect("it is made");
            fill(&store, 0, 60, 1).await;
            snapshot(&pool, "store", "monday").await;
            let tried = clone_of(&pool, "store", Some("monday"), "try").await.expect("it is made");
            fill(&store, 0, 30, 2).await;
            fill(&tried, 20, 20, 3).await;
            discard(&tried, 50, 10).await;
        });
        for (index, &what) in order.iter().enumerate() {
            scene.run(move |world, devices| async move {
                let pool = open(&world, &devices, setting).await.expect("it opens");
                let before = used_at_rest(&pool).await;
                let freed = match what {
                    0 if pool.volume("store").is_ok() => pool.reclaimable_bytes("store", &["monday"]).await,
                    0 => Ok(0),
                    1 => pool.deletion_bytes("store").await,
                    _ => pool.deletion_bytes("try").await,
                };
                let freed = freed.expect("it is found");
                delete(&pool, what).await;
                if index == 0 && what == 1 {
                    let new = make_volume(&pool, "store", MIB).await.expect("the name is free at once");
                    assert_eq!(bytes_of(&new, 60).await, [0; 60]);
                    pool.delete_volume("store", false).await.expect("it is deleted");
                }
                assert_eq!(before - used_at_rest(&pool).await, freed, "{order:?}, {index}");
                if pool.volume("try").is_ok() {
                    let tried = VolumeDevice(pool.volume("try").expect("it is there"));
                    let wanted = [vec![1; 20], vec![3; 20], vec![1; 10], vec![0; 10]].concat();
                    assert_eq!(bytes_of(&tried, 60).await, wanted);
                }
                if pool.volume("store").is_ok() {
                    let store = VolumeDevice(pool.volume("store").expect("it is there"));
                    assert_eq!(bytes_of(&store, 60).await, [vec![2; 30], vec![1; 30]].concat());
                }
            });
            scene.simulation.cut_power();
        }
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, setting).await.expect("it opens");
            assert_eq!(used_at_rest(&pool).await, 0, "{order:?}");
        });
    }
}

/// The incompatible features of a pool's newest superblock, of the images in all places.
pub fn features_of(images: &[Vec<u8>]) -> u64 {
    let all = images.iter().filter_map(|image| Superblock::decode(image).ok());
    let newest = all.max_by_key(|superblock| superblock.generation).expect("one is whole");
    newest.features.incompatible
}

/// The incompatible features on the first drive.
pub fn features(scene: &Scene) -> u64 {
    features_on(&scene.drives[0])
}

/// The incompatible features on a drive.
pub fn features_on(drive: &SimDrive) -> u64 {
    use array::format::superblock::{SUPERBLOCK_BYTES_MAX, SUPERBLOCK_PLACES, superblock_start_bytes};
    let of_place = |place: u8| {
        let mut image = vec![0; SUPERBLOCK_BYTES_MAX];
        drive.peek(superblock_start_bytes(place), &mut image);
        image
    };
    let images: Vec<_> = (0..SUPERBLOCK_PLACES as u8).map(of_place).collect();
    features_of(&images)
}

fn has_branches_feature(scene: &Scene) -> bool {
    features(scene) & INCOMPATIBLE_BRANCHES != 0
}

#[test]
fn the_feature_comes_with_the_first_clone_and_goes_with_the_last() {
    let mut scene = Scene::new(134, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let store = make_volume(&pool, "store", MIB).await.expect("it is made");
        fill(&store, 0, 8, 1).await;
        pool.checkpoint().await.expect("it is made");
    });
    assert!(!has_branches_feature(&scene));
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        for name in ["one", "two"] {
            clone_of(&pool, "store", None, name).await.expect("it is made");
        }
    });
    assert!(has_branches_feature(&scene), "before any checkpoint");
    scene.simulation.cut_power();
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        pool.delete_volume("one", false).await.expect("it is deleted");
        used_at_rest(&pool).await;
    });
    assert!(has_branches_feature(&scene), "one is left");
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        pool.delete_volume("two", false).await.expect("it is deleted");
        used_at_rest(&pool).await;
    });
    assert!(!has_branches_feature(&scene), "none is left");
}

#[test]
fn what_a_clone_overwrites_counts_to_it_and_its_limit_is_exact() {
    let mut scene = Scene::new(135, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let store = make_volume(&pool, "store", MIB).await.expect("it is made");
        fill(&store, 0, 40, 1).await;
        let tried = clone_of(&pool, "store", None, "try").await.expect("it is made");
        let limit_bytes = 10 * BLOCK;
        pool.set_bounds("try", Bounds { reserve_bytes: 0, limit_bytes }).await.expect("there is room");
        assert_eq!(pool.used_by("try").await.expect("it is counted"), 0);
        fill(&tried, 0, 10, 2).await;
        fill(&tried, 0, 10, 3).await;
        let more = vec![std::sync::Arc::new(Buffer::zeroed(BLOCK as usize))];
        let refused = tried.write(ByteOffset(20 * BLOCK), more, Stability::Stable).await;
        assert_eq!(refused.expect_err("it is at its limit").kind(), IoErrorKind::NoSpace);
        pool.checkpoint().await.expect("it is made");
        assert_eq!(pool.used_by("try").await.expect("it is counted"), limit_bytes);
        assert_eq!(pool.used_by("store").await.expect("it is counted"), 40 * BLOCK);
        assert_eq!(bytes_of(&store, 40).await, [1; 40]);
    });
}

#[test]
fn a_name_is_refused_if_a_path_could_not_name_it() {
    let mut scene = Scene::new(136, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        make_volume(&pool, "store", MIB).await.expect("it is made");
        for name in ["a/b", "a@b", "store~1", "", "a\nb"] {
            let made = make_volume(&pool, name, MIB);
            if !name.is_empty() {
                assert!(matches!(made.await.map(drop), Err(Error::BadName(_))), "{name:?}");
            }
            let cloned = NewClone { name: name.to_owned(), volume: VolumeId([9; 16]), is_independent: false };
            let cloned = pool.clone_volume("store", None, &cloned).await;
            assert!(matches!(cloned, Err(Error::BadName(_))), "{name:?}");
            let taken = pool.snapshot(&["store"], name, SnapshotId([1; 16])).await;
            assert!(matches!(taken, Err(Error::BadName(_))), "{name:?}");
            assert!(matches!(pool.rename_volume("store", name).await, Err(Error::BadName(_))), "{name:?}");
        }
        let twice = clone_of(&pool, "store", None, "store").await.map(drop);
        assert!(matches!(twice, Err(Error::NameTaken(_))), "{twice:?}");
        let volume = pool.volumes()[0].volume;
        let same = NewClone { name: "same".to_owned(), volume, is_independent: false };
        let same = pool.clone_volume("store", None, &same).await;
        assert!(matches!(same, Err(Error::NameTaken(_))), "hosts would take it for the other: {same:?}");
        let of_none = clone_of(&pool, "store", Some("monday"), "try").await.map(drop);
        assert!(matches!(of_none, Err(Error::NoSnapshot { .. })), "{of_none:?}");
    });
}
