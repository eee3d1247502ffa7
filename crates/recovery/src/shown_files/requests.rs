//! The kernel's side: requests of a FUSE filesystem. Names and attributes are answered at once; reads and writes are passed on
//! to the thread that has the devices, many at a time, each with its answer's way back.

use super::tree::FileTree;
use fuser::{
    Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use std::{ffi::OsStr, io, sync::Arc, time::Duration};
use tokio::sync::mpsc::UnboundedSender;
use world::Buffer;

/// Bytes of one request at most; the kernel splits longer ones.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel sends without waiting: read-ahead, and direct I/O of a loop device.
const BACKGROUND_MAX: u16 = 64;
/// The kernel may remember names and attributes for so long: they never change.
const TTL: Duration = Duration::from_secs(3600);

/// A request for the thread that has the devices. One that is dropped is answered with an I/O error.
pub(super) enum DeviceRequest {
    Read { node: usize, at: u64, length: u32, reply: ReplyData },
    Write { node: usize, at: u64, data: Buffer, reply: ReplyWrite },
    Sync { node: usize, reply: ReplyEmpty },
}

/// The FUSE filesystem as its thread has it.
pub(super) struct ShownFilesystem {
    pub tree: Arc<FileTree>,
    /// Each request that is sent is answered by its receiver; the kernel bounds how many wait.
    pub requests: UnboundedSender<DeviceRequest>,
}

fn index_of(inode: INodeNo) -> usize {
    // An inode of the tree: looked up before, hence at least 1.
    inode.0 as usize - 1
}

impl Filesystem for ShownFilesystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without it, a loop device's direct reads would be sent one after the other.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_readahead(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name.to_str().and_then(|name| self.tree.named(parent, name)) {
            Some(node) => reply.entry(&TTL, &node.attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.tree.node(inode) {
            Some(node) => reply.attr(&TTL, &node.attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let Some(node) = self.tree.node(inode) else { return reply.error(Errno::ENOENT) };
        let is_writable = node.attributes.perm & 0o200 != 0;
        match flags.acc_mode() {
            OpenAccMode::O_RDONLY => {}
            _ if is_writable => {}
            _ => return reply.error(Errno::EROFS),
        }
        // Nobody else changes the file: its pages in the cache stay right.
        let keep = if is_writable { FopenFlags::empty() } else { FopenFlags::FOPEN_KEEP_CACHE };
        reply.opened(FileHandle(0), keep);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        at: u64,
        length: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(node) = self.tree.node(inode) else { return reply.error(Errno::ENOENT) };
        let left = node.attributes.size.saturating_sub(at);
        let length = u32::try_from(left).unwrap_or(u32::MAX).min(length);
        if length == 0 {
            return reply.data(&[]);
        }
        // If the receiver is gone, the request is dropped here, and answered by that.
        let _ = self.requests.send(DeviceRequest::Read { node: index_of(inode), at, length, reply });
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        at: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(node) = self.tree.node(inode) else { return reply.error(Errno::ENOENT) };
        if at.checked_add(data.len() as u64).is_none_or(|end| end > node.attributes.size) {
            return reply.error(Errno::ENOSPC);
        }
        if data.is_empty() {
            return reply.written(0);
        }
        let data = Buffer::copy_of(data);
        let _ = self.requests.send(DeviceRequest::Write { node: index_of(inode), at, data, reply });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Nothing waits here: each write was answered by its device.
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if self.tree.node(inode).is_none_or(|node| node.attributes.kind == FileType::Directory) {
            return reply.ok();
        }
        let _ = self.requests.send(DeviceRequest::Sync { node: index_of(inode), reply });
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let Some(folder) = self.tree.node(inode) else { return reply.error(Errno::ENOENT) };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (index, (inode, kind, name)) in self.tree.listing(folder).enumerate().skip(from) {
            if reply.add(inode, index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
