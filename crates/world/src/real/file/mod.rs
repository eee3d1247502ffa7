//! Regular files and raw block devices as a [`BlockDevice`].
//!
//! The page cache would hide the storage, so files are opened with O_DIRECT wherever the filesystem supports
//! it. Where it does not (tmpfs), the device works through the cache and reports so
//! ([`FileDevice::io_kind`]).
//!
//! Invariants:
//!
//! 1. `size` never exceeds the file's real size, and it and every transfer are multiples of `sector`.
//! 2. A block device is open with O_EXCL: it is mounted nowhere, and stays so. The exception is
//!    [`FileDevice::open_shared`], which only reads.
//! 3. Bytes below `size` are allocated when the file is created or grown here, so a write does not fail with
//!    "no space"; a discard frees its range. For files made elsewhere see [`FileDevice::allocation`].

mod allocation;
mod removal;
mod sparse;

pub use allocation::Allocation;

use super::{
    engine::{Engine, RealIoKind},
    plain::retry,
    ring::Memory,
};
use crate::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Resizable, Stability,
};
use removal::ListedDevice;
use rustix::{
    fs::{
        AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, SeekFrom, StatxFlags, fallocate, fstat,
        fstatfs, fstatvfs, fsync, ftruncate, ioctl_blksszget, openat, seek, statat, statx,
    },
    io::Errno,
};
use std::{
    cell::Cell,
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
    rc::Rc,
    sync::Arc,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// Reads only; a write returns `ReadOnly`.
    Read,
    ReadWrite,
}

/// Smallest sector size, in bytes; also that of a file behind the page cache.
const SECTOR_MIN: u32 = 512;
/// Largest sector size in use, in bytes; direct transfers aligned to it work everywhere.
const SECTOR_MAX: u32 = 4096;

/// An open regular file or block device. Cheap to clone; clones share one size.
#[derive(Clone)]
pub struct FileDevice {
    engine: Engine,
    file: Arc<OwnedFd>,
    /// The path in messages.
    path: Arc<str>,
    access: AccessMode,
    raw: bool,
    direct: bool,
    sector: u32,
    size: Rc<Cell<u64>>,
    /// A block device, where sysfs lists it.
    listed: Option<Arc<ListedDevice>>,
}

impl FileDevice {
    /// Opens an existing regular file or block device. Call it inside [`super::run`].
    ///
    /// A file whose size is not a multiple of the sector is usable up to the last whole sector. `Busy`: the
    /// block device is mounted or otherwise in use. `WrongType`: neither file nor device.
    pub fn open(path: &Path, access: AccessMode) -> IoResult<Self> {
        Self::open_at(CWD, path, &path.display().to_string(), access)
    }

    /// Opens for reading without exclusive access: another process may have the device mounted, or open it
    /// meanwhile. Runs on a helper thread, so a device that is slow to open does not block the executor.
    pub fn open_shared(path: &Path) -> LocalFuture<IoResult<Self>> {
        let engine = Engine::current();
        let path = path.to_owned();
        let display: Arc<str> = path.display().to_string().into();
        let shown = Arc::clone(&display);
        let opened = engine.blocking(move || {
            let fail = |error: Errno| IoError::from_os(error.into(), format!("opening {shown}"));
            check_type(CWD, &path, &shown)?;
            open_best(CWD, &path, access_flags(AccessMode::Read), Mode::empty()).map_err(fail)
        });
        Box::pin(async move { Self::adopt(opened.await?, &display, AccessMode::Read) })
    }

    /// Creates a regular file of `size` bytes (a multiple of 4096), allocated and reading as zero.
    pub fn create(path: &Path, size: ByteCount) -> LocalFuture<IoResult<Self>> {
        let engine = Engine::current();
        let path = path.to_owned();
        let display: Arc<str> = path.display().to_string().into();
        let shown = Arc::clone(&display);
        let made = engine.blocking(move || create_at(CWD, &path, &shown, size));
        Box::pin(async move { Self::adopt(made.await?, &display, AccessMode::ReadWrite) })
    }

