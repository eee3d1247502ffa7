//! Login over a connection.

use super::{
    SessionFailure, Target, Targets,
    failed_logins::ThrottledLogins,
    send_queue::{SendQueue, StatSn},
    unit_holders::HeldUnits,
};
use crate::{
    session::{
        login::{LoginRefusal, NewSession, TargetLogin},
        negotiation::SessionParameters,
    },
    wire::{
        header::{Login, LoginResponse, PduHeader, opcode},
        pdu::{Digests, Pdu},
        text,
    },
};
use std::rc::Rc;
use tokio::io::{AsyncRead, AsyncWrite};
use world::World;

/// Longest data segment of a login request.
pub(super) const TEXT_BYTES_MAX: usize = 64 * 1024;

/// A session after its login.
pub(super) struct LoggedIn {
    pub session: NewSession<Rc<Target>>,
    pub send_queue: SendQueue,
    pub held: HeldUnits,
}

/// Logs an initiator at the address `peer` in; `None` if it disconnected first or was redirected.
pub async fn log_in(
    world: &World,
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    targets: &Targets,
    peer: &str,
) -> Result<Option<LoggedIn>, SessionFailure> {
    let mut machine = TargetLogin::new(world, targets);
    let mut send_queue: Option<SendQueue> = None;
    let mut initiator = None;
    loop {
        let pdu = Pdu::read(reader, Digests::default(), TEXT_BYTES_MAX).await?;
        let Some(pdu) = pdu else { return Ok(None) };
        if pdu.opcode() != opcode::LOGIN {
            return Err(SessionFailure::CommandBeforeLogin);
        }
        let request = Login::of(&pdu.header);
        // Login requests are immediate: their CmdSN is that of the first command.
        let send_queue = send_queue.get_or_insert_with(|| SendQueue::new(1, request.cmd_sn.get()));
        let answered = match throttled(world, targets, (&mut initiator, peer), &pdu) {
            Some(refusal) => Err(SessionFailure::LoginsThrottled(Box::new(refusal))),
            None => machine.take(&request, &pdu.data).map_err(SessionFailure::LoginRefused),
        };
        if let (Err(SessionFailure::LoginRefused(LoginRefusal::AUTHENTICATION_FAILURE)), Some(name)) =
            (&answered, &initiator)
        {
            targets.sessions.failed_logins.add(name, peer, world.now());
        }
        // The units are held before the initiator knows that it is in.
        let answered = answered.and_then(|answer| {
            let session = answer.session.as_ref();
            Ok((session.map(|session| targets.hold_units(world, session, peer)).transpose()?, answer))
        });
        let mut response = LoginResponse { isid: request.isid, itt: request.itt, ..LoginResponse::empty() };
        let (data, session, refused) = match answered {
            Ok((held, answer)) => {
                response.flags = answer.flags;
                if answer.session.is_some() {
                    response.tsih = 1.into();
                }
                (text::write(answer.pairs), answer.session.zip(held), None)
            }
            Err(failure) => {
                let LoginRefusal(class, detail) = status_of(&failure);
                (response.status_class, response.status_detail) = (class, detail);
                let pairs = machine.portal().map(|portal| ("TargetAddress", portal));
                (text::write(pairs), None, Some(failure))
            }
        };
        send_queue.send(&response, StatSn::Advance, &data);
        send_queue.write_now(writer).await.map_err(SessionFailure::Send)?;
        if let Some(failure) = refused {
            return match failure {
                SessionFailure::LoginRefused(LoginRefusal::MOVED) => Ok(None),
                failure => Err(failure),
            };
        }
        if let Some((session, held)) = session {
            let SessionParameters { header_digest, data_digest, .. } = session.parameters;
            send_queue.set_digests(Digests { header: header_digest, data: data_digest });
            let send_queue = std::mem::replace(send_queue, SendQueue::new(0, 0));
            return Ok(Some(LoggedIn { session, send_queue, held }));
        }
    }
}

/// The refusal of a first login request whose initiator has failed too often; notes the initiator's name.
fn throttled(
    world: &World,
    targets: &Targets,
    (initiator, peer): (&mut Option<String>, &str),
    request: &Pdu,
) -> Option<ThrottledLogins> {
    if initiator.is_some() {
        return None;
    }
    let pairs = text::read(&request.data)?;
    let (_, name) = pairs.into_iter().find(|(key, _)| key == "InitiatorName")?;
    let refusal = targets.sessions.failed_logins.refusal(&name, peer, world.now());
    *initiator = Some(name);
    refusal
}

/// The status that a refused login is answered with.
fn status_of(failure: &SessionFailure) -> LoginRefusal {
    match failure {
        SessionFailure::LoginRefused(refusal) => *refusal,
        SessionFailure::LoginsThrottled(_) => LoginRefusal::AUTHENTICATION_FAILURE,
        // Not FORBIDDEN: initiators give up on errors of theirs, and a failover partner must come back until the other is gone.
        _ => LoginRefusal::UNAVAILABLE,
    }
}
