//! The work: hosts that write, read, discard and flush, on their own and on each other's sectors.

use super::{
    content::{OperationNumber, SECTOR_BYTES, VolumeKey, fill},
    fixture::PoolFixture,
    model::VolumeModel,
    violation::{PoolRefusal, PoolRunError, PoolViolation},
};
use array::{
    pool::Pool,
    volume::{SnapshotDevice, VolumeDevice},
};
use std::{ops::Range, rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, IoError, IoErrorKind, Random, Stability, World};

/// Sectors of a pool block: only whole blocks are discarded.
const BLOCK_SECTORS: u64 = 8;

pub struct Host {
    /// State shared by the run.
    pub fixture: PoolFixture,
    pub pool: Rc<Pool>,
    pub random: Random,
}

/// A command in flight, with the state at its start.
struct PendingCommand {
    volume: VolumeKey,
    /// Number of size changes when the command began, and whether one was in flight.
    resizes: (u64, bool),
    /// Number of cache switches when the command began, and whether the volume may have a cache.
    cache: (u64, bool),
}

impl PendingCommand {
    fn of(key: VolumeKey, volume: &VolumeModel) -> Self {
        Self {
            volume: key,
            resizes: (volume.resizes, volume.resizing.is_some()),
            cache: (volume.switches, volume.is_cached),
        }
    }
}

impl Host {
    /// Issues all commands of this incarnation.
    pub async fn work(mut self, world: World) -> Result<(), PoolRunError> {
        for _ in 0..self.fixture.plan.commands {
            let pause = self.fixture.plan.pause.mul_f64(-(1.0 - self.random.unit()).ln());
            world.sleep(pause).await;
            self.command(&world).await?;
        }
        Ok(())
    }

    async fn command(&mut self, world: &World) -> Result<(), PoolRunError> {
        let usable = self.fixture.model.borrow().usable();
        if usable.is_empty() {
            return Ok(());
        }
        let volume = usable[self.random.below(usable.len() as u64) as usize];
        if self.fixture.model.borrow_mut().volume(volume).is_held {
            return Ok(());
        }
        self.fixture.model.borrow_mut().volume(volume).commands += 1;
        let done = self.command_on(world, volume).await;
        self.fixture.model.borrow_mut().volume(volume).commands -= 1;
        done
    }

    async fn command_on(&mut self, world: &World, volume: VolumeKey) -> Result<(), PoolRunError> {
        let name = self.fixture.model.borrow_mut().volume(volume).name.clone();
        // An unacknowledged rename may have happened.
        let Ok(device) = self.pool.volume(&name).map(VolumeDevice) else { return Ok(()) };
        if self.fixture.model.borrow_mut().volume(volume).left_by.is_some() {
            return self.use_left(&device, volume).await;
        }
        match self.random.below(100) {
            0..=54 => self.write(&device, volume).await,
            55..=62 => self.write_several(world, &device, volume).await,
            63..=79 => self.read(&device, volume).await,
            80..=88 => self.discard(&device, volume).await,
            89..=91 => {
                let begun = self.fixture.model.borrow_mut().tick();
                let flushed = device.flush().await;
                if flushed.is_ok() {
                    self.fixture.model.borrow_mut().is_stable_until(begun);
                    self.fixture.tally.borrow_mut().flushes += 1;
                }
                flushed.map_err(|error| PoolRefusal::of_volume("flushing", &error).into())
            }
            _ => self.read_snapshot().await,
        }
    }

    /// Sectors in one of the volume's windows, of a typical length.
    fn draw_sectors(&mut self, volume: VolumeKey) -> Range<u64> {
        let window_sectors = self.fixture.plan.window_sectors;
        let (size, window) = {
            let mut model = self.fixture.model.borrow_mut();
            let volume = model.volume(volume);
            let pick = self.random.below(volume.windows.len() as u64) as usize;
            (volume.sectors, volume.windows[pick])
        };
        let start = (window + self.random.below(window_sectors)).min(size - 1);
        let kind = self.random.below(20);
        let length = match kind {
            _ if self.fixture.plan.is_tight && kind < 16 => 256 + self.random.below(256),
            0..=7 => 1 + self.random.below(7),
            8..=14 => BLOCK_SECTORS * (1 + self.random.below(4)),
            15..=18 => 1 + self.random.below(128),
            _ => 1 + self.random.below(512),
        };
        let start = if self.random.percent(50.0) { start / BLOCK_SECTORS * BLOCK_SECTORS } else { start };
        start..(start + length).min(size)
    }

