//! Channels of a session in a simulated network: exactly once, in order, within bounds, whatever the connections do.

use crate::link_scene::{SITE_A, SITE_B, Scene, attach, bulk, bulk_zeros, number_of, options, run, small};
use array::format::{Stamp, WallNanoseconds};
use replication::{
    cut::GroupCut,
    frame::{FrameBody, RefusalCode, RefusalFrame, VersionRange, WordFrame},
    link::{
        ChannelError, LinkChannel, LinkError, LinkEvent, LinkSession, LinkSettings, WINDOW_BYTES,
        canary::{LinkCanary, plant},
    },
};
use std::{num::NonZeroU64, rc::Rc, time::Duration};
use world::{FollowedEvent, Random, sim::LinkOptions as PathOptions, with_deadline};

const CHANNELS: u8 = 4;
const FRAMES: u64 = 150;

/// Sends numbered frames of random sizes, at random times.
async fn send_numbers(scene: Scene, channel: Rc<LinkChannel>, mut random: Random) -> Result<(), String> {
    for number in 0..FRAMES {
        let body = match random.below(6) {
            0 => bulk(number, 1 + random.below(255)),
            1 | 2 => bulk(number, 1 + random.below(8)),
            _ => small(number),
        };
        channel.send(body).await.map_err(|error| format!("sending {number}: {error}"))?;
        if random.below(4) == 0 {
            scene.sleep_ms(random.below(2000)).await;
        }
    }
    Ok(())
}

/// Takes as many frames, and checks their numbers.
async fn take_numbers(scene: Scene, channel: Rc<LinkChannel>, mut random: Random) -> Result<(), String> {
    let slow = random.below(3) == 0;
    for expected in 0..FRAMES {
        let body = channel.receive().await.map_err(|error| format!("receiving {expected}: {error}"))?;
        let number = number_of(&body);
        if number != expected {
            return Err(format!("frame {number} came instead of {expected}"));
        }
        if slow && random.below(8) == 0 {
            scene.sleep_ms(random.below(2000)).await;
        }
    }
    // Nothing comes twice.
    match with_deadline(scene.world.sleep(Duration::from_secs(1)), channel.receive()).await {
        None => Ok(()),
        Some(more) => Err(format!("another frame: {more:?}")),
    }
}

/// Disturbs one path at a time, until the session has ended.
async fn disturb(scene: Scene, session: Rc<LinkSession>, connections: usize, mut random: Random) {
    loop {
        let path = format!("b{}", random.below(2));
        let network = &scene.network;
        match random.below(6) {
            0 => network.reset("a", &path),
            1 => network.cut("a", &path),
            2 => network.cut_one_way("a", &path),
            3 => network.cut_one_way(&path, "a"),
            4 => {
                let bytes_per_second = NonZeroU64::new(20_000 + random.below(2_000_000));
                let latency = Duration::from_millis(1 + random.below(200));
                network.set_link("a", &path, PathOptions { latency, bytes_per_second });
            }
            _ => {
                network.reset("a", &path);
                network.cut("a", &path);
            }
        }
        scene.sleep_ms(random.below(12_000)).await;
        network.restore("a", &path);
        network.set_link(
            "a",
            &path,
            PathOptions { latency: Duration::from_millis(2), bytes_per_second: None },
        );
        // The other path must not be lost before this one is back.
        while session.connections().len() < connections {
            if with_deadline(scene.world.sleep(Duration::from_millis(100)), session.ended()).await.is_some() {
                return;
            }
        }
        scene.sleep_ms(random.below(3000)).await;
        // A connection that only looks whole is found by its watch.
        scene.sleep_ms(7000).await;
    }
}

