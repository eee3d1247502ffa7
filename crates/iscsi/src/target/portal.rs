//! Targets on several threads behind one listener.
//!
//! The portal reads the first login request of a connection (RFC 7143, 6.3: it names the initiator, and the target unless it is
//! a discovery session). A login to a target goes to that target's thread, with the connection and the bytes that were read;
//! all of the login is answered there. Discovery, and logins to names that no thread has, are the portal's own.
//!
//! Invariant: a connection is answered by one thread, from its first login response on.

use super::{
    SessionFailure, TargetEvent, Targets, answer,
    connection::{ArrivedConnection, LOGIN_MAX},
    login::TEXT_BYTES_MAX,
    send_queue::{SendQueue, StatSn},
};
use crate::{
    session::login::LoginRefusal,
    wire::{
        header::{Login, LoginResponse, PduHeader, opcode},
        pdu::{Digests, Pdu},
        text,
    },
};
use std::{cell::RefCell, rc::Rc};
use world::{
    IncomingConnection, Listener, Stream, World,
    network::{accept_next, handover::DetachedStream},
    with_deadline,
};

/// A connection on its way to the thread of the target that its first login request names.
pub struct MovingConnection {
    stream: DetachedStream,
    received: Vec<u8>,
    peer: String,
    portal: String,
}

impl MovingConnection {
    /// The initiator's address.
    pub fn peer(&self) -> &str {
        &self.peer
    }
}

/// The threads of a server, as a portal needs them.
pub trait TargetDirectory {
    /// The targets as the portal answers for them: its sessions, the names of all targets, and the rights on them.
    fn targets(&self) -> Targets;

    /// The place of a target; the case of its name does not count.
    fn place(&self, target: &str) -> TargetPlace;

    /// Sends a connection to the thread of a target; `false` if that thread has just ended.
    fn send(&self, target: &str, connection: MovingConnection) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetPlace {
    /// By a thread that runs.
    Thread,
    /// By a thread that has ended.
    Stopped,
    Nowhere,
}

/// Accepts connections for all threads until the future is dropped.
pub async fn serve_portal(
    world: World,
    listener: Rc<dyn Listener>,
    directory: Rc<dyn TargetDirectory>,
    tell: Rc<dyn Fn(TargetEvent)>,
) {
    let address = listener.address();
    loop {
        let IncomingConnection { stream, peer, local, .. } =
            accept_next(&world, &*listener, |error| tell(TargetEvent::NotAccepted(error))).await;
        let portal = if address.is_any() { local.to_string() } else { address.to_string() };
        let (own, directory, tell) = (world.clone(), Rc::clone(&directory), Rc::clone(&tell));
        world.spawn("iscsi greeting", async move {
            match route(&own, (stream, peer.clone(), portal), &*directory).await {
                Ok(Route::Sent) => {}
                Ok(Route::Own(arrived)) => answer(&own, arrived, peer, &directory.targets(), &tell).await,
                Err(why) => tell(TargetEvent::Ended { peer, why }),
            }
        });
    }
}

enum Route {
    /// Another thread has it.
    Sent,
    Own(ArrivedConnection),
}

/// Reads the first login request and sends the connection where it belongs. The error is the end of the connection, with
/// its reason.
async fn route(
    world: &World,
    (mut stream, peer, portal): (Stream, String, String),
    directory: &dyn TargetDirectory,
) -> Result<Route, Option<SessionFailure>> {
    let reading = Pdu::read(&mut stream, Digests::default(), TEXT_BYTES_MAX);
    let request = with_deadline(world.sleep(LOGIN_MAX), reading).await;
    let request = request.ok_or(Some(SessionFailure::LoginTimeout))?;
    let request = request.map_err(|error| Some(error.into()))?.ok_or(None)?;
    let received = request.encode(Digests::default());
    let target = target_of(&request).map(|target| (directory.place(&target), target));
    match target {
        Some((TargetPlace::Thread, target)) => {
            let stream = stream.detach().map_err(|error| Some(SessionFailure::Send(error)))?;
            if directory.send(&target, MovingConnection { stream, received, peer, portal }) {
                Ok(Route::Sent)
            } else {
                Err(Some(SessionFailure::LoginRefused(LoginRefusal::UNAVAILABLE)))
            }
        }
        Some((TargetPlace::Stopped, _)) => {
            let refused = refuse_for_now(&mut stream, &request).await;
            Err(Some(refused.err().unwrap_or(SessionFailure::LoginRefused(LoginRefusal::UNAVAILABLE))))
        }
        Some((TargetPlace::Nowhere, _)) | None => {
            Ok(Route::Own(ArrivedConnection { stream, received, portal }))
        }
    }
}

/// Answers a first login request that the initiator may repeat later.
async fn refuse_for_now(stream: &mut Stream, request: &Pdu) -> Result<(), SessionFailure> {
    let request = Login::of(&request.header);
    let LoginRefusal(status_class, status_detail) = LoginRefusal::UNAVAILABLE;
    let (isid, itt) = (request.isid, request.itt);
    let response = LoginResponse { isid, itt, status_class, status_detail, ..LoginResponse::empty() };
    let answers = SendQueue::new(1, request.cmd_sn.get());
    answers.send(&response, StatSn::Advance, &[]);
    answers.write_now(stream).await.map_err(SessionFailure::Send)
}

/// The target that a first login request names.
fn target_of(request: &Pdu) -> Option<String> {
    if request.opcode() != opcode::LOGIN {
        return None;
    }
    let pairs = text::read(&request.data)?;
    let value = |key: &str| pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone());
    value("TargetName").filter(|_| value("SessionType").is_none_or(|kind| kind == "Normal"))
}

