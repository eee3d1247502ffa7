//! Login over a connection.

use super::{
    SessionFailure, Target, Targets,
    send_queue::{SendQueue, StatSn},
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

/// Logs an initiator in; `None` if it disconnected first or was redirected.
pub async fn log_in(
    world: &World,
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    targets: &Targets,
) -> Result<Option<(NewSession<Rc<Target>>, SendQueue)>, SessionFailure> {
    let mut machine = TargetLogin::new(world, targets);
    let mut send_queue: Option<SendQueue> = None;
    loop {
        let pdu = Pdu::read(reader, Digests::default(), TEXT_BYTES_MAX).await?;
        let Some(pdu) = pdu else { return Ok(None) };
        if pdu.opcode() != opcode::LOGIN {
            return Err(SessionFailure::CommandBeforeLogin);
        }
        let request = Login::of(&pdu.header);
        // Login requests are immediate: their CmdSN is that of the first command.
        let send_queue = send_queue.get_or_insert_with(|| SendQueue::new(1, request.cmd_sn.get()));
        let answered = machine.take(&request, &pdu.data);
        let mut response = LoginResponse { isid: request.isid, itt: request.itt, ..LoginResponse::empty() };
        let (data, session, refused) = match answered {
            Ok(answer) => {
                response.flags = answer.flags;
                if answer.session.is_some() {
                    response.tsih = 1.into();
                }
                (text::write(answer.pairs), answer.session, None)
            }
            Err(refusal) => {
                (response.status_class, response.status_detail) = (refusal.0, refusal.1);
                let pairs = machine.portal().map(|portal| ("TargetAddress", portal));
                (text::write(pairs), None, Some(refusal))
            }
        };
        send_queue.send(&response, StatSn::Advance, &data);
        send_queue.write_now(writer).await.map_err(SessionFailure::Send)?;
        if let Some(refusal) = refused {
            return match refusal {
                LoginRefusal::MOVED => Ok(None),
                refusal => Err(SessionFailure::LoginRefused(refusal)),
            };
        }
        if let Some(session) = session {
            let SessionParameters { header_digest, data_digest, .. } = session.parameters;
            send_queue.set_digests(Digests { header: header_digest, data: data_digest });
            let send_queue = std::mem::replace(send_queue, SendQueue::new(0, 0));
            return Ok(Some((session, send_queue)));
        }
    }
}
