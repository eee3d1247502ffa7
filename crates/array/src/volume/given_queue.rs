//! Commands with given stamps that follow each other closely: the next one is begun when the last one is in the log's
//! queue, not when it is stable. So those that arrive while the log writes a batch make the next batch together.
//!
//! Invariants:
//!
//! 1. A command that [`Volume::begin_given`] returned is in the log's queue, behind all that were returned before; or
//!    nothing of it was missing.
//! 2. It completes, with its locks and its space released, even if its caller is dropped.

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

impl Volume {
    /// Begins [`Volume::ensure_write`], [`Volume::ensure_zeroes`] or [`Volume::ensure_discard`]. Returns once the next
    /// command may begin; the returned future resolves when this one is stable. Commands begun one after the other become
    /// stable in this order, and a crash keeps a prefix of them, of the last one perhaps a part.
    ///
    /// A stamp that may be there already is to be given again only when all earlier commands are stable; apart from
    /// further blocks of the last one.
    ///
    /// # Errors
    ///
    /// As of those methods; then nothing of the command is in the log's queue, or the log has failed.
    ///
    /// # Panics
    ///
    /// If a write is not of whole blocks.
    pub async fn begin_given(
        self: &Rc<Self>,
        content: GivenContent,
        stamp: Stamp,
    ) -> IoResult<LocalFuture<IoResult<()>>> {
        let (sender, queued) = oneshot::channel();
        let mut command = Rc::clone(self).ensure_given(content, stamp, QueueSignal(Some(sender)));
        // Without a wait it gets into the queue at once, and so do all that are there: in time for one batch.
        let begun = poll_fn(|context| Poll::Ready(command.as_mut().poll(context))).await;
        if let Poll::Ready(done) = begun {
            done?;
            return Ok(Box::pin(ready(Ok(()))));
        }
        let done = self.host.shared.world.spawn("given command", command);
        match queued.await {
            Ok(()) => Ok(Box::pin(done)),
            Err(_) => {
                done.await?;
                Ok(Box::pin(ready(Ok(()))))
            }
        }
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