    /// Creates a sparse regular file of `size` bytes (a multiple of 4096); writes allocate.
    pub fn create_sparse(path: &Path, size: ByteCount) -> LocalFuture<IoResult<Self>> {
        let engine = Engine::current();
        let path = path.to_owned();
        let display: Arc<str> = path.display().to_string().into();
        let shown = Arc::clone(&display);
        let made = engine
            .blocking(move || make_at(CWD, &path, &shown, size, |file| retry(|| ftruncate(file, size.0))));
        Box::pin(async move { Self::adopt(made.await?, &display, AccessMode::ReadWrite) })
    }

    pub(super) fn open_at(
        folder: BorrowedFd<'_>,
        path: &Path,
        display: &str,
        access: AccessMode,
    ) -> IoResult<Self> {
        let fail = |error: Errno| IoError::from_os(error.into(), format!("opening {display}"));
        let exclusive = match check_type(folder, path, display)? {
            FileType::BlockDevice => OFlags::EXCL,
            _ => OFlags::empty(),
        };
        let opened =
            open_best(folder, path, access_flags(access) | exclusive, Mode::empty()).map_err(fail)?;
        Self::adopt(opened, display, access)
    }

    pub(super) fn adopt(opened: OpenFile, display: &str, access: AccessMode) -> IoResult<Self> {
        let OpenFile { file, direct } = opened;
        let fail = |error: Errno| IoError::from_os(error.into(), format!("examining {display}"));
        let found = fstat(&file).map_err(fail)?;
        let raw = FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice;
        let (sector, size) = if raw {
            (ioctl_blksszget(&file).map_err(fail)?, seek(&file, SeekFrom::End(0)).map_err(fail)?)
        } else {
            let sector = if direct { direct_sector(&file) } else { SECTOR_MIN };
            (sector, u64::try_from(found.st_size).expect("sizes are not negative"))
        };
        if !(SECTOR_MIN..=SECTOR_MAX).contains(&sector) {
            let context = format!("opening {display}: sectors of {sector} bytes");
            return Err(IoError::new(IoErrorKind::Unsupported, context));
        }
        assert!(sector.is_power_of_two(), "the kernel knows no other sectors");
        let size = size - size % u64::from(sector);
        Ok(Self {
            engine: Engine::current(),
            file: Arc::new(file),
            path: display.into(),
            access,
            raw,
            direct,
            sector,
            size: Rc::new(Cell::new(size)),
            listed: if raw { ListedDevice::find(found.st_rdev).map(Arc::new) } else { None },
        })
    }

    /// The I/O path of this device, for reports.
    pub fn io_kind(&self) -> RealIoKind {
        self.engine.io_kind(self.direct)
    }

    /// True for a block device, false for a regular file.
    pub fn is_raw(&self) -> bool {
        self.raw
    }

    /// The path passed to open.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Checks rules 1 and 2 of [`BlockDevice`] for any operation.
    fn check(&self, doing: &str, at: u64, length: u64, pieces_aligned: bool) -> IoResult<()> {
        let sector = u64::from(self.sector);
        let refuse = |kind, why: String| {
            Err(IoError::new(kind, format!("{doing} {length} bytes at offset {at} of {}: {why}", self.path)))
        };
        if !at.is_multiple_of(sector) || !length.is_multiple_of(sector) || !pieces_aligned {
            return refuse(IoErrorKind::Unaligned, format!("not in whole sectors of {sector} bytes"));
        }
        let size = self.size.get();
        if at.checked_add(length).is_none_or(|end| end > size) {
            return refuse(IoErrorKind::OutOfRange, format!("its size is {size} bytes"));
        }
        Ok(())
    }

    fn check_writable(&self, doing: &str) -> IoResult<()> {
        match self.access {
            AccessMode::ReadWrite => Ok(()),
            AccessMode::Read => {
                let context = format!("{doing} {}: it is open for reading only", self.path);
                Err(IoError::new(IoErrorKind::ReadOnly, context))
            }
        }
    }

