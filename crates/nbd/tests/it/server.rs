//! The server with well-behaved clients.

use crate::scene::{SIZE, Scene, connect, export, read, start};
use nbd::Export;
use std::{cell::RefCell, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Extent, IoErrorKind, Sparse, Stability,
    sim::{NetworkOptions, SimLimits},
};

#[test]
fn reads_return_the_writes_of_all_clients() {
    for seed in 0..20 {
        let Scene { mut simulation, drive, network } = Scene::new(seed, NetworkOptions::rack());
        let run = simulation.run(SimLimits::generous(), |world| async move {
            start(&world, &network, vec![export("mail", &drive)]).await;
            let content = Rc::new(RefCell::new(vec![0_u8; SIZE as usize]));
            // Each client writes to one half; afterwards all is compared.
            let workers: Vec<_> = (0..2_u64)
                .map(|half| {
                    let (world, network, content) = (world.clone(), network.clone(), Rc::clone(&content));
                    let own = world.clone();
                    own.spawn("client", async move {
                        let client = connect(&world, &network, "mail").await.unwrap();
                        let mut random = world.random(if half == 0 { "first" } else { "second" });
                        for _ in 0..60 {
                            let sectors = 1 + random.below(64);
                            let at = half * SIZE / 2 + 512 * random.below(SIZE / 1024 - sectors);
                            let length = (sectors * 512) as usize;
                            if random.percent(50.0) {
                                let mut data = Buffer::zeroed(length);
                                random.fill(&mut data);
                                content.borrow_mut()[at as usize..][..length].copy_from_slice(&data);
                                let stability =
                                    [Stability::Volatile, Stability::Stable][random.below(2) as usize];
                                let pieces = cut(&data, random.below(3) as usize);
                                client.write(ByteOffset(at), pieces, stability).await.unwrap();
                            } else {
                                let found = read(&client, at, length).await.unwrap();
                                assert!(found == content.borrow()[at as usize..][..length], "seed {seed}");
                            }
                        }
                        client.flush().await.unwrap();
                        client
                    })
                })
                .collect();
            for worker in workers {
                let client = worker.await;
                assert!(read(&client, 0, 512).await.is_ok());
            }
            let client = connect(&world, &network, "").await.unwrap();
            assert_eq!(client.geometry().size, ByteCount(SIZE), "no name is the only one there is");
            assert!(read(&client, 0, SIZE as usize).await.unwrap() == *content.borrow(), "seed {seed}");
        });
        run.completed();
    }
}

/// The same bytes in one buffer, or in several.
fn cut(data: &Buffer, cuts: usize) -> Vec<Arc<Buffer>> {
    let piece = (data.len() / 512 / (cuts + 1)).max(1) * 512;
    data.chunks(piece).map(|piece| Arc::new(Buffer::copy_of(piece))).collect()
}

#[test]
fn an_export_refuses_what_it_does_not_support() {
    let Scene { mut simulation, drive, network } = Scene::new(1, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let closed = Export { is_read_only: true, ..export("closed", &drive) };
        start(&world, &network, vec![export("mail", &drive), closed]).await;
        let unknown = connect(&world, &network, "male").await.err().expect("there is none");
        assert_eq!(unknown.kind(), IoErrorKind::NotFound);
        assert!(unknown.to_string().contains("there is no export \"male\""), "{unknown}");
        assert!(connect(&world, &network, "").await.is_err(), "there are two");
        let client = connect(&world, &network, "closed").await.unwrap();
        assert!(client.is_read_only());
        let data = vec![Arc::new(Buffer::zeroed(512))];
        let refused = client.write(ByteOffset(0), data.clone(), Stability::Stable).await.unwrap_err();
        assert_eq!(refused.kind(), IoErrorKind::ReadOnly);
        let client = connect(&world, &network, "mail").await.unwrap();
        for (at, kind) in [(1, IoErrorKind::Unaligned), (SIZE, IoErrorKind::OutOfRange)] {
            let refused = client.write(ByteOffset(at), data.clone(), Stability::Stable).await.unwrap_err();
            assert_eq!(refused.kind(), kind);
        }
        let refused = client.write_zeroes(ByteOffset(0), ByteCount(512), false, Stability::Stable).await;
        assert_eq!(refused.unwrap_err().kind(), IoErrorKind::Unsupported, "a drive would have to write them");
        let extents = client.extents(ByteOffset(0), ByteCount(SIZE)).await.unwrap();
        assert_eq!(extents, [Extent { length: ByteCount(SIZE), is_hole: false, is_zero: false }]);
    });
    run.completed();
}

/// A device whose first half is a hole.
struct HalfEmpty;

impl Sparse for HalfEmpty {
    fn write_zeroes(
        &self,
        _: ByteOffset,
        _: ByteCount,
        keeps_space: bool,
        _: Stability,
    ) -> world::LocalFuture<world::IoResult<()>> {
        assert!(keeps_space, "it was asked so");
        Box::pin(async { Ok(()) })
    }

    fn extents(&self, at: ByteOffset, length: ByteCount) -> world::LocalFuture<world::IoResult<Vec<Extent>>> {
        let empty = (SIZE / 2).saturating_sub(at.0).min(length.0);
        let extents = [
            Extent { length: ByteCount(empty), is_hole: true, is_zero: true },
            Extent { length: ByteCount(length.0 - empty), is_hole: false, is_zero: false },
        ];
        Box::pin(async move { Ok(extents.into_iter().filter(|extent| extent.length.0 > 0).collect()) })
    }
}

#[test]
fn holes_are_reported_and_zeroes_written_without_data() {
    let Scene { mut simulation, drive, network } = Scene::new(2, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let sparse = Export { sparse: Some(Rc::new(HalfEmpty)), ..export("mail", &drive) };
        start(&world, &network, vec![sparse]).await;
        let client = connect(&world, &network, "mail").await.unwrap();
        let extents = client.extents(ByteOffset(4096), ByteCount(SIZE - 4096)).await.unwrap();
        let told: Vec<_> =
            extents.iter().map(|extent| (extent.length.0, extent.is_hole, extent.is_zero)).collect();
        assert_eq!(told, [(SIZE / 2 - 4096, true, true), (SIZE / 2, false, false)]);
        client.write_zeroes(ByteOffset(0), ByteCount(8192), true, Stability::Stable).await.unwrap();
    });
    run.completed();
}
