//! More clients than a server takes: each of them hears so, and those that only sit there make room.

use crate::scene::{Scene, connect, export, read, uri};
use nbd::{
    Exports, ServerOptions, serve,
    server::Event,
    wire::handshake::{InfoRequest, OptionHead, greeting, option},
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{
    Stream, World,
    sim::{Limits, NetworkOptions, SimDrive, SimNetwork},
};

/// Clients the server takes at once.
const CLIENTS_MAX: usize = 4;

/// Serves the drive; what is told of connections that ended.
async fn start(world: &World, network: &SimNetwork, drive: &Rc<SimDrive>) -> Rc<RefCell<Vec<String>>> {
    let listener = network.host("server").listen(&uri("").address).await.unwrap();
    let options = ServerOptions { connections_max: CLIENTS_MAX, ..ServerOptions::default() };
    let ended: Rc<RefCell<Vec<String>>> = Rc::default();
    let told = Rc::clone(&ended);
    let tell = Rc::new(move |event| {
        if let Event::Disconnected { why: Some(why), .. } = event {
            told.borrow_mut().push(why.to_string());
        }
    });
    let exports = Exports::new(vec![export("mail", drive)]);
    world.spawn("server", serve(world.clone(), listener.into(), exports, options, tell));
    ended
}

/// A client that chooses an export, and then says nothing.
async fn sit(network: &SimNetwork, name: &str) -> Stream {
    let mut stream = network.host(name).connect(&uri("").address).await.unwrap();
    let mut bytes = u32::from(greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES).to_be_bytes().to_vec();
    let wanted = InfoRequest { name: "mail".to_owned(), wanted: Vec::new() };
    bytes.extend(OptionHead::write(option::GO, &wanted.write()));
    stream.write_all(&bytes).await.unwrap();
    // The greeting, and what the server says of the export.
    let mut answer = [0; 18 + 20];
    stream.read_exact(&mut answer).await.unwrap();
    stream
}

#[test]
fn who_comes_when_all_places_are_taken_hears_so_and_so_does_the_log() {
    let Scene { mut simulation, drive, network } = Scene::new(1, NetworkOptions::rack());
    let run = simulation.run(Limits::generous(), |world| async move {
        let ended = start(&world, &network, &drive).await;
        let mut clients = Vec::new();
        for _ in 0..CLIENTS_MAX {
            let client = connect(&world, &network, "mail").await.unwrap();
            read(&client, 0, 512).await.unwrap();
            clients.push(client);
        }
        world.sleep(Duration::from_secs(120)).await;
        let refused = connect(&world, &network, "mail").await.err().unwrap().to_string();
        assert!(refused.contains("4 clients are connected, as many as this server takes"), "{refused}");
        assert_eq!(*ended.borrow(), ["refused: 4 clients are connected, as many as this server takes"]);
        for client in &clients {
            read(client, 0, 512).await.expect("who has sent a request keeps its place");
        }
    });
    run.completed();
}

#[test]
fn a_client_that_hangs_up_leaves_its_place() {
    let Scene { mut simulation, drive, network } = Scene::new(3, NetworkOptions::rack());
    let run = simulation.run(Limits::generous(), |world| async move {
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
fn a_client_of_ours_that_is_dropped_while_idle_says_goodbye() {
    let Scene { mut simulation, drive, network } = Scene::new(5, NetworkOptions::rack());
    let run = simulation.run(Limits::generous(), |world| async move {
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
fn clients_that_never_ask_for_anything_keep_nobody_out() {
    let Scene { mut simulation, drive, network } = Scene::new(2, NetworkOptions::rack());
    let run = simulation.run(Limits::generous(), |world| async move {
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
        assert_eq!(last.as_deref(), Some("it sent no request for 60 s, and another client wanted its place"));
        let mut rest = Vec::new();
        sitting[0].read_to_end(&mut rest).await.unwrap();
    });
    run.completed();
}

#[test]
fn clients_that_do_not_greet_keep_nobody_out() {
    let Scene { mut simulation, drive, network } = Scene::new(3, NetworkOptions::rack());
    let run = simulation.run(Limits::generous(), |world| async move {
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
