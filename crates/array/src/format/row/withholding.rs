//! Rows of withheld volumes: clients whose caches belong to contents that a rollback took away.

use super::{THIS, VERSION, open};
use crate::format::{decode_error::DecodeError, units::WallNanoseconds};
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most bytes of the name of an initiator port: an iSCSI name of 223, ",i,0x", and 12 digits.
pub const PORT_NAME_BYTES_MAX: usize = 240;

/// A client from which a volume is withheld.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WithheldClient {
    /// All NBD clients: they have no names.
    AllNbd,
    /// An initiator port, by its SCSI name: `iqn.2026-11.example:host,i,0x00023d000001`. Up to 240 bytes without
    /// control characters.
    InitiatorPort(String),
}

/// A client from which a volume is withheld. Its key is the volume and a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithholdingRow {
    pub client: WithheldClient,
    /// Time of the rollback.
    pub since: WallNanoseconds,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawWithholding {
    version: le::U16,
    client: u8,
    name_length: u8,
    zero: [u8; 4],
    since: le::U64,
}

const _: () = assert!(size_of::<RawWithholding>() == 16);
const _: () = assert!(PORT_NAME_BYTES_MAX <= u8::MAX as usize);

const ALL_NBD: u8 = 1;
const INITIATOR_PORT: u8 = 2;

impl WithheldClient {
    /// True if a row can have it.
    pub fn is_valid(&self) -> bool {
        match self {
            Self::AllNbd => true,
            Self::InitiatorPort(name) => is_port_name(name),
        }
    }
}

impl WithholdingRow {
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.client.is_valid(), "the name of a port has 1 to 240 bytes, no control characters");
        let (client, name) = match &self.client {
            WithheldClient::AllNbd => (ALL_NBD, ""),
            WithheldClient::InitiatorPort(name) => (INITIATOR_PORT, name.as_str()),
        };
        let raw = RawWithholding {
            version: VERSION.into(),
            client,
            name_length: name.len() as u8,
            zero: [0; 4],
            since: self.since.0.into(),
        };
        [raw.as_bytes(), name.as_bytes()].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (raw, rest) = open::<RawWithholding>(bytes)?;
        THIS.zero(&raw.zero, offset_of!(RawWithholding, zero))?;
        let (kind, length) = (raw.client, usize::from(raw.name_length));
        let is_kind = matches!(kind, ALL_NBD | INITIATOR_PORT);
        THIS.value(is_kind, offset_of!(RawWithholding, client), "client", kind, "1 or 2")?;
        let is_length = length == rest.len() && (kind == INITIATOR_PORT) == (length > 0);
        let rule = "1 to 240 of a port, 0 of others, up to the end of the row";
        let length_at = offset_of!(RawWithholding, name_length);
        THIS.value(
            is_length && length <= PORT_NAME_BYTES_MAX,
            length_at,
            "name length",
            length as u64,
            rule,
        )?;
        let client = if kind == ALL_NBD {
            WithheldClient::AllNbd
        } else {
            let name = std::str::from_utf8(rest).ok().filter(|name| is_port_name(name));
            let rule = "the name of a port is UTF-8 without control characters";
            THIS.agree(name.is_some(), size_of::<RawWithholding>(), rule)?;
            WithheldClient::InitiatorPort(name.expect("looked at above").to_owned())
        };
        Ok(Self { client, since: WallNanoseconds(raw.since.get()) })
    }
}

fn is_port_name(name: &str) -> bool {
    (1..=PORT_NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}
