//! Copying a backup into a vault.
//!
//! Invariants:
//!
//! 1. The snapshot is written last: all that it refers to is stable and in an index then. A copy that ends early leaves packs
//!    at most, which the next one uses.
//! 2. A chunk is taken over from the base without being read only if the difference says that it is unchanged since, and the
//!    index has it.
//! 3. Nothing is deleted.

mod plan;
mod throttle;

pub use plan::ChangedRange;

use crate::{
    VaultError, VaultResult,
    blob_id::BlobId,
    contents::{CopiedBackup, CopiedVolume, copied_backups, folder_tree},
    locks::{LockKind, VaultLock},
    packs::{BlobKind, SealedBlob},
    planted::{self, VaultBug},
    record::{BackupRecord, RECORD_NAME, VolumeRecord},
    repository::Repository,
    sealing::new_nonce,
    snapshots::VaultSnapshot,
    store::VaultFileKind,
    time_text,
    trees::{FileNode, FileTree},
    writer::RepositoryWriter,
};
use plan::{ChunkPlan, VolumePlan};
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    rc::Rc,
    sync::Arc,
};
use throttle::ReadThrottle;
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, IoError, IoErrorKind, Job, JoinHandle, Sparse};

/// Bytes of one read, and reads under way or being computed at once.
const RUN_BYTES: u64 = 1 << 20;
const RUNS_MAX: usize = 12;

/// A volume to be copied.
pub struct VolumeSource {
    pub record: VolumeRecord,
    pub device: Rc<dyn BlockDevice>,
    /// Holes of the device are not read.
    pub holes: Option<Rc<dyn Sparse>>,
    pub since: Option<VolumeDifference>,
}

/// The difference to a volume that is in the vault.
pub struct VolumeDifference {
    /// Snapshot file of the copy.
    pub base: BlobId,
    /// Everything that may differ, in order.
    pub ranges: Vec<ChangedRange>,
}

pub struct CopyOrder {
    /// Without volumes: those are in the sources.
    pub record: BackupRecord,
    pub volumes: Vec<VolumeSource>,
    /// Bytes read in a second.
    pub throttle: Option<ByteCount>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOutcome {
    /// Name of the snapshot file.
    pub snapshot: BlobId,
    /// Bytes read from the volumes.
    pub read_bytes: u64,
    /// Bytes written to the vault.
    pub stored_bytes: u64,
    /// Volumes that were read as a whole, and why.
    pub whole: Vec<(String, &'static str)>,
    /// Packs of a copy that ended early, used now.
    pub resumed_packs: usize,
}

/// Copies a backup. `job` counts the bytes to be read.
///
/// # Errors
///
/// A volume cannot be read, or the vault not be written; it is locked, or damaged. Earlier copies are as they were.
pub async fn copy(repository: &Rc<Repository>, order: CopyOrder, job: &Job) -> VaultResult<CopyOutcome> {
    let lock = VaultLock::begin(repository, LockKind::Shared).await?;
    let copied = async {
        // It only reads, so the lock's second look comes after it.
        let mut copy = Copy::begin(repository, &lock, job, order.throttle).await?;
        lock.confirm().await?;
        copy.all(order).await
    };
    let copied = copied.await;
    let released = lock.release().await;
    let outcome = copied?;
    released?;
    Ok(outcome)
}

struct Copy<'c> {
    repository: Rc<Repository>,
    lock: &'c VaultLock,
    job: &'c Job,
    writer: RepositoryWriter,
    throttle: ReadThrottle,
    backups: Vec<CopiedBackup>,
    /// Packs of the index are missing in the store: nothing is taken over unread.
    lacks_packs: bool,
    read_bytes: u64,
    resumed_packs: usize,
    /// Names of chunks of zeroes, by length.
    zeroes: BTreeMap<u64, BlobId>,
}

impl<'c> Copy<'c> {
    async fn begin(
        repository: &Rc<Repository>,
        lock: &'c VaultLock,
        job: &'c Job,
        throttle: Option<ByteCount>,
    ) -> VaultResult<Self> {
        // Read before the lock, the index may lack what others have done since, or have what a prune has removed.
        repository.load_index().await?;
        repository.access.store.sweep(repository.access.world.wall()).await?;
        let mut writer = RepositoryWriter::new(repository);
        let census = repository.census().await?;
        let mut resumed_packs = 0;
        for pack in &census.unindexed {
            // One that cannot be used is left to restic's prune.
            if let Ok(pack) = repository.pack_header(*pack, census.stored[pack]).await {
                writer.adopt(pack);
                resumed_packs += 1;
            }
        }
        Ok(Self {
            repository: Rc::clone(repository),
            lock,
            job,
            writer,
            throttle: ReadThrottle::new(&repository.access.world, throttle),
            backups: copied_backups(repository).await?,
            lacks_packs: !census.missing.is_empty(),
            read_bytes: 0,
            resumed_packs,
            zeroes: BTreeMap::new(),
        })
    }

