//! Tests of the line between two sites: what they find, and that neither side bears more than its bounds.

use crate::{
    frame_bytes::{decode, seal},
    link_scene::{SITE_A, SITE_B, Scene, address, attach, number_of, options, peer, run, small},
};
use array::format::SiteId;
use replication::{
    frame::{
        AliveFrame, Frame, FrameBody, LinkTestFrame, RefusalCode, TestCountFrame, TestDataFrame,
        TestOrderFrame, VersionRange,
    },
    link::{LinkError, LinkPeer, LinkSettings, LinkTestSize, PathMeasurement, test_link},
};
use std::{num::NonZeroU64, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{Stream, sim::LinkOptions, with_deadline};

const SIZE: LinkTestSize = LinkTestSize { span: Duration::from_secs(10), connections: 3 };

fn set_line(scene: &Scene, path: &str, ms: u64, rate: Option<u64>) {
    let bytes_per_second = rate.map(|rate| NonZeroU64::new(rate).unwrap());
    let options = LinkOptions { latency: Duration::from_millis(ms), bytes_per_second };
    scene.network.set_link("a", path, options);
    scene.network.set_link(path, "a", options);
}

async fn measure(
    scene: &Scene,
    peer: LinkPeer,
    size: LinkTestSize,
) -> Result<Vec<PathMeasurement>, LinkError> {
    test_link(&scene.world, scene.client(), peer, &options(SITE_A), size).await
}

fn is_near(value: f64, expected: f64, share: f64) {
    assert!((value / expected - 1.0).abs() < share, "{value} is not about {expected}");
}

#[test]
fn a_slow_and_distant_line_is_found_while_a_session_goes_on() {
    run(1, |scene| async move {
        set_line(&scene, "b0", 12, Some(5_000_000));
        let (ours, theirs, _listener) = scene.session(1).await;
        let channel = ours.attach(attach(1)).unwrap();
        let end = theirs.next_channel().await.unwrap();
        let begun = scene.world.now();
        let (own, client) = (scene.clone(), peer(1));
        let testing = scene.world.spawn("test", async move { measure(&own, client, SIZE).await });
        for number in 0..200 {
            channel.send(small(number)).await.unwrap();
            assert_eq!(number_of(&end.receive().await.unwrap()), number);
            scene.sleep_ms(50).await;
        }
        let paths = testing.await.unwrap();
        let took = scene.world.now().since(begun);
        assert!((10..16).contains(&took.as_secs()), "{took:?}");
        let figures = paths[0].figures.as_ref().unwrap();
        is_near(figures.idle.median.as_secs_f64(), 0.024, 0.05);
        assert!(figures.idle.percentile_99 >= figures.idle.median && figures.idle.count > 20, "{figures:?}");
        // A line that others share has queues: that is what the loaded round trip shows.
        assert!(figures.loaded_sending.unwrap().median > Duration::from_millis(40), "{figures:?}");
        assert!(figures.loaded_receiving.unwrap().median > Duration::from_millis(40), "{figures:?}");
        for rate in [figures.sent, figures.received] {
            is_near(rate.of_one as f64, 5e6, 0.1);
            is_near(rate.of_all as f64, 5e6, 0.1);
        }
        assert_eq!(ours.connections().len(), 2, "the session's connections are up");
    });
}

#[test]
fn connections_that_are_limited_each_carry_more_together() {
    run(1, |scene| async move {
        let _listener = scene.listen(1, options(SITE_B)).await;
        // The simulated window is 256 KiB: one connection carries that in each round trip.
        set_line(&scene, "b0", 40, None);
        let paths = measure(&scene, peer(1), SIZE).await.unwrap();
        let figures = paths[0].figures.as_ref().unwrap();
        assert!(figures.sent.of_all > figures.sent.of_one * 2, "{figures:?}");
        assert!(figures.received.of_all > figures.received.of_one * 2, "{figures:?}");
        let one = measure(&scene, peer(1), LinkTestSize { connections: 1, ..SIZE }).await.unwrap();
        let one = one[0].figures.as_ref().unwrap();
        assert_eq!((one.sent.of_one, one.received.of_one), (one.sent.of_all, one.received.of_all));
    });
}

#[test]
fn each_address_is_measured_alone_and_one_that_is_lost_is_named() {
    run(1, |scene| async move {
        let _listener = scene.listen(2, options(SITE_B)).await;
        set_line(&scene, "b0", 2, Some(8_000_000));
        set_line(&scene, "b1", 6, Some(2_000_000));
        let paths = measure(&scene, peer(3), SIZE).await.unwrap();
        let rate = |path: usize| paths[path].figures.as_ref().unwrap().sent.of_all as f64;
        is_near(rate(0), 8e6, 0.1);
        is_near(rate(1), 2e6, 0.1);
        let lost = paths[2].figures.as_ref().unwrap_err();
        assert!(lost.contains("connection refused"), "{lost}");
        assert_eq!(paths[2].address, "b2:7000");
    });
}

#[test]
fn a_line_that_is_cut_ends_the_test_in_time() {
    run(1, |scene| async move {
        let _listener = scene.listen(1, options(SITE_B)).await;
        set_line(&scene, "b0", 2, Some(1_000_000));
        let (own, begun) = (scene.clone(), scene.world.now());
        let testing = scene.world.spawn("test", async move { measure(&own, peer(1), SIZE).await });
        scene.sleep_ms(5000).await;
        scene.network.cut("a", "b0");
        let lost = testing.await.unwrap().remove(0).figures.unwrap_err();
        assert!(lost.contains("no answer for 5 s"), "{lost}");
        assert!(scene.world.now().since(begun) < Duration::from_secs(60), "{:?}", scene.world.now());
    });
}

fn encoded(body: FrameBody) -> Vec<u8> {
    Frame { channel: 0, sequence: 0, body }.encode().concat()
}

fn begin(test: u64, connections: u16) -> LinkTestFrame {
    LinkTestFrame { version: 2, site: SITE_A, test, connections }
}

/// Sends bytes, and returns the first frame of the answer; `None` if the connection was closed.
async fn answer(scene: &Scene, bytes: &[u8]) -> (Option<FrameBody>, Stream) {
    let mut stream = scene.client().connect(&address(0)).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = vec![0; 4096];
    let count = stream.read(&mut answer).await.unwrap_or(0);
    (decode(&answer[..count]).map(|frame| frame.unwrap().body), stream)
}

fn code(answer: Option<FrameBody>) -> Option<RefusalCode> {
    match answer {
        Some(FrameBody::Refusal(refused)) => Some(refused.code),
        _ => None,
    }
}

#[test]
fn one_test_with_so_many_connections_is_let_in_at_one_time() {
    run(1, |scene| async move {
        let settings = LinkSettings { versions: VersionRange::new(1, 2).unwrap(), ..options(SITE_B) };
        let listener = scene.listen(1, settings).await;
        set_line(&scene, "b0", 2, Some(1_000_000));
        let (first, open) = answer(&scene, &encoded(FrameBody::LinkTest(begin(1, 1)))).await;
        assert!(matches!(first, Some(FrameBody::LinkTest(said)) if said.site == SITE_B && said.test == 1));
        let mut kept = vec![open];
        for _ in 0..3 {
            let (more, open) = answer(&scene, &encoded(FrameBody::LinkTest(begin(1, 1)))).await;
            assert_eq!(code(more), None);
            kept.push(open);
        }
        for busy in [begin(1, 1), begin(2, 1), LinkTestFrame { site: SiteId([5; 16]), ..begin(1, 1) }] {
            let (refused, _) = answer(&scene, &encoded(FrameBody::LinkTest(busy))).await;
            assert_eq!(code(refused), Some(RefusalCode::Busy), "{busy:?}");
        }
        for (wrong, expected) in [
            (LinkTestFrame { version: 3, ..begin(1, 1) }, RefusalCode::Version),
            (LinkTestFrame { site: SITE_B, ..begin(1, 1) }, RefusalCode::NotPaired),
        ] {
            let (refused, _) = answer(&scene, &encoded(FrameBody::LinkTest(wrong))).await;
            assert_eq!(code(refused), Some(expected), "{wrong:?}");
        }
        // Another test waits for a while, and then is refused, too.
        let refused = measure(&scene, peer(1), SIZE).await.unwrap_err().to_string();
        assert_eq!(refused, "the other site refused: another test of a line is under way");
        drop(kept);
        assert!(measure(&scene, peer(1), SIZE).await.unwrap()[0].figures.is_ok(), "its place is free");
        // A test whose side stays silent ends, and its place is free.
        let (_, mut silent) = answer(&scene, &encoded(FrameBody::LinkTest(begin(9, 1)))).await;
        let begun = scene.world.now();
        assert_eq!(silent.read(&mut [0; 8]).await.unwrap(), 0);
        let took = scene.world.now().since(begun).as_secs();
        assert!((179..=181).contains(&took), "{took} s");
        listener.close();
        let (refused, _) = answer(&scene, &encoded(FrameBody::LinkTest(begin(1, 1)))).await;
        assert_eq!(code(refused), Some(RefusalCode::Closing));
    });
}

#[test]
fn what_does_not_belong_into_a_test_ends_its_connection() {
    run(1, |scene| async move {
        let _listener = scene.listen(1, options(SITE_B)).await;
        let order = |is_download, skipped_ms, ends_ms| {
            encoded(FrameBody::TestOrder(TestOrderFrame { is_download, skipped_ms, ends_ms }))
        };
        let data = encoded(FrameBody::TestData(TestDataFrame { bytes: vec![1; 1000] }));
        // A frame of data whose header says more than a test allows; it is not waited for.
        let mut over_long = data.clone();
        over_long[20..24].copy_from_slice(&(1_u32 << 20).to_le_bytes());
        seal(&mut over_long);
        let attach = Frame { channel: 1, sequence: 1, body: FrameBody::Attach(attach(1)) }.encode().concat();
        let too_long = {
            let mut bytes = order(true, 0, 30_000);
            bytes[32 + 5..32 + 9].copy_from_slice(&30_001_u32.to_le_bytes());
            seal(&mut bytes);
            bytes
        };
        let count = encoded(FrameBody::TestCount(TestCountFrame { bytes: 1, nanoseconds: 1 }));
        for (bytes, reason) in [
            (data.clone(), "a frame TestData does not belong into a test"),
            (over_long.clone(), "longer than allowed"),
            (attach, "a frame Attach does not belong into a test"),
            (count, "a frame TestCount does not belong into a test"),
            (too_long, "the time of a step has a value that is not allowed"),
            ([order(false, 10, 100), order(false, 10, 100)].concat(), "a frame TestOrder came among data"),
            ([order(false, 10, 100), data.clone(), over_long].concat(), "longer than allowed"),
            (order(false, 10, 100), "no data came"),
        ] {
            let (begun, mut stream) = answer(&scene, &encoded(FrameBody::LinkTest(begin(1, 1)))).await;
            assert!(matches!(begun, Some(FrameBody::LinkTest(_))));
            let before = scene.rejected.borrow().len();
            stream.write_all(&bytes).await.unwrap();
            let mut end = vec![0; 4096];
            while stream.read(&mut end).await.is_ok_and(|count| count > 0) {}
            scene.sleep_ms(50).await;
            let rejected = scene.rejected.borrow();
            assert_eq!(rejected.len(), before + 1);
            assert!(rejected[before].reason.contains(reason), "{} / {reason}", rejected[before].reason);
        }
        // What comes after the count is thrown away, for a second at most.
        let bytes = [encoded(FrameBody::LinkTest(begin(1, 1))), order(false, 10, 100), data].concat();
        let (_, mut stream) = answer(&scene, &bytes).await;
        let begun = scene.world.now();
        let mut answer = vec![0; 4096];
        let count = stream.read(&mut answer).await.unwrap();
        let counted = decode(&answer[..count]).unwrap().unwrap().body;
        assert!(matches!(counted, FrameBody::TestCount(_)), "{counted:?}");
        let flooding = async { while stream.write_all(&bytes).await.is_ok() {} };
        assert!(with_deadline(scene.world.sleep(Duration::from_secs(3)), flooding).await.is_some());
        assert!(scene.world.now().since(begun) < Duration::from_secs(2));
        // A test in a session has broken the protocol.
        let good = scene.connect(1, options(SITE_A)).await.unwrap();
        assert_eq!(good.version(), 10);
    });
}

#[test]
fn a_thousand_hostile_tests_do_no_harm_to_a_listener() {
    for seed in 0..5 {
        run(seed, |scene| async move {
            let listener = scene.listen(1, options(SITE_B)).await;
            set_line(&scene, "b0", 1, Some(4_000_000));
            let good = scene.connect(1, options(SiteId([7; 16]))).await.unwrap();
            let other = listener.next_session().await;
            let channel = good.attach(attach(1)).unwrap();
            let end = other.next_channel().await.unwrap();
            let mut random = scene.world.random("mutations");
            for round in 0..200 {
                let is_download = random.below(2) == 0;
                let mut frames = [
                    encoded(FrameBody::LinkTest(begin(random.below(2), 2))),
                    encoded(FrameBody::Alive(AliveFrame { number: 1, is_reply: random.below(4) == 0 })),
                    encoded(FrameBody::TestOrder(TestOrderFrame { is_download, skipped_ms: 5, ends_ms: 50 })),
                    encoded(FrameBody::TestData(TestDataFrame { bytes: vec![3; 500] })),
                    encoded(FrameBody::TestData(TestDataFrame { bytes: vec![3; 64 << 10] })),
                ];
                let index = random.below(frames.len() as u64) as usize;
                let at = random.below(60) as usize;
                let frame = &mut frames[index];
                let at = at.min(frame.len() - 1);
                frame[at] = random.below(256) as u8;
                if random.below(2) == 0 {
                    seal(frame);
                }
                let mut stream = scene.client().connect(&address(0)).await.unwrap();
                let _ = stream.write_all(&frames.concat()).await;
                let mut bytes = vec![0; 4096];
                let reading = async { while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {} };
                with_deadline(scene.world.sleep(Duration::from_millis(200)), reading).await;
                drop(stream);
                channel.send(small(round)).await.unwrap();
                assert_eq!(number_of(&end.receive().await.unwrap()), round, "the good one goes on");
            }
            scene.sleep_ms(200_000).await;
            assert!(measure(&scene, peer(1), SIZE).await.unwrap()[0].figures.is_ok(), "seed {seed}");
        });
    }
}

#[test]
fn hostile_answers_do_no_harm_to_the_side_that_tests() {
    for seed in 0..40 {
        run(seed, |scene| async move {
            let at = scene.network.host("b0").listen(&address(0)).await.unwrap();
            set_line(&scene, "b0", 2, Some(1_000_000));
            let own = scene.clone();
            scene.world.spawn("hostile server", async move {
                let mut random = own.world.random("mutations");
                loop {
                    let mut stream = at.accept().await.unwrap().stream;
                    let mut bytes = [0; 4096];
                    let count = stream.read(&mut bytes).await.unwrap_or(0);
                    let Some(Ok(Frame { body: FrameBody::LinkTest(said), .. })) = decode(&bytes[..count])
                    else {
                        continue;
                    };
                    let count = TestCountFrame { bytes: u64::MAX, nanoseconds: random.below(2) };
                    let mut said = vec![encoded(FrameBody::LinkTest(LinkTestFrame { site: SITE_B, ..said }))];
                    for number in 1..random.below(60) {
                        said.push(encoded(FrameBody::Alive(AliveFrame { number, is_reply: true })));
                    }
                    said.push(encoded(FrameBody::TestCount(count)));
                    let mut said = said.concat();
                    if random.below(3) == 0 {
                        let at = random.below(said.len() as u64) as usize;
                        said[at] ^= 4;
                    }
                    let _ = stream.write_all(&said).await;
                    own.world.spawn("hostile", async move {
                        let mut bytes = vec![0; 4096];
                        while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
                    });
                }
            });
            let begun = scene.world.now();
            // Whatever it finds: it ends in time, and without a panic.
            let _ = measure(&scene, peer(1), SIZE).await;
            assert!(scene.world.now().since(begun) < Duration::from_secs(60), "seed {seed}");
        });
    }
}
