//! Greeting and haggling over a stream.

use super::{
    Ended,
    client_slots::{ClientSlot, ClientSlots},
    haggling::{Agreed, Haggling, Next, Privacy},
};
use crate::{
    export::Exports,
    tls::{ServerTls, TlsMode, complaint},
    wire::handshake::{GREETING, OPTION_BYTES_MAX, OPTION_MAGIC, OptionHead, ReplyHead, greeting, reply},
};
use std::rc::Rc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use world::{Stream, World};

/// Things a client may ask for before it is thought to be none.
const OPTIONS_MAX: usize = 256;

/// Greets, and answers until both agree: on what, the stream to go on with, and a slot. None if the client ended it.
pub async fn agree(
    world: &World,
    mut stream: Stream,
    exports: &Exports,
    tls: &TlsMode,
    slots: &Rc<ClientSlots>,
) -> Result<Option<(Agreed, Stream, ClientSlot)>, Ended> {
    let mut greeting_bytes = GREETING.to_be_bytes().to_vec();
    greeting_bytes.extend(OPTION_MAGIC.to_be_bytes());
    greeting_bytes.extend((greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES).to_be_bytes());
    stream.write_all(&greeting_bytes).await?;
    stream.flush().await?;
    let flags = stream.read_u32().await?;
    let known = u32::from(greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES);
    if flags & !known != 0 || flags & u32::from(greeting::FIXED_NEWSTYLE) == 0 {
        return Err(Ended::Protocol("its greeting has flags that are not known"));
    }
    let (privacy, tls) = match tls {
        TlsMode::Off => (Privacy::Plain, None),
        TlsMode::Allowed(tls) => (Privacy::MayEncrypt, Some(tls)),
        TlsMode::Required(tls) => (Privacy::MustEncrypt, Some(tls)),
    };
    let mut haggling = Haggling::new(exports, flags & u32::from(greeting::NO_ZEROES) == 0, privacy);
    for _ in 0..OPTIONS_MAX {
        let mut head = [0; OptionHead::BYTES];
        stream.read_exact(&mut head).await?;
        let Some(OptionHead { option, length }) = OptionHead::read(&head) else {
            return Err(Ended::Protocol("what it asks for does not begin with IHAVEOPT"));
        };
        let mut answer = Vec::new();
        let mut slot = None;
        let next = if length > OPTION_BYTES_MAX {
            skip(&mut stream, u64::from(length)).await?;
            ReplyHead::write(&mut answer, option, reply::TOO_BIG, b"");
            Next::Ask
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
            Next::Ask => {}
            Next::Encrypt => stream = encrypt(world, stream, tls).await?,
            Next::Begin(agreed) => return Ok(slot.map(|slot| (agreed, stream, slot))),
            Next::Refuse(count_max) => return Err(Ended::Full(count_max)),
            Next::End => return Ok(None),
        }
    }
    Err(Ended::Protocol("it asks and asks, and never begins"))
}

/// What was sent before the answer to STARTTLS is no part of what comes over TLS: nothing is read ahead of it.
async fn encrypt(world: &World, stream: Stream, tls: Option<&ServerTls>) -> Result<Stream, Ended> {
    let tls = tls.expect("it is agreed on only if there is any");
    tls.accept(world, stream).await.map_err(|error| match complaint(&error) {
        Some(complaint) => Ended::Tls(complaint),
        None => Ended::Broken(error),
    })
}

/// Reads `count` bytes and forgets them.
pub async fn skip(stream: &mut (impl AsyncRead + Unpin), count: u64) -> Result<(), Ended> {
    let copied = tokio::io::copy(&mut stream.take(count), &mut tokio::io::sink()).await?;
    if copied < count {
        return Err(Ended::Broken(std::io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(())
}
