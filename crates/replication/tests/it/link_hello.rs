//! The beginning of sessions, and hostile bytes at either side.

use crate::{
    frame_bytes::seal,
    link_scene::{SITE_A, SITE_B, Scene, address, attach, bulk, number_of, options, peer, run, small},
};
use array::format::SiteId;
use replication::{
    frame::{
        AliveFrame, Frame, FrameBody, HelloFrame, ReceiptFrame, RefusalCode, RefusalFrame, VersionRange,
    },
    link::{LinkError, LinkPeer, LinkSession, LinkSettings},
};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{Random, Stream, with_deadline};

/// Connects two sites with these versions.
fn versions(ours: (u16, u16), theirs: (u16, u16)) -> Result<u16, String> {
    run(1, |scene| async move {
        let range = |(lowest, highest)| VersionRange::new(lowest, highest).expect("a range");
        let listener = scene.listen(1, LinkSettings { versions: range(theirs), ..options(SITE_B) }).await;
        let ours = LinkSettings { versions: range(ours), ..options(SITE_A) };
        let session = scene.connect(1, ours).await.map_err(|error| error.to_string())?;
        let other = listener.next_session().await;
        assert_eq!((session.peer_site(), other.peer_site()), (SITE_B, SITE_A));
        assert_eq!(session.peer_program(), "test 1.0");
        assert_eq!(session.version(), other.version());
        Ok(session.version())
    })
}

#[test]
fn the_highest_common_version_is_used_and_without_one_both_ranges_are_told() {
    assert_eq!(versions((1, 1), (1, 1)), Ok(1));
    assert_eq!(versions((1, 3), (2, 9)), Ok(3));
    assert_eq!(versions((2, 9), (1, 3)), Ok(3));
    let told = "the other site refused: one site knows versions 1 to 2 of the link, the other one version 3";
    assert_eq!(versions((3, 3), (1, 2)), Err(told.to_owned()));
    let told = "the other site refused: one site knows version 3 of the link, the other one versions 1 to 2";
    assert_eq!(versions((1, 2), (3, 3)), Err(told.to_owned()));
}

#[test]
fn what_cannot_be_a_session_is_refused_in_one_line() {
    run(1, |scene| async move {
        let limited = LinkSettings { sessions_max: 2, ..options(SITE_B) };
        let listener = scene.listen(1, limited).await;
        let wrong = |told: &str, refused: Result<LinkSession, LinkError>| {
            let error = refused.err().expect("it is refused").to_string();
            assert!(error.contains(told), "{error}");
        };
        wrong("a site cannot be its own peer", scene.connect(1, options(SITE_B)).await);
        let other = LinkPeer { site: Some(SiteId([9; 16])), ..peer(1) };
        let tried = LinkSession::connect(&scene.world, scene.client(), other, options(SITE_A)).await;
        wrong("another site answers at this address", tried);
        scene.sleep_ms(100).await;
        let first = scene.connect(1, options(SITE_A)).await.unwrap();
        let kept = (scene.connect(1, options(SITE_A)).await.unwrap(), listener.next_session().await);
        wrong("there are 2 sessions already", scene.connect(1, options(SITE_A)).await);
        drop(first);
        scene.sleep_ms(100).await;
        assert!(scene.connect(1, options(SITE_A)).await.is_ok(), "its place is free");
        drop(kept);
        let nowhere = LinkPeer { addresses: vec![address(7), address(8)], site: None };
        let tried = LinkSession::connect(&scene.world, scene.client(), nowhere, options(SITE_A)).await;
        wrong("b7:7000: connecting to b7:7000: connection refused; b8:7000: ", tried);
    });
}

