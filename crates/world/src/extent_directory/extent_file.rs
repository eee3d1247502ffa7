//! One file of an extent directory.

use super::{space, state::Shared, table::Extent};
use crate::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Resizable, Stability,
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

/// State that all handles of one file share.
pub(super) struct FileState {
    pub extents: RefCell<Vec<Extent>>,
    pub size: Cell<u64>,
    /// Operations that are in flight or were abandoned by their caller. While there are any, the bytes are
    /// not reused.
    pub unseen: Cell<u64>,
    /// Serialises changes of size. The future inside zeroes the rest of the last unit; it is kept here so
    /// that dropping a resize cannot let the zeroes land on later data.
    pub resizing: tokio::sync::Mutex<Option<LocalFuture<IoResult<()>>>>,
}

impl FileState {
    pub fn new(size: u64, extents: Vec<Extent>) -> Rc<Self> {
        Rc::new(Self {
            extents: RefCell::new(extents),
            size: Cell::new(size),
            unseen: Cell::new(0),
            resizing: tokio::sync::Mutex::new(None),
        })
    }

    /// Waits for every part of an operation that was just started. Returns the first error.
    pub async fn see_out<T>(self: Rc<Self>, parts: Vec<LocalFuture<IoResult<T>>>) -> IoResult<Vec<T>> {
        let mut answers = Vec::new();
        let mut failed = None;
        for part in parts {
            match part.await {
                Ok(answer) => answers.push(answer),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        // Not reached if the caller drops this future: then the operation counts as in flight for ever.
        self.unseen.set(self.unseen.get() - 1);
        failed.map_or(Ok(answers), Err)
    }

    pub fn begin(&self) {
        self.unseen.set(self.unseen.get() + 1);
    }
}

/// A handle of one file; valid until dropped, even if the file is removed.
pub(super) struct ExtentFile {
    pub shared: Rc<Shared>,
    pub state: Rc<FileState>,
}

impl ExtentFile {
    /// Rules 1 and 2 of [`BlockDevice`]; the pieces of the device that hold the range.
    fn locate(&self, doing: &str, at: u64, lengths: &[usize]) -> IoResult<Vec<Extent>> {
        let sector = u64::from(self.shared.sector());
        let length: u64 = lengths.iter().map(|&length| length as u64).sum();
        let size = self.state.size.get();
        let refuse = |kind, why: &str| {
            let label = self.shared.label_of(&self.state);
            Err(IoError::new(kind, format!("{doing} {length} bytes at offset {at} of {label}: {why}")))
        };
        if !at.is_multiple_of(sector) || !lengths.iter().all(|&length| (length as u64).is_multiple_of(sector))
        {
            return refuse(IoErrorKind::Unaligned, &format!("not in whole sectors of {sector} bytes"));
        }
        if at.checked_add(length).is_none_or(|end| end > size) {
            return refuse(IoErrorKind::OutOfRange, &format!("its size is {size} bytes"));
        }
        Ok(space::pieces(&self.state.extents.borrow(), at, length))
    }
}

impl BlockDevice for ExtentFile {
    fn geometry(&self) -> Geometry {
        Geometry { size: ByteCount(self.state.size.get()), sector: self.shared.sector() }
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let lengths: Vec<usize> = into.iter().map(|buffer| buffer.len()).collect();
        let pieces = match self.locate("reading", at.0, &lengths) {
            Ok(pieces) => pieces,
            Err(error) => return Box::pin(async { Err(error) }),
        };
        let device = &self.shared.device;
        self.state.begin();
        let state = Rc::clone(&self.state);
        if let [piece] = pieces[..] {
            let part = device.read(ByteOffset(piece.start), into);
            return Box::pin(async move { Ok(state.see_out(vec![part]).await?.remove(0)) });
        }
        // Rare: the range spans several extents, whose borders need not match those of the buffers.
        let parts = pieces
            .iter()
            .map(|piece| device.read(ByteOffset(piece.start), vec![Buffer::zeroed(piece.length as usize)]));
        let parts = parts.collect();
        Box::pin(async move {
            let read = state.see_out(parts).await?;
            let mut bytes = read.iter().flatten().flat_map(|buffer| buffer.iter());
            let mut into = into;
            for buffer in &mut into {
                for (place, byte) in buffer.iter_mut().zip(&mut bytes) {
                    *place = *byte;
                }
            }
            Ok(into)
        })
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let lengths: Vec<usize> = from.iter().map(|buffer| buffer.len()).collect();
        let pieces = match self.locate("writing", at.0, &lengths) {
            Ok(pieces) => pieces,
            Err(error) => return Box::pin(async { Err(error) }),
        };
        let device = &self.shared.device;
        let parts = match pieces[..] {
            [piece] => vec![device.write(ByteOffset(piece.start), from, stability)],
            _ => {
                let whole: Vec<u8> = from.iter().flat_map(|buffer| buffer.iter().copied()).collect();
                let mut rest = &whole[..];
                let write = |piece: &Extent| {
                    let (now, later) = rest.split_at(piece.length as usize);
                    rest = later;
                    device.write(ByteOffset(piece.start), vec![Arc::new(Buffer::copy_of(now))], stability)
                };
                pieces.iter().map(write).collect()
            }
        };
        self.state.begin();
        let state = Rc::clone(&self.state);
        Box::pin(async move { state.see_out(parts).await.map(|_| ()) })
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.shared.device.flush()
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        let lengths = [usize::try_from(length.0).unwrap_or(usize::MAX)];
        let pieces = match self.locate("discarding", at.0, &lengths) {
            Ok(pieces) => pieces,
            Err(error) => return Box::pin(async { Err(error) }),
        };
        let device = &self.shared.device;
        let discard = |piece: &Extent| device.discard(ByteOffset(piece.start), ByteCount(piece.length));
        let parts = pieces.iter().map(discard).collect();
        self.state.begin();
        let state = Rc::clone(&self.state);
        Box::pin(async move { state.see_out(parts).await.map(|_| ()) })
    }
}

impl Resizable for ExtentFile {
    fn resize(&self, size: ByteCount) -> LocalFuture<IoResult<()>> {
        let (shared, state) = (Rc::clone(&self.shared), Rc::clone(&self.state));
        Box::pin(async move {
            let mut rest_zeroes = state.resizing.lock().await;
            if let Some(abandoned) = &mut *rest_zeroes {
                // Those bytes are beyond the size; if they matter they are zeroed again.
                let _ = abandoned.await;
                *rest_zeroes = None;
            }
            match size.0.cmp(&state.size.get()) {
                std::cmp::Ordering::Less => shared.shrink(&state, size.0).await,
                std::cmp::Ordering::Equal => Ok(()),
                std::cmp::Ordering::Greater => shared.grow(&state, size.0, &mut rest_zeroes).await,
            }
        })
    }
}
