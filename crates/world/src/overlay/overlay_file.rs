//! A file of an overlay: sectors that were written here, over a file of the base.

use crate::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, DirectoryEntry, File, Geometry, IoError,
    IoErrorKind, IoResult, LocalFuture, Resizable, Stability,
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
};

/// Unit in which written bytes are kept: the smallest sector.
const SECTOR: u64 = 512;

/// The memory that overlays share.
pub struct OverlayMemory {
    max: u64,
    used: Cell<u64>,
    peak: Cell<u64>,
}

impl OverlayMemory {
    /// At most `max` bytes of written sectors; their table takes about a tenth more.
    pub fn new(max: ByteCount) -> Rc<Self> {
        Rc::new(Self { max: max.0, used: Cell::new(0), peak: Cell::new(0) })
    }

    pub fn used(&self) -> ByteCount {
        ByteCount(self.used.get())
    }

    /// The most that was used at one time.
    pub fn peak(&self) -> ByteCount {
        ByteCount(self.peak.get())
    }

    pub fn max(&self) -> ByteCount {
        ByteCount(self.max)
    }

    pub(super) fn free(&self) -> ByteCount {
        ByteCount(self.max - self.used.get())
    }

    fn take(&self, bytes: u64) -> bool {
        let used = self.used.get() + bytes;
        if used > self.max {
            return false;
        }
        self.used.set(used);
        self.peak.set(self.peak.get().max(used));
        true
    }

    fn give_back(&self, bytes: u64) {
        self.used.set(self.used.get() - bytes);
    }
}

/// State that all handles of one file share.
pub(super) struct FileState {
    /// For messages: the name under which it was found or made.
    name: String,
    base: Option<Rc<dyn Directory>>,
    opened: RefCell<Option<Rc<dyn File>>>,
    /// Bytes of the base's file that can be seen.
    base_bytes: Cell<u64>,
    size: Cell<u64>,
    /// Written sectors by their number.
    sectors: RefCell<BTreeMap<u64, Rc<[u8]>>>,
    memory: Rc<OverlayMemory>,
}

impl FileState {
    pub fn of_base(base: &Rc<dyn Directory>, entry: &DirectoryEntry, memory: &Rc<OverlayMemory>) -> Rc<Self> {
        let bytes = entry.size.0 - entry.size.0 % SECTOR;
        let mut state = Self::empty(&entry.name, bytes, memory);
        state.base = Some(Rc::clone(base));
        state.base_bytes.set(bytes);
        Rc::new(state)
    }

    pub fn new(name: &str, size: ByteCount, memory: &Rc<OverlayMemory>) -> Rc<Self> {
        Rc::new(Self::empty(name, size.0, memory))
    }

    fn empty(name: &str, size: u64, memory: &Rc<OverlayMemory>) -> Self {
        Self {
            name: name.to_owned(),
            base: None,
            opened: RefCell::new(None),
            base_bytes: Cell::new(0),
            size: Cell::new(size),
            sectors: RefCell::default(),
            memory: Rc::clone(memory),
        }
    }

    pub fn size(&self) -> ByteCount {
        ByteCount(self.size.get())
    }

    /// Rules 1 and 2 of [`BlockDevice`].
    fn check(&self, doing: &str, at: u64, length: u64) -> IoResult<()> {
        let refuse = |kind, why: String| {
            Err(IoError::new(kind, format!("{doing} {length} bytes at offset {at} of {}: {why}", self.name)))
        };
        if !at.is_multiple_of(SECTOR) || !length.is_multiple_of(SECTOR) {
            return refuse(IoErrorKind::Unaligned, format!("not in whole sectors of {SECTOR} bytes"));
        }
        if at.checked_add(length).is_none_or(|end| end > self.size.get()) {
            return refuse(IoErrorKind::OutOfRange, format!("its size is {} bytes", self.size.get()));
        }
        Ok(())
    }

    /// The file of the base, if any of the bytes from `at` to `end` are its own; with its unit of reading.
    fn base_of(&self, at: u64, end: u64) -> Option<(Rc<dyn File>, u64)> {
        let end = end.min(self.base_bytes.get());
        let written = self.sectors.borrow().range(at / SECTOR..end.max(at) / SECTOR).count() as u64;
        if at >= end || written == (end - at) / SECTOR {
            return None;
        }
        let file = self.opened.borrow().clone().expect("an open file has its base open");
        let unit = u64::from(file.geometry().sector);
        Some((file, unit))
    }

    /// Bytes of the base from `at` to `end`, in whole units of it, and where they begin.
    fn read_base(&self, at: u64, end: u64) -> Option<(u64, LocalFuture<IoResult<Vec<Buffer>>>)> {
        let (file, unit) = self.base_of(at, end)?;
        let first = at - at % unit;
        let last = end.min(self.base_bytes.get()).next_multiple_of(unit).min(file.geometry().size.0);
        Some((first, file.read(ByteOffset(first), vec![Buffer::zeroed((last - first) as usize)])))
    }

