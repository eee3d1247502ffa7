//! Limits and reserves of volumes.

use crate::scene::{MIB, Scene, make_volume, small, write};
use array::{
    error::Error,
    format::{SnapshotId, VolumeId},
    pool::{NewVolume, OpenSetting, VolumeSetting, open},
    volume::{Bounds, VolumeDevice},
};
use std::sync::Arc;
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Stability};

async fn try_write(device: &VolumeDevice, at: u64, length: usize) -> Result<(), IoErrorKind> {
    let data = vec![Arc::new(Buffer::copy_of(&vec![at as u8 | 1; length]))];
    device.write(ByteOffset(at), data, Stability::Stable).await.map_err(|error| error.kind())
}

/// Writes until a write is refused. Returns the bytes written.
async fn fill(device: &VolumeDevice, from: u64) -> u64 {
    let mut taken = 0;
    loop {
        match try_write(device, from + taken, 65536).await {
            Ok(()) => taken += 65536,
            Err(kind) => {
                assert_eq!(kind, IoErrorKind::NoSpace);
                return taken;
            }
        }
    }
}

fn limit(limit_bytes: u64) -> Bounds {
    Bounds { limit_bytes, reserve_bytes: 0 }
}

#[test]
fn a_volume_stays_within_its_limit_and_others_are_not_affected() {
    let mut scene = Scene::new(91, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let mail = make_volume(&pool, "mail", 16 * MIB).await.expect("there is room");
        let logs = make_volume(&pool, "logs", 16 * MIB).await.expect("there is room");
        pool.set_bounds("mail", limit(MIB)).await.expect("it can be");
        assert_eq!(fill(&mail, 0).await, MIB);
        assert_eq!(try_write(&mail, 3 * MIB, 512).await, Err(IoErrorKind::NoSpace), "not one block more");
        assert_eq!(try_write(&logs, 0, 65536).await, Ok(()), "another volume has no limit");
        for round in 0..48 {
            write(&mail, round % 16 * 65536, 9, 65536).await;
        }
        assert_eq!(pool.used_by("mail").await.expect("it exists") % MIB, 0, "overwritten is not more");
        // The same with concurrent overwrites, which reserve nothing.
        let overwrites: Vec<_> = (0..16)
            .map(|index| {
                let mail = mail.clone();
                world.spawn("write", async move { try_write(&mail, index % 4 * 4096, 4096).await })
            })
            .collect();
        for overwrite in overwrites {
            assert_eq!(overwrite.await, Ok(()));
        }
        // Discarded space is available again at once.
        mail.discard(ByteOffset(0), ByteCount(MIB / 2)).await.expect("it is discarded");
        assert_eq!(fill(&mail, 4 * MIB).await, MIB / 2);
        // Blocks that a snapshot sees count.
        pool.snapshot(&["mail"], "one", SnapshotId([1; 16])).await.expect("that takes nothing");
        assert_eq!(try_write(&mail, 4 * MIB, 4096).await, Err(IoErrorKind::NoSpace));
        pool.delete_snapshot("mail", "one").await.expect("it exists");
        assert_eq!(try_write(&mail, 4 * MIB, 4096).await, Ok(()));
        pool.checkpoint().await.expect("it is made");
        assert_eq!(pool.used_by("mail").await.expect("it exists"), MIB);
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens again");
        let mail = VolumeDevice(pool.volume("mail").expect("it exists"));
        assert_eq!(pool.used_by("mail").await.expect("it exists"), MIB, "counted in the trees");
        assert_eq!(try_write(&mail, 8 * MIB, 4096).await, Err(IoErrorKind::NoSpace));
        // Concurrent writes do not exceed the limit either.
        pool.set_bounds("mail", limit(2 * MIB)).await.expect("it can be");
        let writes: Vec<_> = (0..64)
            .map(|index| {
                let mail = mail.clone();
                world.spawn("write", async move { try_write(&mail, (8 << 20) + index * 65536, 65536).await })
            })
            .collect();
        let mut taken = 0;
        for write in writes {
            taken += u64::from(write.await.is_ok());
        }
        assert_eq!(taken, 16, "of 64 KiB each");
        pool.checkpoint().await.expect("it is made");
        assert_eq!(pool.used_by("mail").await.expect("it exists"), 2 * MIB);
        pool.close().await.expect("it closes");
    });
}

#[test]
fn no_volume_can_use_the_reserve_of_another() {
    let mut scene = Scene::new(92, 2);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let usable = pool.space().usable_bytes;
        let reserve = usable / 3 / 65536 * 65536;
        let kept = make_volume(&pool, "kept", 400 * MIB).await.expect("there is room");
        let greedy = make_volume(&pool, "greedy", 400 * MIB).await.expect("there is room");
        let bounds = Bounds { reserve_bytes: reserve, limit_bytes: 0 };
        pool.set_bounds("kept", bounds).await.expect("there is room for it");
        let new = NewVolume {
            name: "too much".to_owned(),
            volume: VolumeId([3; 16]),
            size_bytes: MIB,
            setting: VolumeSetting {
                bounds: Bounds { reserve_bytes: usable - reserve + 65536, limit_bytes: 0 },
                ..VolumeSetting::default()
            },
        };
        let refused = pool.create_volume(&new).await.expect_err("there is not so much");
        assert!(matches!(refused, Error::NoRoomToReserve { .. }), "{refused}");
        assert!(pool.volume("too much").is_err(), "nothing was made");

        let taken = fill(&greedy, 0).await;
        assert!(taken <= usable - reserve, "{taken} of {usable}, {reserve} being kept");
        let unreserved = (usable / 8).max(16 * MIB);
        assert!(taken + unreserved + MIB > usable - reserve, "and all the rest: {taken} of {usable}");
        for at in (0..reserve).step_by(65536) {
            assert_eq!(try_write(&kept, at, 65536).await, Ok(()), "at {at} of {reserve}");
        }
        let refused = pool.set_bounds("greedy", Bounds { reserve_bytes: 512, limit_bytes: 0 }).await;
        assert!(matches!(refused, Err(Error::BadBounds { .. })), "not whole blocks");
        pool.close().await.expect("it closes");
    });
}
