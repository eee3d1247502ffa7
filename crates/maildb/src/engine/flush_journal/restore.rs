//! Recovery's part of the flush journal: putting whole images over torn pages.
//!
//! 1. Read every slot header; keep the images that redo may start from (`ReplayRange`, birth marks).
//! 2. Of each page keep the newest of them whose slot is whole.
//! 3. Compare it with the page in place, byte for byte: a page that cannot be trusted, or is no newer than
//!    the image and differs from it, is overwritten. One that is newer and whole is left.
//! 4. Flush what was overwritten.
//!
//! Doing all this twice, because a crash came in between, is the same as doing it once: slots are not
//! overwritten before the flush.

use super::{
    Restored,
    slot::{BLOCK_BYTES, ImageEntry, Layout, SlotHeader, digest_images},
};
use crate::{
    engine::{PageId, core::DatabaseState, pager::check_read_page, recovery::ReplayRange},
    error::Result,
    format::{
        page::PageView,
        page_size::{DbTime, PageSize},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};
use world::{Buffer, ByteCount, ByteOffset, File, IoErrorKind, IoResult, Stability};

/// What was found and done.
pub struct Outcome {
    /// For the summary.
    pub restored: Restored,
    /// The highest number of a write found.
    pub sequence_last: u64,
}

/// An image to put in place if the page there is not as good.
struct Image {
    dbtime: DbTime,
    sequence: u64,
    bytes: Arc<Buffer>,
}

/// What the head of a journal says; none if it cannot be read or is none.
pub async fn read_head(file: &Rc<dyn File>) -> Option<Layout> {
    let head = read(file, ByteOffset(0), BLOCK_BYTES).await.ok()?;
    Layout::decode(&head)
}

/// See the module's documentation. That slots cannot be read is no error; that pages cannot be written is.
pub async fn restore(
    file: &Rc<dyn File>,
    layout: Layout,
    range: ReplayRange,
    databases: &[DatabaseState],
) -> Result<Outcome> {
    let mut outcome = Outcome { restored: Restored::default(), sequence_last: 0 };
    let mut newest: BTreeMap<PageId, Image> = BTreeMap::new();
    for slot in 0..layout.slots {
        let header = match read_slot_header(file, &layout, slot).await {
            Slot::Unused => continue,
            Slot::Unreadable => {
                outcome.restored.slots_unreadable += 1;
                continue;
            }
            Slot::Written(header) => header,
        };
        outcome.sequence_last = outcome.sequence_last.max(header.sequence);
        if !header.images.iter().any(|entry| is_of_use(&header, entry, range, databases)) {
            continue;
        }
        let Some(images) = read_images(file, &layout, slot, &header).await else {
            outcome.restored.slots_unreadable += 1;
            continue;
        };
        for (entry, bytes) in header.images.iter().zip(images) {
            if !is_of_use(&header, entry, range, databases) {
                continue;
            }
            let id = PageId { database: entry.database, page: entry.page };
            let name = &databases[usize::from(id.database.0)].name;
            if check_read_page(name, layout.page_size, id, &bytes).is_err() {
                // It was never fit to be in the database either.
                continue;
            }
            let image = Image {
                dbtime: PageView::new(&bytes).dbtime(),
                sequence: header.sequence,
                bytes: Arc::new(bytes),
            };
            let age = |image: &Image| (image.dbtime, image.sequence);
            if newest.get(&id).is_none_or(|known| age(known) < age(&image)) {
                newest.insert(id, image);
            }
        }
    }
    outcome.restored.pages = put_in_place(newest, layout.page_size, databases).await?;
    Ok(outcome)
}

/// Whether redo could start from an image: the rules of the module above.
fn is_of_use(
    header: &SlotHeader,
    entry: &ImageEntry,
    range: ReplayRange,
    databases: &[DatabaseState],
) -> bool {
    let index = usize::from(entry.database.0);
    let (Some(state), Some(mark)) = (databases.get(index), header.databases.get(index)) else {
        return false;
    };
    let page_size = state.header.page_size;
    let end = entry.page.file_offset(page_size) + page_size.bytes() as u64;
    header.log_signature == state.header.log_signature
        && mark.signature == state.header.signature
        && mark.header_time <= state.header_time_stable
        && entry.last > range.from
        && entry.last > state.header.attach
        && entry.last <= range.until
        && entry.page.0 > 0
        && end <= state.file.geometry().size.0
}

enum Slot {
    Unused,
    Unreadable,
    Written(Box<SlotHeader>),
}

async fn read_slot_header(file: &Rc<dyn File>, layout: &Layout, slot: u32) -> Slot {
    let Ok(bytes) = read(file, layout.slot_at(slot), layout.header_bytes()).await else {
        return Slot::Unreadable;
    };
    match SlotHeader::decode(&bytes, layout, slot) {
        Some(header) => Slot::Written(Box::new(header)),
        None if bytes.iter().all(|&byte| byte == 0) => Slot::Unused,
        None => Slot::Unreadable,
    }
}

/// The images of a slot; none unless all of them are whole.
async fn read_images(
    file: &Rc<dyn File>,
    layout: &Layout,
    slot: u32,
    header: &SlotHeader,
) -> Option<Vec<Buffer>> {
    let buffers = header.images.iter().map(|_| Buffer::zeroed(layout.page_size.bytes())).collect();
    let images = file.read(layout.images_at(slot), buffers).await.ok()?;
    let found = digest_images(header.sequence, slot, images.iter().map(|image| &image[..]));
    (found == header.images_digest).then_some(images)
}

async fn put_in_place(
    newest: BTreeMap<PageId, Image>,
    page_size: PageSize,
    databases: &[DatabaseState],
) -> Result<u64> {
    let mut pages = 0;
    let mut touched = BTreeSet::new();
    for (id, image) in newest {
        let state = &databases[usize::from(id.database.0)];
        let at = ByteOffset(id.page.file_offset(page_size));
        if is_as_good(state, page_size, id, at, &image).await? {
            continue;
        }
        state.file.write(at, vec![image.bytes], Stability::Volatile).await?;
        touched.insert(id.database);
        pages += 1;
    }
    for database in touched {
        databases[usize::from(database.0)].file.flush().await?;
    }
    Ok(pages)
}

/// Whether the page in place needs no image.
async fn is_as_good(
    state: &DatabaseState,
    page_size: PageSize,
    id: PageId,
    at: ByteOffset,
    image: &Image,
) -> Result<bool> {
    let found = match read(&state.file, at, page_size.bytes()).await {
        Ok(found) => found,
        // A sector that was being written may be unreadable; writing it again is what mends it.
        Err(error) if error.kind() == IoErrorKind::Medium => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if found[..] == image.bytes[..] {
        return Ok(true);
    }
    let is_whole = check_read_page(&state.name, page_size, id, &found).is_ok();
    Ok(is_whole && PageView::new(&found).dbtime() > image.dbtime)
}

async fn read(file: &Rc<dyn File>, at: ByteOffset, length: usize) -> IoResult<Buffer> {
    if (at + ByteCount(length as u64)).0 > file.geometry().size.0 {
        let context = format!("{length} bytes at {} are beyond the end of the file", at.0);
        return Err(world::IoError::new(IoErrorKind::OutOfRange, context));
    }
    let mut buffers = file.read(at, vec![Buffer::zeroed(length)]).await?;
    Ok(buffers.pop().expect("a read gives its buffer back"))
}
