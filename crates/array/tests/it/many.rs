//! Maximum numbers of volumes and snapshots.

use crate::scene::{MIB, Scene, make_volume, read, write};
use array::{
    error::Error,
    format::{SnapshotId, VolumeId},
    pool::{NewVolume, OpenSetting, VolumeSetting, open},
    volume::VolumeDevice,
};
use std::time::Duration;
use world::{ByteCount, Random, sim::DriveOptions};

const TIB: u64 = 1 << 40;
const VOLUMES: u32 = 4096;
const SNAPSHOTS: u64 = 2048;

fn id(number: u64) -> u128 {
    u128::from(number) | 1 << 64
}

#[test]
fn a_pool_has_4096_volumes_of_64_tib() {
    let mut scene = Scene::of(81, 3, &DriveOptions::new(ByteCount(201 * MIB)));
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        for number in 0..VOLUMES {
            let volume = VolumeId(id(number.into()).to_be_bytes());
            let (name, setting) = (format!("volume {number}"), VolumeSetting::default());
            let new = NewVolume { name, volume, size_bytes: 64 * TIB, setting };
            pool.create_volume(&new).await.unwrap_or_else(|error| panic!("volume {number}: {error}"));
        }
        let too_many = NewVolume {
            name: "one more".to_owned(),
            volume: VolumeId([9; 16]),
            size_bytes: 512,
            setting: VolumeSetting::default(),
        };
        let refused = pool.create_volume(&too_many).await.expect_err("there are enough");
        assert!(matches!(refused, Error::TooManyVolumes(4096)), "{refused}");
        for number in [0, 1, 2047, 4095] {
            let volume = VolumeDevice(pool.volume(&format!("volume {number}")).expect("it exists"));
            write(&volume, 64 * TIB - 4096, (number % 251) as u8 + 1, 4096).await;
        }
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens again");
        assert_eq!(pool.volumes().len(), VOLUMES as usize);
        for number in [0, 1, 2047, 4095] {
            let volume = VolumeDevice(pool.volume(&format!("volume {number}")).expect("it exists"));
            let found = read(&volume, 64 * TIB - 8192, 8192).await;
            assert!(found[..4096].iter().all(|&byte| byte == 0), "it was never written");
            assert!(found[4096..].iter().all(|&byte| byte == (number % 251) as u8 + 1), "volume {number}");
        }
        for number in (0..VOLUMES).rev().step_by(5) {
            pool.delete_volume(&format!("volume {number}"), false).await.expect("it exists");
        }
        pool.checkpoint().await.expect("it is made");
        assert_eq!(pool.volumes().len(), VOLUMES as usize - VOLUMES.div_ceil(5) as usize);
        pool.create_volume(&NewVolume {
            name: "another".to_owned(),
            volume: VolumeId([9; 16]),
            size_bytes: 64 * TIB,
            setting: VolumeSetting::default(),
        })
        .await
        .expect("there is room again");
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_volume_has_2048_snapshots_each_taken_by_one_record_and_deleted_in_any_order() {
    let mut scene = Scene::of(82, 3, &DriveOptions::new(ByteCount(201 * MIB)));
    let drives = scene.drives.clone();
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", MIB).await.expect("it is made");
        let name = |number: u64| format!("snapshot {number}");
        for number in 0..SNAPSHOTS {
            // The value tells the number of snapshots at the time.
            write(&volume, 4096 * (number % 8), (number % 251) as u8, 4096).await;
            let written = || drives.iter().map(|drive| drive.statistics().writes).sum::<u64>();
            let (before, begun) = (written(), world.now());
            pool.snapshot(&["mail"], &name(number), SnapshotId(id(number).to_be_bytes()))
                .await
                .expect("it is made");
            if number == 1000 {
                let (written, took) = (written() - before, world.now().since(begun));
                assert_eq!(written, 2, "one record, on two drives");
                assert!(took < Duration::from_millis(5), "{took:?}");
            }
        }
        assert_eq!(pool.snapshots("mail").expect("it exists").len(), SNAPSHOTS as usize);
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens again");
        let mut left: Vec<u64> = (0..SNAPSHOTS).collect();
        let mut random = Random::new(82, "deletions");
        while left.len() > 16 {
            let number = left.swap_remove(random.below(left.len() as u64) as usize);
            pool.delete_snapshot("mail", &format!("snapshot {number}")).await.expect("it exists");
            if left.len().is_multiple_of(500) {
                pool.checkpoint().await.expect("it is made");
            }
        }
        for &number in &left {
            let device = pool.snapshot_device("mail", &format!("snapshot {number}")).expect("it exists");
            let found = read(&device, 4096 * (number % 8), 4096).await;
            assert!(found.iter().all(|&byte| byte == (number % 251) as u8), "snapshot {number}");
        }
        for _ in 0..2 {
            pool.checkpoint().await.expect("it is made");
        }
        let most = (8 + 8 * 16) * 4096;
        let used = pool.space().used_bytes;
        assert!(used <= most, "{used} bytes: no more than the volume and 16 snapshots can need");
        pool.close().await.expect("it closes");
    });
}
