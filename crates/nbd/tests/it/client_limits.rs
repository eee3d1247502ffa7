//! The limit of clients, and idle clients.

use crate::scene::{Scene, connect, export, read, uri};
use nbd::{
    Exports, ServerOptions, serve,
    server::ServerEvent,
    wire::handshake::{InfoRequest, OptionHead, handshake_flag, option},
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{
    Stream, World,
    sim::{NetworkOptions, SimDrive, SimLimits, SimNetwork},
};

const CLIENTS_MAX: usize = 4;

/// Serves the drive and records the reasons of ended connections.
async fn start(world: &World, network: &SimNetwork, drive: &Rc<SimDrive>) -> Rc<RefCell<Vec<String>>> {
    let listener = network.host("server").listen(&uri("").address).await.unwrap();
    let options = ServerOptions { connections_max: CLIENTS_MAX, ..ServerOptions::default() };
    let ended: Rc<RefCell<Vec<String>>> = Rc::default();
    let told = Rc::clone(&ended);
    let tell = Rc::new(move |event| {
        if let ServerEvent::Disconnected { why: Some(why), .. } = event {
            told.borrow_mut().push(why.to_string());
        }
    });
    let exports = Exports::new(vec![export("mail", drive)]);
    world.spawn("server", serve(world.clone(), listener.into(), exports, options, tell));
    ended
}

/// A client that enters transmission and then sends nothing.
async fn sit(network: &SimNetwork, name: &str) -> Stream {
    let mut stream = network.host(name).connect(&uri("").address).await.unwrap();
    let mut bytes =
        u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes().to_vec();
    let wanted = InfoRequest { name: "mail".to_owned(), wanted: Vec::new() };
    bytes.extend(OptionHead::write(option::GO, &wanted.write()));
    stream.write_all(&bytes).await.unwrap();
    // Greeting and option reply.
    let mut answer = [0; 18 + 20];
    stream.read_exact(&mut answer).await.unwrap();
    stream
}

#[test]
fn a_client_beyond_the_limit_is_refused_and_logged() {
    let Scene { mut simulation, drive, network } = Scene::new(1, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let ended = start(&world, &network, &drive).await;
        let mut clients = Vec::new();
        for _ in 0..CLIENTS_MAX {
            let client = connect(&world, &network, "mail").await.unwrap();
            read(&client, 0, 512).await.unwrap();
            clients.push(client);
        }
        world.sleep(Duration::from_secs(120)).await;
        let refused = connect(&world, &network, "mail").await.err().unwrap().to_string();
        assert!(refused.contains("4 clients are connected, the limit of this server"), "{refused}");
        assert_eq!(*ended.borrow(), ["refused: 4 clients are connected, the limit of this server"]);
        for client in &clients {
            read(client, 0, 512).await.expect("who has sent a request keeps its place");
        }
    });
    run.completed();
}

#[test]
fn a_client_that_disconnects_frees_its_slot() {
    let Scene { mut simulation, drive, network } = Scene::new(3, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        start(&world, &network, &drive).await;
        for _ in 0..3 * CLIENTS_MAX {
            drop(sit(&network, "client").await);
            world.sleep(Duration::from_secs(1)).await;
        }
        let client = connect(&world, &network, "mail").await.expect("there are places");
        read(&client, 0, 512).await.expect("readable");
    });
    run.completed();
}

#[test]
fn a_dropped_idle_client_disconnects_properly() {
    let Scene { mut simulation, drive, network } = Scene::new(5, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let ended = start(&world, &network, &drive).await;
        for _ in 0..3 * CLIENTS_MAX {
            let client = connect(&world, &network, "mail").await.expect("there are places");
            read(&client, 0, 512).await.expect("readable");
            drop(client);
            world.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(*ended.borrow(), [""; 0], "no connection broke, and none was refused");
    });
    run.completed();
}

#[test]
fn idle_clients_lose_their_slot_to_new_ones() {
    let Scene { mut simulation, drive, network } = Scene::new(2, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let ended = start(&world, &network, &drive).await;
        let mut sitting = Vec::new();
        for number in 0..CLIENTS_MAX {
            sitting.push(sit(&network, &format!("idle-{number}")).await);
        }
        assert!(connect(&world, &network, "mail").await.is_err(), "they may be about to ask");
        world.sleep(Duration::from_secs(60)).await;
        let client = connect(&world, &network, "mail").await.expect("the first of them makes room");
        read(&client, 0, 512).await.unwrap();
        world.sleep(Duration::from_secs(1)).await;
        let last = ended.borrow().last().cloned();
        assert_eq!(last.as_deref(), Some("sent no request for 60 s and was disconnected for another client"));
        let mut rest = Vec::new();
        sitting[0].read_to_end(&mut rest).await.unwrap();
    });
    run.completed();
}

#[test]
fn clients_in_the_handshake_hold_no_slot() {
    let Scene { mut simulation, drive, network } = Scene::new(3, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let ended = start(&world, &network, &drive).await;
        let mut silent = Vec::new();
        for number in 0..=CLIENTS_MAX {
            silent.push(network.host(&format!("silent-{number}")).connect(&uri("").address).await.unwrap());
        }
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(ended.borrow().len(), 1, "one was too many even for that");
        world.sleep(Duration::from_secs(10)).await;
        connect(&world, &network, "mail").await.expect("they were given up after 10 s");
        assert_eq!(ended.borrow().len(), 1 + CLIENTS_MAX);
    });
    run.completed();
}
