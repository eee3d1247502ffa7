//! The work: hosts that write, read, discard and flush, each for itself and on each other's sectors.

use super::{
    content::{OperationNumber, SECTOR_BYTES, VolumeKey, fill},
    ground::Ground,
    model::VolumeModel,
    trouble::{Refusal, Trouble},
};
use array::{
    pool::Pool,
    volume::{SnapshotDevice, VolumeDevice},
};
use std::{ops::Range, rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, IoError, IoErrorKind, Random, Stability, World};

/// Sectors of a block of the pool: only whole ones are discarded.
const BLOCK_SECTORS: u64 = 8;

/// A host.
pub struct Host {
    /// What is shared.
    pub ground: Ground,
    /// The pool it works on.
    pub pool: Rc<Pool>,
    /// Its stream.
    pub random: Random,
}

/// A command that was begun, and what the model must be told.
struct Begun {
    volume: VolumeKey,
    /// Changes of its size when the command began, and whether one was under way.
    resizes: (u64, bool),
    /// Changes of its write cache when the command began, and whether it may have one.
    cache: (u64, bool),
}

impl Begun {
    fn of(key: VolumeKey, volume: &VolumeModel) -> Self {
        Self {
            volume: key,
            resizes: (volume.resizes, volume.resizing.is_some()),
            cache: (volume.switches, volume.is_cached),
        }
    }
}

impl Host {
    /// Gives all commands of this incarnation.
    pub async fn work(mut self, world: World) -> Result<(), Trouble> {
        for _ in 0..self.ground.plan.commands {
            let pause = self.ground.plan.pause.mul_f64(-(1.0 - self.random.unit()).ln());
            world.sleep(pause).await;
            self.command(&world).await?;
        }
        Ok(())
    }

    async fn command(&mut self, world: &World) -> Result<(), Trouble> {
        let usable = self.ground.model.borrow().usable();
        if usable.is_empty() {
            return Ok(());
        }
        let volume = usable[self.random.below(usable.len() as u64) as usize];
        let name = self.ground.model.borrow_mut().volume(volume).name.clone();
        // A rename that is not answered yet may have happened.
        let Ok(device) = self.pool.volume(&name).map(VolumeDevice) else { return Ok(()) };
        match self.random.below(100) {
            0..=54 => self.write(&device, volume).await,
            55..=62 => self.write_several(world, &device, volume).await,
            63..=79 => self.read(&device, volume).await,
            80..=88 => self.discard(&device, volume).await,
            89..=91 => {
                let begun = self.ground.model.borrow_mut().tick();
                let flushed = device.flush().await;
                if flushed.is_ok() {
                    self.ground.model.borrow_mut().is_stable_until(begun);
                    self.ground.tally.borrow_mut().flushes += 1;
                }
                flushed.map_err(|error| Refusal::of_volume("flushing", &error).into())
            }
            _ => self.read_snapshot().await,
        }
    }

    /// Sectors in one of the volume's windows, as many as hosts are fond of.
    fn draw_sectors(&mut self, volume: VolumeKey) -> Range<u64> {
        let window_sectors = self.ground.plan.window_sectors;
        let (size, window) = {
            let mut model = self.ground.model.borrow_mut();
            let volume = model.volume(volume);
            let pick = self.random.below(volume.windows.len() as u64) as usize;
            (volume.sectors, volume.windows[pick])
        };
        let start = (window + self.random.below(window_sectors)).min(size - 1);
        let kind = self.random.below(20);
        let length = match kind {
            _ if self.ground.plan.is_tight && kind < 16 => 256 + self.random.below(256),
            0..=7 => 1 + self.random.below(7),
            8..=14 => BLOCK_SECTORS * (1 + self.random.below(4)),
            15..=18 => 1 + self.random.below(128),
            _ => 1 + self.random.below(512),
        };
        let start = if self.random.percent(50.0) { start / BLOCK_SECTORS * BLOCK_SECTORS } else { start };
        start..(start + length).min(size)
    }

    fn begin(&self, key: VolumeKey) -> Begun {
        let mut model = self.ground.model.borrow_mut();
        Begun::of(key, model.volume(key))
    }

    async fn write(&mut self, device: &VolumeDevice, volume: VolumeKey) -> Result<(), Trouble> {
        let sectors = self.draw_sectors(volume);
        write_sectors(&self.ground, device, (volume, sectors), &mut self.random).await
    }

    /// Writes that are under way at once, and overlap.
    async fn write_several(
        &mut self,
        world: &World,
        device: &VolumeDevice,
        volume: VolumeKey,
    ) -> Result<(), Trouble> {
        let mut writes = Vec::new();
        for _ in 0..2 + self.random.below(4) {
            let place = (volume, self.draw_sectors(volume));
            let (ground, device) = (self.ground.clone(), device.clone());
            let mut random = Random::new(self.random.next_u64(), "one of several");
            let write = async move { write_sectors(&ground, &device, place, &mut random).await };
            writes.push(world.spawn("write", write));
        }
        for write in writes {
            write.await?;
        }
        Ok(())
    }

    async fn read(&mut self, device: &VolumeDevice, volume: VolumeKey) -> Result<(), Trouble> {
        let begun = self.begin(volume);
        let sectors = self.draw_sectors(volume);
        self.ground.tally.borrow_mut().reads += 1;
        match self.ground.read_volume(device, volume, sectors).await {
            Err(Trouble::Refused(_)) if self.ground.is_disturbed(&begun) => Ok(()),
            read => read,
        }
    }

