//! The sidecar's bytes: compatible with existing files, and accepted only whole and in their place.

use super::{
    Stamp,
    blocks::{
        BLOCK_BYTES, HEADS_BYTES, Head, JOURNAL_STAMPS, JournalBlock, StampFlush, TABLE_STAMPS,
        decode_table_block, encode_table_block, is_ours,
    },
    hash::StampKey,
};
use crate::{
    format::{
        header::{LogPosition, LogTime, Signature},
        page_size::{DbTime, PageNumber, PageSize},
    },
    log::PageStamp,
};
use expect_test::{Expect, expect};
use proptest::prelude::*;

fn flush() -> StampFlush {
    let position = LogPosition { generation: 9, segment: 8, offset: 7 };
    StampFlush { number: 6, position, dbtime: DbTime(5) }
}

fn head() -> Head {
    Head {
        page_size: PageSize::Kib8,
        signature: Signature { random: 1, created: LogTime::from_unix_ms(2_000), computer: [3; 16] },
        key: StampKey::new([0x1111, 0x2222]),
        begin: LogPosition { generation: 4, segment: 5, offset: 6 },
        snapshot: 3,
        flush: flush(),
        area_at: HEADS_BYTES,
        table_pages: 300,
        journal_blocks: 64,
    }
}

fn stamp(number: usize) -> Stamp {
    Stamp { dbtime: DbTime(100 + number as u64), hash: 0xABCD_0000 + number as u64 }
}

fn table_block() -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    encode_table_block(&mut block, 3, 1, (0..2).map(stamp));
    block
}

fn journal() -> JournalBlock {
    let entry = |number| {
        let Stamp { dbtime, hash } = stamp(number);
        PageStamp { page: PageNumber(number as u32 + 1), dbtime, hash }
    };
    JournalBlock { flush: flush(), is_last: true, stamps: (0..2).map(entry).collect() }
}

fn journal_block() -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    journal().encode(&mut block, 3, 2);
    block
}

/// Prints the rows of 16 bytes that are not zero.
fn check(block: &[u8], expected: Expect) {
    let mut rows = String::new();
    for (row, bytes) in block.chunks(16).enumerate().filter(|(_, bytes)| bytes.iter().any(|&byte| byte != 0))
    {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        rows += &format!("{:4} {}\n", row * 16, hex.join(" "));
    }
    expected.assert_eq(&rows);
}

