//! Which targets there are: a discovery session with SendTargets (RFC 7143, appendix C).

use super::{
    InitiatorOptions,
    logging_in::{Purpose, Session, log_in},
};
use crate::wire::{
    frame::{Digests, Frame},
    pdu::{FINAL, Header, IMMEDIATE, Logout, NO_TAG, NopIn, Text, TextResponse, opcode},
    text,
};
use tokio::io::AsyncWriteExt;
use world::{Address, IoError, IoErrorKind, IoResult, Network, World, with_deadline};

/// Bytes of an answer at most.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Names and addresses in it at most.
const PAIRS_MAX: usize = 16_384;
/// Units sent and received at most.
const ROUNDS_MAX: usize = 256;

/// A target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// Where it is: `HOST:PORT,GROUP` each. None: where it was asked for.
    pub portals: Vec<String>,
}

/// Asks a portal which targets it has.
///
/// # Errors
///
/// Nobody answers there, or not in time; the login is refused.
pub async fn find(
    world: &World,
    network: &dyn Network,
    portal: &Address,
    options: &InitiatorOptions,
) -> IoResult<Vec<Found>> {
    let asking = async {
        let mut session = [0x80, 0, 0, 0, 0, 0];
        world.fill_secret(&mut session[1..]);
        let session = log_in(world, network, portal, Purpose::Find, session, options).await?;
        ask(session).await.map_err(|why| {
            let kind = IoErrorKind::Disconnected;
            IoError::new(kind, format!("asking {portal} for its targets: {why}"))
        })
    };
    let found = with_deadline(world.sleep(options.connect_max), asking).await;
    found.unwrap_or_else(|| {
        let why = format!("{portal}: no answer within {} s", options.connect_max.as_secs());
        Err(IoError::new(IoErrorKind::Disconnected, why))
    })
}

async fn ask(session: Session) -> Result<Vec<Found>, String> {
    let Session { mut stream, agreed, command_next, status_next, .. } = session;
    let digests = Digests { header: agreed.header_digest, data: agreed.data_digest };
    let mut request = Text {
        flags: FINAL,
        task: 1.into(),
        transfer: NO_TAG.into(),
        command_number: command_next.into(),
        expected_status: status_next.into(),
        ..Text::empty()
    };
    let mut data = text::write([("SendTargets", "All")]);
    let mut answer = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let frame = Frame::new(request.to_bytes(), std::mem::take(&mut data)).encode(digests);
        stream.write_all(&frame).await.map_err(|error| error.to_string())?;
        stream.flush().await.map_err(|error| error.to_string())?;
        let frame = loop {
            let frame = Frame::read(&mut stream, digests, agreed.receive_bytes_max as usize).await;
            let frame = frame.map_err(|error| error.to_string())?.ok_or("it hung up")?;
            // Whether we are here does not matter: we say the next thing at once.
            if frame.opcode() != opcode::NOP_IN || NopIn::of(&frame.header).transfer.get() == NO_TAG {
                break frame;
            }
        };
        if frame.opcode() != opcode::TEXT_RESPONSE {
            return Err("it answers with something else".to_owned());
        }
        let response = TextResponse::of(&frame.header);
        answer.extend(frame.data);
        if answer.len() > TEXT_BYTES_MAX {
            return Err("its answer is too long".to_owned());
        }
        request.command_number = response.numbers.expected_command;
        request.expected_status = response.numbers.status.get().wrapping_add(1).into();
        if response.flags & FINAL != 0 {
            let bye = Logout {
                first: IMMEDIATE,
                flags: FINAL,
                task: 2.into(),
                command_number: request.command_number,
                expected_status: request.expected_status,
                ..Logout::empty()
            };
            // It was told all: whether it hears this does not matter.
            let _ = stream.write_all(&Frame::new(bye.to_bytes(), Vec::new()).encode(digests)).await;
            let _ = stream.shutdown().await;
            return found(&answer).ok_or_else(|| "its answer makes no sense".to_owned());
        }
        request.transfer = response.transfer;
    }
    Err("its answer does not end".to_owned())
}

fn found(answer: &[u8]) -> Option<Vec<Found>> {
    let mut targets: Vec<Found> = Vec::new();
    for (key, value) in text::read_up_to(PAIRS_MAX, answer)? {
        match key.as_str() {
            "TargetName" => targets.push(Found { name: value, portals: Vec::new() }),
            "TargetAddress" => targets.last_mut()?.portals.push(value),
            _ => {}
        }
    }
    Some(targets)
}
