//! The files of a storage group: no bytes in them make a reader panic, and what passes a check can be read
//! completely.
//!
//! Checksums are made right where that is public, so that changed bytes reach the decoders behind them.

use crate::{
    memory::{MemoryFolder, now},
    model,
    simulated::{self, SimulatedDrive, read_file},
};
use maildb::{
    PageNumber, PageSize,
    format::{
        checksum::{PageCheck, check_page, seal_page},
        header::{DatabaseHeader, LogPosition, LogTime, Signature},
        page::{PageView, restore_image},
        record::decode_record,
    },
    log::{
        CheckpointFile, LogRecord,
        file_header::LogFileHeader,
        segment::{SEGMENT_BYTES, SEGMENT_HEADER_BYTES, seal_segment},
    },
};
use verify::in_world::{verify_database_with_stamps, verify_logs, verify_trees};
use world::{ByteCount, Random, sim::DriveOptions};

/// Database in the seed files.
pub const DATABASE: &str = "priv1.edb";
/// Sidecar in the seed files.
pub const STAMPS: &str = "priv1.stamps";
/// Prefix of the log's files.
pub const LOG: &str = "E00";
const SEGMENTS_MAX: usize = 16;

/// A page of any size is sound or refused; so is an image of one.
pub fn page(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let size = [PageSize::Kib4, PageSize::Kib8, PageSize::Kib32][usize::from(choice % 3)];
    let mut page = vec![0; size.bytes()];
    let length = rest.len().min(page.len());
    page[..length].copy_from_slice(&rest[..length]);
    read_page(&page);
    if restore_image(&mut page, rest).is_ok() {
        read_page(&page);
    }
}

fn read_page(page: &[u8]) {
    let view = PageView::new(page);
    if view.check_structure().is_err() {
        return;
    }
    let mut key = Vec::new();
    let schema = maildb::format::record::TableSchema::new(crate::model::columns()).expect("it is sound");
    for node in 0..view.node_count() {
        view.key_of(node, &mut key);
        let data = view.node(node).data;
        let _ = decode_record(&schema, view.size(), data);
        if !view.is_leaf() && data.len() == 4 {
            let _ = view.child(node);
        }
    }
    let image = view.used_image();
    let mut again = vec![0; page.len()];
    restore_image(&mut again, &image).expect("an image of a sound page is one");
    let again = PageView::new(&again);
    assert_eq!(again.check_structure(), Ok(()));
    assert_eq!(again.node_count(), view.node_count());
}

/// A database header encodes to what it was decoded from.
pub fn header(data: &[u8]) {
    if let Ok(header) = DatabaseHeader::decode(data) {
        let again = DatabaseHeader::decode(&header.encode()).expect("what was taken is taken again");
        assert_eq!(again, header);
    }
    if let Some(header) = LogFileHeader::decode(data) {
        assert_eq!(LogFileHeader::decode(&header.encode()), Some(header));
    }
}

/// A decoded log record survives a round trip.
pub fn log_record(data: &[u8]) {
    if let Ok((record, length)) = LogRecord::decode(data) {
        assert!(length <= data.len());
        let mut again = Vec::new();
        record.encode(&mut again);
        let (decoded, taken) = LogRecord::decode(&again).expect("what was taken is taken again");
        assert_eq!((decoded, taken), (record, again.len()));
    }
}

/// A whole log: as it is, and as segments with right checksums.
pub fn log(data: &[u8]) {
    read_log(data.to_vec());
    let payload = SEGMENT_BYTES - SEGMENT_HEADER_BYTES;
    let segments = data.len().div_ceil(payload).clamp(1, SEGMENTS_MAX);
    let header = LogFileHeader {
        generation: 1,
        segments: segments as u16 + 2,
        database_page_size: PageSize::Kib8,
        created: LogTime::default(),
        previous_created: LogTime::default(),
        signature: Signature::default(),
        circular: false,
        previous_accumulated: 0,
        previous_end: Some(LogPosition { generation: 0, segment: 0, offset: 0 }),
    };
    let mut file = header.encode().to_vec();
    for (index, chunk) in (1_u16..).zip(data.chunks(payload).take(SEGMENTS_MAX)) {
        let mut segment = vec![0; SEGMENT_BYTES];
        segment[SEGMENT_HEADER_BYTES..SEGMENT_HEADER_BYTES + chunk.len()].copy_from_slice(chunk);
        seal_segment(&mut segment, 1, index, LogTime::default(), 1);
        file.extend(segment);
    }
    file.resize(usize::from(header.segments) * SEGMENT_BYTES, 0);
    read_log(file);
}

