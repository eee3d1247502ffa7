//! The flush journal: protection against torn page writes.
//!
//! Pages are written in place, and a drive guarantees atomicity only for a sector: a power cut during the
//! write may leave a page that is partly old and partly new. Its checksum usually fails; being linear, it may
//! also pass. The log stores changes, not whole pages, so redo has nothing to apply them to. Hence every
//! changed page is first written, stable, to a *slot* of a second file beside the log (`E00.fj`), and only
//! then in place. Recovery copies the journal's images over torn pages, then redoes the log.
//!
//! Invariants:
//!
//! 1. While a write in place may still be torn by a power cut, a whole slot holds its images: the slot is
//!    stable before the write begins, and is overwritten only when the database has been flushed after the
//!    write ended (`ring`).
//! 2. An image carries the position behind the last log record in it, and the log is stable up to there.
//! 3. Slots are written one at a time. Writes that arrive meanwhile share the next slot.
//!
//! # Why a stale image is harmless
//!
//! Recovery does not know which slots were in use, and need not. An image is used only if its last record is
//! behind the checkpoint and within the log. Then every later change of the page is in the log that redo is
//! about to replay, so the image is a valid starting point *however old it is*. And an image that is needed
//! is never refused: a change that is not yet stable in its database holds the checkpoint back. (The newest
//! image of a page is preferred, so that redo has less to do.) It follows:
//!
//! - *A slot that was free when the power went*, or is left from before the last restart: too old for the
//!   checkpoint, or harmless.
//! - *A clean shutdown* ends with the checkpoint at the end of the log: every image is too old. Nothing has
//!   to be erased.
//! - *A torn slot* fails its digest. Its page writes had not begun.
//! - *A database deleted and created again* under its number is attached to the log behind all images of its
//!   predecessor, and has another signature.
//! - *A database file restored from a backup* has an older time in its header than the one recorded in the
//!   slot: it is left alone, so that redo reports the missing changes instead of some being papered over.
//! - *A journal restored from a backup*, or of another log: older than the checkpoint, or another signature.
//! - *A log older than the journal*: images whose last record is not in the log are refused.
//! - *A journal that is missing or damaged* protects nothing, and that is reported ([`RestoreSummary`]); redo
//!   then finds torn pages damaged, as without any journal.
//! - *A run without protection* removes the journal before it writes a page.
//!
//! Clean pages written as part of a coalesced write get no image: every sector is overwritten by its own
//! contents, and any mixture of the two is the page. Databases on devices that write whole pages atomically
//! (a sector at least as large) need no journal.

mod digest;
pub mod restore;
mod ring;
mod slot;

use super::{
    DatabaseIndex,
    core::{OpenDatabase, SharedGroup},
};
use crate::{
    config::{DATABASES_MAX, InstanceConfig},
    error::Result,
    format::header::Signature,
    log::{LogNames, PageImage, ReplayRange},
};
use ring::Ring;
use slot::{DatabaseMark, ImageEntry, JournalLayout, JournalSlotHeader, digest_images};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    sync::Arc,
};
use tokio::sync::Notify;
use world::{ByteOffset, Directory, File, IoErrorKind, IoResult, Stability};

/// Bounds of the number of slots, otherwise the number of concurrent page writes. Waiting writes share a
/// slot, so more slots would only save flushes that are rare already.
const SLOTS_MIN: usize = 4;
const SLOTS_MAX: usize = 32;

/// The slot that protects a write in place.
#[derive(Clone, Copy, Debug)]
pub struct Protection {
    slot: u32,
    database: DatabaseIndex,
}

/// Result of restoring pages from the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreSummary {
    /// Pages restored.
    pub pages: u64,
    /// Slots that are not whole: being written during the crash, or damaged.
    pub slots_unreadable: u32,
    /// No journal was found, though the settings require one.
    pub was_missing: bool,
    /// A journal was found.
    pub was_there: bool,
}

impl RestoreSummary {
    /// Remark on a page that is still damaged: why the journal did not restore it, and what to do.
    pub fn torn_page_hint(&self, config: &InstanceConfig) -> String {
        let journal = file_name(&config.base_name);
        if self.was_there {
            format!(
                "the flush journal {journal} has no whole image of it: something other than the last power cut damaged \
                 the page, or the journal is damaged as well; restore a copy of the database"
            )
        } else {
            format!(
                "a power cut in the middle of a write tears pages, and torn_page_protection, which prevents that, was \
                 off (there is no flush journal {journal}); restore a copy of the database, and set \
                 torn_page_protection = 1"
            )
        }
    }
}

/// The open journal of a storage group; see the invariants above.
pub struct FlushJournal {
    file: Rc<dyn File>,
    layout: JournalLayout,
    /// By database: true if its device may tear a page.
    protects: Vec<bool>,
    /// Set while a slot is being written.
    writing: Cell<bool>,
    /// Notified when that write has ended.
    written: Notify,
    state: RefCell<State>,
}

