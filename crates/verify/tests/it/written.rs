//! Writes files of every form from the description of the format alone, with no code of the checks or the
//! engine. Slow and simple on purpose.

/// The input of the published checksum vectors.
pub fn vector(length: usize) -> Vec<u8> {
    let mut x = 1_u32;
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

pub fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

pub fn put16(bytes: &mut [u8], at: usize, value: usize) {
    put(bytes, at, &u16::try_from(value).expect("it fits").to_le_bytes());
}

pub fn put32(bytes: &mut [u8], at: usize, value: usize) {
    put(bytes, at, &u32::try_from(value).expect("it fits").to_le_bytes());
}

fn get32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The checksum of headers and of old pages.
pub fn old(bytes: &[u8]) -> u32 {
    (4..bytes.len()).step_by(4).fold(0x89AB_CDEF, |xor, at| xor ^ get32(bytes, at))
}

/// The checksum of new pages and segments, bit by bit.
pub fn new(bytes: &[u8], number: u32, is_first: bool) -> u64 {
    let (mut low, mut ones, mut xor) = (0_usize, 0, number);
    for (at, &byte) in bytes.iter().enumerate() {
        if byte == 0 || is_first && at < 8 {
            continue;
        }
        xor ^= u32::from(byte) << (8 * (at % 4));
        for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
            low ^= 8 * at + bit;
            ones += 1;
        }
    }
    let high = if ones % 2 == 1 { low ^ (8 * bytes.len() - 1) } else { low };
    (high as u64) << 48 | (low as u64) << 32 | u64::from(xor)
}

/// Stores the checksum of a header.
pub fn seal_header(header: &mut [u8]) {
    let checksum = old(header);
    put(header, 0, &checksum.to_le_bytes());
}

/// Stores the checksums of a page: the new form if its flags say so.
pub fn seal(page: &mut [u8], number: u32) {
    if get32(page, 36) & 0x2000 == 0 {
        put(page, 4, &number.to_le_bytes());
        let checksum = old(page);
        put(page, 0, &checksum.to_le_bytes());
    } else if page.len() <= 8192 {
        let checksum = new(page, number, true);
        put(page, 0, &checksum.to_le_bytes());
    } else {
        put(page, 64, &number.to_le_bytes());
        let quarter = page.len() / 4;
        for part in [1, 2, 3] {
            let checksum = new(&page[part * quarter..(part + 1) * quarter], number, false);
            put(page, 32 + 8 * part, &checksum.to_le_bytes());
        }
        let checksum = new(&page[..quarter], number, true);
        put(page, 0, &checksum.to_le_bytes());
    }
}

/// True if a page verifies by the description.
pub fn verifies(page: &[u8], number: u32) -> bool {
    let mut again = page.to_vec();
    seal(&mut again, number);
    again == page
}

pub const ROOT: u32 = 1;
pub const LEAF: u32 = 2;
pub const PARENT_OF_LEAF: u32 = 4;
pub const SPACE: u32 = 0x20;
const ALWAYS: u32 = 0x800;
const NEW_CHECKSUM: u32 = 0x2000;

