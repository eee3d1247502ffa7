//! Invalid bytes: every input is either refused, or decodes to a value that encodes to these very bytes.

use crate::{
    examples,
    image::{self, Image},
};
use array::format::{
    BlockLocation, DecodeError, DecodeFault, LogRecord, SlotHeader, Structure, SummaryBlock, Superblock,
    TreeNode,
    checkpoint::Checkpoint,
    row::{ImportRow, ReplicationHeadRow, ReplicationPartRow, SiteHeadRow, SitePartRow, WithholdingRow},
};
use proptest::{collection::vec, prelude::*, sample::Index};

#[test]
fn every_truncation_is_refused() {
    for image in image::all() {
        for length in 0..image.bytes.len() {
            let refused = (image.again)(&image.bytes[..length]);
            assert!(refused.is_err(), "{} cut to {length} bytes is taken", image.name);
        }
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    for image in image::all().into_iter().filter(|image| image.is_sealed) {
        every_flip(&image, |at, flipped| {
            assert!((image.again)(flipped).is_err(), "{}, bit {at}: taken", image.name);
        });
    }
}

#[test]
fn a_flipped_bit_under_a_right_checksum_is_refused_or_a_value_with_these_bytes() {
    for image in image::all() {
        let mut taken = 0;
        every_flip(&image, |at, flipped| {
            taken += u32::from(is_taken_as_it_is(&image, &format!("bit {at}"), flipped));
        });
        assert!(taken > 0 || !image.is_sealed, "{}: the checksum was not put right", image.name);
    }
}

/// Fields at their lowest and highest values provoke arithmetic overflows.
#[test]
fn a_field_of_zeroes_or_ones_under_a_right_checksum_is_refused_or_a_value_with_these_bytes() {
    for image in image::all() {
        for (width, filled) in [1, 2, 4, 8].into_iter().flat_map(|width| [(width, 0), (width, 0xff)]) {
            for at in (0..image.bytes.len() - width + 1).step_by(width) {
                let mut changed = image.bytes.clone();
                changed[at..at + width].fill(filled);
                is_taken_as_it_is(&image, &format!("byte {at}"), &mut changed);
            }
        }
    }
}

#[test]
fn bytes_behind_a_structure_are_not_looked_at() {
    let is_row = |image: &Image| image.name.starts_with("row");
    for image in image::all() {
        let mut longer = image.bytes.clone();
        longer.extend([0xa5; 5000]);
        let taken = (image.again)(&longer);
        if is_row(&image) {
            assert!(taken.is_err(), "{}: a row is all of its bytes", image.name);
        } else {
            assert_eq!(taken.as_ref(), Ok(&image.bytes), "{}", image.name);
        }
    }
}

#[test]
fn a_newer_version_is_refused_by_its_number_whatever_its_checksum() {
    for image in image::all().into_iter().filter(|image| image.is_sealed) {
        let mut newer = image.bytes.clone();
        newer[8] = 2;
        let Err(DecodeError { at: 8, fault: DecodeFault::Version(2), .. }) = (image.again)(&newer) else {
            panic!("{}: version 2 is not refused as such", image.name);
        };
    }
}

#[test]
fn a_refusal_says_what_and_where() {
    let mut bytes = crate::examples::record().encode();
    bytes[4095] ^= 1;
    let refusal = LogRecord::decode(&bytes).unwrap_err();
    assert_eq!((refusal.structure, refusal.at), (Structure::LogRecord, 12));
    let text = refusal.to_string();
    assert!(text.starts_with("log record, byte 12: checksum "), "{text}");
    assert_eq!(
        BlockLocation::decode(&[9; 16]).unwrap_err().to_string(),
        "location, byte 0: location kind is 9; 1 to 4"
    );
}

#[test]
fn failure_sets_in_rows_and_in_features_must_say_the_same() {
    let images = image::all();
    let refusal = |name: &str, at: usize, byte: u8| {
        let image = images.iter().find(|image| image.name == name).expect("it is one of them");
        let mut bytes = image.bytes.clone();
        bytes[at] = byte;
        (image.reseal)(&mut bytes);
        (image.again)(&bytes).expect_err("it contradicts itself").to_string()
    };
    let set_of_row = |row: usize| 256 + 96 * row + 92;
    let cases = [
        // The feature without a row that has a set, and the other way round.
        ("superblock-1", 73, 0x80, "feature 15 is set exactly if"),
        ("superblock-domains-1", set_of_row(0), 1, "feature 15 is set exactly if"),
        ("superblock-sets-1", 73, 0x40, "feature 15 is set exactly if"),
        ("superblock-sets-1", 56, 0, "only if these are wanted"),
        ("superblock-sets-1", set_of_row(4), 1, "is in no failure set"),
        ("superblock-sets-1", set_of_row(0) + 1, 1, "zero"),
    ];
    for (name, at, byte, problem) in cases {
        let said = refusal(name, at, byte);
        assert!(said.contains(problem), "{name} with {byte} at {at}: {said}");
    }
}

#[test]
fn a_withheld_client_that_makes_no_sense_is_refused() {
    let (port, nbd) = (examples::withholding_row().encode(), examples::nbd_withholding_row().encode());
    let changed = |bytes: &[u8], at: usize, byte: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = byte;
        WithholdingRow::decode(&bytes).expect_err("it makes no sense").to_string()
    };
    let cases = [
        (changed(&port, 2, 3), "client is 3; 1 or 2"),
        (changed(&port, 2, 1), "name length is 240"),
        (changed(&nbd, 2, 2), "name length is 0"),
        (changed(&port, 3, 239), "name length is 239"),
        (changed(&port, 20, b'\n'), "UTF-8 without control characters"),
        (changed(&port, 20, 0xff), "UTF-8 without control characters"),
        (changed(&nbd, 5, 1), "zero"),
        (changed(&nbd, 0, 2), "version"),
        (WithholdingRow::decode(&[&port[..], b"x"].concat()).unwrap_err().to_string(), "name length is 240"),
    ];
    for (said, problem) in cases {
        assert!(said.contains(problem), "{said}");
    }
}