#[test]
fn blocks_encode_to_the_bytes_of_existing_files() {
    check(
        &head().encode(),
        expect![[r#"
           0 53 50 4e 44 4c 50 53 48 01 00 00 00 00 20 00 00
          16 01 00 00 00 02 00 00 01 01 46 01 00 03 03 03 03
          32 03 03 03 03 03 03 03 03 03 03 03 03 00 00 00 00
          48 11 11 00 00 00 00 00 00 22 22 00 00 00 00 00 00
          64 06 00 05 00 04 00 00 00 03 00 00 00 00 00 00 00
          80 06 00 00 00 00 00 00 00 07 00 08 00 09 00 00 00
          96 05 00 00 00 00 00 00 00 00 20 00 00 00 00 00 00
         112 2c 01 00 00 40 00 00 00 00 00 00 00 00 00 00 00
        4080 00 00 00 00 00 00 00 00 c2 e0 c3 06 1f 84 60 88
    "#]],
    );
    check(
        &table_block(),
        expect![[r#"
           0 53 50 4e 44 4c 50 53 54 03 00 00 00 00 00 00 00
          16 01 00 00 00 00 00 00 00 64 00 00 00 00 00 00 00
          32 00 00 cd ab 00 00 00 00 65 00 00 00 00 00 00 00
          48 01 00 cd ab 00 00 00 00 00 00 00 00 00 00 00 00
        4080 00 00 00 00 00 00 00 00 31 5e 2d 9b 56 07 7d b7
    "#]],
    );
    check(
        &journal_block(),
        expect![[r#"
           0 53 50 4e 44 4c 50 53 4a 03 00 00 00 00 00 00 00
          16 02 00 00 00 02 00 01 00 06 00 00 00 00 00 00 00
          32 07 00 08 00 09 00 00 00 05 00 00 00 00 00 00 00
          48 01 00 00 00 64 00 00 00 00 00 00 00 00 00 cd ab
          64 00 00 00 00 02 00 00 00 65 00 00 00 00 00 00 00
          80 01 00 cd ab 00 00 00 00 00 00 00 00 00 00 00 00
        4080 00 00 00 00 00 00 00 00 e9 2e 32 39 c5 4e 01 4a
    "#]],
    );
}

#[test]
fn blocks_read_back_as_they_were_and_only_in_their_place() {
    let size = head().area_end();
    let bytes = head().encode();
    assert_eq!(Head::decode(&bytes, 1, size), Some(head()));
    assert_eq!(Head::decode(&bytes, 0, size), None, "the other copy's place");
    assert_eq!(Head::decode(&bytes, 1, size - 1), None, "an area beyond the end of the file");
    let stamps = decode_table_block(&table_block(), 3, 1).map(Iterator::collect::<Vec<_>>);
    let stamps = stamps.expect("it is that block");
    assert_eq!((&stamps[..2], stamps.len()), (&[stamp(0), stamp(1)][..], TABLE_STAMPS));
    assert!(stamps[2..].iter().all(|stamp| !stamp.is_known()));
    assert_eq!(JournalBlock::decode(&journal_block(), 3, 2), Some(journal()));
    for (snapshot, index) in [(2, 1), (3, 0), (4, 2), (3, 3)] {
        assert!(decode_table_block(&table_block(), snapshot, index).is_none());
        assert_eq!(JournalBlock::decode(&journal_block(), snapshot, index), None);
    }
    assert!(decode_table_block(&journal_block(), 3, 2).is_none(), "a block of the other kind");
    assert_eq!(JournalBlock::decode(&table_block(), 3, 1), None);
    let full = JournalBlock { stamps: vec![journal().stamps[0]; JOURNAL_STAMPS], ..journal() };
    let mut block = vec![0; BLOCK_BYTES];
    full.encode(&mut block, 3, 2);
    assert_eq!(JournalBlock::decode(&block, 3, 2), Some(full));
}

#[test]
fn no_flipped_bit_is_accepted() {
    let (head_bytes, table, journal) = (head().encode(), table_block(), journal_block());
    for bit in 0..BLOCK_BYTES * 8 {
        let flipped = |block: &[u8]| {
            let mut block = block.to_vec();
            block[bit / 8] ^= 1 << (bit % 8);
            block
        };
        assert_eq!(Head::decode(&flipped(&head_bytes), 1, u64::MAX), None, "bit {bit} of the head");
        assert!(decode_table_block(&flipped(&table), 3, 1).is_none(), "bit {bit} of the table");
        assert_eq!(JournalBlock::decode(&flipped(&journal), 3, 2), None, "bit {bit} of the journal");
    }
}

proptest! {
    /// Also covers blocks with a valid digest and arbitrary contents.
    #[test]
    fn no_bytes_make_decoding_panic(
        mut block in proptest::collection::vec(any::<u8>(), BLOCK_BYTES..=BLOCK_BYTES),
        kind in 0..3_usize, size in any::<u64>(), seals in any::<bool>(),
    ) {
        let magic = [b"SPNDLPSH", b"SPNDLPST", b"SPNDLPSJ"][kind];
        block[..8].copy_from_slice(magic);
        block[8..12].copy_from_slice(&1_u32.to_le_bytes());
        if seals {
            block[BLOCK_BYTES - 8..].fill(0);
            let digest = StampKey::new([0, 0]).hash(PageNumber(0), &block);
            block[BLOCK_BYTES - 8..].copy_from_slice(&digest.to_le_bytes());
        }
        let snapshot = u64::from_le_bytes(*block[8..].first_chunk().expect("long enough"));
        let index = u32::from_le_bytes(*block[16..].first_chunk().expect("long enough"));
        let _ = Head::decode(&block, 0, size);
        let _ = Head::decode(&block, 1, size);
        let is_table = decode_table_block(&block, snapshot, index).is_some();
        prop_assert_eq!(is_table, seals && kind == 1);
        let _ = JournalBlock::decode(&block, snapshot, index);
    }
}

/// The smallest sector of a drive: the unit that a power cut keeps or loses.
const SECTOR_BYTES: usize = 512;

#[test]
fn a_partly_written_head_is_recognised_by_any_of_its_sectors() {
    let (whole, sectors) = (head().encode(), BLOCK_BYTES / SECTOR_BYTES);
    for there in 0..1u32 << sectors {
        let mut start = vec![0; HEADS_BYTES as usize];
        for sector in (0..sectors).filter(|sector| there >> sector & 1 == 1) {
            let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            start[range.clone()].copy_from_slice(&whole[range]);
        }
        assert!(is_ours(&start), "sectors {there:08b}");
    }
    let mut other = vec![0; HEADS_BYTES as usize];
    other[SECTOR_BYTES] = 1;
    assert!(!is_ours(&other), "a file of something else");
}
