//! A session between a site and the witness: hello both ways, then messages in sequence.
//!
//! With a secret, both hellos go into two keys, one for each direction:
//!
//! ```text
//! key of a direction = HMAC-SHA-256(secret, name of the direction, client's hello, witness's hello)
//! ```
//!
//! The witness proves the secret with the code of its hello, the client with that of its first request.
//! Both hellos have fresh random bytes, so no recorded message fits another session, and the sequence keeps
//! each one unique within its own. Nothing is encrypted: who holds which group is no secret.

use super::message::{
    MESSAGE_HEADER_BYTES, MESSAGE_VERSION, MessageFault, MessageHeader, MessageKind, NONCE_BYTES,
    decode_hello, encode_hello, encode_message, refusal_text,
};
use ring::hmac;
use std::{fmt, io};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{Stream, World};

const CODE_BYTES: usize = 32;

/// The secret that the sites of a witness share.
#[derive(Clone)]
pub struct WitnessSecret(hmac::Key);

impl WitnessSecret {
    /// Shorter ones can be guessed.
    pub const BYTES_MIN: usize = 16;

    /// None if it is too short.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let is_long_enough = bytes.len() >= Self::BYTES_MIN;
        is_long_enough.then(|| Self(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    fn key(&self, direction: &str, hellos: [&[u8]; 2]) -> hmac::Key {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(direction.as_bytes());
        hellos.iter().for_each(|hello| context.update(hello));
        hmac::Key::new(hmac::HMAC_SHA256, context.sign().as_ref())
    }
}

impl fmt::Debug for WitnessSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WitnessSecret")
    }
}

/// The end of a session.
#[derive(Debug, thiserror::Error)]
pub enum WitnessSessionEnd {
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error(transparent)]
    Fault(#[from] MessageFault),
    /// The peer refused, with its text.
    #[error("the witness refused: {0}")]
    Refused(String),
}

/// An established session. After an error it is not to be used again.
pub struct WitnessSession {
    stream: Stream,
    keys: Option<DirectionKeys>,
    sent: u64,
    received: u64,
    bytes_max: u32,
}

struct DirectionKeys {
    sending: hmac::Key,
    receiving: hmac::Key,
}

impl WitnessSession {
    /// Begins a session as a client, which reads bodies of at most `bytes_max` bytes.
    pub async fn connect(
        world: &World,
        stream: Stream,
        secret: Option<&WitnessSecret>,
        bytes_max: u32,
    ) -> Result<Self, WitnessSessionEnd> {
        let mut session = Self { stream, keys: None, sent: 0, received: 0, bytes_max };
        let own = own_hello(world, secret);
        session.write(&own).await?;
        let (header, bytes) = session.read().await?;
        match header.kind {
            MessageKind::Hello => {}
            MessageKind::Refusal => return Err(refused(&bytes)),
            other => return Err(MessageFault::Kind(other as u16).into()),
        }
        check_hello(&header, &bytes, secret)?;
        if let Some(secret) = secret {
            let hellos = [&own[..], &bytes];
            let (sending, receiving) = (secret.key("client", hellos), secret.key("witness", hellos));
            let code = session.read_code().await?;
            hmac::verify(&receiving, &bytes, &code).map_err(|_| MessageFault::Code)?;
            session.keys = Some(DirectionKeys { sending, receiving });
        }
        Ok(session)
    }

