//! Nodes of a map in two files that are copies of each other, as in a pool of two drives.
//!
//! A segment is reused when none of its nodes is live and the merge that replaced them is done.

use array::{
    error::{Error, Result},
    format::{BLOCK_BYTES, MemberIndex, NodePointer, SegmentBlock, SegmentNumber, TreeKind},
    tree::NodeStore,
};
use std::{cell::RefCell, collections::VecDeque, path::Path, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, IoError, IoResult, LocalFuture, Stability,
    real::{AccessMode, FileDevice},
};

/// 4 MiB.
const SEGMENT_BLOCKS: u32 = 1024;
const COPIES: [&str; 2] = ["nodes", "nodes-copy"];

pub struct FileNodes(Rc<Inner>);

struct Inner {
    copies: Vec<Rc<dyn BlockDevice>>,
    places: RefCell<NodePlaces>,
}

struct NodePlaces {
    /// Live nodes by segment.
    live: Vec<u32>,
    free: VecDeque<u32>,
    open: Option<(u32, u32)>,
    /// Segments without live nodes; free once the merge is done.
    emptied: Vec<u32>,
    written: u64,
}

impl Clone for FileNodes {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl FileNodes {
    /// Creates files of `bytes` and writes all of them, so that no measurement includes allocation by the
    /// filesystem.
    pub async fn create(folder: &Path, bytes: u64) -> IoResult<Self> {
        let size = bytes.next_multiple_of(u64::from(SEGMENT_BLOCKS) * BLOCK_BYTES as u64);
        let zeroes = Arc::new(Buffer::zeroed(SEGMENT_BLOCKS as usize * BLOCK_BYTES));
        let mut copies: Vec<Rc<dyn BlockDevice>> = Vec::new();
        for name in COPIES {
            let device = FileDevice::create(&folder.join(name), ByteCount(size)).await?;
            for at in (0..size).step_by(zeroes.len()) {
                device.write(ByteOffset(at), vec![Arc::clone(&zeroes)], Stability::Volatile).await?;
            }
            device.flush().await?;
            copies.push(Rc::new(device));
        }
        Ok(Self::over(copies))
    }

    /// Opens existing files for reading.
    pub fn open(folder: &Path) -> IoResult<Self> {
        let open = |name: &&str| FileDevice::open(&folder.join(name), AccessMode::Read);
        let copies =
            COPIES.iter().map(|name| open(name).map(|device| Rc::new(device) as Rc<dyn BlockDevice>));
        Ok(Self::over(copies.collect::<IoResult<_>>()?))
    }

    fn over(copies: Vec<Rc<dyn BlockDevice>>) -> Self {
        let segments = copies[0].geometry().size.0 / (u64::from(SEGMENT_BLOCKS) * BLOCK_BYTES as u64);
        let places = NodePlaces {
            live: vec![0; segments as usize],
            free: (0..segments as u32).collect(),
            open: None,
            emptied: Vec::new(),
            written: 0,
        };
        Self(Rc::new(Inner { copies, places: RefCell::new(places) }))
    }

    /// Flushes the new tree after a merge, and frees emptied segments.
    pub async fn settle(&self) -> IoResult<()> {
        for copy in &self.0.copies {
            copy.flush().await?;
        }
        let places = &mut *self.0.places.borrow_mut();
        places.free.extend(places.emptied.drain(..));
        Ok(())
    }

    /// Bytes of live nodes, in one copy.
    pub fn live_bytes(&self) -> u64 {
        let places = self.0.places.borrow();
        places.live.iter().map(|&nodes| u64::from(nodes)).sum::<u64>() * BLOCK_BYTES as u64
    }

    /// Bytes of nodes written, in one copy.
    pub fn written_bytes(&self) -> u64 {
        self.0.places.borrow().written
    }
}

fn offset(segment: SegmentNumber, block: SegmentBlock) -> ByteOffset {
    ByteOffset((u64::from(segment.0) * u64::from(SEGMENT_BLOCKS) + u64::from(block.0)) * BLOCK_BYTES as u64)
}

fn failed(copy: usize, error: IoError) -> Error {
    Error::Drive { member: MemberIndex(copy as u16), error }
}

impl NodeStore for FileNodes {
    fn read(&self, pointer: NodePointer) -> LocalFuture<Result<Rc<[u8]>>> {
        let inner = Rc::clone(&self.0);
        Box::pin(async move {
            let into = vec![Buffer::zeroed(pointer.node_bytes())];
            let read = inner.copies[0].read(offset(pointer.segment, pointer.block), into).await;
            let bytes = read.map_err(|error| failed(0, error))?.pop().expect("a buffer for a buffer");
            // A pool verifies the seal of each copy that it reads.
            assert!(pointer.seals(&bytes), "what was written is what is read");
            Ok(Rc::from(&bytes[..]))
        })
    }

    fn place(&self, _: TreeKind, blocks: u8) -> Result<(SegmentNumber, SegmentBlock)> {
        let places = &mut *self.0.places.borrow_mut();
        let (segment, block) = match places.open {
            Some((segment, block)) if block + u32::from(blocks) <= SEGMENT_BLOCKS => (segment, block),
            _ => {
                if let Some((left, _)) = places.open
                    && places.live[left as usize] == 0
                {
                    places.emptied.push(left);
                }
                (places.free.pop_front().ok_or(Error::Full)?, 0)
            }
        };
        places.open = Some((segment, block + u32::from(blocks)));
        places.live[segment as usize] += u32::from(blocks);
        Ok((SegmentNumber(segment), SegmentBlock(block)))
    }

    fn write(&self, at: (SegmentNumber, SegmentBlock), nodes: Vec<Vec<u8>>) -> LocalFuture<Result<()>> {
        let inner = Rc::clone(&self.0);
        Box::pin(async move {
            let buffers: Vec<_> = nodes.iter().map(|node| Arc::new(Buffer::copy_of(node))).collect();
            inner.places.borrow_mut().written += nodes.iter().map(|node| node.len() as u64).sum::<u64>();
            let begin = |copy: &Rc<dyn BlockDevice>| {
                copy.write(offset(at.0, at.1), buffers.clone(), Stability::Volatile)
            };
            let writes: Vec<_> = inner.copies.iter().map(begin).collect();
            for (copy, write) in writes.into_iter().enumerate() {
                write.await.map_err(|error| failed(copy, error))?;
            }
            Ok(())
        })
    }

    fn release(&self, pointer: NodePointer) {
        let places = &mut *self.0.places.borrow_mut();
        let live = &mut places.live[pointer.segment.0 as usize];
        *live -= u32::from(pointer.blocks);
        let is_open = places.open.is_some_and(|(open, _)| open == pointer.segment.0);
        if *live == 0 && !is_open {
            places.emptied.push(pointer.segment.0);
        }
    }
}
