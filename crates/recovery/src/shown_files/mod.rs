//! Devices as files of a FUSE filesystem.
//!
//! The kernel's requests are read by a thread of `fuser`, which blocks in that: the only thread of this kind. It has the names,
//! and no device. Reads and writes cross to the thread of the world that has the devices, through a channel, and each is a task
//! there, so that slow ones do not hold up others; the answer goes to the kernel from there.
//!
//! Invariants:
//!
//! 1. Names, sizes and permissions do not change while it is mounted.
//! 2. A write is answered when its device has answered, and a sync when the device's flush has: nothing is kept here.
//! 3. If the process dies, the kernel answers all who wait with errors; what is left is a dead mount, and nothing half-written
//!    that was answered.

mod requests;
mod tree;

use fuser::{Config, Errno, MountOption, Session};
use requests::{DeviceRequest, ShownFilesystem};
use std::{cell::Cell, path::Path, rc::Rc, sync::Arc};
use tokio::sync::mpsc;
use tree::FileTree;
use world::{BlockDevice, Buffer, ByteOffset, IoError, IoErrorKind, IoResult, Stability, World};

/// A file to be shown.
pub struct ShownFile {
    /// Folder in the root; none for the root itself.
    pub folder: Option<String>,
    pub name: String,
    /// Bytes; a multiple of the device's sector unless it is a part of the last one.
    pub size: u64,
    /// Seconds since 1970.
    pub changed_at: i64,
    pub device: Rc<dyn BlockDevice>,
    pub is_writable: bool,
}

/// A mounted filesystem of devices. It goes on until it is unmounted, by `umount` or by dropping this.
pub struct ShownFiles {
    /// Reads the kernel's requests on its own thread, and unmounts when it is dropped.
    _session: fuser::BackgroundSession,
    is_over: Rc<Cell<bool>>,
}

impl ShownFiles {
    /// Mounts the files at an empty folder. Only this user can enter it.
    ///
    /// # Errors
    ///
    /// `NotFound` without /dev/fuse; `PermissionDenied` if this user may not mount.
    pub fn mount(world: &World, folder: &Path, label: &str, files: Vec<ShownFile>) -> IoResult<Self> {
        let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let mut tree = FileTree::new(owner);
        let mut devices: Vec<Option<Rc<dyn BlockDevice>>> = vec![None];
        let is_writable = files.iter().any(|file| file.is_writable);
        for file in files {
            let parent = match &file.folder {
                Some(name) => tree.folder(name, file.changed_at),
                None => 0,
            };
            let index = tree.file(parent, &file.name, (file.size, file.changed_at), file.is_writable);
            devices.resize(index + 1, None);
            devices[index] = Some(file.device);
        }
        let (give, take) = mpsc::unbounded_channel();
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(label.to_owned()),
            MountOption::Subtype("spindle".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoAtime,
            if is_writable { MountOption::RW } else { MountOption::RO },
        ];
        let filesystem = ShownFilesystem { tree: Arc::new(tree), requests: give };
        let failed = |error| IoError::from_os(error, format!("mounting the files at {}", folder.display()));
        let session = Session::new(filesystem, folder, &config).map_err(failed)?;
        let session = session.spawn().map_err(failed)?;
        let is_over = Rc::new(Cell::new(false));
        let (on, over) = (world.clone(), Rc::clone(&is_over));
        drop(world.spawn("shown files", async move { serve(&on, take, &devices, &over).await }));
        Ok(Self { _session: session, is_over })
    }

    /// True once somebody has unmounted it.
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }
}

/// Answers requests until the kernel sends no more.
async fn serve(
    world: &World,
    mut requests: mpsc::UnboundedReceiver<DeviceRequest>,
    devices: &[Option<Rc<dyn BlockDevice>>],
    is_over: &Cell<bool>,
) {
    let device = |node: usize| devices.get(node).cloned().flatten();
    while let Some(request) = requests.recv().await {
        // A folder has no device; the request is dropped, which answers it.
        match request {
            DeviceRequest::Read { node, at, length, reply } => {
                let Some(device) = device(node) else { continue };
                drop(world.spawn("read of a shown file", async move {
                    match read(&*device, at, length).await {
                        Ok((buffer, from)) => reply.data(&buffer[from..from + length as usize]),
                        Err(error) => reply.error(errno(&error)),
                    }
                }));
            }
            DeviceRequest::Write { node, at, data, reply } => {
                let Some(device) = device(node) else { continue };
                drop(world.spawn("write of a shown file", async move {
                    let length = data.len() as u32;
                    match device.write(ByteOffset(at), vec![Arc::new(data)], Stability::Volatile).await {
                        Ok(()) => reply.written(length),
                        Err(error) => reply.error(errno(&error)),
                    }
                }));
            }
            DeviceRequest::Sync { node, reply } => {
                let Some(device) = device(node) else { continue };
                drop(world.spawn("sync of a shown file", async move {
                    match device.flush().await {
                        Ok(()) => reply.ok(),
                        Err(error) => reply.error(errno(&error)),
                    }
                }));
            }
        }
    }
    is_over.set(true);
}

/// Reads the whole sectors that hold the bytes; the place of the first of them in what was read.
async fn read(device: &dyn BlockDevice, at: u64, length: u32) -> IoResult<(Buffer, usize)> {
    let sector = u64::from(device.geometry().sector);
    let start = at / sector * sector;
    let end = (at + u64::from(length)).next_multiple_of(sector);
    let mut read = device.read(ByteOffset(start), vec![Buffer::zeroed((end - start) as usize)]).await?;
    Ok((read.remove(0), (at - start) as usize))
}

/// The error that programs get. A device that is out of reach is an I/O error like a broken one: both say so in the log.
fn errno(error: &IoError) -> Errno {
    match error.kind() {
        IoErrorKind::NoSpace => Errno::ENOSPC,
        IoErrorKind::ReadOnly => Errno::EROFS,
        IoErrorKind::Unaligned | IoErrorKind::OutOfRange => Errno::EINVAL,
        _ => Errno::EIO,
    }
}
