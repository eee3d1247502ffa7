//! An export as a block device.

use super::{ClientOptions, NbdUri, connection::ExportSession};
use crate::wire::{
    handshake::transmission_flag,
    transmission::{RequestType, allocation_flag, command_flag},
};
use std::{rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Extent, Geometry, IoError, IoErrorKind, IoResult,
    LocalFuture, Network, Sparse, Stability, World,
    network::reconnecting::Reconnecting,
    payload::{Payload, payloads, scatter},
};

/// A connected client. Clones share its connection.
#[derive(Clone)]
pub struct Client(Rc<Reconnecting<ExportSession>>);

impl Client {
    ///
    /// # Errors
    ///
    /// The server does not answer within `connect_max`, or has no such export.
    pub async fn connect(
        world: &World,
        network: Rc<dyn Network>,
        uri: NbdUri,
        options: ClientOptions,
    ) -> IoResult<Self> {
        Ok(Self(Rc::new(ExportSession::connect(world, network, uri, options).await?)))
    }

    pub fn is_read_only(&self) -> bool {
        self.0.protocol().info().has_flag(transmission_flag::READ_ONLY)
    }

    /// Number of times the connection has been lost.
    pub fn breaks(&self) -> u64 {
        self.0.breaks()
    }

    fn check(&self, what: &str, at: ByteOffset, length: u64) -> IoResult<()> {
        let info = self.0.protocol().info();
        let sector = u64::from(info.sizes.least);
        let refuse =
            |kind, why: &str| Err(IoError::new(kind, format!("{what} of {length} bytes at {}: {why}", at.0)));
        if !at.0.is_multiple_of(sector) || !length.is_multiple_of(sector) {
            return refuse(IoErrorKind::Unaligned, &format!("not whole sectors of {sector} bytes"));
        }
        if at.0.checked_add(length).is_none_or(|end| end > info.size) {
            return refuse(IoErrorKind::OutOfRange, &format!("the export has {} bytes", info.size));
        }
        if what != "read" && self.is_read_only() {
            return refuse(IoErrorKind::ReadOnly, "the export is read-only");
        }
        Ok(())
    }

    /// Sends `command` over a range that may exceed the length of one request.
    fn over_range(
        &self,
        command: (u16, RequestType),
        at: ByteOffset,
        length: u64,
    ) -> LocalFuture<IoResult<()>> {
        let (flags, command) = command;
        // Requests without payload may be as long as a 32-bit length allows, in whole sectors.
        let most = u64::from(u32::MAX - 4095);
        let starts = (0..length).step_by(most as usize);
        let asked: Vec<_> = starts
            .map(|start| {
                let count = (length - start).min(most) as u32;
                self.0.protocol().send_request((flags, command, at.0 + start, count), Payload::new())
            })
            .collect();
        Box::pin(async move {
            for asked in asked {
                asked.await?;
            }
            Ok(())
        })
    }

    fn flush_now(&self) -> LocalFuture<IoResult<()>> {
        if !self.0.protocol().info().has_flag(transmission_flag::FLUSH) {
            return Box::pin(async { Ok(()) });
        }
        if let Err(error) = self.0.protocol().check_flush() {
            return Box::pin(async { Err(error) });
        }
        let flushed = self.0.protocol().send_request((0, RequestType::Flush, 0, 0), Payload::new());
        Box::pin(async move { flushed.await.map(drop) })
    }

    /// FUA if it is wanted and supported; true if a flush must replace it.
    fn stable(&self, stability: Stability) -> (u16, bool) {
        match (stability, self.0.protocol().info().has_flag(transmission_flag::FUA)) {
            (Stability::Volatile, _) => (0, false),
            (Stability::Stable, true) => (command_flag::FUA, false),
            (Stability::Stable, false) => (0, true),
        }
    }

    fn then_flush(&self, done: LocalFuture<IoResult<()>>, is_wanted: bool) -> LocalFuture<IoResult<()>> {
        if !is_wanted {
            return done;
        }
        let client = self.clone();
        Box::pin(async move {
            done.await?;
            client.flush_now().await
        })
    }
}

