//! The server's side of the handshake.

use super::{
    ConnectionEnd,
    client_slots::{ClientSlot, ClientSlots},
    haggling::{Haggling, HagglingStep, NegotiatedExport, TlsState},
};
use crate::{
    export::Exports,
    tls::{ServerTls, TlsMode, tls_failure},
    wire::handshake::{GREETING, OPTION_BYTES_MAX, OPTION_MAGIC, OptionHead, handshake_flag},
};
use std::rc::Rc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use world::{Stream, World};

/// Most options of one client.
const OPTIONS_MAX: usize = 256;

/// Performs the handshake; `None` if the client ended it.
pub async fn agree(
    world: &World,
    mut stream: Stream,
    exports: &Exports,
    tls: &TlsMode,
    slots: &Rc<ClientSlots>,
) -> Result<Option<(NegotiatedExport, Stream, ClientSlot)>, ConnectionEnd> {
    let mut greeting_bytes = GREETING.to_be_bytes().to_vec();
    greeting_bytes.extend(OPTION_MAGIC.to_be_bytes());
    greeting_bytes.extend((handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes());
    stream.write_all(&greeting_bytes).await?;
    stream.flush().await?;
    let flags = stream.read_u32().await?;
    let known = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
    if flags & !known != 0 || flags & u32::from(handshake_flag::FIXED_NEWSTYLE) == 0 {
        return Err(ConnectionEnd::Protocol("unknown client flags"));
    }
    let (tls_state, tls) = match tls {
        TlsMode::Off => (TlsState::Unavailable, None),
        TlsMode::Allowed(tls) => (TlsState::Optional, Some(tls)),
        TlsMode::Required(tls) => (TlsState::Required, Some(tls)),
    };
    let mut haggling = Haggling::new(exports, flags & u32::from(handshake_flag::NO_ZEROES) == 0, tls_state);
    for _ in 0..OPTIONS_MAX {
        let mut head = [0; OptionHead::BYTES];
        stream.read_exact(&mut head).await?;
        let Some(OptionHead { option, length }) = OptionHead::read(&head) else {
            return Err(ConnectionEnd::Protocol("option without IHAVEOPT"));
        };
        let mut answer = Vec::new();
        let mut slot = None;
        let next = if length > OPTION_BYTES_MAX {
            skip(&mut stream, u64::from(length)).await?;
            haggling.refuse_too_big(option, &mut answer);
            HagglingStep::NextOption
        } else {
            let mut data = vec![0; length as usize];
            stream.read_exact(&mut data).await?;
            haggling.take(option, &data, &mut answer, || {
                slot = slots.take();
                slot.as_ref().map(drop).ok_or(slots.count_max())
            })
        };
        stream.write_all(&answer).await?;
        stream.flush().await?;
        match next {
            HagglingStep::NextOption => {}
            HagglingStep::StartTls => stream = encrypt(world, stream, tls).await?,
            HagglingStep::Transmission(negotiated) => return Ok(slot.map(|slot| (negotiated, stream, slot))),
            HagglingStep::Refuse(count_max) => return Err(ConnectionEnd::Full(count_max)),
            HagglingStep::Disconnect(why) => return Err(ConnectionEnd::Refused(why)),
            HagglingStep::End => return Ok(None),
        }
    }
    Err(ConnectionEnd::Protocol("too many options"))
}

/// Bytes sent ahead of TLS must not be taken for TLS data: nothing is read ahead.
async fn encrypt(world: &World, stream: Stream, tls: Option<&ServerTls>) -> Result<Stream, ConnectionEnd> {
    let tls = tls.expect("STARTTLS is accepted only with TLS");
    tls.accept(world, stream).await.map_err(|error| match tls_failure(&error) {
        Some(tls_failure) => ConnectionEnd::Tls(tls_failure),
        None => ConnectionEnd::Broken(error),
    })
}

/// Discards `count` bytes.
pub async fn skip(stream: &mut (impl AsyncRead + Unpin), count: u64) -> Result<(), ConnectionEnd> {
    let copied = tokio::io::copy(&mut stream.take(count), &mut tokio::io::sink()).await?;
    if copied < count {
        return Err(ConnectionEnd::Broken(std::io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(())
}
