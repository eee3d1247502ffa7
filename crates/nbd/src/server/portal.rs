//! A server whose exports are on several threads: one portal, and a part for each thread.
//!
//! The portal greets a client, begins TLS, lists exports and answers whatever names none. As soon as an option names an
//! export, the client goes to its thread, with the connection, TLS and that option; there the handshake goes on. A thread
//! sends a client back when it asks for anything that is not its own: a list, TLS, another export.
//!
//! Invariants:
//!
//! 1. Each option is answered once, by the portal or by one thread.
//! 2. A thread that does not know an export that was routed to it sends the client back once; then the portal refuses it.

use super::{
    ConnectionEnd, HandshakeSlot, ServerEvent, ServerOptions, TlsMode,
    client_slots::ClientSlots,
    handshake::{Handshake, HandshakeEnd, HandshakePolicy, ReceivedOption},
    session,
};
use crate::{
    export::{Exports, ListedExport},
    wire::handshake::named_export,
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};
use tokio::sync::Notify;
use world::{IncomingConnection, Listener, WallTime, World, network::accept_next, with_deadline};

/// A client in the handshake, on its way from one thread to another.
pub struct MovingClient {
    handshake: Handshake,
    option: ReceivedOption,
    peer: String,
    route: Option<Route>,
}

/// The reason for which a client was sent to a thread.
struct Route {
    export: String,
    /// The empty name means this export: there is no other.
    is_only: bool,
}

impl Route {
    /// True if an export of this name is the one that it was sent for.
    fn leads_to(&self, named: &str) -> bool {
        named == self.export || (named.is_empty() && self.is_only)
    }
}

impl MovingClient {
    /// The client's address.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    fn detached(
        (mut handshake, option): (Handshake, ReceivedOption),
        peer: &str,
        route: Option<Route>,
    ) -> Result<Self, ConnectionEnd> {
        handshake.stream.detach()?;
        Ok(Self { handshake, option, peer: peer.to_owned(), route })
    }
}

/// The exports of all threads, as a portal needs them.
pub trait ExportDirectory {
    /// All exports, in the order LIST returns them.
    fn listed(&self) -> Vec<ListedExport>;

    /// Sends a client to the thread of an export; `false` if that thread takes no clients now. The name is one that was
    /// listed.
    fn send(&self, export: &str, client: MovingClient) -> bool;
}

/// The portal of a server.
pub struct Portal {
    world: World,
    directory: Rc<dyn ExportDirectory>,
    options: ServerOptions,
    greetings: Rc<Cell<usize>>,
    tell: Rc<dyn Fn(ServerEvent)>,
}

impl Portal {
    pub fn new(
        world: &World,
        directory: Rc<dyn ExportDirectory>,
        options: ServerOptions,
        tell: Rc<dyn Fn(ServerEvent)>,
    ) -> Rc<Self> {
        Rc::new(Self { world: world.clone(), directory, options, greetings: Rc::default(), tell })
    }

    /// Accepts clients until the future is dropped.
    pub async fn serve(self: Rc<Self>, listener: Rc<dyn Listener>) {
        loop {
            let not_accepted = |error| (self.tell)(ServerEvent::NotAccepted(error));
            let IncomingConnection { stream, peer, .. } =
                accept_next(&self.world, &*listener, not_accepted).await;
            let Some(greeting) = HandshakeSlot::begin(&self.greetings, self.options.connections_max) else {
                let why = Some(ConnectionEnd::Full(self.options.connections_max));
                (self.tell)(ServerEvent::Disconnected { peer, why });
                continue;
            };
            let portal = Rc::clone(&self);
            self.world.spawn("nbd greeting", async move {
                let limit = portal.world.sleep(portal.options.greeting_max);
                let greeted = with_deadline(limit, Handshake::begin(stream, &portal.options.tls)).await;
                match greeted.unwrap_or(Err(ConnectionEnd::Slow)) {
                    Ok(handshake) => portal.answer(handshake, None, peer, None).await,
                    Err(why) => portal.say_ended(peer, Some(why)),
                }
                drop(greeting);
            });
        }
    }

