//! A source of another array: it can be cut, hang, be slow, answer wrong once, or have blocks that it cannot read.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Stability, World,
};

pub const BLOCK: u64 = 4096;

/// State of a source, which outlives the processes that read it.
pub struct SourceState {
    pub bytes: Vec<u8>,
    /// Every answer is an error, after two seconds.
    pub is_cut: Cell<bool>,
    pub delay: Cell<Duration>,
    /// Blocks that cannot be read.
    pub bad: RefCell<BTreeSet<u64>>,
    /// Answers may be wrong.
    pub is_rotten_source: bool,
    /// Blocks of which the next answer is wrong.
    pub rotten: RefCell<BTreeSet<u64>>,
    pub reads: Cell<u64>,
}

pub struct TestSource {
    pub world: World,
    pub state: Rc<SourceState>,
}

impl BlockDevice for TestSource {
    fn geometry(&self) -> Geometry {
        Geometry { size: ByteCount(self.state.bytes.len() as u64), sector: 512 }
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let (world, state) = (self.world.clone(), Rc::clone(&self.state));
        Box::pin(async move {
            state.reads.set(state.reads.get() + 1);
            world.sleep(state.delay.get()).await;
            if state.is_cut.get() {
                world.sleep(Duration::from_secs(2)).await;
                return Err(IoError::new(IoErrorKind::Disconnected, "the source is cut"));
            }
            let mut place = at.0;
            let mut filled = Vec::new();
            for mut buffer in into {
                let end = place + buffer.len() as u64;
                let blocks = place / BLOCK..end.div_ceil(BLOCK);
                if state.bad.borrow().range(blocks.clone()).next().is_some() {
                    return Err(IoError::new(IoErrorKind::Medium, "a block of the source is bad"));
                }
                buffer.copy_from_slice(&state.bytes[place as usize..end as usize]);
                let rotten: Vec<u64> = state.rotten.borrow().range(blocks).copied().collect();
                for block in rotten {
                    state.rotten.borrow_mut().remove(&block);
                    let byte = (block * BLOCK).max(place) - place;
                    buffer[byte as usize] ^= 0x40;
                }
                place = end;
                filled.push(buffer);
            }
            Ok(filled)
        })
    }

    fn write(&self, _: ByteOffset, _: Vec<Arc<Buffer>>, _: Stability) -> LocalFuture<IoResult<()>> {
        panic!("a source is only read");
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        panic!("a source is only read");
    }

    fn discard(&self, _: ByteOffset, _: ByteCount) -> LocalFuture<IoResult<()>> {
        panic!("a source is only read");
    }
}
