//! The machine's own sockets, by TCP on loopback and in the filesystem.

use crate::in_each_engine;
use std::{cell::Cell, rc::Rc, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{
    Address, BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Network, Stream, ThreadStarter, World,
    network::{
        handover::{DetachedStream, MovableStream},
        receiver::Receiver,
    },
    real::{FileDevice, RealOptions, RealThreads, Sockets, prepare_process, run},
    with_deadline,
};

fn loopback() -> Address {
    Address::parse("127.0.0.1:0", 0).unwrap()
}

#[test]
fn the_peer_receives_what_was_sent() {
    in_each_engine(async |world, folder| {
        for at in [loopback(), Address::Unix(folder.join("socket"))] {
            let listener = Sockets.listen(&at).await.unwrap();
            let to = listener.address();
            let echo = world.spawn("echo", async move {
                let mut stream = listener.accept().await.unwrap().stream;
                let mut received = Vec::new();
                stream.read_to_end(&mut received).await.unwrap();
                stream.write_all(&received).await.unwrap();
                received.len()
            });
            let mut stream = Sockets.connect(&to).await.unwrap();
            let sent: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
            stream.write_all(&sent).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).await.unwrap();
            assert!(back == sent, "over {to}");
            assert_eq!(echo.await, sent.len());
        }
    });
}

#[test]
fn a_task_that_yields_beside_connections_lets_sleepers_go_on() {
    in_each_engine(async |world, _| {
        let listener = Sockets.listen(&loopback()).await.unwrap();
        let _peer = Sockets.connect(&listener.address()).await.unwrap();
        let mut stream = listener.accept().await.unwrap().stream;
        world.spawn("reader", async move { stream.read_to_end(&mut Vec::new()).await });
        let (sleeping, is_awake) = (world.clone(), Rc::new(Cell::new(false)));
        let wakes = Rc::clone(&is_awake);
        world.spawn("sleeper", async move {
            sleeping.sleep(Duration::from_millis(2)).await;
            wakes.set(true);
        });
        world.sleep(Duration::from_millis(1)).await;
        let begun = world.now();
        while world.now().since(begun) < Duration::from_millis(2) {}
        let mut yields = 0;
        while !is_awake.get() {
            yields += 1;
            world.yield_now().await;
        }
        assert!(yields < 10, "the sleeper was due, and woke after {yields} yields");
    });
}

#[test]
fn an_address_in_use_and_a_refused_connection_fail_with_one_line() {
    in_each_engine(async |_, folder| {
        let listener = Sockets.listen(&loopback()).await.unwrap();
        let taken = Sockets.listen(&listener.address()).await.err().expect("the address is in use");
        assert_eq!(taken.kind(), IoErrorKind::Busy, "{taken}");
        let to = listener.address();
        drop(listener);
        let refused = Sockets.connect(&to).await.err().expect("nobody listens");
        assert_eq!(refused.kind(), IoErrorKind::Disconnected, "{refused}");
        assert!(refused.to_string().starts_with(&format!("connecting to {to}: ")), "{refused}");
        let nowhere =
            Sockets.connect(&Address::Unix(folder.join("none"))).await.err().expect("nobody listens");
        assert_eq!(nowhere.kind(), IoErrorKind::NotFound, "{nowhere}");
    });
}

#[test]
fn a_unix_socket_is_removed_with_its_listener() {
    in_each_engine(async |_, folder| {
        let at = Address::Unix(folder.join("socket"));
        for _ in 0..2 {
            drop(Sockets.listen(&at).await.unwrap());
        }
        assert!(!folder.join("socket").exists());
        // A killed listener leaves a stale socket, which is replaced; any other file of that name stays.
        drop(std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap());
        let listener = Sockets.listen(&at).await.expect("the socket is stale");
        assert_eq!(Sockets.listen(&at).await.err().map(|error| error.kind()), Some(IoErrorKind::Busy));
        drop(listener);
        std::fs::write(folder.join("socket"), b"mine").unwrap();
        assert_eq!(Sockets.listen(&at).await.err().map(|error| error.kind()), Some(IoErrorKind::Busy));
        assert_eq!(std::fs::read(folder.join("socket")).unwrap(), b"mine");
    });
}

/// Both ends of a connection.
async fn connection(world: &World, at: &Address) -> (Stream, Stream) {
    let listener = Sockets.listen(at).await.unwrap();
    let to = listener.address();
    let accepted = world.spawn("accept", async move { listener.accept().await.unwrap().stream });
    let connected = Sockets.connect(&to).await.unwrap();
    (connected, accepted.await)
}

#[test]
fn messages_of_any_length_arrive_whole_however_they_are_read() {
    in_each_engine(async |world, _| {
        let (mut sender, receiver) = connection(&world, &loopback()).await;
        let mut random = world.random("lengths");
        let lengths: Vec<usize> = (0..300)
            .map(|_| [1, 28, 4096, 8191, 8192, 8193, 20_000, 200_000][random.below(8) as usize])
            .collect();
        let sent: Vec<Vec<u8>> =
            lengths.iter().enumerate().map(|(index, &length)| vec![index as u8; length]).collect();
        let messages = sent.clone();
        let pause = world.clone();
        let sending = world.spawn("send", async move {
            for (index, message) in messages.iter().enumerate() {
                sender.write_all(message).await.unwrap();
                if index % 7 == 0 {
                    pause.sleep(Duration::from_micros(300)).await;
                }
            }
        });
        let mut receiver = Receiver::new(receiver);
        for (index, message) in sent.iter().enumerate() {
            let mut received = vec![0; message.len()];
            receiver.read_exact(&mut received).await.unwrap();
            assert!(received == *message, "message {index} of {} bytes", message.len());
        }
        sending.await;
        assert_eq!(receiver.read(&mut [0]).await.unwrap(), 0, "the sender is gone");
    });
}