pub struct Page {
    pub number: u32,
    pub object: u32,
    pub flags: u32,
    pub previous: u32,
    pub next: u32,
    pub tag0: Vec<u8>,
    /// Key and data of each node.
    pub nodes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Page {
    pub fn new(number: u32, object: u32, flags: u32) -> Self {
        Self { number, object, flags, previous: 0, next: 0, tag0: Vec::new(), nodes: Vec::new() }
    }

    /// The page's bytes, sealed.
    pub fn bytes(&self, page_bytes: usize, is_old: bool) -> Vec<u8> {
        let header = if page_bytes <= 8192 { 40 } else { 80 };
        let mut page = vec![0; page_bytes];
        let flags = self.flags | ALWAYS | if is_old { 0 } else { NEW_CHECKSUM };
        put32(&mut page, 8, 77);
        put32(&mut page, 16, self.previous as usize);
        put32(&mut page, 20, self.next as usize);
        put32(&mut page, 24, self.object as usize);
        put32(&mut page, 36, flags as usize);
        let node = |(key, data): &(Vec<u8>, Vec<u8>)| {
            [&(key.len() as u16).to_le_bytes(), key.as_slice(), data.as_slice()].concat()
        };
        let strings = std::iter::once(self.tag0.clone()).chain(self.nodes.iter().map(node));
        let (mut at, mut tags) = (0, 0);
        for string in strings {
            put(&mut page, header + at, &string);
            tags += 1;
            put16(&mut page, page_bytes - 4 * tags, string.len());
            put16(&mut page, page_bytes - 4 * tags + 2, at);
            at += string.len();
        }
        let free = page_bytes - header - at - 4 * tags;
        put16(&mut page, 28, free);
        put16(&mut page, 32, at);
        put16(&mut page, 34, tags);
        seal(&mut page, self.number);
        page
    }
}

/// The space header of a root: pages of the first extent, parent, trees of extents or the bitmap.
fn space_header(pages: u32, parent: u32, space: Result<u32, u32>) -> Vec<u8> {
    let (flags, last) = match space {
        Ok(owned_root) => (1, owned_root),
        Err(bitmap) => (0, bitmap),
    };
    [pages, parent, flags, last].into_iter().flat_map(u32::to_le_bytes).collect()
}

fn extents(number: u32, object: u32, extents: &[(u32, u32)]) -> Page {
    let nodes = extents
        .iter()
        .map(|&(first, last)| (last.to_be_bytes().to_vec(), (last - first + 1).to_le_bytes().to_vec()));
    Page { tag0: vec![0; 16], nodes: nodes.collect(), ..Page::new(number, object, ROOT | LEAF | SPACE) }
}

/// A row of the catalogue: a sortable key, and the record.
fn catalogue_row(table: u32, kind: u16, number: u32, root: u32, name: &str) -> (Vec<u8>, Vec<u8>) {
    let key = [&table.to_be_bytes()[..], &kind.to_be_bytes(), &number.to_be_bytes()].concat();
    let mut record = vec![4, 128, 19, 0];
    record.extend(table.to_le_bytes());
    record.extend(kind.to_le_bytes());
    record.extend(number.to_le_bytes());
    record.extend(root.to_le_bytes());
    record.push(0);
    record.extend((name.len() as u16).to_le_bytes());
    record.extend(name.as_bytes());
    (key, record)
}

/// Pages of the written database that tests refer to.
pub const SMALL_ROOT: u32 = 20;
pub const TALL_ROOT: u32 = 24;
pub const TALL_LEAVES: [u32; 3] = [27, 28, 29];
/// The last owned page, and the number of pages behind it.
pub const OWNED_LAST: u32 = 40;
pub const SLACK_PAGES: u32 = 4;
/// Rows of `Small` and `Tall`.
pub const SMALL_ROWS: u64 = 5;
pub const TALL_ROWS: u64 = 12;

fn row(number: u32) -> (Vec<u8>, Vec<u8>) {
    (number.to_be_bytes().to_vec(), vec![number as u8; 17])
}

/// The pages of a database with the catalogue, a table of one extent and one of two levels. Other pages are
/// blank.
pub fn pages() -> Vec<Page> {
    let mut pages = vec![
        Page { tag0: space_header(OWNED_LAST, 0, Ok(2)), ..Page::new(1, 1, ROOT | LEAF) },
        extents(2, 1, &[(1, OWNED_LAST)]),
        // Page 19, which no tree owns, is free too.
        extents(3, 1, &[(7, 19), (33, OWNED_LAST)]),
        extents(5, 2, &[(4, 6)]),
        extents(6, 2, &[]),
        extents(25, 12, &[(24, 32)]),
        extents(26, 12, &[(30, 32)]),
    ];
    let catalogue = vec![
        catalogue_row(2, 1, 2, 4, "MSysObjects"),
        catalogue_row(2, 2, 1, 4, "ObjidTable"),
        catalogue_row(11, 1, 11, SMALL_ROOT, "Small"),
        catalogue_row(12, 1, 12, TALL_ROOT, "Tall"),
        // The primary index is the table.
        catalogue_row(12, 3, 12, TALL_ROOT, "Primary"),
    ];
    let tag0 = space_header(3, 1, Ok(5));
    pages.push(Page { tag0, nodes: catalogue, ..Page::new(4, 2, ROOT | LEAF) });
    // Pages 20 to 23, of which the last three are free: bits 0 to 2. Later bits mean nothing.
    let tag0 = space_header(4, 1, Err(0xFFFF_FFFF));
    let nodes = (0..SMALL_ROWS as u32).map(row).collect();
    pages.push(Page { tag0, nodes, ..Page::new(SMALL_ROOT, 11, ROOT | LEAF) });
    let separators =
        [Some(4_u32), Some(8), None].map(|key| key.map_or(Vec::new(), |key| key.to_be_bytes().to_vec()));
    let children = TALL_LEAVES.map(|page| page.to_le_bytes().to_vec());
    let nodes = separators.into_iter().zip(children).collect();
    let tag0 = space_header(9, 1, Ok(25));
    pages.push(Page { tag0, nodes, ..Page::new(TALL_ROOT, 12, ROOT | PARENT_OF_LEAF) });
    for (index, number) in (0_u32..).zip(TALL_LEAVES) {
        let nodes = (4 * index..4 * index + 4).map(row).collect();
        let previous = if index == 0 { 0 } else { number - 1 };
        let next = if index == 2 { 0 } else { number + 1 };
        pages.push(Page { nodes, previous, next, ..Page::new(number, 12, LEAF) });
    }
    pages
}

/// The form of a written database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    pub page_bytes: usize,
    /// With the old checksum.
    pub is_old: bool,
}

