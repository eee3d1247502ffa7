//! Recovery from the flush journal: copying whole images over torn pages.
//!
//! 1. Read every slot header; keep the images that redo may start from (`ReplayRange`, signatures).
//! 2. Of each page keep the newest image in a whole slot.
//! 3. Compare it with the page in place, byte for byte. Overwrite the page if it cannot be trusted, or if it
//!    differs and is no newer than the image. A newer, whole page stays.
//! 4. Flush the overwritten pages.
//!
//! Repeating all this after a crash in between has the same result: slots are not overwritten before the
//! flush.

use super::{
    RestoreSummary,
    slot::{BLOCK_BYTES, ImageEntry, JournalLayout, JournalSlotHeader, digest_images},
};
use crate::{
    engine::{PageId, core::OpenDatabase, page_stamps::StampTable, pager::check_read_page},
    error::Result,
    format::{
        header::DatabaseHeader,
        page::PageView,
        page_size::{DbTime, PageSize},
    },
    log::ReplayRange,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};
use world::{Buffer, ByteCount, ByteOffset, File, IoErrorKind, IoResult, Stability};

/// A database, as far as it determines which images are usable.
#[derive(Clone, Copy)]
pub struct RestoreTarget<'a> {
    pub name: &'a str,
    pub header: &'a DatabaseHeader,
    /// dbtime in the header on stable storage.
    pub header_time: DbTime,
    pub bytes: ByteCount,
    /// Page stamps, if they are known.
    pub stamps: Option<&'a StampTable>,
}

impl OpenDatabase {
    fn target(&self) -> RestoreTarget<'_> {
        RestoreTarget {
            name: &self.name,
            header: &self.header,
            header_time: self.header_time_stable,
            bytes: self.file.geometry().size,
            stamps: self.stamps.as_ref().map(|stamps| &stamps.table),
        }
    }
}

/// Result of a restore.
pub struct RestoreOutcome {
    /// Counts for the recovery summary.
    pub restored: RestoreSummary,
    /// Highest write number in the journal.
    pub sequence_last: u64,
}

/// The newest usable image of each page.
#[derive(Default)]
pub struct UsableImages {
    images: BTreeMap<PageId, Image>,
    slots_unreadable: u32,
    sequence_last: u64,
}

impl UsableImages {
    pub fn pages(&self) -> impl Iterator<Item = PageId> {
        self.images.keys().copied()
    }
}

/// An image that may replace its page in place.
struct Image {
    dbtime: DbTime,
    sequence: u64,
    bytes: Arc<Buffer>,
}

/// The layout in the head of a journal; `None` if the head is unreadable or invalid.
pub async fn read_head(file: &Rc<dyn File>) -> Option<JournalLayout> {
    let head = read(file, ByteOffset(0), BLOCK_BYTES).await.ok()?;
    JournalLayout::decode(&head)
}

/// Runs the four steps above. Unreadable slots are skipped; failed page writes are errors.
pub async fn restore(
    file: &Rc<dyn File>,
    layout: JournalLayout,
    range: ReplayRange,
    databases: &[OpenDatabase],
) -> Result<RestoreOutcome> {
    let targets: Vec<Option<RestoreTarget<'_>>> =
        databases.iter().map(|state| Some(state.target())).collect();
    let UsableImages { images, slots_unreadable, sequence_last } =
        gather(file, layout, range, &targets).await;
    let pages = put_in_place(images, layout.page_size, databases).await?;
    let restored = RestoreSummary { pages, slots_unreadable, ..RestoreSummary::default() };
    Ok(RestoreOutcome { restored, sequence_last })
}