    /// Needs of a failed operation for its error.
    fn origin(&self) -> (Arc<str>, Option<Arc<ListedDevice>>) {
        (Arc::clone(&self.path), self.listed.clone())
    }

    fn whole_sectors(&self, length: usize) -> bool {
        length.is_multiple_of(self.sector as usize)
    }
}

impl BlockDevice for FileDevice {
    fn geometry(&self) -> Geometry {
        Geometry { size: ByteCount(self.size.get()), sector: self.sector }
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let length: u64 = into.iter().map(|buffer| buffer.len() as u64).sum();
        let aligned = into.iter().all(|buffer| self.whole_sectors(buffer.len()));
        if let Err(error) = self.check("reading", at.0, length, aligned) {
            return Box::pin(async { Err(error) });
        }
        if length == 0 {
            return Box::pin(async { Ok(into) });
        }
        let (path, listed) = self.origin();
        let outcome = self.engine.transfer(&self.file, at.0, Memory::Fill(into));
        Box::pin(async move {
            match outcome.await {
                (Memory::Fill(buffers), Ok(())) => Ok(buffers),
                (_, Ok(())) => unreachable!("a read returns the buffers it was passed"),
                (_, Err(error)) => {
                    let context = format!("reading {length} bytes at offset {} of {path}", at.0);
                    Err(removal::error(listed, IoError::from_os(error, context), true).await)
                }
            }
        })
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let length: u64 = from.iter().map(|buffer| buffer.len() as u64).sum();
        let aligned = from.iter().all(|buffer| self.whole_sectors(buffer.len()));
        let allowed =
            self.check_writable("writing").and_then(|()| self.check("writing", at.0, length, aligned));
        if let Err(error) = allowed {
            return Box::pin(async { Err(error) });
        }
        if length == 0 {
            return Box::pin(async { Ok(()) });
        }
        let (path, listed) = self.origin();
        let outcome = self.engine.transfer(&self.file, at.0, Memory::Send(from, stability));
        Box::pin(async move {
            let (_, result) = outcome.await;
            let Err(error) = result else { return Ok(()) };
            let context = format!("writing {length} bytes at offset {} of {path}", at.0);
            Err(removal::error(listed, IoError::from_os(error, context), false).await)
        })
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        let (path, listed) = self.origin();
        let outcome = self.engine.transfer(&self.file, 0, Memory::Nothing);
        Box::pin(async move {
            let (_, result) = outcome.await;
            let Err(error) = result else { return Ok(()) };
            Err(removal::error(listed, IoError::from_os(error, format!("flushing {path}")), false).await)
        })
    }

    /// A hint: storage that cannot discard keeps the bytes and reports success.
    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        let allowed =
            self.check_writable("discarding").and_then(|()| self.check("discarding", at.0, length.0, true));
        if let Err(error) = allowed {
            return Box::pin(async { Err(error) });
        }
        if length.0 == 0 {
            return Box::pin(async { Ok(()) });
        }
        let (file, raw) = (Arc::clone(&self.file), self.raw);
        let path = Arc::clone(&self.path);
        let done = self.engine.blocking(move || {
            if raw {
                retry(|| discard_raw(&file, at.0, length.0))
            } else {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                retry(|| fallocate(&file, punch, at.0, length.0))
            }
        });
        Box::pin(async move {
            match done.await {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => Ok(()),
                Err(error) => {
                    let context = format!("discarding {} bytes at offset {} of {path}", length.0, at.0);
                    Err(IoError::from_os(error.into(), context))
                }
            }
        })
    }
}