    async fn all(&mut self, order: CopyOrder) -> VaultResult<CopyOutcome> {
        let CopyOrder { mut record, volumes, .. } = order;
        record.volumes = volumes.iter().map(|volume| volume.record.clone()).collect();
        let time = time_text::to_text(self.repository.access.world.wall());
        let (mut pools, mut whole, mut parent) = (BTreeMap::<String, Vec<FileNode>>::new(), Vec::new(), None);
        let mut planned = Vec::new();
        for source in volumes {
            let (plan, base, why) = self.plan(&source).await?;
            parent = parent.or(base.as_ref().and(source.since.as_ref()).map(|since| since.base));
            whole.extend(why.map(|why| (source.record.path(), why)));
            planned.push((source, plan, base));
        }
        for (source, plan, base) in planned {
            let tree = self.volume(&source, plan, base).await?;
            let VolumeRecord { pool, volume, .. } = source.record;
            pools.entry(pool).or_default().push(FileNode::folder(volume, &time, tree));
        }
        let text = record.encode();
        let mut nodes = vec![FileNode::file(
            RECORD_NAME.to_owned(),
            &time,
            text.len() as u64,
            vec![self.writer.write(BlobKind::Data, text).await?],
        )];
        for (pool, volumes) in pools {
            let tree = self.writer.write(BlobKind::Tree, FileTree::of(volumes).encode()).await?;
            nodes.push(FileNode::folder(pool, &time, tree));
        }
        let set = self.writer.write(BlobKind::Tree, FileTree::of(nodes).encode()).await?;
        let root = FileTree::of(vec![FileNode::folder(record.set.clone(), &time, set)]);
        let tree = self.writer.write(BlobKind::Tree, root.encode()).await?;
        let maker = self.repository.access.maker.clone();
        let snapshot = VaultSnapshot {
            time,
            parent,
            tree,
            paths: vec![format!("/{}", record.set)],
            hostname: maker.host,
            username: maker.user,
            uid: maker.uid,
            gid: maker.gid,
            tags: Some(record.tags()),
        };
        let early = match planted::is(VaultBug::SnapshotBeforePacks) {
            true => Some(self.write_snapshot(&snapshot).await?),
            false => None,
        };
        self.writer.flush().await?;
        self.lock.refresh().await?;
        let snapshot = match early {
            Some(snapshot) => snapshot,
            None => self.write_snapshot(&snapshot).await?,
        };
        Ok(CopyOutcome {
            snapshot,
            read_bytes: self.read_bytes,
            stored_bytes: self.writer.stored_bytes(),
            whole,
            resumed_packs: self.resumed_packs,
        })
    }

    async fn write_snapshot(&self, snapshot: &VaultSnapshot) -> VaultResult<BlobId> {
        self.repository.write_file(VaultFileKind::Snapshot, &snapshot.encode()).await
    }

    /// The chunks to be read, the volume that the others are taken from, and the reason if all are read.
    async fn plan(
        &self,
        source: &VolumeSource,
    ) -> VaultResult<(VolumePlan, Option<CopiedVolume>, Option<&'static str>)> {
        let record = &source.record;
        record.layout.check(record.size_bytes)?;
        let (base, why) = match &source.since {
            None => (None, Some("no earlier copy of it can be compared with it")),
            Some(_) if self.lacks_packs => {
                (None, Some("the vault lacks packs: run 'spindle protect vault check'"))
            }
            Some(since) => match self.base(record, since.base).await? {
                Some(base) => (Some(base), None),
                None => (None, Some("its earlier copy has chunks of another size")),
            },
        };
        let plan = match (&base, &source.since) {
            (Some(base), Some(since)) => VolumePlan::of_difference(record, &base.record, &since.ranges),
            _ => VolumePlan::of_whole(record, source.holes.as_deref()).await?,
        };
        self.job.add_total(plan.bytes_to_read(record));
        Ok((plan, base, why))
    }

