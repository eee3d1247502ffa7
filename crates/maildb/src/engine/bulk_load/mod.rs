//! Bulk load: appends many records to the end of a table, past the cache and with almost no log.
//!
//! Pages are built in private memory, written behind the end of the database ([`tail`]) in long concurrent
//! writes, and flushed. Then **one** log record makes them part of the database: file size, space trees, the
//! leaves' links, the entries in the pages above ([`link`]). So undo has nothing to do, and redo only that
//! one record: before it the pages are slack behind the end of the database, after it they are stable.
//!
//! Invariants:
//!
//! 1. *Written, flushed, linked*: the record that links a batch is appended when every page of it is on stable
//!    storage, and so are its stamps in the sidecar, where those are kept.
//! 2. Batches are linked in the order of their keys, each whole: what a crash leaves is a prefix of batches.
//! 3. Nobody else changes the table meanwhile, or makes the database grow.
//! 4. Every page of a batch carries its own time of change, later than all earlier log records: none of those
//!    applies to it, and all later ones do.
//!
//! No flush journal is needed: a torn page is behind the end and not part of the database.

mod build;
mod link;
mod pending_batch;
mod right_end;
mod tail;

use super::{
    core::SharedGroup, page_stamps::Stamp, rows::record_bytes_max, space, table::Table,
    transaction::Durability,
};
use crate::{
    error::{Error, Result},
    format::{header::LogPosition, key::Value, page::PageFlags, page_size::PageNumber, record::ColumnId},
    log::{LogRecord, RestructureKind},
};
use build::{BuildSettings, Builder, PageRun, PushResult};
use pending_batch::{LinkedBatch, PendingBatch, ReusableBuffer, write_run};
use right_end::{RightEnd, prepare, right_end};
use std::{collections::VecDeque, rc::Rc, task::Poll};
use tail::FileTail;
use world::{ByteCount, JoinHandle};

/// Steps in which a file with a known final size grows, ahead of the writes.
const GROWTH: ByteCount = ByteCount::mib(64);
/// Most writes in progress at once.
const WRITES_MAX: usize = 16;

/// Settings of a bulk load.
#[derive(Clone, Debug)]
pub struct BulkLoadSettings {
    /// Expected size of the database file in bytes: the file grows in long steps up to that.
    pub size_expected: ByteCount,
    /// Fill of the pages in percent. 100, the default, equals inserts in ascending order.
    pub fill_percent: u8,
    /// Size of a batch; default 32 MiB. Records become visible and durable batch by batch.
    pub batch: ByteCount,
}

impl Default for BulkLoadSettings {
    fn default() -> Self {
        Self { size_expected: ByteCount(0), fill_percent: 100, batch: ByteCount::mib(32) }
    }
}

/// Called with the number of records that became visible; see [`BulkLoader::on_link`].
type OnLink = Box<dyn FnMut(u64)>;

/// Appends records to the end of a table; created by
/// [`Database::bulk_load`](super::database::Database::bulk_load).
///
/// Records become visible batch by batch; dropping the loader discards those pushed since the last batch.
/// While a loader exists, changes of its table are refused, and changes of other tables of the database wait
/// when they need the file to grow.
pub struct BulkLoader {
    shared: Rc<SharedGroup>,
    table: Table,
    settings: BulkLoadSettings,
    tail: Rc<FileTail>,
    builder: Builder,
    /// Key and record of the current row; reused to save allocations.
    row: (Vec<u8>, Vec<u8>),
    /// Writes of the current batch, oldest first.
    writes: VecDeque<JoinHandle<Result<ReusableBuffer>>>,
    stamps: Vec<(PageNumber, Stamp)>,
    /// The batch before, being flushed and linked.
    pending: Option<JoinHandle<Result<LinkedBatch>>>,
    growing: Option<JoinHandle<Result<()>>>,
    on_link: Option<OnLink>,
    /// End of the log record that linked the last batch.
    linked_until: Option<LogPosition>,
    /// Set while a call is incomplete: after a failed or cancelled call the loader is unusable.
    is_broken: bool,
}