    /// Takes a client back from a thread.
    pub fn take_back(self: &Rc<Self>, client: MovingClient) {
        let MovingClient { mut handshake, option, peer, route } = client;
        if let Err(error) = handshake.stream.adopt() {
            return self.say_ended(peer, Some(error.into()));
        }
        let portal = Rc::clone(self);
        self.world.spawn("nbd greeting", async move {
            let unknown = route.map(|route| route.export);
            portal.answer(handshake, Some(option), peer, unknown).await;
        });
    }

    /// Answers options until one of them is a thread's. `unknown`: an export that its own thread has not.
    async fn answer(
        self: &Rc<Self>,
        handshake: Handshake,
        option: Option<ReceivedOption>,
        peer: String,
        unknown: Option<String>,
    ) {
        let mut listed = self.directory.listed();
        listed.retain(|export| unknown.as_ref() != Some(&export.name));
        let only = if let [only] = &listed[..] { Some(only.name.clone()) } else { None };
        let exports = Exports::of_portal(listed);
        let policy = HandshakePolicy { exports: &exports, tls: &self.options.tls, slots: None };
        let limit = self.world.sleep(self.options.greeting_max);
        let answered = with_deadline(limit, handshake.go_on(&self.world, policy, option)).await;
        let (handshake, option) = match answered.unwrap_or(Err(ConnectionEnd::Slow)) {
            Ok(HandshakeEnd::HandOver(handshake, option)) => (handshake, option),
            Ok(HandshakeEnd::Closed) => return self.say_ended(peer, None),
            Ok(HandshakeEnd::Transmission(..)) => unreachable!("a portal has no exports of its own"),
            Err(why) => return self.say_ended(peer, Some(why)),
        };
        let named = named_export(option.option, &option.data).expect("it was handed over for an export");
        let is_only = only.is_some();
        let export = only.filter(|_| named.is_empty()).unwrap_or(named);
        let route = Route { export: export.clone(), is_only };
        match MovingClient::detached((handshake, option), &peer, Some(route)) {
            Ok(client) => {
                if !self.directory.send(&export, client) {
                    self.say_ended(peer, Some(ConnectionEnd::Refused("the export takes no clients now")));
                }
            }
            Err(why) => self.say_ended(peer, Some(why)),
        }
    }

    fn say_ended(&self, peer: String, why: Option<ConnectionEnd>) {
        (self.tell)(ServerEvent::Disconnected { peer, why });
    }
}

/// A client that uses an export, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedClient {
    /// Unique among the clients of one thread.
    pub number: u64,
    /// Its address.
    pub peer: String,
    pub export: String,
    pub since: WallTime,
    pub is_encrypted: bool,
    pub is_read_only: bool,
}

/// The clients of a thread by their numbers, with what ends each.
#[derive(Default)]
struct ConnectedClients {
    all: RefCell<BTreeMap<u64, (ListedClient, Rc<Notify>)>>,
    next: Cell<u64>,
}

/// The part of a server that is on one thread.
pub struct ThreadServer {
    world: World,
    exports: RefCell<Exports>,
    options: ServerOptions,
    slots: Rc<ClientSlots>,
    connected: ConnectedClients,
    tell: Rc<dyn Fn(ServerEvent)>,
    send_back: Rc<dyn Fn(MovingClient)>,
}

impl ThreadServer {
    /// `send_back` takes a client to the portal.
    pub fn new(
        world: &World,
        options: ServerOptions,
        tell: Rc<dyn Fn(ServerEvent)>,
        send_back: Rc<dyn Fn(MovingClient)>,
    ) -> Rc<Self> {
        let slots = ClientSlots::new(world, options.connections_max, options.idle_max);
        let exports = RefCell::new(Exports::of_thread(Vec::new()));
        let connected = ConnectedClients::default();
        Rc::new(Self { world: world.clone(), exports, options, slots, connected, tell, send_back })
    }