#[test]
fn a_source_of_an_import_that_makes_no_sense_is_refused() {
    let row = examples::import_row().encode();
    let changed = |at: usize, byte: u8| {
        let mut bytes = row.clone();
        bytes[at] = byte;
        ImportRow::decode(&bytes).expect_err("it makes no sense").to_string()
    };
    let short = &row[..16];
    let cases = [
        (changed(0, 2), "version"),
        (changed(2, 0xbf), "source length is 959"),
        (changed(5, 1), "zero"),
        (ImportRow::decode(short).unwrap_err().to_string(), "source length is 960; 1 to 960"),
        (ImportRow::decode(&[&row[..], b"x"].concat()).unwrap_err().to_string(), "source length is 960"),
    ];
    for (said, problem) in cases {
        assert!(said.contains(problem), "{said}");
    }
}

/// Fixes the checksums, then decodes: true if the bytes are accepted, and encode to themselves.
fn is_taken_as_it_is(image: &Image, change: &str, bytes: &mut [u8]) -> bool {
    (image.reseal)(bytes);
    let Ok(again) = (image.again)(bytes) else { return false };
    assert!(again == bytes, "{}, {change}: encodes to other bytes", image.name);
    true
}

fn every_flip(image: &Image, mut check: impl FnMut(usize, &mut [u8])) {
    for bit in 0..image.bytes.len() * 8 {
        let mut flipped = image.bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        check(bit, &mut flipped);
    }
}

proptest! {
    #![proptest_config(crate::values::cases(1000))]

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in vec(any::<u8>(), 0..9000)) {
        let _ = Superblock::decode(&bytes);
        let _ = Checkpoint::decode(&bytes);
        let _ = SlotHeader::decode(&bytes);
        let _ = SummaryBlock::decode(&bytes);
        let _ = LogRecord::decode(&bytes);
        let _ = BlockLocation::decode(&bytes);
        let _ = TreeNode::decode(&bytes);
    }

    #[test]
    fn no_change_under_a_right_checksum_makes_a_decoder_panic(
        which: Index, changes in vec((any::<Index>(), any::<u8>()), 1..12),
    ) {
        let images = image::all();
        let image = &images[which.index(images.len())];
        let mut bytes = image.bytes.clone();
        for (at, byte) in changes {
            // Most fields stand at the front.
            let front = if byte % 2 == 0 { 400.min(bytes.len()) } else { bytes.len() };
            bytes[at.index(front)] = byte;
        }
        (image.reseal)(&mut bytes);
        if let Ok(again) = (image.again)(&bytes) {
            prop_assert!(again == bytes, "{}", image.name);
        }
    }
}

