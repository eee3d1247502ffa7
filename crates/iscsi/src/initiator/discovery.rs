//! Discovery sessions with SendTargets (RFC 7143, appendix C).

use super::{
    InitiatorOptions,
    login::{LoggedInConnection, SessionType, log_in},
};
use crate::wire::{
    header::{FINAL, IMMEDIATE, Logout, NO_TAG, NopIn, PduHeader, Text, TextResponse, opcode},
    pdu::Pdu,
    text,
};
use tokio::io::AsyncWriteExt;
use world::{Address, IoError, IoErrorKind, IoResult, Network, World, with_deadline};

/// Longest answer accepted.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Most keys accepted in an answer.
const PAIRS_MAX: usize = 16_384;
/// Most request and response PDUs of one discovery.
const ROUNDS_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredTarget {
    pub name: String,
    /// Portals as `HOST:PORT,GROUP`. Empty: the portal that was asked.
    pub portals: Vec<String>,
}

/// Asks a portal for its targets.
///
/// # Errors
///
/// The portal does not answer within `connect_max`; the login is refused.
pub async fn discover(
    world: &World,
    network: &dyn Network,
    portal: &Address,
    options: &InitiatorOptions,
) -> IoResult<Vec<DiscoveredTarget>> {
    let asking = async {
        let mut session = [0x80, 0, 0, 0, 0, 0];
        world.fill_secret(&mut session[1..]);
        let session = log_in(world, network, portal, SessionType::Discovery, session, options).await?;
        ask(session).await.map_err(|why| {
            let kind = IoErrorKind::Disconnected;
            IoError::new(kind, format!("discovery at {portal}: {why}"))
        })
    };
    let found = with_deadline(world.sleep(options.connect_max), asking).await;
    found.unwrap_or_else(|| {
        let why = format!("{portal}: no answer within {} s", options.connect_max.as_secs());
        Err(IoError::new(IoErrorKind::Disconnected, why))
    })
}

async fn ask(session: LoggedInConnection) -> Result<Vec<DiscoveredTarget>, String> {
    let LoggedInConnection { mut stream, terms } = session;
    let digests = terms.digests();
    let mut request = Text {
        flags: FINAL,
        itt: 1.into(),
        ttt: NO_TAG.into(),
        cmd_sn: terms.cmd_sn.into(),
        exp_stat_sn: terms.exp_stat_sn.into(),
        ..Text::empty()
    };
    let mut data = text::write([("SendTargets", "All")]);
    let mut answer = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let pdu = Pdu::new(request.to_bytes(), std::mem::take(&mut data)).encode(digests);
        stream.write_all(&pdu).await.map_err(|error| error.to_string())?;
        stream.flush().await.map_err(|error| error.to_string())?;
        let pdu = loop {
            let pdu = Pdu::read(&mut stream, digests, terms.parameters.receive_bytes_max as usize).await;
            let pdu = pdu.map_err(|error| error.to_string())?.ok_or("the target closed the connection")?;
            // A NOP-In with a TTT wants an answer; the next text request is answer enough.
            if pdu.opcode() != opcode::NOP_IN || NopIn::of(&pdu.header).ttt.get() == NO_TAG {
                break pdu;
            }
        };
        if pdu.opcode() != opcode::TEXT_RESPONSE {
            return Err("unexpected response".to_owned());
        }
        let response = TextResponse::of(&pdu.header);
        answer.extend(pdu.data);
        if answer.len() > TEXT_BYTES_MAX {
            return Err("the response is too long".to_owned());
        }
        request.cmd_sn = response.numbers.exp_cmd_sn;
        request.exp_stat_sn = response.numbers.stat_sn.get().wrapping_add(1).into();
        if response.flags & FINAL != 0 {
            let bye = Logout {
                first: IMMEDIATE,
                flags: FINAL,
                itt: 2.into(),
                cmd_sn: request.cmd_sn,
                exp_stat_sn: request.exp_stat_sn,
                ..Logout::empty()
            };
            // The exchange is complete: a failed logout does not matter.
            let _ = stream.write_all(&Pdu::new(bye.to_bytes(), Vec::new()).encode(digests)).await;
            let _ = stream.shutdown().await;
            return parse_targets(&answer).ok_or_else(|| "malformed response".to_owned());
        }
        request.ttt = response.ttt;
    }
    Err("the response does not end".to_owned())
}

fn parse_targets(answer: &[u8]) -> Option<Vec<DiscoveredTarget>> {
    let mut targets: Vec<DiscoveredTarget> = Vec::new();
    for (key, value) in text::read_up_to(PAIRS_MAX, answer)? {
        match key.as_str() {
            "TargetName" => targets.push(DiscoveredTarget { name: value, portals: Vec::new() }),
            "TargetAddress" => targets.last_mut()?.portals.push(value),
            _ => {}
        }
    }
    Some(targets)
}