struct State {
    ring: Ring,
    sequence_last: u64,
    ticket_last: u64,
    waiting: VecDeque<PendingWrite>,
    /// Slots written, for writes that have not fetched theirs yet.
    written: BTreeMap<u64, u32>,
}

/// A page write waiting for its slot.
struct PendingWrite {
    ticket: u64,
    database: DatabaseIndex,
    images: Vec<PageImage>,
}

/// Settings of the journal to create.
struct JournalSettings {
    layout: JournalLayout,
    protects: Vec<bool>,
}

impl JournalSettings {
    fn new(config: &InstanceConfig, log_signature: Signature, databases: &[OpenDatabase]) -> Option<Self> {
        let page_bytes = config.page_size.bytes();
        let may_tear = |state: &OpenDatabase| (state.file.geometry().sector as usize) < page_bytes;
        let protects: Vec<bool> = databases.iter().map(may_tear).collect();
        let is_wanted = config.torn_page_protection && protects.contains(&true);
        let layout = JournalLayout {
            page_size: config.page_size,
            slots: config.writes_outstanding_max.clamp(SLOTS_MIN, SLOTS_MAX) as u32,
            pages_max: run_pages_max(config),
            log_signature,
        };
        is_wanted.then_some(Self { layout, protects })
    }
}

/// Most pages in one page write.
pub fn run_pages_max(config: &InstanceConfig) -> u32 {
    (config.coalesce.0 / config.page_size.bytes() as u64).max(1) as u32
}