#[test]
fn a_silent_connection_is_closed_in_time_and_only_so_many_wait() {
    run(1, |scene| async move {
        let limited = LinkSettings { handshakes_max: 3, ..options(SITE_B) };
        let _listener = scene.listen(1, limited).await;
        let mut silent = Vec::new();
        for _ in 0..3 {
            silent.push(scene.client().connect(&address(0)).await.unwrap());
        }
        let mut fourth = scene.client().connect(&address(0)).await.unwrap();
        assert_eq!(fourth.read(&mut [0; 8]).await.unwrap(), 0, "it is closed at once");
        assert_eq!(scene.rejected.borrow()[0].reason, "3 handshakes are under way");
        let begun = scene.world.now();
        for stream in &mut silent {
            assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
        }
        let took = scene.world.now().since(begun);
        assert!((9..=10).contains(&took.as_secs()), "{took:?}");
        assert_eq!(scene.rejected.borrow()[1].reason, "no hello in time");
        let tried = scene.connect(1, options(SITE_A)).await;
        assert!(tried.is_ok(), "their places are free");
    });
}

fn hello(site: SiteId, session: u64, is_joining: bool) -> FrameBody {
    FrameBody::Hello(HelloFrame {
        versions: VersionRange::OURS,
        site,
        session,
        connection: 0,
        connections: 1,
        is_joining,
        program: "hostile".to_owned(),
    })
}

#[test]
fn a_connection_cannot_join_a_session_that_does_not_exist_or_begin_one_that_does() {
    run(1, |scene| async move {
        let _listener = scene.listen(1, options(SITE_B)).await;
        let answer = async |session, is_joining| {
            let mut stream = scene.client().connect(&address(0)).await.unwrap();
            let frame = Frame { channel: 0, sequence: 0, body: hello(SITE_A, session, is_joining) };
            stream.write_all(&frame.encode().concat()).await.unwrap();
            let mut bytes = vec![0; 4096];
            let count = stream.read(&mut bytes).await.unwrap();
            let answer = crate::frame_bytes::decode(&bytes[..count]).expect("it is whole").unwrap().body;
            (answer, stream)
        };
        let code = |answer: &FrameBody| match answer {
            FrameBody::Refusal(refusal) => Some(refusal.code),
            _ => None,
        };
        let (joined, _) = answer(5, true).await;
        assert_eq!(code(&joined), Some(RefusalCode::UnknownSession));
        let (first, _open) = answer(5, false).await;
        assert_eq!(code(&first), None);
        let (again, _) = answer(5, false).await;
        assert_eq!(code(&again), Some(RefusalCode::UnknownSession));
        let (joined, _) = answer(5, true).await;
        assert_eq!(code(&joined), None);
    });
}

/// The frames of a short session, as one side sends them; some break a rule of the session.
fn script(random: &mut Random, session: u64) -> Vec<Vec<u8>> {
    let refusal = RefusalFrame { code: RefusalCode::Full, text: "full".to_owned() };
    let mut frames = vec![(0, 0, hello(SITE_A, session, false)), (1, 1, FrameBody::Attach(attach(1)))];
    for sequence in 2..8 {
        let body = if random.below(3) == 0 { bulk(sequence, 3) } else { small(sequence) };
        frames.push((1, sequence, body));
    }
    let receipt = FrameBody::Receipt(ReceiptFrame { received: 0, window_end: 8 << 20 });
    frames.push((1, 0, receipt));
    frames.push((0, 0, FrameBody::Alive(AliveFrame { number: 3, is_reply: random.below(2) == 0 })));
    frames.push((2, 1, FrameBody::Attach(attach(2))));
    frames.push((1, 0, FrameBody::Refusal(refusal)));
    frames
        .into_iter()
        .map(|(channel, sequence, body)| Frame { channel, sequence, body }.encode().concat())
        .collect()
}

/// Changes a script: bytes, with or without right checksums, the order of frames, and their end.
fn mutate(mut frames: Vec<Vec<u8>>, random: &mut Random) -> Vec<u8> {
    for _ in 0..1 + random.below(3) {
        let index = random.below(frames.len() as u64) as usize;
        match random.below(7) {
            0 => drop(frames.remove(index)),
            1 => frames.insert(index, frames[index].clone()),
            2 => {
                let other = random.below(frames.len() as u64) as usize;
                frames.swap(index, other);
            }
            3 => {
                let mut bytes = vec![0; random.below(200) as usize];
                random.fill(&mut bytes);
                frames.insert(index, bytes);
            }
            4 => {
                let end = random.below(frames[index].len() as u64 + 1) as usize;
                frames[index].truncate(end);
            }
            kind => {
                let frame = &mut frames[index];
                if !frame.is_empty() {
                    let at = random.below((frame.len() as u64).min(120)) as usize;
                    frame[at] = random.below(256) as u8;
                    if kind == 5 {
                        seal(frame);
                    }
                }
            }
        }
        if frames.is_empty() {
            break;
        }
    }
    frames.concat()
}