    /// Begins a session as the witness. A client that may not begin one gets a text.
    pub async fn accept(
        world: &World,
        stream: Stream,
        secret: Option<&WitnessSecret>,
        bytes_max: u32,
    ) -> Result<Self, WitnessSessionEnd> {
        let mut session = Self { stream, keys: None, sent: 0, received: 0, bytes_max };
        let (header, bytes) = session.read().await?;
        let checked = match header.kind {
            MessageKind::Hello => check_hello(&header, &bytes, secret),
            other => Err(MessageFault::Kind(other as u16)),
        };
        if let Err(fault) = checked {
            session.write(&encode_message(MessageKind::Refusal, 0, fault.to_string().as_bytes())).await?;
            return Err(fault.into());
        }
        let mut own = own_hello(world, secret);
        if let Some(secret) = secret {
            let hellos = [&bytes[..], &own];
            let (receiving, sending) = (secret.key("client", hellos), secret.key("witness", hellos));
            let code = hmac::sign(&sending, &own);
            own.extend(code.as_ref());
            session.keys = Some(DirectionKeys { sending, receiving });
        }
        session.write(&own).await?;
        Ok(session)
    }

    /// Sends a message.
    pub async fn send(&mut self, kind: MessageKind, body: &[u8]) -> Result<(), WitnessSessionEnd> {
        self.sent += 1;
        let mut bytes = encode_message(kind, self.sent, body);
        if let Some(keys) = &self.keys {
            let code = hmac::sign(&keys.sending, &bytes);
            bytes.extend(code.as_ref());
        }
        Ok(self.write(&bytes).await?)
    }

    /// Receives the next message: its kind and body.
    pub async fn receive(&mut self) -> Result<(MessageKind, Vec<u8>), WitnessSessionEnd> {
        let (header, mut bytes) = self.read().await?;
        if self.keys.is_some() {
            let code = self.read_code().await?;
            let keys = self.keys.as_ref().expect("the session has keys");
            hmac::verify(&keys.receiving, &bytes, &code).map_err(|_| MessageFault::Code)?;
        }
        self.received += 1;
        if header.sequence != self.received {
            return Err(MessageFault::Sequence.into());
        }
        if header.kind == MessageKind::Refusal {
            return Err(refused(&bytes));
        }
        Ok((header.kind, bytes.split_off(MESSAGE_HEADER_BYTES)))
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// A header and all bytes of a message but its code.
    async fn read(&mut self) -> Result<(MessageHeader, Vec<u8>), WitnessSessionEnd> {
        let mut start = [0; MESSAGE_HEADER_BYTES];
        self.stream.read_exact(&mut start).await?;
        let header = MessageHeader::decode(&start, self.bytes_max)?;
        let mut bytes = start.to_vec();
        bytes.resize(MESSAGE_HEADER_BYTES + header.body_bytes as usize, 0);
        self.stream.read_exact(&mut bytes[MESSAGE_HEADER_BYTES..]).await?;
        header.check(&start, &bytes[MESSAGE_HEADER_BYTES..])?;
        Ok((header, bytes))
    }

    async fn read_code(&mut self) -> io::Result<[u8; CODE_BYTES]> {
        let mut code = [0; CODE_BYTES];
        self.stream.read_exact(&mut code).await?;
        Ok(code)
    }
}

fn own_hello(world: &World, secret: Option<&WitnessSecret>) -> Vec<u8> {
    let mut nonce = [0; NONCE_BYTES];
    world.fill_secret(&mut nonce);
    encode_message(MessageKind::Hello, 0, &encode_hello(&nonce, secret.is_some()))
}

fn check_hello(
    header: &MessageHeader,
    bytes: &[u8],
    secret: Option<&WitnessSecret>,
) -> Result<(), MessageFault> {
    // A later version names its own; version 1 is known to all.
    if header.version < MESSAGE_VERSION {
        return Err(MessageFault::Version(header.version));
    }
    if header.sequence != 0 {
        return Err(MessageFault::Sequence);
    }
    let has_secret = decode_hello(&bytes[MESSAGE_HEADER_BYTES..])?;
    if has_secret == secret.is_some() { Ok(()) } else { Err(MessageFault::Secret) }
}

fn refused(bytes: &[u8]) -> WitnessSessionEnd {
    WitnessSessionEnd::Refused(refusal_text(&bytes[MESSAGE_HEADER_BYTES..]))
}