/// Restores torn pages from the last run's journal, if there is one and a log to replay, and creates the
/// journal of this run, if the settings require one. No page may have been written in place before.
pub async fn open(
    directory: &Rc<dyn Directory>,
    config: &InstanceConfig,
    log_signature: Signature,
    replay: Option<ReplayRange>,
    databases: &[OpenDatabase],
) -> Result<(Option<FlushJournal>, RestoreSummary)> {
    let name = file_name(&config.base_name);
    let found = match directory.open(&name).await {
        Ok(file) => Some(file),
        Err(error) if error.kind() == IoErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let wanted = JournalSettings::new(config, log_signature, databases);
    let was_there = found.is_some();
    let mut restored = RestoreSummary {
        was_missing: !was_there && wanted.is_some(),
        was_there,
        ..RestoreSummary::default()
    };
    let mut sequence_last = 0;
    let mut usable = None;
    if let Some(file) = found {
        let head = restore::read_head(&file).await.filter(|head| head.log_signature == log_signature);
        if let Some(range) = replay {
            // If the head is damaged, the last run's settings were probably the same as now.
            let layout = head.or(wanted.as_ref().map(|wanted| wanted.layout));
            if let Some(layout) = layout.filter(|layout| layout.page_size == config.page_size) {
                let outcome = restore::restore(&file, layout, range, databases).await?;
                restored = RestoreSummary { was_there, ..outcome.restored };
                sequence_last = outcome.sequence_last;
            }
        }
        match &wanted {
            Some(wanted)
                if head == Some(wanted.layout) && file.geometry().size >= wanted.layout.file_bytes() =>
            {
                usable = Some(file);
            }
            _ => {
                drop(file);
                directory.remove(&name).await?;
                directory.sync().await?;
            }
        }
    }
    let Some(JournalSettings { layout, protects }) = wanted else { return Ok((None, restored)) };
    let file = match usable {
        Some(file) => file,
        None => make_file(directory, &name, &layout).await?,
    };
    let state = State {
        ring: Ring::new(layout.slots),
        sequence_last,
        ticket_last: 0,
        waiting: VecDeque::new(),
        written: BTreeMap::new(),
    };
    let (writing, written, state) = (Cell::new(false), Notify::new(), RefCell::new(state));
    Ok((Some(FlushJournal { file, layout, protects, writing, written, state }), restored))
}

/// Name of the journal of the log `base_name`.
pub fn file_name(base_name: &str) -> String {
    LogNames::new(base_name).flush_journal()
}

async fn make_file(
    directory: &Rc<dyn Directory>,
    name: &str,
    layout: &JournalLayout,
) -> IoResult<Rc<dyn File>> {
    let file = directory.create(name, layout.file_bytes()).await?;
    file.write(ByteOffset(0), vec![Arc::new(layout.encode())], Stability::Stable).await?;
    directory.sync().await?;
    Ok(file)
}

impl FlushJournal {
    /// Databases whose flush would help to free a slot.
    pub fn databases_to_flush(&self) -> impl Iterator<Item = DatabaseIndex> + use<> {
        self.state.borrow().ring.databases_to_flush().into_iter()
    }

    /// A flush of a database is about to start.
    pub fn begin_flush(&self, database: DatabaseIndex) {
        self.state.borrow_mut().ring.begin_flush(database);
    }

    /// The flush has succeeded.
    pub fn end_flush(&self, database: DatabaseIndex) {
        self.state.borrow_mut().ring.end_flush(database);
    }

    /// A protected write in place has ended.
    pub fn end_write(&self, protection: Protection) {
        self.state.borrow_mut().ring.end_write(protection.slot, protection.database);
    }

    /// True if writes to a database need protection.
    fn protects(&self, database: DatabaseIndex) -> bool {
        self.protects[usize::from(database.0)]
    }

    fn enqueue(&self, database: DatabaseIndex, images: Vec<PageImage>) -> u64 {
        assert!((1..=self.layout.pages_max as usize).contains(&images.len()), "one write fits one slot");
        let mut state = self.state.borrow_mut();
        state.ticket_last += 1;
        let ticket = state.ticket_last;
        state.waiting.push_back(PendingWrite { ticket, database, images });
        ticket
    }

    fn take_written(&self, ticket: u64) -> Option<u32> {
        self.state.borrow_mut().written.remove(&ticket)
    }

    /// The waiting writes, in order, that fit one slot.
    fn next_batch(&self) -> Vec<PendingWrite> {
        let mut state = self.state.borrow_mut();
        let mut room = self.layout.pages_max as usize;
        let mut batch = Vec::new();
        while let Some(first) = state.waiting.pop_front_if(|first| first.images.len() <= room) {
            room -= first.images.len();
            batch.push(first);
        }
        batch
    }

    /// Writes the next batch to a free slot.
    async fn write_slot(&self, slot: u32, databases: [DatabaseMark; DATABASES_MAX]) -> IoResult<()> {
        let batch = self.next_batch();
        let sequence = {
            let mut state = self.state.borrow_mut();
            state.sequence_last += 1;
            state.sequence_last
        };
        let pages = || batch.iter().flat_map(|waiting| waiting.images.iter().map(|image| &image.bytes));
        let entries = batch.iter().flat_map(|PendingWrite { database, images, .. }| {
            images.iter().map(|image| ImageEntry { database: *database, page: image.page, last: image.last })
        });
        let header = JournalSlotHeader {
            sequence,
            log_signature: self.layout.log_signature,
            databases,
            images: entries.collect(),
            images_digest: digest_images(sequence, slot, pages().map(|page| &page[..])),
        };
        let header = Arc::new(header.encode(&self.layout, slot));
        let buffers = std::iter::once(header).chain(pages().map(Arc::clone)).collect();
        self.file.write(self.layout.slot_at(slot), buffers, Stability::Stable).await?;
        let mut state = self.state.borrow_mut();
        state.ring.fill(slot, batch.iter().map(|waiting| waiting.database));
        state.written.extend(batch.iter().map(|waiting| (waiting.ticket, slot)));
        Ok(())
    }
}

impl SharedGroup {
    /// Makes the images of a page write stable, if its database needs that. The write in place may begin on
    /// return; call [`FlushJournal::end_write`] when it has ended.
    pub async fn protect(
        self: &Rc<Self>,
        database: DatabaseIndex,
        images: Vec<PageImage>,
    ) -> Result<Option<Protection>> {
        let Some(journal) = self.journal.as_ref().filter(|journal| journal.protects(database)) else {
            return Ok(None);
        };
        let stable = self.log().stable();
        assert!(images.iter().all(|image| image.last <= stable), "no image is newer than the stable log");
        let ticket = journal.enqueue(database, images);
        loop {
            if let Some(slot) = journal.take_written(ticket) {
                return Ok(Some(Protection { slot, database }));
            }
            // After a failed slot write no slot number arrives; but then the group has stopped.
            self.core.borrow().check_running()?;
            if journal.writing.get() {
                journal.written.notified().await;
                continue;
            }
            journal.writing.set(true);
            let result = self.write_next_slot(journal).await;
            journal.writing.set(false);
            if let Err(error) = &result {
                self.fail(error);
            }
            journal.written.notify_waiters();
            result?;
        }
    }

    async fn write_next_slot(self: &Rc<Self>, journal: &FlushJournal) -> Result<()> {
        let slot = self.free_slot(journal).await?;
        journal.write_slot(slot, self.database_marks()).await?;
        Ok(())
    }

    /// A slot that may be overwritten; flushes databases if there is none.
    async fn free_slot(self: &Rc<Self>, journal: &FlushJournal) -> Result<u32> {
        loop {
            if let Some(slot) = journal.state.borrow().ring.free() {
                return Ok(slot);
            }
            if journal.databases_to_flush().next().is_some() {
                let _one_at_a_time = self.checkpointing.lock().await;
                // Another task's flush may have freed one.
                if journal.state.borrow().ring.free().is_none() {
                    self.flush_databases().await?;
                }
                continue;
            }
            // Every slot protects a write in progress.
            let _expedite = self.expedite_writes();
            self.write_ended.notified().await;
            self.core.borrow().check_running()?;
        }
    }

    fn database_marks(&self) -> [DatabaseMark; DATABASES_MAX] {
        let core = self.core.borrow();
        let mut marks = [DatabaseMark::default(); DATABASES_MAX];
        for (mark, state) in marks.iter_mut().zip(&core.databases) {
            *mark = DatabaseMark { signature: state.header.signature, header_time: state.header_time_stable };
        }
        marks
    }
}
