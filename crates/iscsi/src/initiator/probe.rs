//! What a unit is: asked over each new connection, before anything else.

use super::{
    commands::{self, Cdb, PARAMETER_BYTES, Trouble, Writing},
    link::Link,
    tasks::{Command, Kind, NotDone},
};
use world::{Buffer, IoError, IoErrorKind, IoResult, pieces::Payload};

/// Bytes of one command at most, whatever a unit says it takes.
const TRANSFER_BYTES_MAX: u64 = 4 << 20;

/// What a unit is. Another unit is told from it by these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Who makes it.
    pub vendor: String,
    /// What they call it.
    pub product: String,
    /// Which edition.
    pub revision: String,
    /// Its serial number, if it says one.
    pub serial: Option<String>,
    /// Bytes it has.
    pub size: u64,
    /// Bytes of a logical block: 512 or 4096.
    pub sector: u32,
    /// Bytes of one command.
    pub transfer_bytes_max: u64,
    /// Blocks of one UNMAP; none if it knows none.
    pub unmap_blocks_max: Option<u32>,
    /// Nothing may be written.
    pub is_read_only: bool,
    /// What is answered may be lost without a flush.
    pub has_write_cache: bool,
    /// It knows FUA.
    pub can_fua: bool,
}

impl Facts {
    /// The numbers that matter when it is met again: what a host may change while it is used does not.
    pub fn is_same_unit(&self, other: &Self) -> bool {
        let identity = |facts: &Self| (facts.vendor.clone(), facts.product.clone(), facts.serial.clone());
        let shape = |facts: &Self| (facts.size, facts.sector, facts.is_read_only);
        identity(self) == identity(other) && shape(self) == shape(other)
    }
}

/// Looks at a unit.
///
/// # Errors
///
/// There is none, it is no disk, it cannot be used, or the connection broke.
pub async fn look(link: &Link) -> IoResult<Facts> {
    let refuse = |kind, why: &str| Err(IoError::new(kind, format!("{}: {why}", link.uri())));
    let standard = ask(link, commands::inquiry(None)).await.map_err(|not_done| not_done.error)?;
    let Some(standard) = commands::standard(&standard) else {
        return refuse(IoErrorKind::WrongType, "the target does not say what the unit is");
    };
    if standard.qualifier != 0 || standard.device == 0x1f {
        return refuse(IoErrorKind::NotFound, "the target has no such unit");
    }
    if standard.device != 0 {
        let why = format!("the unit is no disk, but a device of type {:#04x}", standard.device);
        return refuse(IoErrorKind::WrongType, &why);
    }
    // Whatever it has to say first, it says now.
    ask(link, commands::TEST_UNIT_READY).await.map_err(|not_done| not_done.error)?;
    let (blocks, sector) = capacity(link).await?;
    let size = blocks.checked_mul(sector.into()).filter(|_| matches!(sector, 512 | 4096));
    let Some(size) = size else {
        return refuse(
            IoErrorKind::Unsupported,
            &format!("{blocks} blocks of {sector} bytes are not served"),
        );
    };
    let pages = page(link, 0x00).await?.unwrap_or_default();
    let serial = if pages.contains(&0x80) { page(link, 0x80).await? } else { None };
    let limits = if pages.contains(&0xb0) { page(link, 0xb0).await? } else { None };
    let provisioning = if pages.contains(&0xb2) { page(link, 0xb2).await? } else { None };
    let (blocks_max, unmap_blocks) = commands::limits(&limits.unwrap_or_default());
    let can_unmap = commands::can_unmap(&provisioning.unwrap_or_default());
    let writing = writing(link).await?;
    let transfer_bytes_max = match blocks_max {
        0 => TRANSFER_BYTES_MAX,
        blocks => (u64::from(blocks) * u64::from(sector)).min(TRANSFER_BYTES_MAX),
    };
    Ok(Facts {
        vendor: standard.vendor,
        product: standard.product,
        revision: standard.revision,
        serial: serial.map(|body| commands::serial(&body)).filter(|serial| !serial.is_empty()),
        size,
        sector,
        transfer_bytes_max,
        unmap_blocks_max: Some(unmap_blocks).filter(|&blocks| can_unmap && blocks > 0),
        is_read_only: writing.is_read_only,
        has_write_cache: writing.has_cache,
        can_fua: writing.can_fua,
    })
}

async fn capacity(link: &Link) -> IoResult<(u64, u32)> {
    let data = match ask(link, commands::read_capacity_16()).await {
        Err(not_done) if is_unknown(&not_done) => ask(link, commands::read_capacity_10()).await,
        other => other,
    };
    let data = data.map_err(|not_done| not_done.error)?;
    commands::capacity(&data).ok_or_else(|| {
        IoError::new(IoErrorKind::WrongType, format!("{}: the unit does not say how large it is", link.uri()))
    })
}

async fn page(link: &Link, page: u8) -> IoResult<Option<Vec<u8>>> {
    match ask(link, commands::inquiry(Some(page))).await {
        Ok(data) => Ok(commands::page(&data, page).map(<[u8]>::to_vec)),
        Err(not_done) if is_unknown(&not_done) => Ok(None),
        Err(not_done) => Err(not_done.error),
    }
}

async fn writing(link: &Link) -> IoResult<Writing> {
    match ask(link, commands::mode_sense()).await {
        Ok(data) => Ok(commands::writing(&data).unwrap_or(Writing::UNKNOWN)),
        Err(not_done) if is_unknown(&not_done) => Ok(Writing::UNKNOWN),
        Err(not_done) => Err(not_done.error),
    }
}

/// The unit does not know what it was asked: ILLEGAL REQUEST.
fn is_unknown(not_done: &NotDone) -> bool {
    matches!(not_done.trouble, Some(Trouble { key: 5, .. }))
}

async fn ask(link: &Link, cdb: Cdb) -> Result<Vec<u8>, NotDone> {
    let room = match cdb {
        commands::TEST_UNIT_READY => Vec::new(),
        cdb if cdb == commands::read_capacity_16() => vec![Buffer::zeroed(32)],
        cdb if cdb == commands::read_capacity_10() => vec![Buffer::zeroed(8)],
        _ => vec![Buffer::zeroed(PARAMETER_BYTES)],
    };
    let command = Command { cdb, kind: Kind::Other, into: room, payload: Payload::new(), is_probe: true };
    let done = link.ask(command).await?;
    Ok(done.into.first().map_or_else(Vec::new, |buffer| buffer[..done.received].to_vec()))
}