#[test]
fn rows_of_a_site_that_make_no_sense_are_refused() {
    let (head, part) = (examples::site_head_row().encode(), examples::site_part_row().encode());
    let changed = |at: usize, bytes: &[u8]| {
        let mut forged = head.clone();
        forged[at..at + bytes.len()].copy_from_slice(bytes);
        SiteHeadRow::decode(&forged).expect_err("it makes no sense").to_string()
    };
    let part_of = |bytes: &[u8]| SitePartRow::decode(bytes).expect_err("it makes no sense").to_string();
    let cases = [
        (changed(0, &[2]), "version"),
        (changed(3, &[1]), "zero"),
        (changed(8, &[0; 16]), "UUID of the site is not zero"),
        (changed(24, &[0; 8]), "generation is 0"),
        (changed(31, &[0x80]), "1 to 2^62"),
        (changed(32, &[0; 8]), "set is 0"),
        (changed(48, &[0; 4]), "length is 0"),
        (changed(48, &[1, 0, 0x40, 0]), "length is 4194305"),
        (SiteHeadRow::decode(&[&head[..], b"x"].concat()).unwrap_err().to_string(), "goes on"),
        (part_of(&part[..8]), "length is 27; 1 to 1016"),
        (part_of(&[1, 0, 0, 0, 0, 0, 0, 0]), "length is 0; 1 to 1016"),
        (part_of(&[&[1, 0, 0xf9, 3, 0, 0, 0, 0], &[0; 1017][..]].concat()), "length is 1017; 1 to 1016"),
        (part_of(&[&part[..4], &[1], &part[5..]].concat()), "zero"),
    ];
    for (said, problem) in cases {
        assert!(said.contains(problem), "{said}, not {problem}");
    }
}

#[test]
fn rows_of_replication_that_make_no_sense_are_refused() {
    let head = examples::replication_head_row().encode();
    let changed = |at: usize, bytes: &[u8]| {
        let mut forged = head.clone();
        forged[at..at + bytes.len()].copy_from_slice(bytes);
        ReplicationHeadRow::decode(&forged).expect_err("it makes no sense").to_string()
    };
    let head_of =
        |bytes: &[u8]| ReplicationHeadRow::decode(bytes).expect_err("it makes no sense").to_string();
    let part_of =
        |bytes: &[u8]| ReplicationPartRow::decode(bytes).expect_err("it makes no sense").to_string();
    let cases = [
        (changed(0, &[2]), "version"),
        (changed(2, &[1]), "number of parts is 1"),
        (changed(2, &[0xff, 0xff]), "number of parts is 65535"),
        (changed(4, &[0; 4]), "length is 0; 1 to 65536"),
        (changed(4, &[1, 0, 1, 0]), "length is 65537; 1 to 65536"),
        (changed(4, &[0xff; 4]), "length is 4294967295"),
        (changed(8, &[0; 16]), "UUID of the group is not zero"),
        (changed(28, &[1]), "zero"),
        (head_of(&head[..head.len() - 1]), "the first part is full"),
        (head_of(&[&head[..], b"x"].concat()), "the first part is full"),
        (part_of(&[1, 0, 0, 0, 0, 0, 0, 0]), "length is 0; 1 to 1016"),
        (part_of(&[1, 0, 2, 0, 0, 0, 0, 0, 7]), "length is 2; 1 to 1016"),
        (part_of(&[&[1, 0, 0xf9, 3, 0, 0, 0, 0], &[0; 1017][..]].concat()), "length is 1017; 1 to 1016"),
        (part_of(&[1, 0, 1, 0, 1, 0, 0, 0, 7]), "zero"),
    ];
    for (said, problem) in cases {
        assert!(said.contains(problem), "{said}, not {problem}");
    }
}
