//! Hosts of the volume: each has a part of it, and writes, discards and reads there, one command after the other.

use super::{
    model::{Model, OF_BLOCK, SECTOR, ZERO, sectors_of},
    source::SourceState,
};
use array::volume::VolumeDevice;
use std::{
    cell::{Cell, RefCell},
    ops::Range,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Stability, World};

pub struct Host {
    pub world: World,
    pub device: VolumeDevice,
    pub model: Rc<RefCell<Model>>,
    pub source: Rc<SourceState>,
    /// Sectors of its own.
    pub sectors: Range<u64>,
    pub writes: Rc<Cell<u64>>,
    pub is_over: Rc<Cell<bool>>,
}

impl Host {
    pub async fn work(self, name: String, pause: Duration) {
        let mut random = self.world.random(&name);
        let mut commands = 0;
        while !self.is_over.get() {
            // Few commands while nothing else happens for seconds.
            let slower = if self.source.is_cut.get() || commands > 2000 { 100 } else { 1 };
            commands += 1;
            self.world.sleep(pause * slower * (1 + random.below(4) as u32)).await;
            let most = if random.percent(20.0) { 200 } else { 20 };
            let count = 1 + random.below(most);
            let first = self.sectors.start + random.below(self.sectors.end - self.sectors.start - count);
            // A wrong answer would become part of a block that is written in part, which nobody can notice.
            let may_be_in_part = !self.source.is_rotten_source;
            let sectors = match random.percent(50.0) && may_be_in_part {
                true => first..first + count,
                // Whole blocks.
                false => {
                    let start = first.next_multiple_of(OF_BLOCK).min(self.sectors.end - OF_BLOCK);
                    start..(start + count.next_multiple_of(OF_BLOCK)).min(self.sectors.end)
                }
            };
            match random.below(10) {
                0..5 => self.write(sectors).await,
                5 => self.discard(sectors).await,
                _ => self.read(sectors).await,
            }
        }
    }

    async fn write(&self, sectors: Range<u64>) {
        let count = sectors.end - sectors.start;
        let tag = self.model.borrow_mut().new_tag();
        self.model.borrow_mut().begin(sectors.clone(), tag);
        let data = vec![Arc::new(Buffer::copy_of(&sectors_of(tag, count)))];
        let written = self.device.write(at(sectors.start), data, Stability::Stable).await;
        match written {
            Ok(()) => {
                self.writes.set(self.writes.get() + 1);
                self.model.borrow_mut().acknowledge(sectors, tag);
            }
            Err(error) => self.check_is_of_source(&error),
        }
    }

    async fn discard(&self, sectors: Range<u64>) {
        let whole = sectors.start.next_multiple_of(OF_BLOCK)..sectors.end / OF_BLOCK * OF_BLOCK;
        if whole.is_empty() {
            return;
        }
        self.model.borrow_mut().begin(whole.clone(), ZERO);
        let length = ByteCount((whole.end - whole.start) * SECTOR as u64);
        self.device.discard(at(whole.start), length).await.expect("a discard needs no source");
        self.model.borrow_mut().acknowledge(whole, ZERO);
    }

    async fn read(&self, sectors: Range<u64>) {
        let length = (sectors.end - sectors.start) as usize * SECTOR;
        match self.device.read(at(sectors.start), vec![Buffer::zeroed(length)]).await {
            // A wrong answer of the source cannot be known by one who reads through it.
            Ok(_) if self.source.is_rotten_source => {}
            Ok(read) => self.model.borrow_mut().check(sectors.start, &read[0]),
            Err(error) => self.check_is_of_source(&error),
        }
    }

    fn check_is_of_source(&self, error: &world::IoError) {
        let is_bad = error.kind() == IoErrorKind::Medium && !self.source.bad.borrow().is_empty();
        assert!(is_bad || error.kind() == IoErrorKind::Disconnected, "{error:?}");
    }
}

fn at(sector: u64) -> ByteOffset {
    ByteOffset(sector * SECTOR as u64)
}