impl BulkLoader {
    pub(super) async fn begin(
        shared: Rc<SharedGroup>,
        table: Table,
        settings: BulkLoadSettings,
    ) -> Result<Self> {
        if !(1..=100).contains(&settings.fill_percent) {
            let problem = format!("pages cannot be filled to {} %", settings.fill_percent);
            return Err(Error::Configuration(problem));
        }
        let tree = table.tree();
        table.check_changeable()?;
        let (tail, end) = loop {
            while shared.step(|core, log, now| prepare(core, log, now, tree)).await? {}
            let tail = FileTail::take(&shared, &table).await?;
            let end = shared.step(|core, _, now| right_end(&mut core.change_set(tree.database, now), tree));
            if let Some(end) = end.await? {
                break (tail, end);
            }
            // Another load has taken the table meanwhile; only now nobody else can.
        };
        let RightEnd { leaf: last_leaf, bound: last_key, flags } = end;
        let page_size = shared.config.page_size;
        let pages_of = |bytes: ByteCount| (bytes.0 / page_size.bytes() as u64).clamp(1, 1 << 20) as u32;
        let build_settings = BuildSettings {
            page_size,
            object: tree.object,
            flags: flags.without(PageFlags::ROOT | PageFlags::LEAF | PageFlags::PARENT_OF_LEAF),
            fill_percent: usize::from(settings.fill_percent),
            run_pages: pages_of(shared.config.coalesce),
            batch_pages: pages_of(settings.batch),
        };
        let first = PageNumber(shared.core.borrow_mut().database(tree.database).pages + 1);
        Ok(Self {
            table,
            settings,
            tail,
            builder: Builder::new(build_settings, first, last_leaf, last_key),
            row: Default::default(),
            writes: VecDeque::new(),
            stamps: Vec::new(),
            pending: None,
            growing: None,
            on_link: None,
            linked_until: None,
            is_broken: false,
            shared,
        })
    }

    /// Sets a callback that receives the number of records that became visible, in the order in which they
    /// were pushed, within the step that links them. It must not use the database.
    pub fn on_link(&mut self, on_link: impl FnMut(u64) + 'static) {
        self.on_link = Some(Box::new(on_link));
    }

    /// Size of the database file if the load ended now, in bytes, without the rounding to whole extensions.
    pub fn size(&self) -> ByteCount {
        ByteCount((u64::from(self.builder.last_page().0) + 2) * self.shared.config.page_size.bytes() as u64)
    }

    /// Adds a record. Its key must be above all keys of the table and of earlier pushes.
    ///
    /// After a storage error the load cannot continue; batches linked before are kept.
    pub async fn push(&mut self, values: &[(ColumnId, Value)]) -> Result<()> {
        let (key, data) = &mut self.row;
        self.table.encode_into(values, key, data)?;
        let (bytes, bytes_max) = (key.len() + data.len(), record_bytes_max(self.shared.config.page_size));
        if bytes > bytes_max {
            return Err(Error::RecordTooLarge { bytes, bytes_max });
        }
        if !self.builder.is_next(key) {
            let problem = "a bulk load requires ascending keys, above all existing ones";
            return Err(Error::Table(format!("{}: {problem}", self.table.name())));
        }
        self.check_whole()?;
        loop {
            if self.builder.needs_time() {
                let mut core = self.shared.core.borrow_mut();
                core.check_running()?;
                self.builder.begin_batch(core.database(self.table.tree().database).next_dbtime());
            }
            let pushed = self.builder.push(&self.row.0, &self.row.1);
            if pushed == PushResult::Taken && !self.builder.has_finished() {
                return Ok(());
            }
            self.is_broken = true;
            self.write_finished().await?;
            if pushed == PushResult::BatchIsComplete {
                self.end_batch().await?;
            }
            self.is_broken = false;
            if pushed == PushResult::Taken {
                return Ok(());
            }
        }
    }

    fn check_whole(&self) -> Result<()> {
        if self.is_broken {
            Err(Error::Table(format!("the bulk load of {} has failed before", self.table.name())))
        } else {
            Ok(())
        }
    }

    /// Makes all records pushed so far visible.
    pub async fn commit(&mut self, durability: Durability) -> Result<()> {
        self.check_whole()?;
        self.is_broken = true;
        self.end_batch().await?;
        self.finish_pending().await?;
        self.is_broken = false;
        match (durability, self.linked_until) {
            (Durability::Stable, Some(end)) => Ok(self.shared.log().make_stable(end).await?),
            _ => Ok(()),
        }
    }

    /// Makes all records visible and ends the load. The unused rest of the file's last extension becomes free
    /// space of the database.
    pub async fn finish(mut self, durability: Durability) -> Result<()> {
        self.commit(durability).await?;
        if let Some(growing) = self.growing.take() {
            growing.await?;
        }
        self.own_the_rest().await?;
        // Removes the file's growth ahead of the load.
        self.shared.cut_tail(self.table.tree().database).await.map(drop)
    }