impl BlockDevice for Client {
    fn geometry(&self) -> Geometry {
        let info = self.0.protocol().info();
        Geometry { size: ByteCount(info.size), sector: info.sizes.least }
    }

    fn read(&self, at: ByteOffset, mut into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let length: u64 = into.iter().map(|buffer| buffer.len() as u64).sum();
        if let Err(error) = self.check("read", at, length) {
            return Box::pin(async { Err(error) });
        }
        let most = self.0.protocol().info().sizes.most;
        let asked: Vec<_> = (0..length)
            .step_by(most as usize)
            .map(|start| {
                let count = (length - start).min(most.into()) as u32;
                self.0.protocol().send_request((0, RequestType::Read, at.0 + start, count), Payload::new())
            })
            .collect();
        Box::pin(async move {
            let is_one = into.len() == 1 && asked.len() == 1;
            let mut start = 0;
            for asked in asked {
                let missing = || IoError::new(IoErrorKind::Medium, "read: reply without data");
                let data = asked.await?.data.ok_or_else(missing)?;
                if is_one {
                    return Ok(vec![data]);
                }
                scatter(&data, start, &mut into);
                start += data.len();
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
        let (flags, needs_flush) = self.stable(stability);
        let most = self.0.protocol().info().sizes.most as usize;
        let mut start = 0;
        let mut asked = Vec::new();
        for payload in payloads(&from, most) {
            let count: usize = payload.iter().map(|(_, range)| range.len()).sum();
            asked.push(
                self.0
                    .protocol()
                    .send_request((flags, RequestType::Write, at.0 + start, count as u32), payload),
            );
            start += count as u64;
        }
        let done = Box::pin(async move {
            for asked in asked {
                asked.await?;
            }
            Ok(())
        });
        self.then_flush(done, needs_flush)
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.flush_now()
    }

    /// Advisory: without TRIM it does nothing and succeeds.
    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        if let Err(error) = self.check("discard", at, length.0) {
            return Box::pin(async { Err(error) });
        }
        if !self.0.protocol().info().has_flag(transmission_flag::TRIM) {
            return Box::pin(async { Ok(()) });
        }
        self.over_range((0, RequestType::Trim), at, length.0)
    }
}

impl Sparse for Client {
    fn write_zeroes(
        &self,
        at: ByteOffset,
        length: ByteCount,
        keeps_space: bool,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        if let Err(error) = self.check("write zeroes", at, length.0) {
            return Box::pin(async { Err(error) });
        }
        let info = self.0.protocol().info();
        if !info.has_flag(transmission_flag::WRITE_ZEROES) || !info.has_flag(transmission_flag::FAST_ZERO) {
            let error = IoError::new(IoErrorKind::Unsupported, "write zeroes: no fast zeroing on the server");
            return Box::pin(async { Err(error) });
        }
        let (fua, needs_flush) = self.stable(stability);
        let no_hole = if keeps_space { command_flag::NO_HOLE } else { 0 };
        let flags = fua | no_hole | command_flag::FAST_ZERO;
        self.then_flush(self.over_range((flags, RequestType::WriteZeroes), at, length.0), needs_flush)
    }

    fn extents(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<Extent>>> {
        if let Err(error) = self.check("read", at, length.0) {
            return Box::pin(async { Err(error) });
        }
        if !self.0.protocol().info().has_allocation {
            let all = Extent { length, is_hole: false, is_zero: false };
            return Box::pin(async move { Ok(vec![all]) });
        }
        let count = length.0.min(u64::from(u32::MAX - 4095)) as u32;
        let asked =
            self.0.protocol().send_request((0, RequestType::BlockStatus, at.0, count), Payload::new());
        Box::pin(async move {
            let extents = asked.await?.extents.into_iter().map(|(length, flags)| Extent {
                length: ByteCount(length.into()),
                is_hole: flags & allocation_flag::HOLE != 0,
                is_zero: flags & allocation_flag::ZERO != 0,
            });
            Ok(extents.collect())
        })
    }
}