fn read_log(file: Vec<u8>) {
    let directory = MemoryFolder::default().with("E00.log", file).directory();
    // Most of these are damaged; that must be an error, not a panic.
    let _ = now(verify_logs(&directory, LOG, &mut |_, _| ()));
}

/// A checkpoint file.
pub fn checkpoint(data: &[u8]) {
    let directory = MemoryFolder::default().with("E00.chk", data.to_vec()).directory();
    let _ = now(CheckpointFile::open(&directory, LOG));
}

/// A whole database, with right page checksums: read in order, then along its trees.
pub fn database(data: &[u8]) {
    let mut file = data.to_vec();
    let Ok(found) = DatabaseHeader::decode(data) else {
        return read_database(file);
    };
    let bytes = found.page_size.bytes();
    for (index, page) in file.chunks_exact_mut(bytes).enumerate().skip(2) {
        let number = PageNumber(index as u32 - 1);
        if check_page(page, found.page_size, number) != PageCheck::Uninitialised {
            seal_page(page, found.page_size, number);
        }
    }
    read_database(file);
}

fn read_database(file: Vec<u8>) {
    let directory = MemoryFolder::default().with(DATABASE, file).directory();
    let verdict = now(verify_database_with_stamps(&directory, DATABASE, &mut |_, _| ()));
    if verdict.is_ok() {
        let file = now(directory.open(DATABASE)).expect("it exists");
        let _ = now(verify_trees(file, DATABASE));
    }
}

/// The stamps beside an undamaged database.
pub fn stamps(data: &[u8]) {
    thread_local! {
        static SOUND: Vec<u8> = sample_files().database;
    }
    let database = SOUND.with(Clone::clone);
    let directory = MemoryFolder::default().with(DATABASE, database).with(STAMPS, data.to_vec()).directory();
    let _ = now(verify_database_with_stamps(&directory, DATABASE, &mut |_, _| ()));
}

/// The files of a small group, closed cleanly.
pub struct SampleFiles {
    pub database: Vec<u8>,
    pub stamps: Vec<u8>,
    pub log: Vec<u8>,
    pub checkpoint: Vec<u8>,
}

/// Creates such a group in the simulator, the same every time.
pub fn sample_files() -> SampleFiles {
    let mut drive = SimulatedDrive::formatted(1, DriveOptions::new(ByteCount::mib(128)));
    drive.run(|world, directory| async move {
        let mut config = model::config(PageSize::Kib4, ByteCount::kib(800));
        config.page_stamps = maildb::PageStampMode::Durable;
        config.log_file = ByteCount::kib(128);
        config.extension_pages = 16;
        let instance = simulated::open(&world, &directory, config).await.expect("the group opens");
        let database = instance.databases().remove(0);
        let table = model::mail_table(&database).await;
        let mut session = instance.session();
        let mut random = Random::new(1, "seeds");
        let mix = model::Mix { body_bytes_max: 600, mailboxes: 5, delete_percent: 20.0 };
        model::change_at_random(&mut session, &table, &mut model::Rows::new(), &mut random, 120, mix).await;
        drop((session, table, database));
        instance.close().await.expect("it closes");
        SampleFiles {
            database: read_file(&directory, DATABASE).await,
            stamps: read_file(&directory, STAMPS).await,
            log: read_file(&directory, "E00.log").await,
            checkpoint: read_file(&directory, "E00.chk").await,
        }
    })
}
