//! A login over a connection.

use super::{
    Targets,
    connection::{Broken, broken},
    sending::{Sending, StatusNumber},
};
use crate::{
    session::{
        login::{LoggedIn, LoginMachine, Refusal},
        negotiation::Agreed,
    },
    wire::{
        frame::{Digests, Frame},
        pdu::{Header, Login, LoginResponse, opcode},
        text,
    },
};
use tokio::io::{AsyncRead, AsyncWrite};
use world::World;

/// Bytes of data of one request.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Logs an initiator in; none if it went before.
pub async fn log_in(
    world: &World,
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    targets: &Targets,
) -> Result<Option<(LoggedIn, Sending)>, Broken> {
    let mut machine = LoginMachine::new(world, targets);
    let mut sending: Option<Sending> = None;
    loop {
        let frame = Frame::read(reader, Digests::default(), TEXT_BYTES_MAX).await.map_err(broken)?;
        let Some(frame) = frame else { return Ok(None) };
        if frame.opcode() != opcode::LOGIN {
            return Err("it sends commands before it is logged in".to_owned());
        }
        let request = Login::of(&frame.header);
        // A login is immediate: its number is that of the first command.
        let sending = sending.get_or_insert_with(|| Sending::new(1, request.command_number.get()));
        let answered = machine.take(&request, &frame.data);
        let mut response = LoginResponse {
            initiator_session: request.initiator_session,
            task: request.task,
            ..LoginResponse::empty()
        };
        let (data, logged_in, refused) = match answered {
            Ok(answer) => {
                response.flags = answer.flags;
                if answer.logged_in.is_some() {
                    response.target_session = 1.into();
                }
                (text::write(answer.pairs), answer.logged_in, None)
            }
            Err(refusal) => {
                (response.status_class, response.status_detail) = (refusal.0, refusal.1);
                let pairs = machine.portal().map(|portal| ("TargetAddress", portal));
                (text::write(pairs), None, Some(refusal))
            }
        };
        sending.send(&response, StatusNumber::Counts, &data);
        sending.write_now(writer).await.map_err(|error| error.to_string())?;
        if let Some(refusal) = refused {
            return match refusal {
                Refusal::MOVED => Ok(None),
                refusal => Err(format!("its login was refused: {refusal}")),
            };
        }
        if let Some(logged_in) = logged_in {
            let Agreed { header_digest, data_digest, .. } = logged_in.agreed;
            sending.set_digests(Digests { header: header_digest, data: data_digest });
            let sending = std::mem::replace(sending, Sending::new(0, 0));
            return Ok(Some((logged_in, sending)));
        }
    }
}
