//! A [`Directory`] on any one block device, without a filesystem: the device is divided into named files.
//!
//! A filesystem on a raw drive would distort a measurement. A table of a few names is enough. The device
//! begins with two copies of that table; the rest is allocated to files in runs of 64 KiB units.
//!
//! ```text
//! 0            1 MiB        2 MiB
//! | table copy | table copy | data: extents of files and free space …             | end |
//!   even sequence  odd sequence
//! ```
//!
//! Every create, rename, remove and resize is a stable write of the whole table to the copy that is *not* the
//! current state, then to the other. The copy with the higher sequence number wins. A write torn by power
//! loss leaves an invalid checksum there and the previous state in the other copy. `table.rs` and
//! `docs/formats/extent-directory.md` describe the bytes of a table.
//!
//! Invariants:
//!
//! 1. `State` equals the newest completed table write.
//! 2. No two files, named or held open after removal, share a byte (asserted at every allocation).
//! 3. Bytes are reused for another file only when no handle can reach them and every operation on them has
//!    completed.
//! 4. Added bytes are zero on stable storage before a table references them.
//! 5. At most one table write is in flight, even if the future that started it was dropped.

mod extent_file;
mod space;
mod state;
mod table;

pub use table::{EXTENTS_MAX, FILES_MAX};

use crate::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, DirectoryEntry, File, IoError, IoErrorKind,
    IoResult, LocalFuture, Stability, plain_name::check_plain_name,
};
use extent_file::{ExtentFile, FileState};
use state::{Shared, State, Writer};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc};
use table::{COPY_SPACE, DATA_START, Table, UNIT};

/// The contents of a device, as far as this format can identify them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A directory of this format.
    Ours,
    /// The first and last MiB are zero.
    Blank,
    Foreign,
}

/// An open extent directory. Cheap to clone; clones share one state.
#[derive(Clone)]
pub struct ExtentDirectory(Rc<Shared>);

impl ExtentDirectory {
    /// Writes an empty directory to `device` and discards its contents.
    pub async fn format(device: Rc<dyn BlockDevice>) -> IoResult<Self> {
        let device_size = device.geometry().size.0 / UNIT * UNIT;
        if device_size < DATA_START + UNIT {
            let context = format!("formatting a device of {}: too small", device.geometry().size);
            return Err(IoError::new(IoErrorKind::NoSpace, context));
        }
        // Overwrite both copies of an older directory before the new directory's first table counts.
        let nothing = Arc::new(Buffer::zeroed(COPY_SPACE as usize));
        device.write(ByteOffset(0), vec![Arc::clone(&nothing), nothing], Stability::Stable).await?;
        let table = Table { sequence: 0, device_size, files: BTreeMap::new() };
        write_table(&*device, &table).await?;
        Ok(Self::with(device, table))
    }

    /// Opens the directory on `device`; `Damaged` if neither copy of its table is valid.
    pub async fn open(device: Rc<dyn BlockDevice>) -> IoResult<Self> {
        // A killed process may have left a table in the drive's cache. Flush before trusting it, or a later
        // power cut could take it away again.
        device.flush().await?;
        match read_newest(&*device).await? {
            Some(table) => Ok(Self::with(device, table)),
            None => {
                let context = "opening an extent directory: neither copy of its file table is valid";
                Err(IoError::new(IoErrorKind::Damaged, context))
            }
        }
    }

    /// Identifies the contents of `device` without changing it.
    pub async fn probe(device: &dyn BlockDevice) -> IoResult<Probe> {
        if read_newest(device).await?.is_some() {
            return Ok(Probe::Ours);
        }
        let size = device.geometry().size.0;
        let length = size.min(COPY_SPACE);
        for at in [0, size - length] {
            if length > 0 && !read_run(device, at, length).await?.iter().all(|&byte| byte == 0) {
                return Ok(Probe::Foreign);
            }
        }
        Ok(Probe::Blank)
    }

    /// Number of copies of the table on `device` that verify, at most 2. A directory that has files has two, unless a
    /// crash interrupted a write of the table, or one is damaged.
    pub async fn table_copies(device: &dyn BlockDevice) -> IoResult<u8> {
        let mut good = 0;
        for at in [0, COPY_SPACE] {
            good += u8::from(read_copy(device, at).await?.is_some());
        }
        Ok(good)
    }

    /// The same directory with `label` as its name in messages.
    pub fn named(self, label: impl Into<String>) -> Self {
        *self.0.label.borrow_mut() = label.into();
        self
    }