    fn write(&self, at: u64, from: &[Arc<Buffer>]) -> IoResult<()> {
        let length = from.iter().map(|buffer| buffer.len() as u64).sum();
        self.check("writing", at, length)?;
        let mut sectors = self.sectors.borrow_mut();
        let (first, end) = (at / SECTOR, (at + length) / SECTOR);
        let new = (end - first - sectors.range(first..end).count() as u64) * SECTOR;
        if !self.memory.take(new) {
            let context = format!(
                "writing {length} bytes at offset {at} of {}: the changes need more than {} of memory",
                self.name,
                self.memory.max()
            );
            return Err(IoError::new(IoErrorKind::NoSpace, context));
        }
        let bytes = from.iter().flat_map(|buffer| buffer.chunks(SECTOR as usize));
        sectors.extend((first..).zip(bytes.map(Rc::from)));
        Ok(())
    }

    fn resize(&self, size: u64) -> IoResult<()> {
        self.check("resizing to", 0, size.min(self.size.get()))?;
        if !size.is_multiple_of(SECTOR) {
            return self.check("resizing to", size, 0);
        }
        let cut = self.sectors.borrow_mut().split_off(&(size / SECTOR));
        self.memory.give_back(cut.len() as u64 * SECTOR);
        self.base_bytes.set(self.base_bytes.get().min(size));
        self.size.set(size);
        Ok(())
    }
}

impl Drop for FileState {
    fn drop(&mut self) {
        self.memory.give_back(self.sectors.get_mut().len() as u64 * SECTOR);
    }
}

/// A handle of one file; valid until dropped, even if the file is removed.
pub(super) struct OverlayFile(Rc<FileState>);

impl OverlayFile {
    /// Opens the file of the base, if it has one there.
    pub async fn open(state: Rc<FileState>) -> IoResult<Self> {
        let is_open = state.opened.borrow().is_some();
        if let Some(base) = &state.base
            && !is_open
        {
            // Its name in the base is the one it was found under, whatever it is called here by now.
            let file = base.open(&state.name).await?;
            state.opened.replace(Some(file));
        }
        Ok(Self(state))
    }
}

impl BlockDevice for OverlayFile {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.0.size(), sector: SECTOR as u32 }
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let length = into.iter().map(|buffer| buffer.len() as u64).sum();
        if let Err(error) = self.0.check("reading", at.0, length) {
            return Box::pin(async { Err(error) });
        }
        let end = at.0 + length;
        let base = self.0.read_base(at.0, end);
        let base_end = self.0.base_bytes.get();
        // As of now: what is written while the base is read does not count.
        let written: Vec<(u64, Rc<[u8]>)> = self
            .0
            .sectors
            .borrow()
            .range(at.0 / SECTOR..end / SECTOR)
            .map(|(number, bytes)| (number * SECTOR, Rc::clone(bytes)))
            .collect();
        Box::pin(async move {
            let base = match base {
                Some((first, reading)) => {
                    let mut buffers = reading.await?;
                    Some((first, buffers.pop().expect("a read returns the buffers it was passed")))
                }
                None => None,
            };
            let mut into = into;
            let mut from = at.0;
            for buffer in &mut into {
                let until = from + buffer.len() as u64;
                buffer.fill(0);
                if let Some((first, bytes)) = &base {
                    let seen = until.min(base_end).max(from) - from;
                    let skipped = (from - first) as usize;
                    let source = bytes.get(skipped..).unwrap_or_default();
                    let seen = (seen as usize).min(source.len());
                    buffer[..seen].copy_from_slice(&source[..seen]);
                }
                let here = written.iter().filter(|(place, _)| (from..until).contains(place));
                for (place, bytes) in here {
                    buffer[(place - from) as usize..][..bytes.len()].copy_from_slice(bytes);
                }
                from = until;
            }
            Ok(into)
        })
    }

    fn write(&self, at: ByteOffset, from: Vec<Arc<Buffer>>, _: Stability) -> LocalFuture<IoResult<()>> {
        let written = self.0.write(at.0, &from);
        Box::pin(async { written })
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        Box::pin(async { Ok(()) })
    }

    /// The bytes stay: a read may return any value.
    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        let checked = self.0.check("discarding", at.0, length.0);
        Box::pin(async { checked })
    }
}

impl Resizable for OverlayFile {
    fn resize(&self, size: ByteCount) -> LocalFuture<IoResult<()>> {
        let resized = self.0.resize(size.0);
        Box::pin(async { resized })
    }
}
