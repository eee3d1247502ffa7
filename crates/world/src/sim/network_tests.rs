//! The simulated network against TCP's guarantees.

use super::{NetworkOptions, SimLimits, SimNetwork, SimOutcome, Simulation, WINDOW_BYTES};
use crate::{Address, IoErrorKind, Random, Stream, World};
use std::{cell::Cell, future::Future, io, rc::Rc, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn server() -> Address {
    Address::Tcp { host: "server".to_owned(), port: 3260 }
}

/// Runs `main` with a network of that seed; returns its result and the trace.
fn run<T: 'static, F: Future<Output = T> + 'static>(
    seed: u64,
    options: NetworkOptions,
    main: impl FnOnce(World, SimNetwork) -> F,
) -> (T, u64) {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(options);
    let outcome = simulation.run(SimLimits::generous(), |world| main(world, network));
    (outcome.completed(), simulation.trace().value())
}

/// A connection from host `client` to host `server`: the client's end, then the server's.
async fn connection(network: &SimNetwork) -> (Stream, Stream) {
    let listener = network.host("server").listen(&server()).await.unwrap();
    let client = network.host("client").connect(&server()).await.unwrap();
    let accepted = listener.accept().await.unwrap();
    assert_eq!(accepted.peer, "client");
    (client, accepted.stream)
}

/// Sends a megabyte in chunks of random size; returns the bytes sent and received.
async fn megabyte(world: World, network: SimNetwork) -> (Vec<u8>, Vec<u8>) {
    let (mut client, mut at_server) = connection(&network).await;
    let mut sent = vec![0; 1 << 20];
    world.random("content").fill(&mut sent);
    let content = sent.clone();
    let mut sizes: Random = world.random("sizes");
    let sending = world.spawn("sender", async move {
        let mut rest = &content[..];
        while !rest.is_empty() {
            let count = rest.len().min(1 + sizes.below(9000) as usize);
            client.write_all(&rest[..count]).await.unwrap();
            rest = &rest[count..];
        }
        client.shutdown().await.unwrap();
        client
    });
    let mut received = Vec::new();
    at_server.read_to_end(&mut received).await.unwrap();
    drop(sending.await);
    (sent, received)
}

#[test]
fn bytes_arrive_complete_and_in_order_and_a_seed_is_one_run() {
    for seed in 0..20 {
        let ((sent, received), trace) = run(seed, NetworkOptions::rack(), megabyte);
        assert!(sent == received, "seed {seed}");
        let (_, again) = run(seed, NetworkOptions::rack(), megabyte);
        assert_eq!(trace, again, "seed {seed}");
    }
}

#[test]
fn data_arrives_after_its_latency() {
    let options = NetworkOptions { latency: Duration::from_millis(10), ..NetworkOptions::rack() };
    run(1, options, |world, network| async move {
        let (mut client, mut at_server) = connection(&network).await;
        let began = world.now();
        client.write_all(b"ping").await.unwrap();
        let mut read = [0; 4];
        at_server.read_exact(&mut read).await.unwrap();
        let took = world.now().since(began);
        assert!(took >= Duration::from_millis(10) && took < Duration::from_millis(11), "{took:?}");
    });
}

#[test]
fn a_cut_link_delays_data_and_loses_none() {
    run(2, NetworkOptions::rack(), |world, network| async move {
        let (mut client, mut at_server) = connection(&network).await;
        network.cut("server", "client");
        client.write_all(b"late").await.unwrap();
        let has_come = Rc::new(Cell::new(false));
        let reading = world.spawn("reader", {
            let has_come = Rc::clone(&has_come);
            async move {
                let mut read = [0; 4];
                at_server.read_exact(&mut read).await.unwrap();
                has_come.set(true);
                read
            }
        });
        world.sleep(Duration::from_secs(60)).await;
        assert!(!has_come.get(), "nothing passes a cut link");
        network.restore("client", "server");
        assert_eq!(&reading.await, b"late");
    });
}

#[test]
fn a_connection_that_is_reset_breaks_at_both_ends() {
    run(3, NetworkOptions::rack(), |world, network| async move {
        let (mut client, mut at_server) = connection(&network).await;
        let reading =
            world.spawn("reader", async move { at_server.read_u8().await.map_err(|error| error.kind()) });
        world.sleep(Duration::from_millis(1)).await;
        network.reset("client", "server");
        assert_eq!(reading.await, Err(io::ErrorKind::ConnectionReset));
        assert_eq!(client.write_all(b"x").await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_sender_waits_for_the_receiver() {
    run(4, NetworkOptions::rack(), |world, network| async move {
        let (mut client, mut at_server) = connection(&network).await;
        let sent = Rc::new(Cell::new(0));
        let counted = Rc::clone(&sent);
        world.spawn("sender", async move {
            while client.write_all(&[7; 1024]).await.is_ok() {
                counted.set(counted.get() + 1024);
            }
        });
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(sent.get(), WINDOW_BYTES);
        at_server.read_exact(&mut [0; 4096]).await.unwrap();
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(sent.get(), WINDOW_BYTES + 4096);
        drop(at_server);
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(sent.get(), WINDOW_BYTES + 4096, "the receiver has stopped");
    });
}

#[test]
fn connecting_without_a_listener_and_listening_on_a_used_address_fail() {
    run(5, NetworkOptions::rack(), |_, network| async move {
        let kind = |refused: crate::IoError| refused.kind();
        let refused = network.host("client").connect(&server()).await.map(drop).map_err(kind);
        assert_eq!(refused, Err(IoErrorKind::Disconnected));
        let listener = network.host("server").listen(&server()).await.unwrap();
        let taken = network.host("server").listen(&server()).await.map(drop).map_err(kind);
        assert_eq!(taken, Err(IoErrorKind::Busy));
        drop(listener);
        assert!(network.host("server").listen(&server()).await.is_ok(), "it is free again");
    });
}

#[test]
fn connections_break_at_the_same_points_in_each_run_of_a_seed() {
    let options = NetworkOptions { reset_percent: 1.0, ..NetworkOptions::rack() };
    let sends_until_it_breaks = |seed| {
        run(seed, options, |_, network| async move {
            let (mut client, _at_server) = connection(&network).await;
            let mut count = 0;
            while count < 255 && client.write_all(b"x").await.is_ok() {
                count += 1;
            }
            count
        })
    };
    let counts: Vec<_> = (0..20).map(sends_until_it_breaks).collect();
    assert_eq!(counts, (0..20).map(sends_until_it_breaks).collect::<Vec<_>>());
    assert!(counts.iter().any(|(count, _)| *count < 255), "some break: {counts:?}");
}

#[test]
fn connections_end_with_their_incarnation() {
    let mut simulation = Simulation::new(6);
    let network = simulation.add_network(NetworkOptions::rack());
    let own = network.clone();
    let limits = SimLimits { polls: Some(60), ..SimLimits::generous() };
    let outcome = simulation.run(limits, |_| async move {
        let (mut client, mut at_server) = connection(&own).await;
        loop {
            client.write_all(b"x").await.unwrap();
            at_server.read_u8().await.unwrap();
        }
    });
    assert_eq!(outcome, SimOutcome::<()>::Crashed);
    simulation.kill();
    let again = simulation.run(SimLimits::generous(), |_| async move { drop(connection(&network).await) });
    assert_eq!(again, SimOutcome::Completed(()));
}
