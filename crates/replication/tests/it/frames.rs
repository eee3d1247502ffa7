//! Frames: each kind encodes and decodes, damage is found, and hostile bytes do no harm.

use crate::frame_bytes::{check, comparison, decode, examples, seal};
use array::format::VolumeId;
use expect_test::expect;
use proptest::prelude::*;
use replication::frame::{EncodedFrame, Frame, FrameFault, FrameKind, HEADER_BYTES};
use std::collections::BTreeSet;

#[test]
fn every_kind_encodes_and_decodes() {
    let mut kinds = BTreeSet::new();
    for frame in examples() {
        kinds.insert(frame.body.kind());
        let encoded = frame.encode();
        let bytes = encoded.concat();
        assert_eq!(bytes.len(), encoded.bytes());
        let again = decode(&bytes).expect("it is whole").expect("it decodes");
        assert_eq!(format!("{again:?}"), format!("{frame:?}"));
        assert!(check(&bytes));
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), FrameKind::ALL, "there is an example of each kind");
}

/// A frame with its blocks packed, as it goes over a line.
fn packed(frame: &EncodedFrame) -> Vec<u8> {
    let blocks: Vec<u8> = frame.blocks.iter().flat_map(|block| block.iter().copied()).collect();
    let packed = lz4_flex::block::compress(&blocks);
    let mut bytes = frame.head.clone();
    bytes[7] |= 0x80;
    bytes.extend((packed.len() as u32).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(packed);
    seal(&mut bytes);
    bytes
}

#[test]
fn packed_blocks_are_those_of_the_frame_and_damaged_ones_do_no_harm() {
    let mut seen = 0;
    for frame in examples() {
        let encoded = frame.encode();
        let mut bytes = packed(&encoded);
        if encoded.blocks.is_empty() {
            assert!(decode(&bytes).is_some_and(|frame| frame.is_err()), "there is nothing to pack");
            continue;
        }
        seen += 1;
        let again = decode(&bytes).expect("it is whole").expect("it decodes");
        assert_eq!(format!("{again:?}"), format!("{frame:?}"));
        for at in 0..bytes.len() {
            bytes[at] ^= 0x41;
            check(&bytes);
            bytes[at] ^= 0x41;
            assert!(decode(&bytes[..at]).is_none_or(|frame| frame.is_err()), "it was cut off");
        }
    }
    assert!(seen > 1, "records and blocks of passes have blocks");
}

#[test]
fn frames_of_a_comparison_keep_their_bytes() {
    let bytes = |body| Frame { channel: 5, sequence: 12, body }.encode().concat();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let all: Vec<String> = comparison(VolumeId([3; 16])).into_iter().map(|body| hex(&bytes(body))).collect();
    expect![[r#"
        5350445250000000050000000c0000000000000008000000c448501ed0565ca50200000000000000
        5350445251000000050000000c000000000000000a000000d0719d7050ee8d1a02000000000000000000
        5350445251000000050000000c000000000000000c000000762676bd461e1685020000000000000002006e6f
        5350445252000000050000000c000000000000003000000049ee0d75d7b3925e020000000000000003030303030303030303030303030303000100000000000058020000000000000001000000000000
        5350445253000000050000000c000000000000003e0000002f4a3cecdcd10ee00200000000000000000003000000010101010101010101010101010101010202020202020202020202020202020203030303030303030303030303030303
        5350445253000000050000000c0000000000000026000000d84cda92e6c4c5e60200000000000000180074686520736e617073686f74207761732064656c6574656400000000
        5350445254000000050000000c0000000000000008000000c448501e0ab1bb470200000000000000"#]].assert_eq(&all.join("\n"));
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    for frame in examples() {
        let good = frame.encode().concat();
        let step = if good.len() > 2000 { 37 } else { 1 };
        for at in (0..good.len()).step_by(step) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            // A length that grew makes the frame incomplete, but its header is checked first.
            let found = decode(&bad).expect("the header tells");
            assert!(found.is_err(), "byte {at} of {:?}", frame.body.kind());
        }
        for end in [0, 1, HEADER_BYTES - 1, HEADER_BYTES, good.len() - 1] {
            assert!(decode(&good[..end.min(good.len() - 1)]).is_none(), "it is not whole");
        }
    }
}

#[test]
fn frames_of_the_wrong_place_are_refused() {
    for frame in examples() {
        let good = frame.encode().concat();
        let fault = |at: usize, bytes: &[u8]| {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            seal(&mut bad);
            decode(&bad).expect("the header tells").expect_err("it is refused").fault
        };
        let other_sequence = u64::from(frame.sequence == 0);
        assert_eq!(fault(12, &other_sequence.to_le_bytes()), FrameFault::Place);
        if frame.body.kind() != FrameKind::Refusal {
            let other_channel = u32::from(frame.channel == 0);
            assert_eq!(fault(8, &other_channel.to_le_bytes()), FrameFault::Place);
        }
        assert_eq!(fault(4, &999_u16.to_le_bytes()), FrameFault::UnknownKind(999));
        assert_eq!(fault(20, &u32::MAX.to_le_bytes()), FrameFault::TooLong);
        assert_eq!(fault(6, &u16::MAX.to_le_bytes()), FrameFault::TooLong);
        assert_eq!(fault(0, b"HTTP"), FrameFault::Magic);
    }
}

proptest! {
    #![proptest_config(crate::values::cases(20_000))]

    /// Changes within a frame whose checksums are made right again: they reach the decoders of bodies.
    #[test]
    fn changed_frames_do_no_harm(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        thread_local! {
            static GOOD: Vec<(usize, Vec<u8>)> =
                examples().iter().map(|frame| (frame.encode().head.len(), frame.encode().concat())).collect();
        }
        let (head, mut bytes) = GOOD.with(|good| good[which.index(good.len())].clone());
        for (at, value) in changes {
            bytes[at.index(head)] = value;
        }
        if let Some(cut) = cut {
            let body_bytes = cut.index(head - HEADER_BYTES + 1);
            bytes.drain(HEADER_BYTES + body_bytes..head);
            bytes[20..24].copy_from_slice(&(body_bytes as u32).to_le_bytes());
        }
        check(&bytes);
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes);
    }
}