/// Steps 1 and 2: the images that recovery would use, by database number in the group. Unreadable slots are
/// skipped.
pub async fn gather(
    file: &Rc<dyn File>,
    layout: JournalLayout,
    range: ReplayRange,
    databases: &[Option<RestoreTarget<'_>>],
) -> UsableImages {
    let mut gathered = UsableImages::default();
    let newest = &mut gathered.images;
    for slot in 0..layout.slots {
        let header = match read_slot_header(file, &layout, slot).await {
            Slot::Unused => continue,
            Slot::Unreadable => {
                gathered.slots_unreadable += 1;
                continue;
            }
            Slot::Written(header) => header,
        };
        gathered.sequence_last = gathered.sequence_last.max(header.sequence);
        if !header.images.iter().any(|entry| is_of_use(&header, entry, range, databases)) {
            continue;
        }
        let Some(images) = read_images(file, &layout, slot, &header).await else {
            gathered.slots_unreadable += 1;
            continue;
        };
        for (entry, bytes) in header.images.iter().zip(images) {
            if !is_of_use(&header, entry, range, databases) {
                continue;
            }
            let id = PageId { database: entry.database, page: entry.page };
            let target = databases[usize::from(id.database.0)].as_ref().expect("the image is usable");
            if !is_possible(target, layout.page_size, id, &bytes) {
                // Such an image was never valid in the database either.
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
    gathered
}

/// True if redo could start from an image, by the rules of the flush journal.
fn is_of_use(
    header: &JournalSlotHeader,
    entry: &ImageEntry,
    range: ReplayRange,
    databases: &[Option<RestoreTarget<'_>>],
) -> bool {
    let index = usize::from(entry.database.0);
    let (Some(Some(target)), Some(mark)) = (databases.get(index), header.databases.get(index)) else {
        return false;
    };
    let page_size = target.header.page_size;
    let end = entry.page.file_offset(page_size) + page_size.bytes() as u64;
    header.log_signature == target.header.log_signature
        && mark.signature == target.header.signature
        && mark.header_time <= target.header_time
        && entry.last > range.from
        && entry.last > target.header.attach
        && entry.last <= range.until
        && entry.page.0 > 0
        && end <= target.bytes.0
}

enum Slot {
    Unused,
    Unreadable,
    Written(Box<JournalSlotHeader>),
}

async fn read_slot_header(file: &Rc<dyn File>, layout: &JournalLayout, slot: u32) -> Slot {
    let Ok(bytes) = read(file, layout.slot_at(slot), layout.header_bytes()).await else {
        return Slot::Unreadable;
    };
    match JournalSlotHeader::decode(&bytes, layout, slot) {
        Some(header) => Slot::Written(Box::new(header)),
        None if bytes.iter().all(|&byte| byte == 0) => Slot::Unused,
        None => Slot::Unreadable,
    }
}

/// The images of a slot; `None` unless all of them are whole.
async fn read_images(
    file: &Rc<dyn File>,
    layout: &JournalLayout,
    slot: u32,
    header: &JournalSlotHeader,
) -> Option<Vec<Buffer>> {
    let buffers = header.images.iter().map(|_| Buffer::zeroed(layout.page_size.bytes())).collect();
    let images = file.read(layout.images_at(slot), buffers).await.ok()?;
    let found = digest_images(header.sequence, slot, images.iter().map(|image| &image[..]));
    (found == header.images_digest).then_some(images)
}

async fn put_in_place(
    newest: BTreeMap<PageId, Image>,
    page_size: PageSize,
    databases: &[OpenDatabase],
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

/// True if an image is whole and, if stamps are known, one that the page may hold.
fn is_possible(target: &RestoreTarget<'_>, page_size: PageSize, id: PageId, image: &[u8]) -> bool {
    check_read_page(target.name, page_size, id, image).is_ok()
        && target.stamps.is_none_or(|stamps| stamps.could_be(id.page, image))
}

/// True if the page in place needs no image.
async fn is_as_good(
    state: &OpenDatabase,
    page_size: PageSize,
    id: PageId,
    at: ByteOffset,
    image: &Image,
) -> Result<bool> {
    let found = match read(&state.file, at, page_size.bytes()).await {
        Ok(found) => found,
        // A sector that was being written may be unreadable; rewriting it repairs it.
        Err(error) if error.kind() == IoErrorKind::Medium => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if found[..] == image.bytes[..] {
        return Ok(true);
    }
    let is_whole = is_possible(&state.target(), page_size, id, &found);
    Ok(is_whole && PageView::new(&found).dbtime() > image.dbtime)
}

async fn read(file: &Rc<dyn File>, at: ByteOffset, length: usize) -> IoResult<Buffer> {
    if (at + ByteCount(length as u64)).0 > file.geometry().size.0 {
        let context = format!("{length} bytes at {} are beyond the end of the file", at.0);
        return Err(world::IoError::new(IoErrorKind::OutOfRange, context));
    }
    let mut buffers = file.read(at, vec![Buffer::zeroed(length)]).await?;
    Ok(buffers.pop().expect("a read returns its buffer"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::DATABASES_MAX,
        engine::{DatabaseIndex, flush_journal::slot::DatabaseMark},
        format::{
            header::{LogPosition, LogTime, Signature},
            page_size::{ObjectId, PageNumber},
        },
    };
    use world::{BlockDevice, Geometry, LocalFuture, Resizable};

    /// A file that only has a size.
    struct FileSize(ByteCount);

    impl BlockDevice for FileSize {
        fn geometry(&self) -> Geometry {
            Geometry { size: self.0, sector: 512 }
        }

        fn read(&self, _: ByteOffset, _: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
            unreachable!("only the size matters")
        }

        fn write(&self, _: ByteOffset, _: Vec<Arc<Buffer>>, _: Stability) -> LocalFuture<IoResult<()>> {
            unreachable!("only the size matters")
        }

        fn flush(&self) -> LocalFuture<IoResult<()>> {
            unreachable!("only the size matters")
        }

        fn discard(&self, _: ByteOffset, _: ByteCount) -> LocalFuture<IoResult<()>> {
            unreachable!("only the size matters")
        }
    }

    impl Resizable for FileSize {
        fn resize(&self, _: ByteCount) -> LocalFuture<IoResult<()>> {
            unreachable!("only the size matters")
        }
    }

    fn signature(random: u32) -> Signature {
        Signature { random, created: LogTime::from_unix_ms(1_000), computer: [0; 16] }
    }

    fn at(offset: u16) -> LogPosition {
        LogPosition { generation: 2, segment: 3, offset }
    }

    type Spoil = fn(&mut ImageCase);

    /// Everything that decides if an image is usable.
    struct ImageCase {
        header: JournalSlotHeader,
        entry: ImageEntry,
        range: ReplayRange,
        state: OpenDatabase,
    }

    impl ImageCase {
        /// A usable image.
        fn new() -> Self {
            let mut header = DatabaseHeader::new(PageSize::Kib8, signature(1), ObjectId(1));
            header.log_signature = signature(2);
            header.attach = at(50);
            let state = OpenDatabase {
                name: "priv1.edb".to_owned(),
                file: Rc::new(FileSize(ByteCount::kib(8 * 12))),
                header,
                header_time_stable: DbTime(7),
                dbtime: DbTime(7),
                pages: 10,
                object_last: ObjectId(1),
                tables: BTreeMap::new(),
                stamps: None,
                growing: None,
            };
            let entry = ImageEntry { database: DatabaseIndex(0), page: PageNumber(10), last: at(101) };
            let mut databases = [DatabaseMark::default(); DATABASES_MAX];
            databases[0] = DatabaseMark { signature: signature(1), header_time: DbTime(7) };
            let header = JournalSlotHeader {
                sequence: 1,
                log_signature: signature(2),
                databases,
                images: vec![entry],
                images_digest: 0,
            };
            Self { header, entry, range: ReplayRange { from: at(100), until: at(101) }, state }
        }

        fn verdict(self) -> bool {
            is_of_use(&self.header, &self.entry, self.range, &[Some(self.state.target())])
        }
    }

    #[test]
    fn an_image_is_usable_only_if_every_rule_holds() {
        assert!(ImageCase::new().verdict());
        let broken: [(&str, Spoil); 9] = [
            ("another log", |judged| judged.header.log_signature = signature(3)),
            ("another database", |judged| judged.header.databases[0].signature = signature(3)),
            ("a file from a backup", |judged| judged.state.header_time_stable = DbTime(6)),
            ("stable at the checkpoint", |judged| judged.range.from = at(101)),
            ("older than the database", |judged| judged.state.header.attach = at(101)),
            ("not in the log", |judged| judged.range.until = at(100)),
            ("beyond the file", |judged| judged.entry.page = PageNumber(11)),
            ("no page", |judged| judged.entry.page = PageNumber(0)),
            ("no database of the group", |judged| judged.entry.database = DatabaseIndex(1)),
        ];
        for (what, spoil) in broken {
            let mut judged = ImageCase::new();
            spoil(&mut judged);
            assert!(!judged.verdict(), "{what}");
        }
    }
}
