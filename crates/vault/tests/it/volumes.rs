//! Volumes in memory, and the orders to copy them.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};
use vault::{
    copying::{ChangedRange, CopyOrder, VolumeDifference, VolumeSource},
    keys::Maker,
    layout::SliceLayout,
    processors::Processors,
    record::{BackupRecord, RECORD_FORMAT, RECORD_VERSION, VolumeRecord},
    repository::VaultAccess,
    store::VaultStore,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Extent, Geometry, IoError, IoErrorKind, IoResult,
    LocalFuture, Sparse, Stability, World,
};

pub const BLOCK: usize = 512;

/// A device in memory. Clones are one.
#[derive(Clone)]
pub struct MemoryVolume {
    world: World,
    state: Rc<RefCell<State>>,
}

struct State {
    bytes: Vec<u8>,
    read: Vec<(u64, usize)>,
    /// Writes that still succeed.
    writes_left: Option<u64>,
}

impl MemoryVolume {
    pub fn new(world: &World, bytes: Vec<u8>) -> Self {
        let state = State { bytes, read: Vec::new(), writes_left: None };
        Self { world: world.clone(), state: Rc::new(RefCell::new(state)) }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.state.borrow().bytes.clone()
    }

    /// Bytes read so far.
    pub fn read_bytes(&self) -> u64 {
        self.state.borrow().read.iter().map(|(_, length)| *length as u64).sum()
    }

    pub fn fail_after(&self, writes: u64) {
        self.state.borrow_mut().writes_left = Some(writes);
    }

    fn later<T: 'static>(&self, value: IoResult<T>) -> LocalFuture<IoResult<T>> {
        let pause = self.world.sleep(Duration::from_micros(100));
        Box::pin(async move {
            pause.await;
            value
        })
    }
}

impl BlockDevice for MemoryVolume {
    fn geometry(&self) -> Geometry {
        Geometry { size: ByteCount(self.state.borrow().bytes.len() as u64), sector: BLOCK as u32 }
    }

    fn read(&self, at: ByteOffset, mut into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let mut state = self.state.borrow_mut();
        let mut from = at.0 as usize;
        for buffer in &mut into {
            let length = buffer.len();
            assert!(from.is_multiple_of(BLOCK) && length.is_multiple_of(BLOCK));
            state.read.push((from as u64, length));
            buffer.copy_from_slice(&state.bytes[from..from + length]);
            from += length;
        }
        self.later(Ok(into))
    }

    fn write(&self, at: ByteOffset, from: Vec<Arc<Buffer>>, _: Stability) -> LocalFuture<IoResult<()>> {
        let mut state = self.state.borrow_mut();
        let mut at = at.0 as usize;
        if state.writes_left == Some(0) {
            // Done in part, as a write that fails may be.
            let part = &from[0][..(from[0].len() / 2).next_multiple_of(4096).min(from[0].len())];
            state.bytes[at..at + part.len()].copy_from_slice(part);
            return self.later(Err(IoError::new(IoErrorKind::NoSpace, "writing to memory")));
        }
        state.writes_left = state.writes_left.map(|left| left - 1);
        for buffer in from {
            state.bytes[at..at + buffer.len()].copy_from_slice(&buffer);
            at += buffer.len();
        }
        self.later(Ok(()))
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.later(Ok(()))
    }

    fn discard(&self, _: ByteOffset, _: ByteCount) -> LocalFuture<IoResult<()>> {
        unreachable!("a vault discards nothing")
    }
}

impl Sparse for MemoryVolume {
    fn write_zeroes(&self, _: ByteOffset, _: ByteCount, _: bool, _: Stability) -> LocalFuture<IoResult<()>> {
        unreachable!("a vault writes no zeroes")
    }

    /// Holes are blocks of zeroes.
    fn extents(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<Extent>>> {
        let state = self.state.borrow();
        let bytes = &state.bytes[at.0 as usize..(at.0 + length.0) as usize];
        let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
        let first = is_zero(&bytes[..BLOCK]);
        let count = bytes.chunks(BLOCK).take_while(|block| is_zero(block) == first).count();
        let extent = Extent { length: ByteCount((count * BLOCK) as u64), is_hole: first, is_zero: first };
        self.later(Ok(vec![extent]))
    }
}

/// A small layout: two chunks a file, two files a folder.
pub const SMALL: SliceLayout = SliceLayout { chunk_bytes: 4096, slice_bytes: 8192, folder_bytes: 16384 };

pub fn access(world: &World, store: Rc<dyn VaultStore>, pid: u32) -> VaultAccess {
    VaultAccess {
        world: world.clone(),
        store,
        processors: Processors::Here,
        maker: Maker { host: "mail".into(), user: "root".into(), pid, uid: 0, gid: 0 },
        is_running: Rc::new(move |other| other == pid),
        pack_bytes: 16 << 10,
    }
}

/// The record of a backup of set "post".
pub fn record(backup: u64) -> BackupRecord {
    BackupRecord {
        format: RECORD_FORMAT.into(),
        version: RECORD_VERSION,
        set: "post".into(),
        catalogue: "0123456789abcdef".into(),
        backup,
        name: format!("post-{backup}"),
        kind: "full".into(),
        label: "crash".into(),
        reason: Some("nothing was frozen".into()),
        evidence: Vec::new(),
        needs: None,
        note: "spindle-backup:1 …".into(),
        cut_at: None,
        is_scheduled: false,
        volumes: Vec::new(),
        program: "spindle 0".into(),
    }
}

/// A volume of a backup, as it is to be copied.
pub fn source(device: &MemoryVolume, name: &str, backup: u64, layout: SliceLayout) -> VolumeSource {
    let record = VolumeRecord {
        pool: "mail".into(),
        volume: name.into(),
        volume_id: format!("id of {name}"),
        snapshot: format!("post-{backup}"),
        snapshot_id: backup.to_string(),
        size_bytes: device.geometry().size.0,
        block_bytes: BLOCK as u32,
        layout,
    };
    VolumeSource {
        record,
        device: Rc::new(device.clone()),
        holes: Some(Rc::new(device.clone())),
        since: None,
    }
}

pub fn order(backup: u64, volumes: Vec<VolumeSource>) -> CopyOrder {
    CopyOrder { record: record(backup), volumes, throttle: None }
}

/// The difference between two contents, by blocks.
pub fn difference(base: vault::blob_id::BlobId, before: &[u8], now: &[u8]) -> VolumeDifference {
    let mut ranges: Vec<ChangedRange> = Vec::new();
    for (number, block) in now.chunks(BLOCK).enumerate() {
        let at = number * BLOCK;
        let is_zero = block.iter().all(|byte| *byte == 0);
        let is_same = match before.get(at..at + block.len()) {
            Some(before) => before == block,
            None => is_zero,
        };
        if is_same {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.at + last.length == at as u64 && last.is_zero == is_zero => {
                last.length += block.len() as u64;
            }
            _ => ranges.push(ChangedRange { at: at as u64, length: block.len() as u64, is_zero }),
        }
    }
    VolumeDifference { base, ranges }
}