pub const FORMS: [Form; 7] = [
    Form { page_bytes: 2048, is_old: true },
    Form { page_bytes: 4096, is_old: true },
    Form { page_bytes: 2048, is_old: false },
    Form { page_bytes: 4096, is_old: false },
    Form { page_bytes: 8192, is_old: false },
    Form { page_bytes: 16384, is_old: false },
    Form { page_bytes: 32768, is_old: false },
];

/// The header of a database; a copy has the same bytes.
pub fn database_header(form: Form, state: usize) -> Vec<u8> {
    let mut header = vec![0; form.page_bytes];
    put32(&mut header, 4, 0x89AB_CDEF);
    put32(&mut header, 8, 0x620);
    put32(&mut header, 24, 4711);
    put32(&mut header, 52, state);
    put32(&mut header, 108, 815);
    put32(&mut header, 232, if form.is_old { 9 } else { 20 });
    // The oldest databases have 4 KiB pages and a zero there.
    put32(&mut header, 236, if form.is_old && form.page_bytes == 4096 { 0 } else { form.page_bytes });
    put32(&mut header, 667, 1);
    seal_header(&mut header);
    header
}

/// A whole database file of those pages, with foreign bytes behind its last owned page.
pub fn database(form: Form, pages: &[Page]) -> Vec<u8> {
    let header = database_header(form, 3);
    let mut file = [header.clone(), header].concat();
    file.resize((OWNED_LAST as usize + 2) * form.page_bytes, 0);
    for page in pages {
        put(
            &mut file,
            (page.number as usize + 1) * form.page_bytes,
            &page.bytes(form.page_bytes, form.is_old),
        );
    }
    file.extend(vector(SLACK_PAGES as usize * form.page_bytes));
    file
}

/// The trailer that a streaming backup appends behind the last page: it has the form of a header.
pub fn trailer(page_bytes: usize) -> Vec<u8> {
    let mut page = vec![0; page_bytes];
    put32(&mut page, 16, 99);
    put32(&mut page, 100, 12345);
    seal_header(&mut page);
    page
}

/// One generation of a log of segments: those with records, the shadow of the last, and empty ones.
pub fn segments(generation: u32, payloads: &[Vec<u8>], empty: usize) -> Vec<u8> {
    let count = 1 + payloads.len() + 1 + empty;
    let mut file = vec![0; 4096];
    put32(&mut file, 4, generation as usize);
    put16(&mut file, 8, 4096);
    put16(&mut file, 10, 1);
    put16(&mut file, 12, count);
    put(&mut file, 16, &[0, 0, 0, 1, 1, 100, 0, 0]);
    put32(&mut file, 32, 8);
    put32(&mut file, 36, 4000);
    put32(&mut file, 40, 5);
    put32(&mut file, 44, 815);
    put32(&mut file, 648, 16);
    put32(&mut file, 667, 3);
    seal_header(&mut file);
    for (index, payload) in (1_u32..).zip(payloads) {
        file.extend(segment(generation, index, payload));
    }
    let shadow = file[payloads.len() * 4096..].to_vec();
    file.extend(shadow);
    file.resize(count * 4096, 0);
    file
}

