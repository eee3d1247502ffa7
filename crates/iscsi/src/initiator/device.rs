//! A unit as a block device.

use super::{
    Facts, InitiatorOptions, Uri, commands,
    link::Link,
    tasks::{Command, Done, Kind, NotDone},
};
use std::{rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Network, Stability, World,
    pieces::{Payload, payloads, scatter},
};

/// See the module's documentation. Cheap to clone; clones share a session.
#[derive(Clone)]
pub struct Initiator(Rc<Link>);

impl Initiator {
    /// Logs in and looks at the unit at `uri`.
    ///
    /// # Errors
    ///
    /// Nobody answers there, or not in time; who we are is not enough; there is no such target or unit, or it is no disk.
    pub async fn connect(
        world: &World,
        network: Rc<dyn Network>,
        uri: Uri,
        options: InitiatorOptions,
    ) -> IoResult<Self> {
        Ok(Self(Link::connect(world, network, uri, options).await?))
    }

    /// What the unit is.
    pub fn facts(&self) -> &Facts {
        self.0.facts()
    }

    /// Times the connection broke so far.
    pub fn breaks(&self) -> u64 {
        self.0.breaks()
    }

    fn check(&self, what: &str, at: ByteOffset, length: u64) -> IoResult<()> {
        let facts = self.facts();
        let sector = u64::from(facts.sector);
        let refuse =
            |kind, why: &str| Err(IoError::new(kind, format!("{what} of {length} bytes at {}: {why}", at.0)));
        if !at.0.is_multiple_of(sector) || !length.is_multiple_of(sector) {
            return refuse(IoErrorKind::Unaligned, &format!("not whole blocks of {sector} bytes"));
        }
        if at.0.checked_add(length).is_none_or(|end| end > facts.size) {
            return refuse(IoErrorKind::OutOfRange, &format!("the unit has {} bytes", facts.size));
        }
        if what != "read" && facts.is_read_only {
            return refuse(IoErrorKind::ReadOnly, "the unit is read-only");
        }
        Ok(())
    }

    fn ask(
        &self,
        cdb: commands::Cdb,
        kind: Kind,
        into: Vec<Buffer>,
        payload: Payload,
    ) -> impl Future<Output = Result<Done, NotDone>> + 'static {
        self.0.ask(Command { cdb, kind, into, payload, is_probe: false })
    }

    /// Blocks of one command at most, and bytes of one.
    fn steps(&self) -> (u64, u64) {
        let sector = u64::from(self.facts().sector);
        (self.facts().transfer_bytes_max / sector, sector)
    }

    fn flush_now(&self) -> LocalFuture<IoResult<()>> {
        if let Err(error) = self.0.check_flush() {
            return Box::pin(async { Err(error) });
        }
        let flushed = self.ask(commands::synchronize_cache(), Kind::Flush, Vec::new(), Payload::new());
        let has_cache = self.facts().has_write_cache;
        Box::pin(async move {
            match flushed.await {
                // What has no cache need not know how to empty it.
                Err(NotDone { error, .. }) if error.kind() == IoErrorKind::Unsupported && !has_cache => {
                    Ok(())
                }
                other => other.map(drop).map_err(|not_done| not_done.error),
            }
        })
    }
}

fn all_done(asked: Vec<impl Future<Output = Result<Done, NotDone>> + 'static>) -> LocalFuture<IoResult<()>> {
    Box::pin(async move {
        for asked in asked {
            asked.await.map_err(|not_done| not_done.error)?;
        }
        Ok(())
    })
}

impl BlockDevice for Initiator {
    fn geometry(&self) -> Geometry {
        Geometry { size: ByteCount(self.facts().size), sector: self.facts().sector }
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
            let asked = self.ask(commands::read(first, count as u32), Kind::Other, into, Payload::new());
            return Box::pin(
                async move { asked.await.map(|done| done.into).map_err(|not_done| not_done.error) },
            );
        }
        let asked: Vec<_> = (0..count)
            .step_by(most as usize)
            .map(|start| {
                let blocks = (count - start).min(most);
                let room = vec![Buffer::zeroed((blocks * sector) as usize)];
                self.ask(commands::read(first + start, blocks as u32), Kind::Other, room, Payload::new())
            })
            .collect();
        let mut into = into;
        Box::pin(async move {
            let mut start = 0;
            for asked in asked {
                for piece in asked.await.map_err(|not_done| not_done.error)?.into {
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
        let facts = self.facts();
        let is_stable = stability == Stability::Stable;
        let is_fua = is_stable && facts.can_fua;
        let kind = if facts.has_write_cache && !is_fua { Kind::Write } else { Kind::Other };
        let needs_flush = is_stable && kind == Kind::Write;
        let (most, sector) = self.steps();
        let mut block = at.0 / sector;
        let mut asked = Vec::new();
        for payload in payloads(&from, (most * sector) as usize) {
            let bytes: usize = payload.iter().map(|(_, range)| range.len()).sum();
            let count = bytes as u64 / sector;
            let cdb = commands::write(block, count as u32, is_fua);
            asked.push(self.ask(cdb, kind, Vec::new(), payload));
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

    /// A hint: a unit that knows no UNMAP keeps the bytes, and that is a success.
    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        if let Err(error) = self.check("discard", at, length.0) {
            return Box::pin(async { Err(error) });
        }
        let facts = self.facts();
        let Some(most) = facts.unmap_blocks_max else { return Box::pin(async { Ok(()) }) };
        let kind = if facts.has_write_cache { Kind::Write } else { Kind::Other };
        let sector = u64::from(facts.sector);
        let (first, count) = (at.0 / sector, length.0 / sector);
        let asked = (0..count).step_by(most as usize).map(|start| {
            let blocks = (count - start).min(u64::from(most)) as u32;
            let (cdb, list) = commands::unmap(first + start, blocks);
            let list = Arc::new(Buffer::copy_of(&list));
            self.ask(cdb, kind, Vec::new(), vec![(Arc::clone(&list), 0..list.len())])
        });
        all_done(asked.collect())
    }
}