    /// Replaces the exports; clients of those that go stay until they disconnect. One that still negotiates is refused:
    /// who lists the clients of an export that went has seen all there will be.
    pub fn set_exports(&self, exports: Exports) {
        assert!(exports.is_of_thread(), "a thread lists only its own exports");
        self.exports.replace(exports);
    }

    /// Clients that use an export of the thread.
    pub fn clients(&self) -> usize {
        self.slots.count()
    }

    /// Clients that use an export of the thread, in the order in which they came.
    pub fn listed_clients(&self) -> Vec<ListedClient> {
        self.connected.all.borrow().values().map(|(client, _)| client.clone()).collect()
    }

    /// Disconnects a client after the requests that it has sent. False if there is no such client.
    pub fn end_client(&self, number: u64) -> bool {
        let all = self.connected.all.borrow();
        let client = all.get(&number);
        client.iter().for_each(|(_, ends)| ends.notify_one());
        client.is_some()
    }

    /// Takes a client from the portal.
    pub fn take(self: &Rc<Self>, client: MovingClient) {
        let server = Rc::clone(self);
        self.world.spawn("nbd connection", async move { server.serve(client).await });
    }

    async fn serve(self: Rc<Self>, client: MovingClient) {
        let MovingClient { mut handshake, option, peer, route } = client;
        let told = |why| (self.tell)(ServerEvent::Disconnected { peer: peer.clone(), why });
        if let Err(error) = handshake.stream.adopt() {
            return told(Some(error.into()));
        }
        let route = route.expect("a portal sends clients for an export");
        let default = route.is_only.then(|| route.export.clone());
        let exports = self.exports.borrow().clone().with_default(default);
        let policy = HandshakePolicy { exports: &exports, tls: &TlsMode::Off, slots: Some(&self.slots) };
        let limit = self.world.sleep(self.options.greeting_max);
        let ended = with_deadline(limit, handshake.go_on(&self.world, policy, Some(option))).await;
        match ended.unwrap_or(Err(ConnectionEnd::Slow)) {
            Ok(HandshakeEnd::Closed) => told(None),
            Err(why) => told(Some(why)),
            Ok(HandshakeEnd::HandOver(handshake, option)) => {
                // If it is the export of this route, it is unknown; any other is looked for as the first one was.
                let named = named_export(option.option, &option.data);
                let unknown = Some(route).filter(|route| named.is_some_and(|named| route.leads_to(&named)));
                match MovingClient::detached((handshake, option), &peer, unknown) {
                    Ok(client) => (self.send_back)(client),
                    Err(why) => told(Some(why)),
                }
            }
            Ok(HandshakeEnd::Transmission(negotiated, ..))
                if !self.exports.borrow().has(&negotiated.export) =>
            {
                told(Some(ConnectionEnd::Refused("the export was closed while the client connected")));
            }
            Ok(HandshakeEnd::Transmission(negotiated, stream, slot)) => {
                let (export, is_encrypted) = (negotiated.export.name.clone(), negotiated.is_encrypted);
                let (number, ends) = (self.connected.next.get(), Rc::new(Notify::new()));
                self.connected.next.set(number + 1);
                let client = ListedClient {
                    number,
                    peer: peer.clone(),
                    export: export.clone(),
                    since: self.world.wall(),
                    is_encrypted,
                    is_read_only: negotiated.export.is_read_only,
                };
                self.connected.all.borrow_mut().insert(number, (client, Rc::clone(&ends)));
                (self.tell)(ServerEvent::Connected { peer: peer.clone(), export, is_encrypted });
                let gate = Rc::clone(&negotiated.export.gate);
                gate.begin_client();
                let transmission = (negotiated, stream, slot);
                let why = session::transmit(&self.world, transmission, &self.options, &ends).await;
                gate.end_client(why.is_ok());
                self.connected.all.borrow_mut().remove(&number);
                told(why.err());
            }
        }
    }
}
