//! A server with three threads and one portal: clients go to the thread of the export that they name.

use crate::{
    certificates::Authority,
    scene::{SIZE, Scene, connect, connect_with, export, read, uri},
};
use nbd::{
    Client, Export, Exports, ListedExport, ServerOptions, TlsMode,
    server::{
        ServerEvent,
        portal::{ExportDirectory, MovingClient, Portal, ThreadServer},
    },
    wire::handshake::{
        ContextRequest, InfoRequest, OptionHead, OptionReplyHead, handshake_flag, option, reply,
    },
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{
    BlockDevice, Buffer, ByteOffset, IoErrorKind, Stability, Stream, World,
    sim::{NetworkOptions, SimDrive, SimLimits, SimNetwork},
};

/// Threads by the export that each serves. They are tasks here; what goes to them may be sent to others.
struct Threads {
    threads: Vec<(String, Rc<ThreadServer>)>,
    /// Clients that were sent to a thread.
    sent: Cell<usize>,
    stopped: RefCell<Vec<String>>,
}

fn must_be_sent<T: Send>(value: T) -> T {
    value
}

impl ExportDirectory for Threads {
    fn listed(&self) -> Vec<ListedExport> {
        let listed = |(name, _): &(String, _)| ListedExport {
            name: name.clone(),
            description: String::new(),
            is_stopped: self.stopped.borrow().contains(name),
        };
        self.threads.iter().map(listed).collect()
    }

    fn send(&self, export: &str, client: MovingClient) -> bool {
        self.sent.set(self.sent.get() + 1);
        let thread = self.threads.iter().find(|(name, _)| name == export);
        thread.map(|(_, thread)| thread.take(must_be_sent(client))).is_some()
    }
}

pub struct Served {
    threads: Rc<Threads>,
    events: Rc<RefCell<Vec<String>>>,
}

pub async fn serve(world: &World, network: &SimNetwork, exports: Vec<Export>, tls: TlsMode) -> Served {
    let events: Rc<RefCell<Vec<String>>> = Rc::default();
    let told = Rc::clone(&events);
    let tell: Rc<dyn Fn(ServerEvent)> = Rc::new(move |event| {
        told.borrow_mut().push(match event {
            ServerEvent::Connected { export, is_encrypted, .. } => format!("uses {export} {is_encrypted}"),
            ServerEvent::Disconnected { why: None, .. } => "done".to_owned(),
            ServerEvent::Disconnected { why: Some(why), .. } => why.to_string(),
            ServerEvent::NotAccepted(error) => error.to_string(),
        });
    });
    let portal: Rc<RefCell<Option<Rc<Portal>>>> = Rc::default();
    let thread = |export: Export| {
        let back = Rc::clone(&portal);
        let send_back: Rc<dyn Fn(MovingClient)> =
            Rc::new(move |client| back.borrow().as_ref().unwrap().take_back(must_be_sent(client)));
        let thread = ThreadServer::new(world, ServerOptions::default(), Rc::clone(&tell), send_back);
        let name = export.name.clone();
        thread.set_exports(Exports::of_thread(vec![export]));
        (name, thread)
    };
    let threads = exports.into_iter().map(thread).collect();
    let threads = Rc::new(Threads { threads, sent: Cell::new(0), stopped: RefCell::default() });
    let options = ServerOptions { tls, ..ServerOptions::default() };
    let directory: Rc<dyn ExportDirectory> = Rc::clone(&threads) as _;
    portal.replace(Some(Portal::new(world, directory, options, tell)));
    let listener = network.host("server").listen(&uri("").address).await.unwrap();
    let serving = Rc::clone(portal.borrow().as_ref().unwrap()).serve(listener.into());
    world.spawn("portal", serving);
    Served { threads, events }
}

/// The same drive as three exports would hide a mistake: each export starts with its own number.
fn three(drives: &[Rc<SimDrive>; 3]) -> Vec<Export> {
    ["a", "b", "c"].into_iter().zip(drives).map(|(name, drive)| export(name, drive)).collect()
}

fn scene(seed: u64) -> (Scene, [Rc<SimDrive>; 3]) {
    let mut scene = Scene::new(seed, NetworkOptions::rack());
    let mut add = || scene.simulation.add_drive(world::sim::DriveOptions::new(world::ByteCount(SIZE)));
    let others = [add(), add()];
    let [b, c] = others;
    let drives = [Rc::clone(&scene.drive), b, c];
    (scene, drives)
}

async fn write(client: &Client, value: u8) {
    let data = vec![Arc::new(Buffer::copy_of(&[value; 4096]))];
    client.write(ByteOffset(0), data, Stability::Stable).await.unwrap();
}

#[test]
fn each_client_reaches_the_thread_of_its_export_in_the_clear_and_over_tls() {
    for is_encrypted in [false, true] {
        let (Scene { mut simulation, network, .. }, drives) = scene(1);
        let run = simulation.run(SimLimits::generous(), move |world| async move {
            let authority = Authority::new();
            let tls = if is_encrypted { TlsMode::Required(authority.server("server")) } else { TlsMode::Off };
            let Served { threads, events } = serve(&world, &network, three(&drives), tls).await;
            let mut clients = Vec::new();
            for (value, name) in (1..).zip(["a", "b", "c", "b"]) {
                let client = if is_encrypted {
                    connect_with(&world, &network, name, authority.client(None)).await.unwrap()
                } else {
                    connect(&world, &network, name).await.unwrap()
                };
                write(&client, value).await;
                clients.push(client);
            }
            // Data in several pieces, over TLS too.
            for client in &clients {
                assert_eq!(read(client, 0, SIZE as usize).await.unwrap().len(), SIZE as usize);
            }
            for (drive, value) in drives.iter().zip([1, 4, 3]) {
                assert_eq!(read(&**drive, 0, 4096).await.unwrap(), vec![value; 4096]);
            }
            assert_eq!(threads.sent.get(), 4, "each was sent once");
            let uses = |name: &str| format!("uses {name} {is_encrypted}");
            assert_eq!(*events.borrow(), ["a", "b", "c", "b"].map(uses));
            let unknown = if is_encrypted {
                connect_with(&world, &network, "d", authority.client(None)).await
            } else {
                connect(&world, &network, "d").await
            };
            let unknown = unknown.err().expect("there is none");
            assert_eq!(unknown.kind(), IoErrorKind::NotFound, "{unknown}");
        });
        run.completed();
    }
}

/// A connection after the greeting, driven by the test.
async fn greeted(network: &SimNetwork) -> Stream {
    let mut stream = network.host("client").connect(&uri("").address).await.unwrap();
    stream.read_exact(&mut [0; 18]).await.unwrap();
    let flags = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
    stream.write_all(&flags.to_be_bytes()).await.unwrap();
    stream
}

/// The kinds of all replies to an option, and the data of the first one.
async fn replies(stream: &mut Stream, asked: u32, data: &[u8]) -> (Vec<u32>, Vec<u8>) {
    stream.write_all(&OptionHead::write(asked, data)).await.unwrap();
    let (mut kinds, mut first) = (Vec::new(), None);
    loop {
        let mut head = [0; OptionReplyHead::BYTES];
        stream.read_exact(&mut head).await.unwrap();
        let head = OptionReplyHead::read(&head).unwrap();
        let mut data = vec![0; head.length as usize];
        stream.read_exact(&mut data).await.unwrap();
        assert_eq!(head.option, asked);
        first.get_or_insert(data);
        kinds.push(head.reply);
        if head.reply == reply::ACK || head.reply & 1 << 31 != 0 {
            return (kinds, first.unwrap());
        }
    }
}

pub fn info(name: &str) -> Vec<u8> {
    InfoRequest { name: name.to_owned(), wanted: Vec::new() }.write()
}

#[test]
fn a_client_that_looks_at_several_exports_wanders_between_their_threads() {
    let (Scene { mut simulation, network, .. }, drives) = scene(2);
    let run = simulation.run(SimLimits::generous(), move |world| async move {
        let Served { threads, events } = serve(&world, &network, three(&drives), TlsMode::Off).await;
        let mut stream = greeted(&network).await;
        let found = [reply::INFO, reply::INFO, reply::ACK];
        assert_eq!(replies(&mut stream, option::LIST, &[]).await.0, [2, 2, 2, 1]);
        assert_eq!(replies(&mut stream, option::STRUCTURED_REPLY, &[]).await.0, [reply::ACK]);
        for name in ["a", "a", "b", "c", "a"] {
            assert_eq!(replies(&mut stream, option::INFO, &info(name)).await.0, found, "{name}");
        }
        assert_eq!(threads.sent.get(), 4, "twice the same is no journey");
        assert_eq!(replies(&mut stream, option::LIST, &[]).await.0, [2, 2, 2, 1], "from a thread, too");
        assert_eq!(replies(&mut stream, option::INFO, &info("d")).await.0, [reply::UNKNOWN]);
        assert_eq!(replies(&mut stream, option::STARTTLS, &[]).await.0, [reply::POLICY]);
        // What was negotiated came along: contexts need structured replies.
        let contexts = ContextRequest { name: "b".to_owned(), queries: vec!["base:allocation".to_owned()] };
        let (kinds, _) = replies(&mut stream, option::SET_META_CONTEXT, &contexts.write()).await;
        assert_eq!(kinds, [reply::META_CONTEXT, reply::ACK]);
        // The selection was for another export.
        assert_eq!(replies(&mut stream, option::GO, &info("c")).await.0, found);
        assert_eq!(*events.borrow(), ["uses c false"]);
        drop(stream);
        world.sleep(std::time::Duration::from_millis(1)).await;
        assert_eq!(*events.borrow(), ["uses c false", "done"]);
    });
    run.completed();
}

#[test]
fn an_export_that_its_thread_has_no_more_is_refused_once() {
    let (Scene { mut simulation, network, .. }, drives) = scene(3);
    let run = simulation.run(SimLimits::generous(), move |world| async move {
        let Served { threads, .. } = serve(&world, &network, three(&drives), TlsMode::Off).await;
        // It is listed still.
        threads.threads[1].1.set_exports(Exports::of_thread(Vec::new()));
        let mut stream = greeted(&network).await;
        assert_eq!(replies(&mut stream, option::INFO, &info("b")).await.0, [reply::UNKNOWN]);
        assert_eq!(threads.sent.get(), 1, "no journey without an end");
        assert_eq!(replies(&mut stream, option::INFO, &info("a")).await.0.len(), 3);
        threads.stopped.borrow_mut().push("c".to_owned());
        let (kinds, why) = replies(&mut stream, option::INFO, &info("c")).await;
        assert_eq!((kinds, threads.sent.get()), (vec![reply::POLICY], 2));
        assert_eq!(
            String::from_utf8(why).unwrap(),
            "the pool of the export is stopped; see the server's log"
        );
    });
    run.completed();
}

#[test]
fn a_client_that_still_negotiates_when_its_export_goes_never_uses_it() {
    for is_replaced in [false, true] {
        let (Scene { mut simulation, network, .. }, drives) = scene(6);
        let run = simulation.run(SimLimits::generous(), move |world| async move {
            let Served { threads, events } = serve(&world, &network, three(&drives), TlsMode::Off).await;
            let mut stream = greeted(&network).await;
            assert_eq!(replies(&mut stream, option::INFO, &info("b")).await.0.len(), 3);
            // Another volume under the same name is another export.
            let others = if is_replaced { vec![export("b", &drives[2])] } else { Vec::new() };
            threads.threads[1].1.set_exports(Exports::of_thread(others));
            stream.write_all(&OptionHead::write(option::GO, &info("b"))).await.unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
            assert_eq!(*events.borrow(), ["refused: the export was closed while the client connected"]);
            assert!(threads.threads[1].1.listed_clients().is_empty());
        });
        run.completed();
    }
}

#[test]
fn no_name_means_the_only_export_of_all_threads() {
    let (Scene { mut simulation, network, .. }, drives) = scene(4);
    let run = simulation.run(SimLimits::generous(), move |world| async move {
        let exports = three(&drives).into_iter().take(1).collect();
        let Served { threads, .. } = serve(&world, &network, exports, TlsMode::Off).await;
        let client = connect(&world, &network, "").await.unwrap();
        write(&client, 9).await;
        assert_eq!(read(&*drives[0], 0, 4096).await.unwrap(), vec![9; 4096]);
        threads.threads[0].1.set_exports(Exports::of_thread(Vec::new()));
        assert!(connect(&world, &network, "").await.is_err(), "and then there is none");
    });
    run.completed();

    let (Scene { mut simulation, network, .. }, drives) = scene(5);
    let run = simulation.run(SimLimits::generous(), move |world| async move {
        serve(&world, &network, three(&drives), TlsMode::Off).await;
        let mut stream = greeted(&network).await;
        assert_eq!(replies(&mut stream, option::INFO, &info("a")).await.0.len(), 3);
        // The thread of `a` has one export only; the server has three.
        assert_eq!(replies(&mut stream, option::INFO, &info("")).await.0, [reply::UNKNOWN]);
    });
    run.completed();
}

#[test]
fn a_client_that_is_ended_while_its_request_waits_for_room_leaves() {
    let mut scene = Scene::new(11, NetworkOptions::rack());
    const LARGEST: usize = 32 << 20;
    let second = world::sim::ServiceTime {
        least: Duration::from_secs(1),
        mean_above: Duration::ZERO,
        per_mib: Duration::ZERO,
    };
    let size = world::ByteCount(4 * LARGEST as u64);
    let slow = world::sim::DriveOptions { read: second, ..world::sim::DriveOptions::new(size) };
    let drive = scene.simulation.add_drive(slow);
    let Scene { mut simulation, network, .. } = scene;
    let run = simulation.run(SimLimits::generous(), move |world| async move {
        let served = serve(&world, &network, vec![export("a", &drive)], TlsMode::Off).await;
        let client = Rc::new(connect(&world, &network, "a").await.unwrap());
        // Two of them take all the room of a connection.
        for at in 0..3 {
            let client = Rc::clone(&client);
            world.spawn("read", async move {
                let _ = read(&*client, at * LARGEST as u64, LARGEST).await;
            });
        }
        world.sleep(Duration::from_millis(500)).await;
        let thread = &served.threads.threads[0].1;
        let number = thread.listed_clients()[0].number;
        assert!(thread.end_client(number), "it is there");
        world.sleep(Duration::from_secs(20)).await;
        let ended = served.events.borrow().iter().any(|event| event.contains("operator"));
        assert!(ended, "it is still there: {:?}", served.events.borrow());
    });
    run.completed();
}