/// Sends bytes and waits for the end of the connection, which comes in time: it never answers an *alive*.
async fn send_hostile(scene: &Scene, mut stream: Stream, bytes: Vec<u8>) -> Duration {
    let begun = scene.world.now();
    let _ = stream.write_all(&bytes).await;
    let mut answer = vec![0; 4096];
    while stream.read(&mut answer).await.is_ok_and(|count| count > 0) {}
    scene.world.now().since(begun)
}

#[test]
fn a_thousand_hostile_sessions_do_no_harm_to_a_listener() {
    for seed in 0..10 {
        run(seed, |scene| async move {
            let listener = scene.listen(1, options(SITE_B)).await;
            let good = scene.connect(1, options(SiteId([7; 16]))).await.unwrap();
            let channel = good.attach(attach(1)).unwrap();
            let other = listener.next_session().await;
            let end = other.next_channel().await.unwrap();
            let world = scene.world.clone();
            scene.world.spawn("owner", async move {
                loop {
                    let session = listener.next_session().await;
                    let own = world.clone();
                    world.spawn("owner of a session", async move {
                        while let Ok(channel) = session.next_channel().await {
                            own.spawn("taker", async move { while channel.receive().await.is_ok() {} });
                        }
                    });
                }
            });
            let mut random = scene.world.random("mutations");
            for session in 0..100 {
                let bytes = mutate(script(&mut random, session), &mut random);
                let stream = scene.client().connect(&address(0)).await.unwrap();
                let took = send_hostile(&scene, stream, bytes).await;
                assert!(took < Duration::from_secs(14), "seed {seed}, session {session}: {took:?}");
                channel.send(small(session)).await.unwrap();
                assert_eq!(number_of(&end.receive().await.unwrap()), session, "the good one goes on");
            }
        });
    }
}

#[test]
fn hostile_answers_do_no_harm_to_the_side_that_connects() {
    for seed in 0..5 {
        run(seed, |scene| async move {
            let at = scene.network.host("b0").listen(&address(0)).await.unwrap();
            let own = scene.clone();
            scene.world.spawn("hostile server", async move {
                let mut random = own.world.random("mutations");
                loop {
                    let mut stream = at.accept().await.unwrap().stream;
                    let mut bytes = [0; 4096];
                    let count = stream.read(&mut bytes).await.unwrap_or(0);
                    let Some(Ok(Frame { body: FrameBody::Hello(theirs), .. })) =
                        crate::frame_bytes::decode(&bytes[..count])
                    else {
                        continue;
                    };
                    let mut frames = script(&mut random, theirs.session);
                    let body = hello(SITE_B, theirs.session, theirs.is_joining);
                    frames[0] = Frame { channel: 0, sequence: 0, body }.encode().concat();
                    if random.below(2) == 0 {
                        // Without those that this side may not send.
                        frames.drain(1..2);
                    }
                    let bytes = mutate(frames, &mut random);
                    let own = own.clone();
                    own.world
                        .clone()
                        .spawn("hostile", async move { send_hostile(&own, stream, bytes).await });
                }
            });
            for round in 0..100 {
                let begun = scene.world.now();
                if let Ok(session) = scene.connect(1, options(SITE_A)).await {
                    let channel = session.attach(attach(1)).unwrap();
                    let taking = async { while channel.receive().await.is_ok() {} };
                    let ended = with_deadline(scene.world.sleep(Duration::from_secs(30)), taking).await;
                    assert!(ended.is_some(), "seed {seed}, round {round}");
                }
                let took = scene.world.now().since(begun);
                assert!(took < Duration::from_secs(24), "seed {seed}, round {round}: {took:?}");
            }
        });
    }
}
