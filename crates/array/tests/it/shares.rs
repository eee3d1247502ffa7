//! Shares of volumes, in virtual time: rate limits, and the fair queue of the log.

use crate::scene::{Scene, make_volume, small, write};
use array::{
    pool::{OpenSetting, open},
    volume::{Rates, VolumeDevice},
};
use std::{sync::Arc, time::Duration};
use world::{BlockDevice, Buffer, ByteOffset, Moment, Stability, World};

const MIB: u64 = 1 << 20;

/// Writes concurrently to the front of a volume.
async fn write_at_once(world: &World, device: &VolumeDevice, count: u64, length: usize) {
    let writes: Vec<_> = (0..count)
        .map(|index| {
            let (device, data) = (device.clone(), vec![Arc::new(Buffer::zeroed(length))]);
            let at = ByteOffset(index * length as u64);
            world.spawn("write", async move { device.write(at, data, Stability::Stable).await })
        })
        .collect();
    for write in writes {
        write.await.expect("it is written");
    }
}

#[test]
fn a_volume_stays_within_its_rate_limits() {
    let mut scene = Scene::new(61, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let capped = make_volume(&pool, "capped", 8 * MIB).await.expect("there is room");
        let free = make_volume(&pool, "free", 8 * MIB).await.expect("there is room");
        let took = async |begun: Moment| world.now().since(begun);

        pool.set_rates("capped", Rates { iops_max: 100, kib_per_second_max: 0 }).await.expect("it exists");
        let begun = world.now();
        write_at_once(&world, &capped, 305, 4096).await;
        let span = took(begun).await;
        let (least, most) = (Duration::from_millis(2_990), Duration::from_millis(3_100));
        assert!(
            (least..most).contains(&span),
            "305 operations, 5 of them at once, at 100 a second: {span:?}"
        );
        let begun = world.now();
        write_at_once(&world, &free, 305, 4096).await;
        assert!(took(begun).await < Duration::from_secs(1), "no other volume waits for it");

        let rates = Rates { iops_max: 0, kib_per_second_max: 1024 };
        pool.set_rates("capped", rates).await.expect("it exists");
        world.sleep(Duration::from_secs(1)).await;
        let begun = world.now();
        for at in 0..32 {
            capped.read(ByteOffset(at << 16), vec![Buffer::zeroed(1 << 16)]).await.expect("it reads");
        }
        let span = took(begun).await;
        let (least, most) = (Duration::from_millis(1_850), Duration::from_millis(2_000));
        assert!((least..most).contains(&span), "2 MiB, of them 51 KiB at once, at 1 MiB a second: {span:?}");
        let setting = pool.volumes().into_iter().find(|info| info.name == "capped").expect("there").setting;
        assert_eq!(setting.rates, rates);
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let of =
            |name: &str| pool.volumes().into_iter().find(|info| info.name == name).expect("there").setting;
        assert_eq!(of("capped").rates.kib_per_second_max, 1024, "also after it was closed");
        assert_eq!(of("free").rates, Rates::default());
        pool.close().await.expect("it closes");
    });
}

#[test]
fn one_write_does_not_wait_behind_hundreds_of_another_volume() {
    let mut scene = Scene::new(62, 4);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let busy = make_volume(&pool, "busy", 64 * MIB).await.expect("there is room");
        let calm = make_volume(&pool, "calm", 8 * MIB).await.expect("there is room");
        let crowd = {
            let (own, busy) = (world.clone(), busy.clone());
            let begun = world.now();
            world.spawn("crowd", async move {
                write_at_once(&own, &busy, 256, 1 << 16).await;
                own.now().since(begun)
            })
        };
        // All of them wait before the first of these begins.
        world.sleep(Duration::from_micros(10)).await;
        let mut longest = Duration::ZERO;
        for index in 0..4 {
            let begun = world.now();
            write(&calm, index * 4096, 7, 4096).await;
            longest = longest.max(world.now().since(begun));
        }
        let all = crowd.await;
        println!("note: beside 16 MiB that took {all:?} a write of 4 KiB took {longest:?} at most");
        assert!(longest * 4 < all, "{longest:?} of {all:?}");
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_read_that_waits_while_its_volume_is_deleted_is_refused() {
    let mut scene = Scene::new(62, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let volume = make_volume(&pool, "capped", 8 * MIB).await.expect("there is room");
        write(&volume, 0, 7, 4096).await;
        pool.set_rates("capped", Rates { iops_max: 1, kib_per_second_max: 0 }).await.expect("it exists");
        let reads: Vec<_> = (0..3)
            .map(|_| {
                let volume = volume.clone();
                let read = async move { volume.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await };
                world.spawn("read", read)
            })
            .collect();
        world.sleep(Duration::from_millis(10)).await;
        pool.delete_volume("capped", false).await.expect("it has no snapshots");
        pool.checkpoint().await.expect("nothing fails");
        let mut refused = 0;
        for read in reads {
            match read.await {
                Ok(read) => assert!(read[0].iter().all(|&byte| byte == 7), "not what was written"),
                Err(error) => {
                    assert!(error.to_string().contains("has no volume"), "{error}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0, "one had to wait");
    });
}

#[test]
fn a_volume_with_a_forced_write_cache_acknowledges_writes_before_they_are_stable() {
    let mut scene = Scene::new(63, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 8 * MIB).await.expect("there is room");
        let time_of = async |stability| {
            let begun = world.now();
            for block in 0..64 {
                let data = vec![Arc::new(Buffer::copy_of(&[7; 4096]))];
                volume.write(ByteOffset(block * 4096), data, stability).await.expect("nothing fails");
            }
            world.now().since(begun)
        };
        let as_set = time_of(Stability::Volatile).await;
        volume.0.force_write_cache();
        assert!(!volume.0.has_write_cache(), "its setting is as before");
        let (forced, stable) = (time_of(Stability::Volatile).await, time_of(Stability::Stable).await);
        println!("note: 64 writes took {as_set:?} as set, {forced:?} forced, {stable:?} stable");
        assert!(forced * 4 < as_set * 3 && forced * 4 < stable * 3, "{as_set:?}, {forced:?}, {stable:?}");
        pool.close().await.expect("it closes");
    });
}
