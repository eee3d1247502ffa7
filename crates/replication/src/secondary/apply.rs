//! Commands of records: begun in the order in which they come, and known to be stable in the same order.
//!
//! The log of this side writes those that arrive during a batch as the next one, so a round of its drives serves all of
//! them. It keeps their order, and a crash leaves a prefix of its records: of all that was begun a prefix is there, and
//! perhaps a part of the command behind it, just as if each had been awaited.
//!
//! Invariant: commands leave the queue in the order in which they were begun, each once it is stable with all before it;
//! after one that failed none counts as stable.

use super::rows;
use crate::{
    frame::SentChange,
    member::GroupMember,
    planted::{self, ReplicationBug},
};
use array::{
    error::{Error, Result},
    format::{BLOCK_BYTES, Stamp, VolumeId, WallNanoseconds},
    pool::VolumeKey,
    volume::{GivenContent, QueueEntry},
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::{poll_fn, ready},
    task::{Context, Poll},
};
use tokio::sync::Notify;
use world::{ByteOffset, IoResult, LocalFuture};

/// Changes of one command that go into the log together.
pub(super) struct CommandPart {
    pub stamp: Stamp,
    change: PartChange,
}

enum PartChange {
    /// Adjacent blocks, or a range.
    Content(VolumeId, GivenContent),
    /// A whole command.
    Rows(SentChange),
}

impl CommandPart {
    /// The parts of a record's commands, in order.
    pub fn all_of(changes: Vec<(Stamp, SentChange)>) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::new();
        for (stamp, change) in changes {
            let (volume, content) = match change {
                SentChange::Write { volume, block, data } => {
                    let at = ByteOffset(block.0 * BLOCK_BYTES as u64);
                    if let Some(blocks) =
                        parts.last_mut().and_then(|last| last.continued_at(volume, stamp, at))
                    {
                        blocks.push(data);
                        continue;
                    }
                    (volume, GivenContent::Write(at, vec![data]))
                }
                SentChange::Discard { volume, first, count } => (volume, GivenContent::Discard(first, count)),
                SentChange::Zeroes { volume, first, count } => (volume, GivenContent::Zeroes(first, count)),
                rows @ (SentChange::Resize { .. }
                | SentChange::Snapshot(_)
                | SentChange::SnapshotDeleted { .. }
                | SentChange::RollBack { .. }
                | SentChange::VolumeDeleted { .. }) => {
                    parts.push(Self { stamp, change: PartChange::Rows(rows) });
                    continue;
                }
            };
            parts.push(Self { stamp, change: PartChange::Content(volume, content) });
        }
        parts
    }

    /// The blocks of this write, if a block at `at` is the next one of it.
    fn continued_at(
        &mut self,
        volume: VolumeId,
        stamp: Stamp,
        at: ByteOffset,
    ) -> Option<&mut Vec<std::sync::Arc<world::Buffer>>> {
        let PartChange::Content(of, GivenContent::Write(from, blocks)) = &mut self.change else {
            return None;
        };
        let end = from.0 + (blocks.len() * BLOCK_BYTES) as u64;
        (*of == volume && self.stamp == stamp && end == at.0).then_some(blocks)
    }

    /// True if it changes rows. Such a part is begun when everything before it is stable: it is applied to what is there.
    pub fn is_of_rows(&self) -> bool {
        matches!(self.change, PartChange::Rows(_))
    }

    /// Begins to put the part into the log of the group's pool, and returns at once. One that changes rows is stable when this returns;
    /// then there is nothing to enter the queue.
    ///
    /// # Errors
    ///
    /// The volume is not there; or rows cannot be changed so.
    pub async fn begin(
        self,
        member: &GroupMember,
    ) -> Result<(Option<QueueEntry>, LocalFuture<IoResult<()>>)> {
        match self.change {
            PartChange::Content(volume, content) => {
                let volume = member.pool.volume(VolumeKey::Id(volume))?;
                let (entry, done) = volume.begin_given(content, self.stamp).await;
                Ok((Some(entry), done))
            }
            PartChange::Rows(change) => {
                rows::apply(member, change, self.stamp).await?;
                Ok((None, Box::pin(ready(Ok(())))))
            }
        }
    }
}

/// A part of a command that is begun.
pub(super) struct BegunPart {
    pub done: LocalFuture<IoResult<()>>,
    /// The stamp of its command, if it ends with this part.
    pub ends: Option<Stamp>,
    /// Of the last part of a record: what the record says of the answers of hosts, and as of when.
    pub told: Option<(WallNanoseconds, Stamp)>,
}

/// Progress of what is stable.
#[derive(Default)]
pub(super) struct StableParts {
    /// Everything up to this stamp is stable, if that is new.
    pub complete: Option<Stamp>,
    pub told: Vec<(WallNanoseconds, Stamp)>,
}

/// Parts that are begun and not known to be stable.
#[derive(Default)]
pub(super) struct BegunParts {
    queue: RefCell<VecDeque<BegunPart>>,
    has_failed: Cell<bool>,
    added: Notify,
    emptied: Notify,
}

impl BegunParts {
    pub fn add(&self, part: BegunPart) {
        self.queue.borrow_mut().push_back(part);
        self.added.notify_one();
    }

    /// Waits until the first part is stable, and returns what is stable then. To be called again only when that is noted.
    ///
    /// # Errors
    ///
    /// The first part has failed.
    pub async fn next_stable(&self) -> Result<StableParts> {
        loop {
            self.tell_if_empty();
            if let Some(stable) = self.stable_if_any().await {
                return stable;
            }
            self.added.notified().await;
        }
    }

    /// As [`Self::next_stable`]; `None` if nothing is begun.
    pub async fn stable_if_any(&self) -> Option<Result<StableParts>> {
        poll_fn(|context| self.poll_stable(context)).await
    }

    /// Waits until all that was begun is noted as stable. Another task has to call [`Self::next_stable`].
    pub async fn emptied(&self) {
        let emptied = self.emptied.notified();
        if !self.queue.borrow().is_empty() {
            emptied.await;
        }
    }

    fn tell_if_empty(&self) {
        if self.queue.borrow().is_empty() {
            self.has_failed.set(false);
            self.emptied.notify_waiters();
        }
    }

    fn poll_stable(&self, context: &mut Context<'_>) -> Poll<Option<Result<StableParts>>> {
        let mut queue = self.queue.borrow_mut();
        if queue.is_empty() {
            return Poll::Ready(None);
        }
        let mut stable = StableParts::default();
        let mut count = 0;
        while let Some(part) = queue.front_mut() {
            let is_skipped = count > 0 && planted::is(ReplicationBug::BatchConfirmedWithFirst);
            match part.done.as_mut().poll(context) {
                Poll::Pending if !is_skipped => break,
                Poll::Ready(Err(error)) => {
                    queue.pop_front();
                    if !self.has_failed.replace(true) {
                        return Poll::Ready(Some(Err(Error::Copy(error))));
                    }
                }
                Poll::Pending | Poll::Ready(Ok(())) => {
                    let BegunPart { ends, told, .. } = queue.pop_front().expect("it is the first one");
                    if !self.has_failed.get() {
                        stable.complete = ends.or(stable.complete);
                        stable.told.extend(told);
                    }
                }
            }
            count += 1;
        }
        if count > 0 { Poll::Ready(Some(Ok(stable))) } else { Poll::Pending }
    }
}
