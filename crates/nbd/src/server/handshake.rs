//! The server's side of the handshake.

use super::{
    ConnectionEnd, TlsMode,
    client_slots::{ClientSlot, ClientSlots},
    client_stream::ClientStream,
    haggling::{CommonTerms, Haggling, HagglingStep, NegotiatedExport, TlsState},
};
use crate::{
    export::Exports,
    wire::handshake::{GREETING, OPTION_BYTES_MAX, OPTION_MAGIC, OptionHead, handshake_flag},
};
use std::rc::Rc;
use tls::{ServerTls, tls_failure};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use world::{Stream, World};

/// Most options of one client.
const OPTIONS_MAX: usize = 256;

/// A client in the handshake, between two options.
pub(super) struct Handshake {
    pub stream: ClientStream,
    pub terms: CommonTerms,
    /// Options that it may still send.
    pub options_left: usize,
}

/// An option as it was received.
pub(super) struct ReceivedOption {
    pub option: u32,
    pub data: Vec<u8>,
}

/// The end of a handshake, as far as this thread is concerned.
pub(super) enum HandshakeEnd {
    Transmission(NegotiatedExport, Stream, ClientSlot),
    /// Another thread answers the option.
    HandOver(Handshake, ReceivedOption),
    /// The client ended it.
    Closed,
}

/// The exports, policy and limits of a thread that takes part in handshakes.
pub(super) struct HandshakePolicy<'a> {
    pub exports: &'a Exports,
    pub tls: &'a TlsMode,
    /// None where no client enters the transmission phase.
    pub slots: Option<&'a Rc<ClientSlots>>,
}

impl Handshake {
    /// Greets a client.
    pub async fn begin(stream: Stream, tls: &TlsMode) -> Result<Self, ConnectionEnd> {
        let mut stream = ClientStream::new(stream);
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
        let tls_state = match tls {
            TlsMode::Off => TlsState::Unavailable,
            TlsMode::Allowed(_) => TlsState::Optional,
            TlsMode::Required(_) => TlsState::Required,
        };
        let has_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) == 0;
        let terms = CommonTerms { tls_state, has_zeroes, is_structured: false };
        Ok(Self { stream, terms, options_left: OPTIONS_MAX })
    }

    /// Answers the client's options, the one that another thread has received first.
    pub async fn go_on(
        self,
        world: &World,
        HandshakePolicy { exports, tls, slots }: HandshakePolicy<'_>,
        mut received: Option<ReceivedOption>,
    ) -> Result<HandshakeEnd, ConnectionEnd> {
        let Self { mut stream, terms, mut options_left } = self;
        let mut haggling = Haggling::new(exports, terms);
        while options_left > 0 {
            let mut answer = Vec::new();
            let mut slot = None;
            let next = match next_option(&mut stream, received.take()).await? {
                NextOption::TooBig(option) => {
                    haggling.refuse_too_big(option, &mut answer);
                    HagglingStep::NextOption
                }
                NextOption::Whole(ReceivedOption { option, data }) => {
                    let admit = || {
                        let slots = slots.expect("only a thread with exports lets clients in");
                        slot = slots.take();
                        slot.as_ref().map(drop).ok_or(slots.count_max())
                    };
                    let next = haggling.take(option, &data, &mut answer, admit);
                    if let HagglingStep::HandOver = next {
                        let handshake = Self { stream, terms: haggling.terms(), options_left };
                        return Ok(HandshakeEnd::HandOver(handshake, ReceivedOption { option, data }));
                    }
                    next
                }
            };
            options_left -= 1;
            stream.write_all(&answer).await?;
            stream.flush().await?;
            match next {
                HagglingStep::NextOption => {}
                HagglingStep::HandOver => unreachable!("returned above"),
                HagglingStep::StartTls => stream = encrypt(world, stream, tls).await?,
                HagglingStep::Transmission(negotiated) => {
                    let slot = slot.expect("a client that is let in has a slot");
                    return Ok(HandshakeEnd::Transmission(negotiated, stream.into_stream(), slot));
                }
                HagglingStep::Refuse(count_max) => return Err(ConnectionEnd::Full(count_max)),
                HagglingStep::Disconnect(why) => return Err(ConnectionEnd::Refused(why)),
                HagglingStep::End => return Ok(HandshakeEnd::Closed),
            }
        }
        Err(ConnectionEnd::Protocol("too many options"))
    }
}

enum NextOption {
    Whole(ReceivedOption),
    /// Its data were skipped.
    TooBig(u32),
}

/// The option that was received already, or the next one of the stream.
async fn next_option(
    stream: &mut ClientStream,
    received: Option<ReceivedOption>,
) -> Result<NextOption, ConnectionEnd> {
    if let Some(received) = received {
        return Ok(NextOption::Whole(received));
    }
    let mut head = [0; OptionHead::BYTES];
    stream.read_exact(&mut head).await?;
    let Some(OptionHead { option, length }) = OptionHead::read(&head) else {
        return Err(ConnectionEnd::Protocol("option without IHAVEOPT"));
    };
    if length > OPTION_BYTES_MAX {
        skip(stream, u64::from(length)).await?;
        return Ok(NextOption::TooBig(option));
    }
    let mut data = vec![0; length as usize];
    stream.read_exact(&mut data).await?;
    Ok(NextOption::Whole(ReceivedOption { option, data }))
}

/// Bytes sent ahead of TLS must not be taken for TLS data: nothing is read ahead.
async fn encrypt(world: &World, stream: ClientStream, tls: &TlsMode) -> Result<ClientStream, ConnectionEnd> {
    let tls: &ServerTls = match tls {
        TlsMode::Allowed(tls) | TlsMode::Required(tls) => tls,
        TlsMode::Off => unreachable!("STARTTLS is accepted only with TLS"),
    };
    stream.encrypt(world, tls).await.map_err(|error| match tls_failure(&error) {
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
