//! Properties of a logical unit, asked for over each new connection before any other command.

use super::{
    commands::{self, Cdb, PARAMETER_BYTES, SenseCode, WriteSupport},
    connection::TargetSession,
    tasks::{CacheEffect, CommandError, CommandRequest},
};
use world::{Buffer, IoError, IoErrorKind, IoResult, payload::Payload};

/// Largest transfer of one command, even if the unit allows more.
const TRANSFER_BYTES_MAX: u64 = 4 << 20;

/// Properties of a remote logical unit; they also tell it from another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskInfo {
    pub vendor: String,
    pub product: String,
    pub revision: String,
    pub serial: Option<String>,
    /// Capacity in bytes.
    pub size: u64,
    /// Bytes of a logical block: 512 or 4096.
    pub sector: u32,
    /// Largest transfer of one command.
    pub transfer_bytes_max: u64,
    /// Most blocks of one UNMAP; `None` without UNMAP.
    pub unmap_blocks_max: Option<u32>,
    pub is_read_only: bool,
    /// An acknowledged write may be lost without a flush.
    pub has_write_cache: bool,
    pub can_fua: bool,
}

impl DiskInfo {
    /// Compares name, serial number, capacity and write protection. Settings a host may change in use, such
    /// as the write cache, do not count.
    pub fn is_same_unit(&self, other: &Self) -> bool {
        let identity = |info: &Self| (info.vendor.clone(), info.product.clone(), info.serial.clone());
        let shape = |info: &Self| (info.size, info.sector, info.is_read_only);
        identity(self) == identity(other) && shape(self) == shape(other)
    }
}

/// Probes the unit.
///
/// # Errors
///
/// The unit does not exist, is not a disk or has an unsupported block size; the connection broke.
pub async fn probe(session: &TargetSession) -> IoResult<DiskInfo> {
    let refuse = |kind, why: &str| Err(IoError::new(kind, format!("{}: {why}", session.uri())));
    let standard = execute(session, commands::inquiry(None)).await.map_err(|failure| failure.error)?;
    let Some(standard) = commands::standard(&standard) else {
        return refuse(IoErrorKind::WrongType, "no standard INQUIRY data");
    };
    if standard.qualifier != 0 || standard.device == 0x1f {
        return refuse(IoErrorKind::NotFound, "no such unit");
    }
    if standard.device != 0 {
        let why = format!("the unit is not a disk but a device of type {:#04x}", standard.device);
        return refuse(IoErrorKind::WrongType, &why);
    }
    // Takes the unit attentions that are pending.
    execute(session, commands::TEST_UNIT_READY).await.map_err(|failure| failure.error)?;
    let (blocks, sector) = capacity(session).await?;
    let size = blocks.checked_mul(sector.into()).filter(|_| matches!(sector, 512 | 4096));
    let Some(size) = size else {
        return refuse(
            IoErrorKind::Unsupported,
            &format!("unsupported capacity: {blocks} blocks of {sector} bytes"),
        );
    };
    let pages = page(session, 0x00).await?.unwrap_or_default();
    let serial = if pages.contains(&0x80) { page(session, 0x80).await? } else { None };
    let limits = if pages.contains(&0xb0) { page(session, 0xb0).await? } else { None };
    let provisioning = if pages.contains(&0xb2) { page(session, 0xb2).await? } else { None };
    let (blocks_max, unmap_blocks) = commands::limits(&limits.unwrap_or_default());
    let can_unmap = commands::can_unmap(&provisioning.unwrap_or_default());
    let writing = write_support(session).await?;
    let transfer_bytes_max = match blocks_max {
        0 => TRANSFER_BYTES_MAX,
        blocks => (u64::from(blocks) * u64::from(sector)).min(TRANSFER_BYTES_MAX),
    };
    Ok(DiskInfo {
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

async fn capacity(session: &TargetSession) -> IoResult<(u64, u32)> {
    let data = match execute(session, commands::read_capacity_16()).await {
        Err(failure) if is_unknown(&failure) => execute(session, commands::read_capacity_10()).await,
        other => other,
    };
    let data = data.map_err(|failure| failure.error)?;
    commands::capacity(&data)
        .ok_or_else(|| IoError::new(IoErrorKind::WrongType, format!("{}: no capacity data", session.uri())))
}

async fn page(session: &TargetSession, page: u8) -> IoResult<Option<Vec<u8>>> {
    match execute(session, commands::inquiry(Some(page))).await {
        Ok(data) => Ok(commands::page(&data, page).map(<[u8]>::to_vec)),
        Err(failure) if is_unknown(&failure) => Ok(None),
        Err(failure) => Err(failure.error),
    }
}

async fn write_support(session: &TargetSession) -> IoResult<WriteSupport> {
    match execute(session, commands::mode_sense()).await {
        Ok(data) => Ok(commands::write_support(&data).unwrap_or(WriteSupport::UNKNOWN)),
        Err(failure) if is_unknown(&failure) => Ok(WriteSupport::UNKNOWN),
        Err(failure) => Err(failure.error),
    }
}

/// ILLEGAL REQUEST: the unit does not support the command or page.
fn is_unknown(failure: &CommandError) -> bool {
    matches!(failure.sense, Some(SenseCode { key: 5, .. }))
}

async fn execute(session: &TargetSession, cdb: Cdb) -> Result<Vec<u8>, CommandError> {
    let room = match cdb {
        commands::TEST_UNIT_READY => Vec::new(),
        cdb if cdb == commands::read_capacity_16() => vec![Buffer::zeroed(32)],
        cdb if cdb == commands::read_capacity_10() => vec![Buffer::zeroed(8)],
        _ => vec![Buffer::zeroed(PARAMETER_BYTES)],
    };
    let command = CommandRequest {
        cdb,
        effect: CacheEffect::None,
        into: room,
        payload: Payload::new(),
        is_probe: true,
    };
    let done = session.execute(command).await?;
    Ok(done.into.first().map_or_else(Vec::new, |buffer| buffer[..done.received].to_vec()))
}
