//! A batch on its way into the tree: its writes end, it is flushed, its stamps are settled, it is linked.

use super::{
    super::{Pause, core::Shared, page_stamps::Stamp, rows::Tree},
    OnLink,
    build::Piece,
    link::{Batch, link},
    tail::Tail,
};
use crate::{
    error::Result,
    format::{header::LogPosition, page_size::PageNumber},
    log::{LogRecord, RestructureKind},
};
use std::{collections::VecDeque, rc::Rc, sync::Arc};
use world::{Buffer, ByteOffset, JoinHandle, Stability};

/// Memory that a write no longer needs.
pub type Written = Option<Buffer>;

/// What a batch leaves behind once it is linked.
pub struct Settled {
    /// Memory of its writes.
    pub buffers: Vec<Buffer>,
    /// As it was given.
    pub on_link: Option<OnLink>,
    /// Behind the record that linked it.
    pub end: LogPosition,
}

/// Writes a piece; gives its memory back if it can be used again.
pub async fn write_piece(shared: Rc<Shared>, tail: Rc<Tail>, piece: Piece) -> Result<Written> {
    let page_size = shared.config.page_size;
    let bytes = piece.pages as usize * page_size.bytes();
    let is_whole = bytes == piece.buffer.len();
    let buffer = match is_whole {
        true => piece.buffer,
        false => Buffer::copy_of(&piece.buffer[..bytes]),
    };
    let buffer = Arc::new(buffer);
    let at = ByteOffset(piece.first.file_offset(page_size));
    let written = tail.file.write(at, vec![Arc::clone(&buffer)], Stability::Volatile).await;
    // Before the answer is known: who waits for the last of all writes may then take the tail.
    drop(tail);
    written?;
    let mut core = shared.core.borrow_mut();
    core.statistics.pages_written += u64::from(piece.pages);
    core.statistics.page_writes += 1;
    Ok(Arc::into_inner(buffer).filter(|_| is_whole))
}

/// A batch on its way into the tree.
pub struct Settling {
    /// The group.
    pub shared: Rc<Shared>,
    /// Where it was written.
    pub tail: Rc<Tail>,
    /// The tree it goes to.
    pub tree: Tree,
    /// What goes there.
    pub batch: Batch,
    /// The writes of its pages.
    pub writes: VecDeque<JoinHandle<Result<Written>>>,
    /// Stamps of its pages, if they are kept.
    pub stamps: Vec<(PageNumber, Stamp)>,
    /// Told when it is linked.
    pub on_link: Option<OnLink>,
}

impl Settling {
    /// Sees it through to the record that links it.
    pub async fn run(mut self) -> Result<Settled> {
        let mut buffers = Vec::new();
        for write in std::mem::take(&mut self.writes) {
            buffers.extend(write.await?);
        }
        self.make_stable().await?;
        let shared = Rc::clone(&self.shared);
        shared.log().room().await?;
        shared.wait_for_cache().await?;
        let Tree { database, root, .. } = self.tree;
        let Self { tail, batch, mut on_link, .. } = self;
        let pages = batch.grown.last.0;
        let end = shared
            .step(|core, log, now| {
                core.restructure(log, now, database, RestructureKind::Space, |changes| {
                    let linked = link(changes, root, &batch);
                    let grows = matches!(linked, Err(Pause::Grow { .. }));
                    assert!(!grows, "a batch brings the pages that linking it takes");
                    linked
                })?;
                core.database(database).pages = pages;
                let record = LogRecord::ExtendDatabase { dbid: database.log_id(), pages };
                on_link.iter_mut().for_each(|on_link| on_link(batch.rows));
                Ok(log.append(&record).end)
            })
            .await?;
        drop(tail);
        Ok(Settled { buffers, on_link, end })
    }

    /// Makes all pages of the batch, and their stamps, stable.
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
        match has_stamps {
            true => self.shared.settle_now().await,
            false => Ok(()),
        }
    }
}