/// The targets of one thread.
pub struct ThreadTargets {
    world: World,
    targets: RefCell<Targets>,
    tell: Rc<dyn Fn(TargetEvent)>,
}

impl ThreadTargets {
    pub fn new(world: &World, targets: Targets, tell: Rc<dyn Fn(TargetEvent)>) -> Rc<Self> {
        Rc::new(Self { world: world.clone(), targets: RefCell::new(targets), tell })
    }

    /// The targets that new sessions are bound to.
    pub fn targets(&self) -> Targets {
        self.targets.borrow().clone()
    }

    /// Replaces the targets for new sessions; sessions that there are keep theirs.
    pub fn set_targets(&self, targets: Targets) {
        self.targets.replace(targets);
    }

    /// Takes a connection from the portal.
    pub fn take(self: &Rc<Self>, connection: MovingConnection) {
        let MovingConnection { stream, received, peer, portal } = connection;
        let stream = match stream.adopt() {
            Ok(stream) => stream,
            Err(error) => {
                let why = Some(SessionFailure::Send(error));
                return (self.tell)(TargetEvent::Ended { peer, why });
            }
        };
        let server = Rc::clone(self);
        self.world.spawn("iscsi connection", async move {
            let arrived = ArrivedConnection { stream, received, portal };
            let targets = server.targets();
            answer(&server.world, arrived, peer, &targets, &server.tell).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::pdu::HEADER_BYTES;

    fn request(opcode: u8, keys: &str) -> Pdu {
        let mut header = [0; HEADER_BYTES];
        header[0] = opcode;
        Pdu::new(header, keys.replace(' ', "\0").into_bytes())
    }

    #[test]
    fn a_login_to_a_target_names_it_and_nothing_else_does() {
        let named = |keys: &str| target_of(&request(opcode::LOGIN, keys));
        assert_eq!(named("InitiatorName=i TargetName=t "), Some("t".to_owned()));
        assert_eq!(named("SessionType=Normal TargetName=t "), Some("t".to_owned()));
        assert_eq!(named("SessionType=Discovery TargetName=t "), None);
        assert_eq!(named("InitiatorName=i "), None);
        assert_eq!(named("no pair"), None);
        assert_eq!(target_of(&request(opcode::TEXT, "TargetName=t ")), None);
    }
}
