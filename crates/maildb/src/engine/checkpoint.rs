//! Checkpoints: bounding the log that recovery replays.
//!
//! About once a second, pages whose oldest change is further back in the log than the checkpoint depth are
//! written, the database files are flushed, and the checkpoint file gets the new position: recovery needs no
//! record before it. The position is the oldest of: the first change of a page not yet stable, the Begin
//! record of a running transaction, and the end of the stable log. Between flush and checkpoint the stamps of
//! stable pages are written to their sidecars.
//!
//! Invariant: the checkpoint is never after a record that recovery would need.

use super::{DatabaseIndex, core::SharedGroup, flush_journal::FlushJournal};
use crate::{
    config::LogRetention,
    error::Result,
    format::header::LogPosition,
    log::LogCheckpoint,
    planted::{self, LogBug},
};
use std::{collections::BTreeSet, future::Future as _, rc::Rc, task::Poll, time::Duration};
use world::BoxedFuture;

/// Interval between checkpoints (ESE: about a second).
const INTERVAL: Duration = Duration::from_secs(1);

impl SharedGroup {
    /// Advances the checkpoint until the group closes or stops.
    pub async fn run_checkpoints(self: Rc<Self>) {
        loop {
            self.sleep_unless_closed(INTERVAL).await;
            if self.closing.get() || self.core.borrow().failure.is_some() {
                return;
            }
            let result = match self.write_old_pages().await {
                Ok(()) => self.advance_checkpoint().await.map(drop),
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                self.fail(&error);
            }
        }
    }

    /// Writes lazily committed records out after a short delay, until the group closes or stops.
    pub async fn run_lazy_writes(self: Rc<Self>) {
        let delay = self.config.lazy_commit_delay;
        while !self.closing.get() && self.core.borrow().failure.is_none() {
            self.sleep_unless_closed(delay).await;
            if self.log().stable() < self.log().end() {
                self.log().request_write();
            }
        }
    }

    async fn sleep_unless_closed(&self, span: Duration) {
        let mut sleep = self.world.sleep(span);
        let mut closed = std::pin::pin!(self.closed.notified());
        std::future::poll_fn(|context| {
            if closed.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            sleep.as_mut().poll(context)
        })
        .await;
    }

    /// Starts writing the pages whose oldest change is deeper in the log than the checkpoint depth.
    async fn write_old_pages(self: &Rc<Self>) -> Result<()> {
        loop {
            let oldest = {
                let core = self.core.borrow();
                core.check_running()?;
                core.cache.oldest_dirty()
            };
            let Some((first, id)) = oldest else { return Ok(()) };
            if self.log().bytes_since(first) <= self.config.checkpoint_depth {
                return Ok(());
            }
            if !self.start_write(id).await? {
                // It is being written already: its newer changes can only be written after that.
                self.any_write_ended().await;
            }
        }
    }

    /// Flushes the databases and advances the checkpoint as far as possible.
    pub fn advance_checkpoint(self: &Rc<Self>) -> BoxedFuture<'_, Result<LogPosition>> {
        Box::pin(self.advance_alone())
    }

    async fn advance_alone(self: &Rc<Self>) -> Result<LogPosition> {
        let _one_at_a_time = self.checkpointing.lock().await;
        self.flush_databases().await?;
        let position = {
            let core = self.core.borrow();
            core.check_running()?;
            let oldest_transaction = core.transactions.values().min().copied();
            let candidates = [core.cache.oldest_unstable(), oldest_transaction, Some(self.log().stable())];
            candidates.into_iter().flatten().min().expect("the log has a stable end")
        };
        assert!(position <= self.log().stable(), "a checkpoint is in the stable log");
        if self.checkpoint_written.get() == Some((position, self.log().end().generation)) {
            return Ok(position);
        }
        self.write_headers(position).await?;
        self.flush_stamps(position).await?;
        let consistent = self.log().stable();
        let databases = self.core.borrow().databases.len() as u16;
        let (signature, stamps) = (self.signature(), self.stamps_flushed());
        let checkpoint = LogCheckpoint { position, consistent, databases, signature, stamps };
        self.checkpoint_file().write(&checkpoint).await?;
        self.checkpoint_written.set(Some((position, self.log().end().generation)));
        self.core.borrow_mut().statistics.checkpoints += 1;
        if self.config.log_retention == LogRetention::Circular {
            self.log().release_before(position.generation).await?;
        }
        Ok(position)
    }

    /// Removes the log generations below `generation`, and none that recovery needs; returns the oldest one that
    /// stays.
    pub async fn release_logs(self: &Rc<Self>, generation: u32) -> Result<u32> {
        let checkpoint = self.advance_checkpoint().await?;
        let oldest = match planted::is_log(LogBug::ReleasedBeyondCheckpoint) {
            true => generation,
            false => generation.min(checkpoint.generation),
        };
        self.log().release_before(oldest).await?;
        Ok(oldest)
    }

    /// Flushes every database with unstable writes. The caller must hold `checkpointing`.
    pub async fn flush_databases(self: &Rc<Self>) -> Result<()> {
        let mut waiting: BTreeSet<_> = self.core.borrow().cache.databases_to_flush().into_iter().collect();
        waiting.extend(self.journal.iter().flat_map(FlushJournal::databases_to_flush));
        for database in waiting {
            self.flush_database(database).await?;
        }
        Ok(())
    }

    /// Flushes one database. The caller must hold `checkpointing`.
    pub async fn flush_database(self: &Rc<Self>, database: DatabaseIndex) -> Result<()> {
        let file = {
            let mut core = self.core.borrow_mut();
            core.cache.begin_flush(database);
            let state = core.database(database);
            state.stamps.iter_mut().for_each(|stamps| stamps.table.begin_flush());
            Rc::clone(&state.file)
        };
        self.journal.iter().for_each(|journal| journal.begin_flush(database));
        if let Err(error) = file.flush().await {
            // The state of the writes before a failed flush is unknown, and a second flush that succeeds
            // would not prove them stable: this is final.
            let error = error.into();
            self.fail(&error);
            return Err(error);
        }
        {
            let mut core = self.core.borrow_mut();
            core.cache.end_flush(database);
            core.database(database).stamps.iter_mut().for_each(|stamps| stamps.table.end_flush());
        }
        self.journal.iter().for_each(|journal| journal.end_flush(database));
        Ok(())
    }

    /// Writes every dirty page and waits until all are stable.
    pub async fn write_everything(self: &Rc<Self>) -> Result<()> {
        loop {
            let (oldest, writing) = {
                let core = self.core.borrow();
                core.check_running()?;
                (core.cache.oldest_dirty(), core.cache.being_written())
            };
            match oldest {
                Some((_, id)) => {
                    if !self.start_write(id).await? {
                        self.any_write_ended().await;
                    }
                }
                None if writing > 0 => self.any_write_ended().await,
                None => {
                    // The checkpoint task may be flushing the same databases.
                    let _one_at_a_time = self.checkpointing.lock().await;
                    return self.flush_databases().await;
                }
            }
        }
    }
}
