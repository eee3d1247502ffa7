//! Writing a volume of a copy to a device.
//!
//! Invariants:
//!
//! 1. Before anything is written, all of the target was looked at: each block of 4 KiB holds zeroes, or what it will hold. So
//!    no data are overwritten, and a restore that ended early goes on.
//! 2. Each chunk is checked against its SHA-256 before it is written.

use crate::{
    VaultError, VaultResult, blob_id::BlobId, blob_index::BlobPlace, contents::CopiedVolume,
    locks::VaultLock, packs::BlobKind, repository::Repository, store::VaultFileKind,
};
use std::{collections::VecDeque, ops::Range, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, IoError, IoErrorKind, Job, JoinHandle, Sparse, Stability,
};

/// Unit in which a write that was cut off may have been done in part.
const BLOCK_BYTES: usize = 4096;
/// Bytes of one read, and reads and writes under way at once.
const RUN_BYTES: u64 = 2 << 20;
const RUNS_MAX: usize = 8;

/// The device that a volume is written to.
pub struct VaultRestoreTarget {
    /// For messages.
    pub name: String,
    pub device: Rc<dyn BlockDevice>,
    /// Holes are not looked at.
    pub holes: Option<Rc<dyn Sparse>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeRestoreOutcome {
    pub written_bytes: u64,
    /// Bytes that the target had already, of a restore that ended early.
    pub found_bytes: u64,
}

/// State of the target's chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// Zeroes.
    Empty,
    /// As in the copy.
    Done,
    /// A part of it as in the copy, the rest zeroes.
    Begun,
}

/// Writes a volume; `job` counts its bytes, those of zeroes included, and `lock` is kept meanwhile.
///
/// # Errors
///
/// `Occupied`: the target holds other data, and nothing was written. Chunks of the copy are missing or damaged, or the
/// target cannot be written: the restore can go on later.
pub async fn restore(
    repository: &Rc<Repository>,
    volume: &CopiedVolume,
    target: &VaultRestoreTarget,
    lock: Option<&VaultLock>,
    job: &Job,
) -> VaultResult<VolumeRestoreOutcome> {
    let size = volume.record.size_bytes;
    let target_size = target.device.geometry().size.0;
    if target_size < size {
        let problem = format!("{} has {target_size} bytes, and the volume has {size}", target.name);
        return Err(VaultError::Mismatch(problem));
    }
    job.add_total(size);
    let restore = VolumeRestore { repository, volume, target, job };
    let mut folders = Vec::new();
    for folder in 0..volume.folders.len() as u64 {
        refresh(lock).await?;
        folders.push(restore.look_at(folder).await?);
    }
    restore.look_behind(size..target_size).await?;
    let mut outcome = VolumeRestoreOutcome::default();
    for (folder, states) in folders.iter().enumerate() {
        refresh(lock).await?;
        restore.write(folder as u64, states, &mut outcome).await?;
    }
    target.device.flush().await?;
    Ok(outcome)
}

async fn refresh(lock: Option<&VaultLock>) -> VaultResult<()> {
    match lock {
        Some(lock) => lock.refresh().await,
        None => Ok(()),
    }
}

struct VolumeRestore<'r> {
    repository: &'r Rc<Repository>,
    volume: &'r CopiedVolume,
    target: &'r VaultRestoreTarget,
    job: &'r Job,
}