    /// Starts writing the runs of finished pages.
    async fn write_finished(&mut self) -> Result<()> {
        for run in self.builder.take_finished() {
            let last = PageNumber(run.first.0 + run.pages - 1);
            self.make_room(last).await?;
            while self.writes.len() >= WRITES_MAX {
                let oldest = self.writes.pop_front().expect("there are many");
                if let Some(buffer) = oldest.await? {
                    self.builder.reuse(buffer);
                }
            }
            self.stamp(&run);
            let writing = write_run(Rc::clone(&self.shared), Rc::clone(&self.tail), run);
            self.writes.push_back(self.shared.world.spawn("bulk write", writing));
        }
        // Lets the writes just started reach the device while the next pages are built.
        yield_to_others().await;
        Ok(())
    }

    fn stamp(&mut self, run: &PageRun) {
        let mut core = self.shared.core.borrow_mut();
        let Some(stamps) = &core.database(self.table.tree().database).stamps else { return };
        let pages = run.buffer.chunks_exact(self.shared.config.page_size.bytes());
        for (number, page) in (run.first.0..run.first.0 + run.pages).map(PageNumber).zip(pages) {
            self.stamps.push((number, stamps.table.stamp(number, page)));
        }
    }

    /// Waits until the file has room for the pages up to `last`; starts growing it further in the background.
    async fn make_room(&mut self, last: PageNumber) -> Result<()> {
        let page_bytes = self.shared.config.page_size.bytes() as u64;
        let step = (GROWTH.0 / page_bytes) as u32;
        let expected = u32::try_from(self.settings.size_expected.0.div_ceil(page_bytes)).unwrap_or(u32::MAX);
        let goal = |end: PageNumber| {
            PageNumber(last.0.max(expected.saturating_sub(2).min(end.0.saturating_add(step))))
        };
        while last > self.tail.end() {
            match self.growing.take() {
                Some(growing) => growing.await?,
                None => self.tail.make_room(goal(self.tail.end())).await?,
            }
        }
        let end = self.tail.end();
        let is_near = end.0 - last.0 < step / 2 && goal(end) > end;
        if is_near && self.growing.as_ref().is_none_or(JoinHandle::is_finished) {
            if let Some(growing) = self.growing.take() {
                growing.await?;
            }
            let (tail, goal) = (Rc::clone(&self.tail), goal(end));
            self.growing = Some(self.shared.world.spawn("bulk growth", async move {
                let result = tail.make_room(goal).await;
                drop(tail);
                result
            }));
        }
        Ok(())
    }

    /// Ends the current batch; it is flushed and linked in the background, after the batch before.
    async fn end_batch(&mut self) -> Result<()> {
        let Some(batch) = self.builder.end_batch() else { return Ok(()) };
        self.write_finished().await?;
        self.make_room(batch.grown.last).await?;
        self.finish_pending().await?;
        let pending = PendingBatch {
            shared: Rc::clone(&self.shared),
            tail: Rc::clone(&self.tail),
            tree: self.table.tree(),
            batch,
            writes: std::mem::take(&mut self.writes),
            stamps: std::mem::take(&mut self.stamps),
            on_link: self.on_link.take(),
        };
        self.pending = Some(self.shared.world.spawn("bulk link", pending.run()));
        Ok(())
    }

    /// Waits until the last batch that was ended is linked.
    async fn finish_pending(&mut self) -> Result<()> {
        let Some(pending) = self.pending.take() else { return Ok(()) };
        let LinkedBatch { buffers, on_link, end } = pending.await?;
        buffers.into_iter().for_each(|buffer| self.builder.reuse(buffer));
        self.on_link = on_link;
        self.linked_until = Some(end);
        Ok(())
    }

    /// Adds the unwritten rest of the file's last extension to the database's free space.
    async fn own_the_rest(&mut self) -> Result<()> {
        let database = self.table.tree().database;
        let pages = self.shared.core.borrow_mut().database(database).pages;
        let unit = self.shared.config.extension_pages.max(1);
        let end = self.tail.end().0.min(pages.next_multiple_of(unit));
        if end <= pages {
            return Ok(());
        }
        self.shared
            .step(|core, log, now| {
                core.restructure(log, now, database, RestructureKind::Space, |changes| {
                    space::add_file_growth(changes, pages, end)
                })?;
                core.database(database).pages = end;
                log.append(&LogRecord::ExtendDatabase { dbid: database.log_id(), pages: end });
                Ok(())
            })
            .await
    }
}

impl Drop for BulkLoader {
    fn drop(&mut self) {
        self.tail.release();
    }
}

/// Yields to all other tasks once.
async fn yield_to_others() {
    let mut has_waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
