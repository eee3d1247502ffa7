//! A finished batch before it is visible: waits for its writes, flushes them and their stamps, and links it.

use super::{
    super::{Pause, core::SharedGroup, page_stamps::Stamp, rows::TableTree},
    OnLink,
    build::PageRun,
    link::{BulkBatch, link},
    tail::FileTail,
};
use crate::{
    error::Result,
    format::{header::LogPosition, page_size::PageNumber},
    log::{LogRecord, RestructureKind},
};
use std::{collections::VecDeque, rc::Rc, sync::Arc};
use world::{Buffer, ByteOffset, JoinHandle, Stability};

/// Buffer of a completed write, if it can be reused.
pub type ReusableBuffer = Option<Buffer>;

/// Result of linking a batch.
pub struct LinkedBatch {
    /// Buffers of its writes, for reuse.
    pub buffers: Vec<Buffer>,
    /// The caller's callback, returned.
    pub on_link: Option<OnLink>,
    /// End of the log record that linked it.
    pub end: LogPosition,
}

/// Writes a run of pages; returns its buffer if it can be reused.
pub async fn write_run(shared: Rc<SharedGroup>, tail: Rc<FileTail>, run: PageRun) -> Result<ReusableBuffer> {
    let page_size = shared.config.page_size;
    let bytes = run.pages as usize * page_size.bytes();
    let is_whole = bytes == run.buffer.len();
    let buffer = if is_whole { run.buffer } else { Buffer::copy_of(&run.buffer[..bytes]) };
    let buffer = Arc::new(buffer);
    let at = ByteOffset(run.first.file_offset(page_size));
    let written = tail.file.write(at, vec![Arc::clone(&buffer)], Stability::Volatile).await;
    // Dropped before the result is visible: the waiter for the last write may then take the tail.
    drop(tail);
    written?;
    let mut core = shared.core.borrow_mut();
    core.statistics.pages_written += u64::from(run.pages);
    core.statistics.page_writes += 1;
    Ok(Arc::into_inner(buffer).filter(|_| is_whole))
}

/// A batch whose pages are being written, to be linked into its table's tree.
pub struct PendingBatch {
    pub shared: Rc<SharedGroup>,
    /// The file tail that it was written to.
    pub tail: Rc<FileTail>,
    /// The tree to link it into.
    pub tree: TableTree,
    /// Its pages and entries.
    pub batch: BulkBatch,
    pub writes: VecDeque<JoinHandle<Result<ReusableBuffer>>>,
    /// Stamps of its pages, if page stamps are kept.
    pub stamps: Vec<(PageNumber, Stamp)>,
    /// Called when it is linked.
    pub on_link: Option<OnLink>,
}

impl PendingBatch {
    /// Waits for the writes, makes them stable, and links the batch.
    pub async fn run(mut self) -> Result<LinkedBatch> {
        let mut buffers = Vec::new();
        for write in std::mem::take(&mut self.writes) {
            buffers.extend(write.await?);
        }
        self.make_stable().await?;
        let shared = Rc::clone(&self.shared);
        shared.log().room().await?;
        shared.wait_for_cache().await?;
        let TableTree { database, root, .. } = self.tree;
        let Self { tail, batch, mut on_link, .. } = self;
        let pages = batch.grown.last.0;
        let end = shared
            .step(|core, log, now| {
                core.restructure(log, now, database, RestructureKind::Space, |changes| {
                    let linked = link(changes, root, &batch);
                    let grows = matches!(linked, Err(Pause::Grow { .. }));
                    assert!(!grows, "a batch includes the pages that linking it needs");
                    linked
                })?;
                core.database(database).pages = pages;
                let record = LogRecord::ExtendDatabase { dbid: database.log_id(), pages };
                on_link.iter_mut().for_each(|on_link| on_link(batch.rows));
                // Twice: so a joined log shows that it lacks pages ([`crate::log::joined`]).
                log.append(&record);
                Ok(log.append(&record).end)
            })
            .await?;
        drop(tail);
        Ok(LinkedBatch { buffers, on_link, end })
    }

    /// Makes all pages of the batch and their stamps stable.
    async fn make_stable(&mut self) -> Result<()> {
        let database = self.tree.database;
        let has_stamps = {
            let mut core = self.shared.core.borrow_mut();
            let stamps = &mut core.database(database).stamps;
            for (page, stamp) in self.stamps.drain(..) {
                stamps.iter_mut().for_each(|stamps| stamps.table.end_write(page, stamp));
            }
            stamps.is_some()
        };
        {
            let _one_at_a_time = self.shared.checkpointing.lock().await;
            self.shared.flush_database(database).await?;
        }
        if has_stamps { self.shared.force_checkpoint().await } else { Ok(()) }
    }
}