/// Random traffic on several channels, both ways, while one of two paths is disturbed.
fn traffic(seed: u64) -> Result<u64, String> {
    run(seed, |scene| async move {
        let (ours, theirs, _listener) = scene.session(2).await;
        let (ours, theirs) = (Rc::new(ours), Rc::new(theirs));
        let mut tasks = Vec::new();
        // A channel that is dropped ends, with what it has not sent.
        let mut channels = Vec::new();
        for group in 0..CHANNELS {
            let channel = Rc::new(ours.attach(attach(group + 1)).map_err(|error| error.to_string())?);
            let other = Rc::new(theirs.next_channel().await.map_err(|error| error.to_string())?);
            channels.extend([Rc::clone(&channel), Rc::clone(&other)]);
            for (from, to, way) in [(&channel, &other, "there"), (&other, &channel, "back")] {
                let random = |what: &str| scene.world.random(&format!("{what} {way} {group}"));
                let sending = send_numbers(scene.clone(), Rc::clone(from), random("sending"));
                tasks.push(scene.world.spawn("sender", sending));
                let taking = take_numbers(scene.clone(), Rc::clone(to), random("taking"));
                tasks.push(scene.world.spawn("taker", taking));
            }
        }
        let random = scene.world.random("disturbance");
        scene.world.spawn("disturber", disturb(scene.clone(), Rc::clone(&ours), 2, random));
        let bound = u64::from(CHANNELS) * WINDOW_BYTES;
        let (own, other, clock) = (Rc::clone(&ours), Rc::clone(&theirs), scene.clone());
        let watching = async move {
            loop {
                for session in [&own, &other] {
                    let (sent, received) = session.kept_bytes();
                    if sent > bound || received > bound {
                        return Err::<(), _>(format!("{sent} bytes sent and {received} received are kept"));
                    }
                }
                clock.sleep_ms(50).await;
            }
        };
        let finishing = async move {
            for task in tasks {
                task.await?;
            }
            Ok::<_, String>(())
        };
        let watching = scene.world.spawn("memory", watching);
        let limit = scene.world.sleep(Duration::from_secs(3600));
        with_deadline(limit, finishing)
            .await
            .unwrap_or_else(|| Err("the traffic stands still".to_owned()))?;
        if watching.is_finished() {
            watching.await?;
        }
        let mut events = ours.events();
        let mut losses = 0;
        while let Some(event) = events.try_next() {
            if let FollowedEvent::Event(event) = event {
                losses += u64::from(matches!(event.event, LinkEvent::Lost { .. }));
            }
        }
        Ok(losses)
    })
}