    async fn base(&self, record: &VolumeRecord, snapshot: BlobId) -> VaultResult<Option<CopiedVolume>> {
        let mut backup = self.backups.iter().find(|backup| backup.id == snapshot);
        if planted::is(VaultBug::WrongBase) {
            backup = self.backups.last();
        }
        let backup = backup.ok_or_else(|| VaultError::Missing(format!("snapshot {}", snapshot.short())))?;
        let volume = backup.record.volumes.iter().find(|known| known.volume_id == record.volume_id);
        let volume = volume.filter(|known| known.layout == record.layout);
        match volume {
            Some(volume) => Ok(Some(CopiedVolume::open(&self.repository, backup, volume).await?)),
            None => Ok(None),
        }
    }

    /// Copies a volume; returns its tree.
    async fn volume(
        &mut self,
        source: &VolumeSource,
        plan: VolumePlan,
        base: Option<CopiedVolume>,
    ) -> VaultResult<BlobId> {
        let record = &source.record;
        let mut nodes = Vec::new();
        for folder in 0..record.layout.folders(record.size_bytes) {
            self.lock.refresh().await?;
            let range = record.layout.folder_range(folder, record.size_bytes);
            let plans = plan.of_folder(record, range.clone());
            let of_base = base.as_ref().filter(|base| folder < base.folders.len() as u64);
            let is_kept = plans.iter().all(|plan| *plan == ChunkPlan::Keep);
            // The last folder of a volume that shrank is shorter, though nothing in it changed.
            let is_as_long =
                |base: &&CopiedVolume| record.layout.folder_range(folder, base.record.size_bytes) == range;
            let tree = match of_base.filter(is_as_long).filter(|_| is_kept) {
                Some(base) => base.folders[folder as usize],
                None => {
                    let kept = match of_base {
                        Some(base) => base.chunks(&self.repository, folder).await?,
                        None => Vec::new(),
                    };
                    let chunks = self.folder(source, range.clone(), (plans, &kept)).await?;
                    let tree = folder_tree(record, range.end - range.start, &chunks);
                    self.writer.write(BlobKind::Tree, tree.encode()).await?
                }
            };
            nodes.push(FileNode::folder(record.layout.folder_name(folder), crate::trees::NO_TIME, tree));
        }
        self.writer.write(BlobKind::Tree, FileTree::of(nodes).encode()).await
    }

    /// The chunks of a folder.
    async fn folder(
        &mut self,
        source: &VolumeSource,
        range: Range<u64>,
        (plans, kept): (&[ChunkPlan], &[BlobId]),
    ) -> VaultResult<Vec<BlobId>> {
        let layout = source.record.layout;
        let first = range.start / u64::from(layout.chunk_bytes);
        let mut chunks = Vec::with_capacity(plans.len());
        let mut to_read = Vec::new();
        for (index, plan) in plans.iter().enumerate() {
            let bytes = layout.chunk_range(first + index as u64, range.end);
            let length = bytes.end - bytes.start;
            // Chunks that the index lost are read again.
            let kept = kept.get(index).filter(|id| self.repository.index.borrow().has(BlobKind::Data, **id));
            let chunk = match (plan, kept) {
                (ChunkPlan::Keep, Some(kept)) => Some(*kept),
                (ChunkPlan::Zero, _) => Some(self.zero_chunk(length).await?),
                (ChunkPlan::Keep, None) => {
                    self.job.add_total(length);
                    None
                }
                (ChunkPlan::Read, _) => None,
            };
            if chunk.is_none() {
                to_read.push(index);
            }
            chunks.push(chunk);
        }
        let mut under_way: VecDeque<JoinHandle<VaultResult<ReadRun>>> = VecDeque::new();
        for run in runs(&to_read, (RUN_BYTES / u64::from(layout.chunk_bytes)).max(1) as usize) {
            if under_way.len() >= RUNS_MAX {
                self.end_run(&mut under_way, &mut chunks).await?;
            }
            let start = layout.chunk_range(first + run.start as u64, range.end).start;
            let end = layout.chunk_range(first + run.end as u64 - 1, range.end).end;
            self.throttle.wait_for(end - start).await;
            under_way.push_back(self.begin_run(source, run.start, start..end));
        }
        while !under_way.is_empty() {
            self.end_run(&mut under_way, &mut chunks).await?;
        }
        Ok(chunks.into_iter().map(|chunk| chunk.expect("each was kept, or read")).collect())
    }