    async fn discard(&mut self, device: &VolumeDevice, volume: VolumeKey) -> Result<(), Trouble> {
        let begun = self.begin(volume);
        let sectors = self.draw_sectors(volume);
        let first = sectors.start.div_ceil(BLOCK_SECTORS) * BLOCK_SECTORS;
        let end = sectors.end / BLOCK_SECTORS * BLOCK_SECTORS;
        let cleared = first.min(end)..end;
        let operation = self.ground.model.borrow_mut().begin_discard(volume, cleared.clone());
        let (at, length) = (sectors.start * SECTOR_BYTES as u64, sectors.end - sectors.start);
        let length = ByteCount(length * SECTOR_BYTES as u64);
        match device.discard(ByteOffset(at), length).await {
            Ok(()) => {
                self.ground.acknowledge(&begun, cleared, operation, Stability::Volatile);
                Ok(())
            }
            Err(error) => self.ground.is_refused(&begun, "discarding", &error),
        }
    }

    async fn read_snapshot(&mut self) -> Result<(), Trouble> {
        let readable = self.ground.model.borrow().readable_cuts();
        if readable.is_empty() {
            return Ok(());
        }
        let (cut, volume) = readable[self.random.below(readable.len() as u64) as usize];
        let (volume_name, name, size) = {
            let model = self.ground.model.borrow();
            let part = &model.cuts[&cut].parts[&volume];
            (model.volumes[&volume].name.clone(), model.cuts[&cut].name.clone(), part.sectors)
        };
        let found: Result<SnapshotDevice, _> = self.pool.snapshot_device(&volume_name, &name);
        let Ok(device) = found else { return Ok(()) };
        let drawn = self.draw_sectors(volume);
        let sectors = drawn.start.min(size - 1)..drawn.end.clamp(1, size);
        let sectors = sectors.start..sectors.end.max(sectors.start + 1);
        self.ground.tally.borrow_mut().reads += 1;
        let read = self.ground.read_snapshot(&device, (cut, volume), sectors).await;
        let is_there = self.ground.model.borrow().readable_cuts().contains(&(cut, volume));
        match read {
            Err(Trouble::Refused(_)) if !is_there => Ok(()),
            read => read,
        }
    }
}

impl Ground {
    /// Whether the volume was deleted or changed its size since a command began: then it may be refused.
    fn is_disturbed(&self, begun: &Begun) -> bool {
        let mut model = self.model.borrow_mut();
        let volume = model.volume(begun.volume);
        let was_resized = volume.resizes != begun.resizes.0 || begun.resizes.1;
        was_resized || volume.presence != super::model::Presence::There
    }

    /// A write or discard was answered. It is stable if that was asked for, or if there is no write cache.
    fn acknowledge(&self, begun: &Begun, sectors: Range<u64>, operation: OperationNumber, asked: Stability) {
        let mut model = self.model.borrow_mut();
        let volume = model.volume(begun.volume);
        let was_cached = begun.cache.1 || volume.is_cached || volume.switches != begun.cache.0;
        let is_stable = asked == Stability::Stable || !was_cached;
        model.acknowledge(begun.volume, sectors, operation, is_stable);
        let mut tally = self.tally.borrow_mut();
        tally.writes += 1;
        tally.cached += u64::from(!is_stable);
    }

    /// A command was answered with an error: is that in order?
    fn is_refused(&self, begun: &Begun, doing: &str, error: &IoError) -> Result<(), Trouble> {
        let is_for_space = error.kind() == IoErrorKind::NoSpace;
        if is_for_space && is_bound(&error.to_string()) && self.model.borrow().is_bounded {
            self.tally.borrow_mut().bounded += 1;
            return Ok(());
        }
        if is_for_space && self.plan.is_tight {
            self.tally.borrow_mut().full += 1;
            return Ok(());
        }
        let refusal = Refusal::of_volume(doing, error);
        if is_for_space && refusal.is_for_space() && self.has_spell() {
            self.tally.borrow_mut().out_of_space += 1;
            return Ok(());
        }
        if self.is_disturbed(begun) {
            return Ok(());
        }
        Err(refusal.into())
    }
}

/// One write of sectors that say who wrote them, in buffers of any size.
async fn write_sectors(
    ground: &Ground,
    device: &VolumeDevice,
    (key, sectors): (VolumeKey, Range<u64>),
    random: &mut Random,
) -> Result<(), Trouble> {
    let (operation, begun) = {
        let mut model = ground.model.borrow_mut();
        let volume = model.volume(key);
        if sectors.end > volume.sectors {
            // It has become smaller since they were drawn.
            return Ok(());
        }
        let begun = Begun::of(key, volume);
        (model.begin_write(key, sectors.clone()), begun)
    };
    let mut buffers = Vec::new();
    let mut sector = sectors.start;
    while sector < sectors.end {
        let most = sectors.end - sector;
        let count = if random.percent(60.0) { most } else { 1 + random.below(most) };
        let mut buffer = Buffer::zeroed(count as usize * SECTOR_BYTES);
        for bytes in buffer.chunks_exact_mut(SECTOR_BYTES) {
            fill(bytes, operation, key, sector);
            sector += 1;
        }
        buffers.push(Arc::new(buffer));
    }
    let stability = if random.percent(50.0) { Stability::Stable } else { Stability::Volatile };
    let at = ByteOffset(sectors.start * SECTOR_BYTES as u64);
    match device.write(at, buffers, stability).await {
        Ok(()) => {
            ground.acknowledge(&begun, sectors, operation, stability);
            Ok(())
        }
        Err(error) => ground.is_refused(&begun, "writing", &error),
    }
}

/// Whether a refusal speaks of the bounds of volumes.
fn is_bound(story: &str) -> bool {
    story.contains("has reached its limit") || story.contains("is kept for volumes")
}