impl VolumeRestore<'_> {
    /// Chunks of the target that may hold something.
    async fn allocated(&self, range: Range<u64>) -> VaultResult<Vec<bool>> {
        let chunk = u64::from(self.volume.record.layout.chunk_bytes);
        let count = self.volume.record.layout.chunks(range.end - range.start);
        let Some(holes) = &self.target.holes else { return Ok(vec![true; count]) };
        let mut allocated = vec![false; count];
        let mut at = range.start;
        while at < range.end {
            let extents = holes.extents(ByteOffset(at), ByteCount(range.end - at)).await?;
            let before = at;
            for extent in extents {
                let end = (at + extent.length.0).min(range.end);
                if !extent.is_zero && at < end {
                    let chunks = (at - range.start) / chunk..(end - range.start).div_ceil(chunk);
                    allocated[chunks.start as usize..chunks.end as usize].fill(true);
                }
                at = end;
            }
            if at == before {
                let story = format!("{}: no extents at {at}", self.target.name);
                return Err(IoError::new(IoErrorKind::Damaged, story).into());
            }
        }
        Ok(allocated)
    }

    async fn read_target(&self, range: Range<u64>) -> VaultResult<Buffer> {
        let buffer = Buffer::zeroed((range.end - range.start) as usize);
        let read = self.target.device.read(ByteOffset(range.start), vec![buffer]).await?.pop();
        read.ok_or_else(|| IoError::new(IoErrorKind::Medium, "a read without data").into())
    }

    fn occupied(&self, at: u64) -> VaultError {
        VaultError::Occupied { target: self.target.name.clone(), at }
    }

    /// The states of a folder's chunks.
    async fn look_at(&self, folder: u64) -> VaultResult<Vec<ChunkState>> {
        let record = &self.volume.record;
        let range = record.layout.folder_range(folder, record.size_bytes);
        let allocated = self.allocated(range.clone()).await?;
        let mut states = vec![ChunkState::Empty; allocated.len()];
        if !allocated.contains(&true) {
            return Ok(states);
        }
        let ids = self.volume.chunks(self.repository, folder).await?;
        let first = range.start / u64::from(record.layout.chunk_bytes);
        for (index, _) in allocated.iter().enumerate().filter(|(_, is_allocated)| **is_allocated) {
            let bytes = record.layout.chunk_range(first + index as u64, range.end);
            let start = bytes.start;
            if self.job.is_cancelled() {
                return Err(VaultError::Cancelled);
            }
            let held = self.read_target(bytes).await?;
            states[index] = match held.iter().all(|byte| *byte == 0) {
                true => ChunkState::Empty,
                false if BlobId::of(&held) == ids[index] => ChunkState::Done,
                false => {
                    let wanted = self.repository.read_blob(BlobKind::Data, ids[index]).await?;
                    let pairs = held.chunks(BLOCK_BYTES).zip(wanted.chunks(BLOCK_BYTES));
                    let other = pairs
                        .enumerate()
                        .find(|(_, (held, wanted))| held != wanted && held.iter().any(|byte| *byte != 0));
                    if let Some((block, _)) = other {
                        return Err(self.occupied(start + (block * BLOCK_BYTES) as u64));
                    }
                    ChunkState::Begun
                }
            };
        }
        Ok(states)
    }

    /// A larger target has nothing behind the volume.
    async fn look_behind(&self, range: Range<u64>) -> VaultResult<()> {
        let chunk = u64::from(self.volume.record.layout.chunk_bytes);
        let allocated = self.allocated(range.clone()).await?;
        for (index, _) in allocated.iter().enumerate().filter(|(_, is_allocated)| **is_allocated) {
            let start = range.start + index as u64 * chunk;
            let held = self.read_target(start..(start + chunk).min(range.end)).await?;
            if let Some(at) = held.iter().position(|byte| *byte != 0) {
                return Err(self.occupied(start + at as u64));
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        folder: u64,
        states: &[ChunkState],
        outcome: &mut VolumeRestoreOutcome,
    ) -> VaultResult<()> {
        let record = &self.volume.record;
        let range = record.layout.folder_range(folder, record.size_bytes);
        let first = range.start / u64::from(record.layout.chunk_bytes);
        let ids = self.volume.chunks(self.repository, folder).await?;
        let zeroes = BlobId::of(&vec![0; record.layout.chunk_bytes as usize]);
        let mut under_way = VecDeque::new();
        let mut run: Option<WriteRun> = None;
        for (index, (id, state)) in ids.iter().zip(states).enumerate() {
            let bytes = record.layout.chunk_range(first + index as u64, range.end);
            let length = bytes.end - bytes.start;
            let is_left = match state {
                ChunkState::Done => {
                    outcome.found_bytes += length;
                    false
                }
                ChunkState::Empty => *id != zeroes,
                ChunkState::Begun => true,
            };
            if !is_left {
                self.job.advance(length);
                continue;
            }
            let place = self.repository.place(BlobKind::Data, *id)?;
            if u64::from(place.blob.plain_bytes()) != length {
                let why = format!("{} at {} has a chunk of another length", record.path(), bytes.start);
                return Err(VaultError::damaged("a tree", why));
            }
            match &mut run {
                Some(run) if run.takes(bytes.start, &place) => run.add(place),
                _ => {
                    let next = WriteRun::new(bytes.start, place);
                    if let Some(full) = run.replace(next) {
                        self.begin(full, &mut under_way, outcome).await?;
                    }
                }
            }
        }
        if let Some(last) = run {
            self.begin(last, &mut under_way, outcome).await?;
        }
        while !under_way.is_empty() {
            self.end(&mut under_way, outcome).await?;
        }
        Ok(())
    }

    async fn begin(
        &self,
        run: WriteRun,
        under_way: &mut VecDeque<JoinHandle<VaultResult<u64>>>,
        outcome: &mut VolumeRestoreOutcome,
    ) -> VaultResult<()> {
        if under_way.len() >= RUNS_MAX {
            self.end(under_way, outcome).await?;
        }
        let (repository, device) = (Rc::clone(self.repository), Rc::clone(&self.target.device));
        let world = &self.repository.access.world;
        under_way
            .push_back(world.spawn("vault write", async move { run.execute(&repository, &*device).await }));
        Ok(())
    }

    async fn end(
        &self,
        under_way: &mut VecDeque<JoinHandle<VaultResult<u64>>>,
        outcome: &mut VolumeRestoreOutcome,
    ) -> VaultResult<()> {
        if let Some(oldest) = under_way.pop_front() {
            let bytes = oldest.await?;
            if self.job.is_cancelled() {
                return Err(VaultError::Cancelled);
            }
            outcome.written_bytes += bytes;
            self.job.advance(bytes);
        }
        Ok(())
    }
}

/// Chunks that lie one behind the other in a pack and in the volume.
struct WriteRun {
    at: u64,
    places: Vec<BlobPlace>,
    bytes: u64,
}

impl WriteRun {
    fn new(at: u64, place: BlobPlace) -> Self {
        Self { at, places: vec![place], bytes: place.blob.plain_bytes().into() }
    }

    fn takes(&self, at: u64, place: &BlobPlace) -> bool {
        let last = self.places.last().expect("a run has a first chunk");
        at == self.at + self.bytes
            && place.pack == last.pack
            && place.blob.offset == last.blob.offset + last.blob.length
            && self.bytes < RUN_BYTES
    }

    fn add(&mut self, place: BlobPlace) {
        self.bytes += u64::from(place.blob.plain_bytes());
        self.places.push(place);
    }

    async fn execute(self, repository: &Repository, device: &dyn BlockDevice) -> VaultResult<u64> {
        let (first, last) = (self.places[0], self.places[self.places.len() - 1]);
        let start = first.blob.offset;
        let length = (last.blob.offset - start + last.blob.length) as usize;
        let name = first.pack.to_string();
        let sealed =
            repository.access.store.read_range(VaultFileKind::Pack, &name, (start.into(), length)).await?;
        let key = Arc::clone(repository.key());
        let (places, bytes) = (self.places, self.bytes);
        let open = move || {
            let mut plain = Buffer::zeroed(bytes as usize);
            let mut filled = 0;
            for BlobPlace { blob, .. } in places {
                let from = (blob.offset - start) as usize;
                let chunk = blob.open(&key, &sealed[from..from + blob.length as usize])?;
                plain[filled..filled + chunk.len()].copy_from_slice(&chunk);
                filled += chunk.len();
            }
            Ok::<_, VaultError>(Arc::new(plain))
        };
        let plain = repository.access.processors.run(open).await?;
        device.write(ByteOffset(self.at), vec![plain], Stability::Volatile).await?;
        Ok(bytes)
    }
}
