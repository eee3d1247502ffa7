//! The space a filesystem has allocated for a file, and how to allocate the rest.
//!
//! A sparse file (a copy that kept its holes, a restored backup) takes space when it is written, and the
//! write fails if the filesystem is full. On a copy-on-write filesystem allocation does not help: each change
//! goes to a new place.

use super::{FileDevice, free_bytes, retry};
use crate::{ByteCount, IoError, IoErrorKind, IoResult, LocalFuture};
use rustix::{
    fs::{FallocateFlags, IFlags, fallocate, fstat, fstatfs, fsync, ioctl_getflags},
    io::Errno,
    ioctl::{Opcode, Updater, ioctl, opcode},
};
use std::{os::fd::OwnedFd, sync::Arc};

/// Allocation state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Bytes of the file without allocated space.
    pub missing: ByteCount,
    /// Bytes whose space another file shares (a reflink copy, a filesystem snapshot): the next write to them
    /// needs new space.
    pub shared: ByteCount,
    /// Name of the filesystem, if it is copy-on-write for this file.
    pub copy_on_write: Option<&'static str>,
}

impl FileDevice {
    /// Reads the allocation of the file; a block device is fully allocated.
    ///
    /// # Errors
    ///
    /// The filesystem fails.
    pub fn allocation(&self) -> LocalFuture<IoResult<Allocation>> {
        let none = Allocation { missing: ByteCount(0), shared: ByteCount(0), copy_on_write: None };
        if self.raw {
            return Box::pin(async move { Ok(none) });
        }
        let (file, size, path) = (Arc::clone(&self.file), self.size.get(), Arc::clone(&self.path));
        let found = self.engine.blocking(move || {
            let (mapped, shared) = match mapped_bytes(&file, size) {
                // The filesystem reports no extents: use the number of allocated 512-byte blocks.
                Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::NOSYS) => {
                    (u64::try_from(fstat(&file)?.st_blocks).unwrap_or(0) * 512, 0)
                }
                told => told?,
            };
            let missing = ByteCount(size.saturating_sub(mapped));
            Ok(Allocation { missing, shared: ByteCount(shared), copy_on_write: copy_on_write(&file)? })
        });
        Box::pin(async move {
            found.await.map_err(|error: Errno| {
                IoError::from_os(error.into(), format!("reading the allocation of {path}"))
            })
        })
    }

    /// Allocates the missing space and keeps the contents. Fast: nothing is written.
    ///
    /// # Errors
    ///
    /// `NoSpace`: the space does not suffice; nothing was allocated. `Unsupported`: the filesystem cannot
    /// preallocate.
    pub fn allocate_missing(&self) -> LocalFuture<IoResult<()>> {
        let (device, allocation) = (self.clone(), self.allocation());
        Box::pin(async move {
            let missing = allocation.await?.missing;
            if missing.0 == 0 {
                return Ok(());
            }
            let context = format!("setting aside {missing} for {}", device.path);
            device.check_writable("allocating space for")?;
            let (file, size) = (Arc::clone(&device.file), device.size.get());
            let done = device.engine.blocking(move || {
                // Check first: an fallocate that fails half way has filled the filesystem.
                if free_bytes(&file)?.is_some_and(|free| missing.0 > free) {
                    return Err(Errno::NOSPC);
                }
                retry(|| fallocate(&file, FallocateFlags::KEEP_SIZE, 0, size))?;
                retry(|| fsync(&file))
            });
            done.await.map_err(|error| match error {
                Errno::OPNOTSUPP | Errno::NOSYS => IoError::new(
                    IoErrorKind::Unsupported,
                    format!("{context}: its filesystem cannot preallocate"),
                ),
                error => IoError::from_os(error.into(), context),
            })
        })
    }
}

/// The copy-on-write filesystems, by the numbers of linux/magic.h and their own headers.
fn copy_on_write(file: &OwnedFd) -> rustix::io::Result<Option<&'static str>> {
    const BTRFS: i64 = 0x9123_683e;
    const ZFS: i64 = 0x2fc1_2fc1;
    const BCACHEFS: i64 = 0xca45_1a4e;
    Ok(match fstatfs(file)?.f_type {
        // `chattr +C` on the new file, or on its folder.
        BTRFS if ioctl_getflags(file).is_ok_and(|flags| flags.contains(IFlags::NOCOW)) => None,
        BTRFS => Some("btrfs"),
        ZFS => Some("ZFS"),
        BCACHEFS => Some("bcachefs"),
        _ => None,
    })
}

const FIEMAP_EXTENTS: usize = 256;
const FIEMAP_EXTENT_LAST: u32 = 0x1;
const FIEMAP_EXTENT_SHARED: u32 = 0x2000;

/// `struct fiemap` of linux/fiemap.h, with room for extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [FiemapExtent; FIEMAP_EXTENTS],
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

const FIEMAP_HEAD_BYTES: usize = 32;
const _: () = assert!(size_of::<FiemapExtent>() == 56);
const _: () = assert!(size_of::<Fiemap>() == FIEMAP_HEAD_BYTES + 56 * FIEMAP_EXTENTS);

/// Allocated bytes below `size`, written or not, and the number of those that are shared.
fn mapped_bytes(file: &OwnedFd, size: u64) -> rustix::io::Result<(u64, u64)> {
    let (mut mapped, mut shared, mut at) = (0, 0, 0);
    while at < size {
        let mut map = Box::new(Fiemap {
            start: at,
            length: size - at,
            flags: 0,
            mapped_extents: 0,
            extent_count: FIEMAP_EXTENTS as u32,
            reserved: 0,
            extents: [FiemapExtent::default(); FIEMAP_EXTENTS],
        });
        retry(|| fiemap(file, &mut map))?;
        let told = &map.extents[..(map.mapped_extents as usize).min(FIEMAP_EXTENTS)];
        for extent in told {
            let end = extent.logical.saturating_add(extent.length).min(size);
            let length = end.saturating_sub(extent.logical.max(at));
            mapped += length;
            shared += if extent.flags & FIEMAP_EXTENT_SHARED != 0 { length } else { 0 };
            at = at.max(end);
        }
        if told.last().is_none_or(|last| last.flags & FIEMAP_EXTENT_LAST != 0) {
            break;
        }
    }
    Ok((mapped, shared))
}

/// FS_IOC_FIEMAP of linux/fs.h, `_IOWR('f', 11, struct fiemap)`: the size is that of the head alone.
fn fiemap(file: &OwnedFd, map: &mut Fiemap) -> rustix::io::Result<()> {
    const FS_IOC_FIEMAP: Opcode = opcode::read_write::<[u8; FIEMAP_HEAD_BYTES]>(b'f', 11);
    // SAFETY: the request reads the head and writes at most `extent_count` extents behind it, which is the room there.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(file, Updater::<FS_IOC_FIEMAP, Fiemap>::new(map))
    }
}