    fn begin(&self, key: VolumeKey) -> PendingCommand {
        let mut model = self.fixture.model.borrow_mut();
        PendingCommand::of(key, model.volume(key))
    }

    async fn write(&mut self, device: &VolumeDevice, volume: VolumeKey) -> Result<(), PoolRunError> {
        let sectors = self.draw_sectors(volume);
        write_sectors(&self.fixture, device, (volume, sectors), &mut self.random).await
    }

    /// Overlapping writes, in flight at once.
    async fn write_several(
        &mut self,
        world: &World,
        device: &VolumeDevice,
        volume: VolumeKey,
    ) -> Result<(), PoolRunError> {
        let mut writes = Vec::new();
        for _ in 0..2 + self.random.below(4) {
            let place = (volume, self.draw_sectors(volume));
            let (fixture, device) = (self.fixture.clone(), device.clone());
            let mut random = Random::new(self.random.next_u64(), "one of several");
            let write = async move { write_sectors(&fixture, &device, place, &mut random).await };
            writes.push(world.spawn("write", write));
        }
        for write in writes {
            write.await?;
        }
        Ok(())
    }

    async fn read(&mut self, device: &VolumeDevice, volume: VolumeKey) -> Result<(), PoolRunError> {
        let begun = self.begin(volume);
        let sectors = self.draw_sectors(volume);
        self.fixture.tally.borrow_mut().reads += 1;
        match self.fixture.read_volume(device, volume, sectors).await {
            Err(PoolRunError::Refused(_)) if self.fixture.is_disturbed(&begun) => Ok(()),
            read => read,
        }
    }

    /// Reads a volume that a rollback left, or tries to write it.
    async fn use_left(&mut self, device: &VolumeDevice, volume: VolumeKey) -> Result<(), PoolRunError> {
        if self.random.percent(80.0) {
            return self.read(device, volume).await;
        }
        let written = device.write(ByteOffset(0), vec![Arc::new(Buffer::zeroed(512))], Stability::Stable);
        match written.await {
            Err(_) => Ok(()),
            Ok(()) => Err(PoolViolation::NotRefused("writing to what a rollback left".to_owned()).into()),
        }
    }

    async fn discard(&mut self, device: &VolumeDevice, volume: VolumeKey) -> Result<(), PoolRunError> {
        let begun = self.begin(volume);
        let sectors = self.draw_sectors(volume);
        let first = sectors.start.div_ceil(BLOCK_SECTORS) * BLOCK_SECTORS;
        let end = sectors.end / BLOCK_SECTORS * BLOCK_SECTORS;
        let cleared = first.min(end)..end;
        let operation = self.fixture.model.borrow_mut().begin_discard(volume, cleared.clone());
        let (at, length) = (sectors.start * SECTOR_BYTES as u64, sectors.end - sectors.start);
        let length = ByteCount(length * SECTOR_BYTES as u64);
        match device.discard(ByteOffset(at), length).await {
            Ok(()) => {
                self.fixture.acknowledge(&begun, cleared, operation, Stability::Volatile);
                Ok(())
            }
            Err(error) => self.fixture.is_refused(&begun, "discarding", &error),
        }
    }

