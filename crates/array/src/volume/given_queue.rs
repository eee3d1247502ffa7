//! Commands with given stamps that follow each other closely: the next one is begun when the last one is in the log's
//! queue, not when it is stable. So those that arrive while the log writes a batch make the next batch together.
//!
//! Invariants:
//!
//! 1. A command whose [`QueueEntry`] says so is in the log's queue, behind all that had entered when it was begun.
//! 2. A command completes, with its locks and its space released, even if its caller is dropped.

use super::device::Volume;
use crate::format::{BlockCount, BlockIndex, Stamp};
use std::{
    future::{poll_fn, ready},
    rc::Rc,
    sync::Arc,
    task::Poll,
};
use tokio::sync::oneshot;
use world::{Buffer, ByteOffset, IoResult, LocalFuture};

/// A signal that a command has entered the log's queue, if a caller waits for that.
#[derive(Debug, Default)]
pub(super) struct QueueSignal(Option<oneshot::Sender<()>>);

impl QueueSignal {
    /// For a command whose end alone is awaited.
    pub fn none() -> Self {
        Self(None)
    }

    pub fn send(self) {
        if let Some(sender) = self.0 {
            // The caller may have been dropped.
            let _ = sender.send(());
        }
    }
}

/// The content of a command with a given stamp.
#[derive(Clone, Debug)]
pub enum GivenContent {
    /// Whole blocks from a byte on, one buffer each.
    Write(ByteOffset, Vec<Arc<Buffer>>),
    Zeroes(BlockIndex, BlockCount),
    Discard(BlockIndex, BlockCount),
}

/// The entry of a command into the log's queue.
#[derive(Debug)]
pub struct QueueEntry(oneshot::Receiver<()>);

impl QueueEntry {
    /// Waits until the command is in the log's queue, so that the next one may begin. False if it ended without: nothing of
    /// it was missing, or it has failed. Its end says which, and is to be awaited before the next one begins.
    pub async fn is_entered(self) -> bool {
        self.0.await.is_ok()
    }
}

impl Volume {
    /// Begins [`Volume::ensure_write`], [`Volume::ensure_zeroes`] or [`Volume::ensure_discard`], and returns at once. The
    /// future resolves when the command is stable, or with the error of that method; the command goes on if it is dropped.
    /// The next one is to be begun when this one has entered the log's queue: then they become stable in this order, and a
    /// crash keeps a prefix of them, of the last one perhaps a part.
    ///
    /// A stamp that may be there already is to be given again only when all earlier commands are stable; apart from
    /// further blocks of the last one.
    ///
    /// # Panics
    ///
    /// If a write is not of whole blocks.
    pub async fn begin_given(
        self: &Rc<Self>,
        content: GivenContent,
        stamp: Stamp,
    ) -> (QueueEntry, LocalFuture<IoResult<()>>) {
        let (sender, entry) = oneshot::channel();
        let mut command = Rc::clone(self).ensure_given(content, stamp, QueueSignal(Some(sender)));
        // Without a wait it gets into the queue at once, and so do all that are there: in time for one batch.
        let begun = poll_fn(|context| Poll::Ready(command.as_mut().poll(context))).await;
        let done: LocalFuture<_> = match begun {
            Poll::Ready(done) => Box::pin(ready(done)),
            Poll::Pending => Box::pin(self.host.shared.world.spawn("given command", command)),
        };
        (QueueEntry(entry), done)
    }

    fn ensure_given(
        self: Rc<Self>,
        content: GivenContent,
        stamp: Stamp,
        queued: QueueSignal,
    ) -> LocalFuture<IoResult<()>> {
        Box::pin(async move {
            match content {
                GivenContent::Write(at, from) => {
                    self.ensure_write_queued(at, &from, stamp, queued).await.map(drop)
                }
                GivenContent::Zeroes(first, count) => {
                    self.ensure_zeroes_queued((first, count), stamp, queued).await.map(drop)
                }
                GivenContent::Discard(first, count) => {
                    self.ensure_discard_queued((first, count), stamp, queued).await.map(drop)
                }
            }
        })
    }
}