    fn with(device: Rc<dyn BlockDevice>, table: Table) -> Self {
        let files =
            table.files.into_iter().map(|(name, file)| (name, FileState::new(file.size, file.extents)));
        let state = State {
            sequence: table.sequence,
            device_size: table.device_size,
            files: files.collect(),
            unnamed: Vec::new(),
            lost: Vec::new(),
        };
        let label = RefCell::new("an extent directory".to_owned());
        let writer = tokio::sync::Mutex::new(Writer::default());
        Self(Rc::new(Shared { device, label, state: RefCell::new(state), writer }))
    }
}

impl Directory for ExtentDirectory {
    fn describe(&self) -> String {
        self.0.label.borrow().clone()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        let state = self.0.state.borrow();
        let entry = |(name, file): (&String, &Rc<FileState>)| DirectoryEntry {
            name: name.clone(),
            size: ByteCount(file.size.get()),
        };
        let entries = state.files.iter().map(entry).collect();
        Box::pin(async { Ok(entries) })
    }

    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let found = self.0.state.borrow().files.get(name).cloned();
        let missing = || self.0.fail(IoErrorKind::NotFound, &format!("opening {name}"), "no such file");
        let opened = check_plain_name(name).and_then(|()| found.ok_or_else(missing));
        let shared = Rc::clone(&self.0);
        Box::pin(async { Ok(Rc::new(ExtentFile { shared, state: opened? }) as Rc<dyn File>) })
    }

    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let (shared, name) = (Rc::clone(&self.0), name.to_owned());
        Box::pin(async move {
            let state = shared.create(&name, size.0).await?;
            Ok(Rc::new(ExtentFile { shared, state }) as Rc<dyn File>)
        })
    }

    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>> {
        let (shared, from, to) = (Rc::clone(&self.0), from.to_owned(), to.to_owned());
        Box::pin(async move { shared.rename(&from, &to).await })
    }

    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>> {
        let (shared, name) = (Rc::clone(&self.0), name.to_owned());
        Box::pin(async move { shared.remove(&name).await })
    }

    /// Every change was stable when it returned; only a failed change leaves work for a sync.
    fn sync(&self) -> LocalFuture<IoResult<()>> {
        let shared = Rc::clone(&self.0);
        Box::pin(async move { shared.step(|_, _| Ok(()), |_| ()).await })
    }

    fn free(&self) -> LocalFuture<IoResult<ByteCount>> {
        let free = self.0.state.borrow_mut().gaps().iter().map(|gap| gap.length).sum();
        Box::pin(async move { Ok(ByteCount(free)) })
    }
}

/// Offset of the copy with this sequence number.
fn copy_offset(sequence: u64) -> u64 {
    sequence % 2 * COPY_SPACE
}

fn write_table(device: &dyn BlockDevice, table: &Table) -> LocalFuture<IoResult<()>> {
    let image = table.encode();
    let sector = device.geometry().sector as usize;
    let mut buffer = Buffer::zeroed(image.len().next_multiple_of(sector));
    buffer[..image.len()].copy_from_slice(&image);
    device.write(ByteOffset(copy_offset(table.sequence)), vec![Arc::new(buffer)], Stability::Stable)
}

/// The valid table with the higher sequence number; `None` if neither copy is valid.
async fn read_newest(device: &dyn BlockDevice) -> IoResult<Option<Table>> {
    let mut newest: Option<Table> = None;
    for at in [0, COPY_SPACE] {
        let Some(table) = read_copy(device, at).await? else { continue };
        if newest.as_ref().is_none_or(|known| known.sequence < table.sequence) {
            newest = Some(table);
        }
    }
    Ok(newest)
}

/// The table of the copy at `at`; `None` if it is not valid there.
async fn read_copy(device: &dyn BlockDevice, at: u64) -> IoResult<Option<Table>> {
    let size = device.geometry().size.0;
    if at + COPY_SPACE > size {
        return Ok(None);
    }
    let table = Table::decode(&read_run(device, at, COPY_SPACE).await?).ok();
    Ok(table.filter(|table| copy_offset(table.sequence) == at && table.device_size <= size))
}

async fn read_run(device: &dyn BlockDevice, at: u64, length: u64) -> IoResult<Buffer> {
    let mut buffers = device.read(ByteOffset(at), vec![Buffer::zeroed(length as usize)]).await?;
    Ok(buffers.pop().expect("a read returns the buffers it was passed"))
}