impl Resizable for FileDevice {
    /// `Unsupported` on a block device unless the size stays the same.
    fn resize(&self, size: ByteCount) -> LocalFuture<IoResult<()>> {
        let before = self.size.get();
        let refusal = if let Err(error) = self.check_writable("resizing") {
            Some(error)
        } else if !size.0.is_multiple_of(u64::from(self.sector)) {
            let context = format!("resizing {} to {} bytes: not whole sectors", self.path, size.0);
            Some(IoError::new(IoErrorKind::Unaligned, context))
        } else if self.raw && size.0 != before {
            let context = format!("resizing {}: a block device keeps its size", self.path);
            Some(IoError::new(IoErrorKind::Unsupported, context))
        } else {
            None
        };
        if let Some(error) = refusal {
            return Box::pin(async { Err(error) });
        }
        if size.0 == before {
            return Box::pin(async { Ok(()) });
        }
        // Shrinking: no operation may start in the range about to go. Growing: none before the range exists.
        self.size.set(size.0.min(before));
        let (file, shared) = (Arc::clone(&self.file), Rc::clone(&self.size));
        let path = Arc::clone(&self.path);
        let done = self.engine.blocking(move || {
            if size.0 > before {
                allocate(&file, before, size.0)?
            } else {
                retry(|| ftruncate(&file, size.0))?
            }
            retry(|| fsync(&file))
        });
        Box::pin(async move {
            let result = done.await;
            shared.set(if result.is_ok() { size.0 } else { before });
            result.map_err(|error| IoError::from_os(error.into(), format!("resizing {path} to {size}")))
        })
    }
}

/// A descriptor and whether it bypasses the page cache.
pub(super) struct OpenFile {
    pub file: OwnedFd,
    pub direct: bool,
}

/// Requires a regular file or a block device before opening: opening other types may block or have effects.
fn check_type(folder: BorrowedFd<'_>, path: &Path, display: &str) -> IoResult<FileType> {
    let fail = |error: Errno| IoError::from_os(error.into(), format!("opening {display}"));
    let found = statat(folder, path, AtFlags::empty()).map_err(fail)?;
    match FileType::from_raw_mode(found.st_mode) {
        kind @ (FileType::RegularFile | FileType::BlockDevice) => Ok(kind),
        _ => {
            let context = format!("opening {display}: neither a regular file nor a block device");
            Err(IoError::new(IoErrorKind::WrongType, context))
        }
    }
}

fn access_flags(access: AccessMode) -> OFlags {
    match access {
        AccessMode::Read => OFlags::RDONLY,
        AccessMode::ReadWrite => OFlags::RDWR,
    }
}

/// Opens with O_DIRECT where the filesystem supports it, else without.
pub(super) fn open_best(
    folder: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OpenFile> {
    let flags = flags | OFlags::CLOEXEC;
    match retry(|| openat(folder, path, flags | OFlags::DIRECT, mode)) {
        Ok(file) if is_memory(&file) => Ok(OpenFile { file, direct: false }),
        Ok(file) => match direct_alignment(&file) {
            // The filesystem accepts the flag, but not for this file (encrypted, compressed).
            Some(alignment) if alignment == 0 || alignment > SECTOR_MAX => {
                let file = reopen_buffered(file)?;
                Ok(OpenFile { file, direct: false })
            }
            _ => Ok(OpenFile { file, direct: true }),
        },
        // The error of a filesystem without O_DIRECT. O_CREAT may have created the file before the error; the
        // second try must not fail for that.
        Err(Errno::INVAL) => {
            let flags = if flags.contains(OFlags::CREATE) { flags - OFlags::EXCL } else { flags };
            Ok(OpenFile { file: retry(|| openat(folder, path, flags, mode))?, direct: false })
        }
        Err(error) => Err(error),
    }
}

fn reopen_buffered(file: OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::DIRECT)?;
    Ok(file)
}

/// True on tmpfs and ramfs, which accept O_DIRECT and ignore it; f_type values from linux/magic.h.
fn is_memory(file: &OwnedFd) -> bool {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    fstatfs(file).is_ok_and(|fs| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&fs.f_type))
        && fstat(file).is_ok_and(|file| FileType::from_raw_mode(file.st_mode) == FileType::RegularFile)
}