    async fn read_snapshot(&mut self) -> Result<(), PoolRunError> {
        let readable = self.fixture.model.borrow().readable_cuts();
        if readable.is_empty() {
            return Ok(());
        }
        let (cut, volume) = readable[self.random.below(readable.len() as u64) as usize];
        let (volume_name, name, size) = {
            let model = self.fixture.model.borrow();
            let part = &model.cuts[&cut].parts[&volume];
            (model.volumes[&volume].name.clone(), model.cuts[&cut].name.clone(), part.sectors)
        };
        let found: Result<SnapshotDevice, _> = self.pool.snapshot_device(&volume_name, &name);
        let Ok(device) = found else { return Ok(()) };
        let drawn = self.draw_sectors(volume);
        let sectors = drawn.start.min(size - 1)..drawn.end.clamp(1, size);
        let sectors = sectors.start..sectors.end.max(sectors.start + 1);
        self.fixture.tally.borrow_mut().reads += 1;
        let read = self.fixture.read_snapshot(&device, (cut, volume), sectors).await;
        let is_there = self.fixture.model.borrow().readable_cuts().contains(&(cut, volume));
        match read {
            Err(PoolRunError::Refused(_)) if !is_there => Ok(()),
            read => read,
        }
    }
}

impl PoolFixture {
    /// True if the volume was deleted or resized since the command began: then an error is allowed.
    fn is_disturbed(&self, begun: &PendingCommand) -> bool {
        let mut model = self.model.borrow_mut();
        let volume = model.volume(begun.volume);
        let was_resized = volume.resizes != begun.resizes.0 || begun.resizes.1;
        was_resized || volume.presence != super::model::Presence::There
    }

    /// Records an acknowledged write or discard. It is stable if that was requested, or without a write
    /// cache.
    fn acknowledge(
        &self,
        begun: &PendingCommand,
        sectors: Range<u64>,
        operation: OperationNumber,
        asked: Stability,
    ) {
        let mut model = self.model.borrow_mut();
        let volume = model.volume(begun.volume);
        let was_cached = begun.cache.1 || volume.is_cached || volume.switches != begun.cache.0;
        let is_stable = asked == Stability::Stable || !was_cached;
        model.acknowledge(begun.volume, sectors, operation, is_stable);
        let mut tally = self.tally.borrow_mut();
        tally.writes += 1;
        tally.cached += u64::from(!is_stable);
    }

    /// Decides whether an error is allowed.
    fn is_refused(&self, begun: &PendingCommand, doing: &str, error: &IoError) -> Result<(), PoolRunError> {
        let is_for_space = error.kind() == IoErrorKind::NoSpace;
        if is_for_space && is_bound(&error.to_string()) && self.model.borrow().is_bounded {
            self.tally.borrow_mut().bounded += 1;
            return Ok(());
        }
        if is_for_space && self.plan.is_tight {
            self.tally.borrow_mut().full += 1;
            return Ok(());
        }
        let refusal = PoolRefusal::of_volume(doing, error);
        if is_for_space && refusal.is_for_space() && self.has_shortage() {
            self.tally.borrow_mut().out_of_space += 1;
            return Ok(());
        }
        if self.is_disturbed(begun) {
            return Ok(());
        }
        Err(refusal.into())
    }
}

/// Writes sectors that identify their writer, in buffers of random sizes.
async fn write_sectors(
    fixture: &PoolFixture,
    device: &VolumeDevice,
    (key, sectors): (VolumeKey, Range<u64>),
    random: &mut Random,
) -> Result<(), PoolRunError> {
    let (operation, begun) = {
        let mut model = fixture.model.borrow_mut();
        let volume = model.volume(key);
        if sectors.end > volume.sectors {
            // The volume has shrunk since the sectors were drawn.
            return Ok(());
        }
        let begun = PendingCommand::of(key, volume);
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
            let follower = fixture.follower.borrow().clone();
            follower.map_or(Ok(()), |follower| follower.check_answered((key, &sectors), operation))?;
            fixture.acknowledge(&begun, sectors, operation, stability);
            Ok(())
        }
        Err(error) => fixture.is_refused(&begun, "writing", &error),
    }
}

/// True if the error concerns limits or reserves.
fn is_bound(story: &str) -> bool {
    story.contains("has reached its limit") || story.contains("is kept for volumes")
}
