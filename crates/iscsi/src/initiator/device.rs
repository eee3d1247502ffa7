//! A logical unit of an iSCSI target as a block device.

use super::{
    DiskInfo, InitiatorOptions, IscsiUri, commands,
    connection::TargetSession,
    tasks::{CacheEffect, CommandError, CommandOutput, CommandRequest},
};
use std::{rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Network, Stability, World,
    network::reconnecting::Reconnecting,
    payload::{Payload, payloads, scatter},
};

/// A connected initiator. Clones share its session.
#[derive(Clone)]
pub struct Initiator(Rc<Reconnecting<TargetSession>>);

impl Initiator {
    /// Logs in to the target at `uri` and probes the logical unit.
    ///
    /// # Errors
    ///
    /// The portal does not answer within `connect_max`; the login is refused; the target or unit does not
    /// exist; the unit is not a disk.
    pub async fn connect(
        world: &World,
        network: Rc<dyn Network>,
        uri: IscsiUri,
        options: InitiatorOptions,
    ) -> IoResult<Self> {
        Ok(Self(Rc::new(TargetSession::connect(world, network, uri, options).await?)))
    }

    pub fn info(&self) -> &DiskInfo {
        self.0.protocol().info()
    }

    /// Number of times the connection has been lost.
    pub fn breaks(&self) -> u64 {
        self.0.breaks()
    }

    fn check(&self, what: &str, at: ByteOffset, length: u64) -> IoResult<()> {
        let info = self.info();
        let sector = u64::from(info.sector);
        let refuse =
            |kind, why: &str| Err(IoError::new(kind, format!("{what} of {length} bytes at {}: {why}", at.0)));
        if !at.0.is_multiple_of(sector) || !length.is_multiple_of(sector) {
            return refuse(IoErrorKind::Unaligned, &format!("not whole blocks of {sector} bytes"));
        }
        if at.0.checked_add(length).is_none_or(|end| end > info.size) {
            return refuse(IoErrorKind::OutOfRange, &format!("the unit has {} bytes", info.size));
        }
        if what != "read" && info.is_read_only {
            return refuse(IoErrorKind::ReadOnly, "the unit is read-only");
        }
        Ok(())
    }

    fn execute(
        &self,
        cdb: commands::Cdb,
        effect: CacheEffect,
        into: Vec<Buffer>,
        payload: Payload,
    ) -> impl Future<Output = Result<CommandOutput, CommandError>> + 'static {
        self.0.protocol().execute(CommandRequest { cdb, effect, into, payload, is_probe: false })
    }

    /// Most blocks of one command, and bytes of a block.
    fn steps(&self) -> (u64, u64) {
        let sector = u64::from(self.info().sector);
        (self.info().transfer_bytes_max / sector, sector)
    }

    fn flush_now(&self) -> LocalFuture<IoResult<()>> {
        if let Err(error) = self.0.protocol().check_flush() {
            return Box::pin(async { Err(error) });
        }
        let flushed =
            self.execute(commands::synchronize_cache(), CacheEffect::Flush, Vec::new(), Payload::new());
        let has_cache = self.info().has_write_cache;
        Box::pin(async move {
            match flushed.await {
                // A unit without a write cache need not support SYNCHRONIZE CACHE.
                Err(CommandError { error, .. }) if error.kind() == IoErrorKind::Unsupported && !has_cache => {
                    Ok(())
                }
                other => other.map(drop).map_err(|failure| failure.error),
            }
        })
    }
}

fn all_done(
    asked: Vec<impl Future<Output = Result<CommandOutput, CommandError>> + 'static>,
) -> LocalFuture<IoResult<()>> {
    Box::pin(async move {
        for asked in asked {
            asked.await.map_err(|failure| failure.error)?;
        }
        Ok(())
    })
}

impl BlockDevice for Initiator {
    fn geometry(&self) -> Geometry {
        Geometry { size: ByteCount(self.info().size), sector: self.info().sector }
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let length: u64 = into.iter().map(|buffer| buffer.len() as u64).sum();
        if let Err(error) = self.check("read", at, length) {
            return Box::pin(async { Err(error) });
        }
        let (most, sector) = self.steps();
        let (first, count) = (at.0 / sector, length / sector);
        if count == 0 {
            return Box::pin(async { Ok(into) });
        }
        if count <= most {
            let asked =
                self.execute(commands::read(first, count as u32), CacheEffect::None, into, Payload::new());
            return Box::pin(
                async move { asked.await.map(|done| done.into).map_err(|failure| failure.error) },
            );
        }
        let asked: Vec<_> = (0..count)
            .step_by(most as usize)
            .map(|start| {
                let blocks = (count - start).min(most);
                let room = vec![Buffer::zeroed((blocks * sector) as usize)];
                self.execute(
                    commands::read(first + start, blocks as u32),
                    CacheEffect::None,
                    room,
                    Payload::new(),
                )
            })
            .collect();
        let mut into = into;
        Box::pin(async move {
            let mut start = 0;
            for asked in asked {
                for piece in asked.await.map_err(|failure| failure.error)?.into {
                    scatter(&piece, start, &mut into);
                    start += piece.len();
                }
            }
            Ok(into)
        })
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let length: u64 = from.iter().map(|buffer| buffer.len() as u64).sum();
        if let Err(error) = self.check("write", at, length) {
            return Box::pin(async { Err(error) });
        }
        let info = self.info();
        let is_stable = stability == Stability::Stable;
        let is_fua = is_stable && info.can_fua;
        let kind = if info.has_write_cache && !is_fua { CacheEffect::Write } else { CacheEffect::None };
        let needs_flush = is_stable && kind == CacheEffect::Write;
        let (most, sector) = self.steps();
        let mut block = at.0 / sector;
        let mut asked = Vec::new();
        for payload in payloads(&from, (most * sector) as usize) {
            let bytes: usize = payload.iter().map(|(_, range)| range.len()).sum();
            let count = bytes as u64 / sector;
            let cdb = commands::write(block, count as u32, is_fua);
            asked.push(self.execute(cdb, kind, Vec::new(), payload));
            block += count;
        }
        let done = all_done(asked);
        if !needs_flush {
            return done;
        }
        let own = self.clone();
        Box::pin(async move {
            done.await?;
            own.flush_now().await
        })
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.flush_now()
    }

    /// Advisory: on a unit without UNMAP it does nothing and succeeds.
    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        if let Err(error) = self.check("discard", at, length.0) {
            return Box::pin(async { Err(error) });
        }
        let info = self.info();
        let Some(most) = info.unmap_blocks_max else { return Box::pin(async { Ok(()) }) };
        let kind = if info.has_write_cache { CacheEffect::Write } else { CacheEffect::None };
        let sector = u64::from(info.sector);
        let (first, count) = (at.0 / sector, length.0 / sector);
        let asked = (0..count).step_by(most as usize).map(|start| {
            let blocks = (count - start).min(u64::from(most)) as u32;
            let (cdb, list) = commands::unmap(first + start, blocks);
            let list = Arc::new(Buffer::copy_of(&list));
            self.execute(cdb, kind, Vec::new(), vec![(Arc::clone(&list), 0..list.len())])
        });
        all_done(asked.collect())
    }
}