/// Alignment that direct transfers need, in bytes; 0 if the file allows none. `None` if the kernel (before
/// 6.1) or the filesystem does not report it.
fn direct_alignment(file: &OwnedFd) -> Option<u32> {
    let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let told = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::DIOALIGN);
    told.then_some(found.stx_dio_offset_align)
}

fn direct_sector(file: &OwnedFd) -> u32 {
    direct_alignment(file).unwrap_or(SECTOR_MAX).max(SECTOR_MIN)
}

/// Creates an allocated, zeroed file whose size is stable; leaves no file on failure.
pub(super) fn create_at(
    folder: BorrowedFd<'_>,
    path: &Path,
    display: &str,
    size: ByteCount,
) -> IoResult<OpenFile> {
    make_at(folder, path, display, size, |file| allocate(file, 0, size.0))
}

/// Creates a file whose size `prepare` sets and makes it stable; leaves no file on failure.
fn make_at(
    folder: BorrowedFd<'_>,
    path: &Path,
    display: &str,
    size: ByteCount,
    prepare: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>,
) -> IoResult<OpenFile> {
    if !size.0.is_multiple_of(u64::from(SECTOR_MAX)) {
        let context = format!("creating {display} of {} bytes: not a multiple of {SECTOR_MAX}", size.0);
        return Err(IoError::new(IoErrorKind::Unaligned, context));
    }
    let fail = |error: Errno| IoError::from_os(error.into(), format!("creating {display} of {size}"));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let opened = open_best(folder, path, flags, mode).map_err(fail)?;
    let prepared = prepare(&opened.file).and_then(|()| retry(|| fsync(&opened.file)));
    if let Err(error) = prepared {
        // Report the first error; a leftover file would only fail the next create with AlreadyExists.
        let _ = rustix::fs::unlinkat(folder, path, AtFlags::empty());
        return Err(fail(error));
    }
    Ok(opened)
}

/// Grows a file from `from` to `to` bytes with real allocation; on failure the size is unchanged.
fn allocate(file: &OwnedFd, from: u64, to: u64) -> rustix::io::Result<()> {
    if from == to {
        return Ok(());
    }
    // Check first: an impossible size must not fill the filesystem before it fails.
    if free_bytes(file)?.is_some_and(|free| to - from > free) {
        return Err(Errno::NOSPC);
    }
    let allocated = match retry(|| fallocate(file, FallocateFlags::empty(), from, to - from)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeroes(file, from, to),
        other => other,
    };
    if allocated.is_err() {
        // If this fails too, the first error is still the better report.
        let _ = ftruncate(file, from);
    }
    allocated
}

/// Free bytes of the file's filesystem; `None` if it does not report them.
fn free_bytes(file: &OwnedFd) -> rustix::io::Result<Option<u64>> {
    let space = fstatvfs(file)?;
    Ok((space.f_blocks > 0).then(|| space.f_bavail.saturating_mul(space.f_frsize)))
}

/// Allocation by writing, for filesystems without fallocate.
fn write_zeroes(file: &OwnedFd, from: u64, to: u64) -> rustix::io::Result<()> {
    let zeroes = Buffer::zeroed(1 << 20);
    let mut at = from;
    while at < to {
        let length = zeroes.len().min(usize::try_from(to - at).unwrap_or(usize::MAX));
        at += retry(|| rustix::io::pwrite(file, &zeroes[..length], at))? as u64;
    }
    Ok(())
}

/// BLKDISCARD of linux/fs.h, `_IO(0x12, 119)`: takes a pointer to {offset, length} in bytes.
fn discard_raw(file: &OwnedFd, at: u64, length: u64) -> rustix::io::Result<()> {
    use rustix::ioctl::{Setter, ioctl, opcode};
    const BLKDISCARD: rustix::ioctl::Opcode = opcode::none(0x12, 119);
    // SAFETY: the request reads two u64 behind its argument, which is what Setter passes, and
    // touches no other memory of ours.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(file, Setter::<BLKDISCARD, [u64; 2]>::new([at, length]))
    }
}