#[test]
fn a_read_that_is_given_up_loses_nothing_and_holds_nothing_open() {
    in_each_engine(async |world, folder| {
        for at in [loopback(), Address::Unix(folder.join("socket"))] {
            let (mut near, mut far) = connection(&world, &at).await;
            let given_up =
                with_deadline(world.sleep(Duration::from_millis(5)), near.read(&mut [0; 16])).await;
            assert!(given_up.is_none(), "nothing was sent");
            far.write_all(b"late").await.unwrap();
            world.sleep(Duration::from_millis(5)).await;
            let mut received = [0; 4];
            near.read_exact(&mut received).await.unwrap();
            assert_eq!(&received, b"late");
            let given_up =
                with_deadline(world.sleep(Duration::from_millis(5)), near.read(&mut [0; 16])).await;
            assert!(given_up.is_none(), "nothing more was sent");
            drop(near);
            assert_eq!(far.read(&mut [0; 16]).await.unwrap(), 0, "over {at}: the connection is closed");
        }
    });
}

#[test]
fn a_sender_waits_for_a_slow_receiver() {
    in_each_engine(async |world, _| {
        let (mut sender, mut receiver) = connection(&world, &loopback()).await;
        let sending = world.spawn("send", async move { sender.write_all(&vec![7; 20 << 20]).await.unwrap() });
        world.sleep(Duration::from_millis(20)).await;
        assert!(!sending.is_finished(), "no socket buffers 20 MiB");
        let mut received = Vec::new();
        receiver.read_to_end(&mut received).await.unwrap();
        assert_eq!(received.len(), 20 << 20);
        sending.await;
    });
}

#[test]
fn more_idle_connections_than_the_ring_has_entries_do_not_delay_a_drive() {
    prepare_process().unwrap();
    let folder = tempfile::tempdir().unwrap();
    run(3, RealOptions::default(), async |world| {
        let listener = Sockets.listen(&loopback()).await.unwrap();
        let to = listener.address();
        let mut ends = Vec::new();
        for _ in 0..700 {
            let mut near = Sockets.connect(&to).await.unwrap();
            ends.push(listener.accept().await.unwrap().stream);
            world.spawn("idle", async move { drop(near.read(&mut [0; 16]).await) });
        }
        let device = FileDevice::create(&folder.path().join("drive"), ByteCount::mib(1)).await.unwrap();
        for index in 0..100 {
            let read = device.read(ByteOffset(index * 4096), vec![Buffer::zeroed(4096)]);
            let read = with_deadline(world.sleep(Duration::from_secs(20)), read).await;
            read.expect("the drive is not behind the sockets").unwrap();
        }
    });
}

/// Sends back what comes until the peer is done.
async fn echo(mut stream: Stream) {
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.unwrap();
    stream.write_all(&received).await.unwrap();
}

#[test]
fn a_connection_that_moves_to_another_thread_keeps_what_was_sent() {
    // With a ring and without one, on either side.
    for (near, far) in [(false, false), (false, true), (true, false), (true, true)] {
        run(1, RealOptions::plain(near), async |_| {
            let folder = tempfile::tempdir().unwrap();
            for at in [loopback(), Address::Unix(folder.path().join("socket"))] {
                let listener = Sockets.listen(&at).await.unwrap();
                let mut peer = Sockets.connect(&listener.address()).await.unwrap();
                let mut stream = listener.accept().await.unwrap().stream;
                // More arrives with the first byte than is read of it.
                let sent: Vec<u8> = (0..20_000_u32).map(|number| number as u8).collect();
                peer.write_all(&sent).await.unwrap();
                let mut first = [9; 1];
                stream.read_exact(&mut first).await.unwrap();
                assert_eq!(first, [0]);
                let moving: DetachedStream = stream.detach().unwrap();
                let threads = RealThreads { seed: 1, options: RealOptions::plain(far) };
                let end = threads
                    .start("far", Box::new(|_| Box::pin(async { echo(moving.adopt().unwrap()).await })));
                let rest = vec![7; 100_000];
                peer.write_all(&rest).await.unwrap();
                peer.shutdown().await.unwrap();
                let mut back = Vec::new();
                peer.read_to_end(&mut back).await.unwrap();
                assert!(back == [&sent[1..], &rest].concat(), "over {at}, plain {near} and {far}");
                end.unwrap().await.unwrap();
            }
        });
    }
}

#[test]
fn a_movable_stream_goes_there_and_back_and_a_stream_that_is_read_stays() {
    in_each_engine(async |world, _| {
        let listener = Sockets.listen(&loopback()).await.unwrap();
        let mut peer = Sockets.connect(&listener.address()).await.unwrap();
        let mut stream = MovableStream::new(listener.accept().await.unwrap().stream);
        stream.detach().unwrap();
        let (give, back) = tokio::sync::oneshot::channel();
        let end = RealThreads::default().start(
            "far",
            Box::new(move |_| {
                Box::pin(async move {
                    stream.adopt().unwrap();
                    stream.write_all(b"there").await.unwrap();
                    stream.detach().unwrap();
                    give.send(stream).ok().unwrap();
                })
            }),
        );
        let mut stream = back.await.unwrap();
        end.unwrap().await.unwrap();
        stream.adopt().unwrap();
        stream.write_all(b" and back").await.unwrap();
        let mut said = [0; 14];
        peer.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"there and back");

        let mut stream = stream.into_stream();
        let mut nothing = [0; 1];
        let waiting = with_deadline(world.sleep(Duration::from_millis(5)), stream.read(&mut nothing)).await;
        assert!(waiting.is_none(), "nothing was sent");
        if let Err(error) = stream.detach() {
            assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
        }
    });
}