    async fn zero_chunk(&mut self, length: u64) -> VaultResult<BlobId> {
        if let Some(known) = self.zeroes.get(&length) {
            return Ok(*known);
        }
        let id = self.writer.write(BlobKind::Data, vec![0; length as usize]).await?;
        self.zeroes.insert(length, id);
        Ok(id)
    }

    /// Begins to read a run of chunks, and to seal those that are new.
    fn begin_run(
        &self,
        source: &VolumeSource,
        first: usize,
        range: Range<u64>,
    ) -> JoinHandle<VaultResult<ReadRun>> {
        let (repository, claims) = (Rc::clone(&self.repository), self.writer.claims());
        let chunk_bytes = source.record.layout.chunk_bytes as usize;
        let length = range.end - range.start;
        let reading = source.device.read(ByteOffset(range.start), vec![Buffer::zeroed(length as usize)]);
        let path = source.record.path();
        let work = async move {
            let explain = |error: IoError| {
                let story = format!("{path}: reading {length} bytes at {}: {error}", range.start);
                IoError::new(error.kind(), story)
            };
            let buffer = reading.await.map_err(explain)?.pop();
            let missing = || IoError::new(IoErrorKind::Medium, "a read without data");
            let buffer = Arc::new(buffer.ok_or_else(missing)?);
            let processors = &repository.access.processors;
            let shared = Arc::clone(&buffer);
            let hash = move || shared.chunks(chunk_bytes).map(BlobId::of).collect::<Vec<_>>();
            let ids = processors.run(hash).await;
            let mut new = Vec::new();
            for (index, id) in ids.iter().enumerate() {
                if claims.claim(BlobKind::Data, *id) {
                    new.push((index, *id, new_nonce(&repository.access.world)));
                }
            }
            let key = Arc::clone(repository.key());
            let seal = move || {
                let sealed = new.into_iter().map(|(index, id, nonce)| {
                    let plain = buffer.chunks(chunk_bytes).nth(index).expect("it was hashed");
                    SealedBlob::seal(&key, &nonce, (BlobKind::Data, id), plain)
                });
                sealed.collect::<Vec<_>>()
            };
            let sealed = processors.run(seal).await;
            Ok(ReadRun { first, ids, sealed, bytes: length })
        };
        self.repository.access.world.spawn("vault read", work)
    }

    async fn end_run(
        &mut self,
        under_way: &mut VecDeque<JoinHandle<VaultResult<ReadRun>>>,
        chunks: &mut [Option<BlobId>],
    ) -> VaultResult<()> {
        let Some(oldest) = under_way.pop_front() else { return Ok(()) };
        let run = oldest.await?;
        if self.job.is_cancelled() {
            return Err(VaultError::Cancelled);
        }
        self.read_bytes += run.bytes;
        self.job.advance(run.bytes);
        for (index, id) in run.ids.iter().enumerate() {
            chunks[run.first + index] = Some(*id);
        }
        for blob in &run.sealed {
            self.writer.add(BlobKind::Data, blob).await?;
        }
        self.lock.refresh().await
    }
}

/// Chunks that were read.
struct ReadRun {
    /// The first one's number in its folder.
    first: usize,
    ids: Vec<BlobId>,
    /// Those that the vault did not have.
    sealed: Vec<SealedBlob>,
    bytes: u64,
}

/// Runs of consecutive numbers, each of `most` at most.
fn runs(numbers: &[usize], most: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == number && run.len() < most => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}