#[test]
fn frames_arrive_once_and_in_order_whatever_one_path_does() {
    let mut losses = 0;
    for seed in 0..40 {
        losses += traffic(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(losses > 60, "connections are lost: {losses}");
}

/// The seeds of a few in which a planted bug is noticed.
fn noticed(canary: LinkCanary, scenario: impl Fn(u64) -> Result<u64, String>) -> usize {
    let _planted = plant(canary);
    (0..12).filter(|seed| scenario(*seed).is_err()).count()
}

#[test]
fn planted_bugs_are_noticed() {
    if !crate::is_full_run("planted bugs of the link are of") {
        return;
    }
    for canary in [LinkCanary::DeliveredTwice, LinkCanary::OutOfOrder, LinkCanary::NotSentAgain] {
        assert!(noticed(canary, traffic) > 0, "{canary:?} is noticed in none of the seeds");
    }
    assert!(noticed(LinkCanary::WindowIgnored, stuck_channel) > 0, "nobody notices too much that is sent");
    assert!(
        noticed(LinkCanary::FirstChannelFirst, one_slow_path) > 0,
        "a channel starves, and nobody notices"
    );
}

/// A channel that sends as much as it can over a slow line, before another one that sends little. Returns the longest
/// time in milliseconds that a frame of the latter took.
fn one_slow_path(seed: u64) -> Result<u64, String> {
    run(seed, |scene| async move {
        let (ours, theirs, _listener) = scene.session(2).await;
        for path in ["b0", "b1"] {
            let latency = Duration::from_millis(5);
            let bytes_per_second = NonZeroU64::new(10_000_000);
            scene.network.set_link("a", path, PathOptions { latency, bytes_per_second });
        }
        let greedy = ours.attach(attach(1)).expect("the session is open");
        let modest = ours.attach(attach(2)).expect("the session is open");
        let greedy_end = theirs.next_channel().await.expect("the session is open");
        let modest_end = theirs.next_channel().await.expect("the session is open");
        scene.world.spawn("greedy sender", async move {
            for number in 0.. {
                if greedy.send(bulk(number, 255)).await.is_err() {
                    return;
                }
            }
        });
        scene.world.spawn("greedy taker", async move { while greedy_end.receive().await.is_ok() {} });
        let mut longest = Duration::ZERO;
        for number in 0..50 {
            scene.sleep_ms(100).await;
            let sent_at = scene.world.now();
            modest.send(small(number)).await.map_err(|error| error.to_string())?;
            let limit = scene.world.sleep(Duration::from_secs(5));
            match with_deadline(limit, modest_end.receive()).await {
                Some(Ok(body)) if number_of(&body) == number => {}
                other => return Err(format!("frame {number}: {other:?}")),
            }
            longest = longest.max(scene.world.now().since(sent_at));
        }
        // Ahead of it: what a socket holds (256 KiB), one frame of 1 MiB that has begun on each connection.
        let bound = Duration::from_millis(400);
        if longest > bound { Err(format!("it took {longest:?}")) } else { Ok(longest.as_millis() as u64) }
    })
}

#[test]
fn a_busy_channel_delays_another_by_little() {
    for seed in 0..6 {
        one_slow_path(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Time that 24 MiB of zeros take over a line of 2 MB/s, and the share of them that went over it.
fn time_of_bulk(versions: VersionRange) -> (Duration, f64) {
    run(7, |scene| async move {
        let listener = scene.listen(1, LinkSettings { versions, ..options(SITE_B) }).await;
        let ours = LinkSettings { versions, ..options(SITE_A) };
        let ours = scene.connect(1, ours).await.expect("it connects");
        let other_end = listener.next_session().await;
        let bytes_per_second = NonZeroU64::new(2_000_000);
        scene.network.set_link(
            "a",
            "b0",
            PathOptions { latency: Duration::from_millis(5), bytes_per_second },
        );
        let channel = ours.attach(attach(1)).expect("the session is open");
        let taker = other_end.next_channel().await.expect("the session is open");
        let begun = scene.world.now();
        let sending = scene.world.spawn("sender", async move {
            for number in 0..96 {
                channel.send(bulk_zeros(number, 64)).await.expect("the session is open");
            }
            channel
        });
        for number in 0..96 {
            assert_eq!(number_of(&taker.receive().await.expect("the session is open")), number);
        }
        let _channel = sending.await;
        let sent = ours.connections()[0].sent;
        (scene.world.now().since(begun), sent.on_line as f64 / sent.plain as f64)
    })
}

#[test]
fn a_slow_line_brings_more_as_blocks_are_packed_for_a_peer_that_can_unpack_them() {
    let (before, all) = time_of_bulk(VersionRange::new(4, 4).unwrap());
    let (now, share) = time_of_bulk(VersionRange::OURS);
    assert_eq!(all, 1.0, "version 4 knows nothing of it");
    assert!(before > Duration::from_secs(11), "{before:?}");
    assert!(now < before / 3 && share < 0.3, "{now:?}, {share:.2} of the bytes");
}

/// A channel from which nobody takes, beside another one.
fn stuck_channel(seed: u64) -> Result<u64, String> {
    run(seed, |scene| async move {
        let (ours, theirs, _listener) = scene.session(2).await;
        let stuck = ours.attach(attach(1)).expect("the session is open");
        let other = ours.attach(attach(2)).expect("the session is open");
        let _stuck_end = theirs.next_channel().await.expect("the session is open");
        let other_end = theirs.next_channel().await.expect("the session is open");
        let sending = scene.world.spawn("sender", async move {
            for number in 0..1000 {
                if stuck.send(bulk(number, 100)).await.is_err() {
                    return;
                }
            }
        });
        scene.sleep_ms(5000).await;
        if sending.is_finished() {
            return Err("the sender did not wait".to_owned());
        }
        let (sent, received) = (ours.kept_bytes().0, theirs.kept_bytes().1);
        if sent > WINDOW_BYTES || !(WINDOW_BYTES - (1 << 20)..=WINDOW_BYTES).contains(&received) {
            return Err(format!("{sent} bytes sent and {received} received are kept"));
        }
        for number in 0..200 {
            let sent_at = scene.world.now();
            other.send(bulk(number, 20)).await.map_err(|error| error.to_string())?;
            let body = other_end.receive().await.map_err(|error| error.to_string())?;
            let took = scene.world.now().since(sent_at);
            if number_of(&body) != number || took > Duration::from_millis(5) {
                return Err(format!("frame {} instead of {number}, after {took:?}", number_of(&body)));
            }
        }
        Ok(0)
    })
}

#[test]
fn a_channel_that_nobody_takes_from_holds_up_no_other_and_uses_bounded_memory() {
    for seed in 0..6 {
        stuck_channel(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

fn word(said_at: u64) -> FrameBody {
    FrameBody::Word(WordFrame {
        number: 1,
        said_at: WallNanoseconds(said_at),
        told: GroupCut::new(vec![Stamp(1)]),
        unconfirmed_bytes: 0,
        unconfirmed_ms: 0,
        is_in_sync: true,
    })
}

/// The newest word that comes within some time.
async fn last_word(scene: &Scene, channel: &LinkChannel, within: Duration) -> Option<u64> {
    let mut last = None;
    let limit = scene.world.now() + within;
    while let Some(body) = with_deadline(scene.world.sleep_until(limit), channel.receive()).await {
        match body.expect("the channel is open") {
            FrameBody::Word(word) => last = last.max(Some(word.said_at.0)),
            other => panic!("{other:?}"),
        }
    }
    last
}

#[test]
fn the_newest_word_arrives_although_its_connection_is_lost() {
    for seed in 0..20 {
        run(seed, |scene| async move {
            let (ours, theirs, _listener) = scene.session(2).await;
            let channel = ours.attach(attach(1)).unwrap();
            let end = theirs.next_channel().await.unwrap();
            scene.sleep_ms(100).await;
            for said_at in 1..50 {
                channel.send(word(said_at)).await.unwrap();
            }
            scene.sleep_ms(scene.world.random("moment").below(3)).await;
            scene.network.reset("a", &format!("b{}", seed % 2));
            assert_eq!(last_word(&scene, &end, Duration::from_secs(2)).await, Some(49), "seed {seed}");
        });
    }
}

#[test]
fn a_session_ends_with_the_reason_when_its_last_connection_is_lost() {
    for seed in 0..10 {
        run(seed, |scene| async move {
            let (ours, theirs, listener) = scene.session(2).await;
            let channel = ours.attach(attach(1)).unwrap();
            let end = theirs.next_channel().await.unwrap();
            channel.send(small(5)).await.unwrap();
            scene.sleep_ms(500).await;
            scene.network.cut("a", "b0");
            scene.sleep_ms(3000).await;
            assert_eq!(ours.connections().len(), 2, "not yet");
            scene.sleep_ms(4000).await;
            assert_eq!(ours.connections().len(), 1);
            assert!(channel.send(small(6)).await.is_ok(), "the other one goes on");
            scene.sleep_ms(100).await;
            scene.network.cut("a", "b1");
            let error = ours.ended().await;
            assert_eq!(
                error.to_string(),
                "the last connection to the other site was lost: b1:7000: no answer for 5.0 s"
            );
            assert_eq!(channel.send(small(7)).await, Err(ChannelError::Session(error.clone())));
            assert_eq!(channel.receive().await.unwrap_err(), ChannelError::Session(error.clone()));
            assert_eq!(ours.attach(attach(2)).err(), Some(error));
            // Frames that had arrived can still be taken.
            assert!(matches!(theirs.ended().await, LinkError::Lost { .. }));
            assert_eq!(number_of(&end.receive().await.unwrap()), 5);
            assert_eq!(number_of(&end.receive().await.unwrap()), 6);
            assert!(matches!(end.receive().await, Err(ChannelError::Session(LinkError::Lost { .. }))));
            // A new session begins once the line is back.
            scene.network.restore("a", "b0");
            scene.network.restore("a", "b1");
            let _ours = scene.connect(2, options(SITE_A)).await.expect("it connects");
            listener.next_session().await;
        });
    }
}

#[test]
fn losses_and_returns_are_told_with_address_and_reason() {
    run(1, |scene| async move {
        let (ours, _theirs, listener) = scene.session(3).await;
        scene.sleep_ms(500).await;
        let status = ours.connections();
        let addresses: Vec<_> = status.iter().map(|connection| connection.address.as_str()).collect();
        assert_eq!(addresses, ["b0:7000", "b1:7000", "b2:7000"], "one for each address");
        scene.network.reset("a", "b1");
        scene.network.cut("a", "b1");
        scene.sleep_ms(15_000).await;
        scene.network.restore("a", "b1");
        scene.sleep_ms(15_000).await;
        let mut told = Vec::new();
        let mut events = ours.events();
        while let Some(FollowedEvent::Event(event)) = events.try_next() {
            told.push(match &event.event {
                LinkEvent::Connected { address, .. } => format!("{address} connected"),
                LinkEvent::Lost { address, reason, .. } => format!("{address} lost: {reason}"),
                LinkEvent::NotReached { address, reason, .. } => format!("{address} not reached: {reason}"),
                LinkEvent::Ended(error) => format!("ended: {error}"),
            });
        }
        told[..3].sort();
        assert_eq!(
            told,
            [
                "b0:7000 connected",
                "b1:7000 connected",
                "b2:7000 connected",
                "b1:7000 lost: connection reset",
                "b1:7000 not reached: no connection within 10.0 s",
                "b1:7000 connected",
            ]
        );
        let round_trips = ours.connections().iter().map(|one| one.round_trips).collect::<Vec<_>>();
        for round_trip in round_trips {
            let idle = round_trip.idle.expect("it was idle");
            assert!((4..6).contains(&idle.as_millis()), "{idle:?}");
            assert!(round_trip.smoothed.is_some_and(|smoothed| smoothed >= idle));
        }
        listener.close();
        let error = ours.ended().await;
        assert_eq!(error.to_string(), "the other site refused: the other site stops");
    });
}

#[test]
fn a_channel_ends_at_both_sides_with_its_reason() {
    for seed in 0..10 {
        run(seed, |scene| async move {
            let (ours, theirs, _listener) = scene.session(2).await;
            scene.sleep_ms(100).await;
            for round in 0..100 {
                let channel = ours.attach(attach(1)).unwrap();
                channel.send(small(round)).await.unwrap();
                let end = theirs.next_channel().await.unwrap();
                if seed % 2 == 0 && round % 10 == 0 {
                    scene.network.reset("a", &format!("b{}", (round / 10) % 2));
                }
                let text = "the pool is full".to_owned();
                end.refuse(RefusalFrame { code: RefusalCode::Full, text });
                let error = loop {
                    if let Err(error) = channel.receive().await {
                        break error;
                    }
                };
                assert_eq!(error.to_string(), "the other site ended the channel: the pool is full");
                assert_eq!(channel.send(small(0)).await, Err(error));
                drop(channel);
                scene.sleep_ms(20 + u64::from(seed % 2 == 0) * 300).await;
                assert_eq!(ours.connections().len(), 2, "both are back");
            }
            scene.sleep_ms(2000).await;
            assert_eq!(ours.kept_bytes(), (0, 0));
            assert_eq!(theirs.kept_bytes(), (0, 0));
        });
    }
}

#[test]
fn limits_of_channels_hold() {
    run(1, |scene| async move {
        let limited = |site| LinkSettings { channels_max: 3, ..options(site) };
        let listener = scene.listen(1, limited(crate::link_scene::SITE_B)).await;
        let ours: LinkSession = scene.connect(1, limited(SITE_A)).await.unwrap();
        let _theirs = listener.next_session().await;
        let kept: Vec<_> = (0..3).map(|group| ours.attach(attach(group + 1)).unwrap()).collect();
        let refused = ours.attach(attach(9)).err().expect("three are allowed");
        assert!(refused.to_string().contains("more channels than are allowed"), "{refused}");
        drop(kept);
        scene.sleep_ms(100).await;
        assert!(ours.attach(attach(9)).is_ok(), "their places are free again");
    });
}