pub fn segment(generation: u32, index: u32, payload: &[u8]) -> Vec<u8> {
    let mut segment = vec![0; 4096];
    put16(&mut segment, 10, index as usize);
    put32(&mut segment, 12, generation as usize);
    put32(&mut segment, 36, 0x2000);
    put(&mut segment, 40, payload);
    let checksum = new(&segment, index, true);
    put(&mut segment, 0, &checksum.to_le_bytes());
    segment
}

/// XOR of the bytes in four lanes.
fn lanes(bytes: &[u8]) -> u32 {
    bytes.iter().enumerate().fold(0, |xor, (at, &byte)| xor ^ u32::from(byte) << (8 * (at % 4)))
}

/// One generation of a log of sectors: each flush is the records of whole sectors; the last has a shadow.
pub fn sectors(generation: u32, flushes: &[Vec<u8>], empty: usize) -> Vec<u8> {
    const SECTOR: usize = 512;
    const RECORD: usize = 22;
    let mut file = vec![0; 4096];
    let mut places = Vec::new();
    for flush in flushes {
        places.push(file.len());
        file.push(42);
        file.resize(file.len() + RECORD - 1, 0);
        file.extend(flush);
        file.resize(file.len().next_multiple_of(SECTOR), 0);
    }
    let end = file.len();
    for (index, &at) in places.iter().enumerate() {
        let next_at = places.get(index + 1).copied();
        let region_end = next_at.unwrap_or(end);
        let forward = region_end - at - RECORD;
        let next = next_at.map_or(0, |next| next - at - RECORD);
        let is_long = region_end - at > SECTOR;
        put32(&mut file, at + 5, forward);
        put32(&mut file, at + 9, next);
        file[at + 21] = if is_long { 0x9A } else { 0xD1 };
        let fields = forward as u32 ^ next as u32 ^ u32::from(file[at + 21]) ^ generation;
        if is_long {
            let short = 0xDEAD_C0DE ^ lanes(&file[at + RECORD..at + SECTOR]) ^ fields;
            put(&mut file, at + 17, &short.to_le_bytes());
        }
        let sum = 0xFEED_BEAF ^ lanes(&file[at + RECORD..region_end]) ^ fields;
        put(&mut file, at + 13, &sum.to_le_bytes());
    }
    let last = *places.last().expect("a log has records");
    if end - last == SECTOR {
        let mut shadow = file[last..end].to_vec();
        let sum = get32(&shadow, 13) ^ 0x5AD0_5EC7;
        put(&mut shadow, 13, &sum.to_le_bytes());
        file.extend(shadow);
    }
    file.resize(file.len() + empty * SECTOR, 0);
    let count = file.len() / SECTOR;
    let header = &mut file[..4096];
    put32(header, 4, generation as usize);
    put16(header, 8, SECTOR);
    put16(header, 10, 8);
    put16(header, 12, count);
    put32(header, 32, 7);
    put32(header, 36, 3704);
    put32(header, 40, 17);
    put32(header, 44, 815);
    put32(header, 667, 3);
    seal_header(header);
    file
}

/// Contiguous records: begin, insert, commit, repeated.
pub fn records(transactions: usize, data_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..transactions {
        bytes.extend([8, 1, 0, 0, number as u8, 0, 0, 0]);
        let mut insert = vec![0; 50];
        insert[0] = 29;
        put16(&mut insert, 44, 4);
        put16(&mut insert, 48, data_bytes);
        insert.resize(54 + data_bytes, number as u8);
        bytes.extend(insert);
        bytes.extend([9, 1, 0, 0, number as u8, 0, 0, 0]);
    }
    bytes
}

/// A checkpoint, both copies.
pub fn checkpoint(generation: u32) -> Vec<u8> {
    let mut copy = vec![0; 4096];
    put16(&mut copy, 14, 3);
    put32(&mut copy, 16, generation as usize);
    put32(&mut copy, 20, 815);
    put32(&mut copy, 667, 4);
    seal_header(&mut copy);
    [copy.clone(), copy].concat()
}

/// A flush map with that many pages behind its header.
pub fn flush_map(pages: u32) -> Vec<u8> {
    let mut file = vec![0; 8192];
    put32(&mut file, 4, 3);
    put32(&mut file, 667, 7);
    seal_header(&mut file);
    for number in 0..pages {
        let mut page = vector(8192);
        let checksum = new(&page, number, true);
        put(&mut page, 0, &checksum.to_le_bytes());
        file.extend(page);
    }
    file
}
