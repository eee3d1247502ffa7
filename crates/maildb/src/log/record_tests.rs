//! Log records survive a round trip; decoding never panics, whatever the bytes.

use super::{
    LogRecord, LogRecordError, NodeOperation, PageChange, PageOperation, PageStamp, RestructureKind,
};
use crate::format::{
    header::{LogTime, Signature},
    page_size::{DbTime, ObjectId, PageNumber},
};
use proptest::{collection::vec, prelude::*};

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![9 => vec(any::<u8>(), 0..200), 1 => vec(any::<u8>(), 30_000..33_000)]
}

fn signature() -> impl Strategy<Value = Signature> {
    (any::<u32>(), 0..4_000_000_000_000_u64, any::<[u8; 16]>()).prop_map(|(random, ms, computer)| Signature {
        random,
        created: LogTime::from_unix_ms(ms),
        computer,
    })
}

fn operation() -> impl Strategy<Value = NodeOperation> {
    let first = (any::<u16>(), any::<u8>(), any::<u32>(), any::<u64>(), any::<u64>(), any::<u32>());
    let second = (any::<u8>(), any::<u16>(), any::<u8>(), any::<u32>(), any::<u32>(), any::<u32>());
    (first, second).prop_map(
        |(
            (procid, dbid, page, dbtime, dbtime_before, transaction),
            (level, slot, flags, rceid, root, object),
        )| {
            NodeOperation {
                procid,
                dbid,
                page: PageNumber(page),
                dbtime: DbTime(dbtime),
                dbtime_before: DbTime(dbtime_before),
                transaction,
                level,
                slot,
                flags,
                rceid,
                tree_root: PageNumber(root),
                object: ObjectId(object),
            }
        },
    )
}

fn page_operation() -> impl Strategy<Value = PageOperation> {
    prop_oneof![
        bytes().prop_map(PageOperation::Image),
        (any::<u16>(), any::<u8>(), bytes(), bytes()).prop_map(|(slot, node_flags, key, data)| {
            PageOperation::InsertNode { slot, node_flags, key, data }
        }),
        (any::<u16>(), bytes()).prop_map(|(slot, data)| PageOperation::ReplaceData { slot, data }),
        any::<(u16, u16)>().prop_map(|(slot, count)| PageOperation::RemoveNodes { slot, count }),
        bytes().prop_map(PageOperation::SetExternalHeader),
        any::<(u32, u32)>().prop_map(|(previous, next)| PageOperation::SetSiblings { previous, next }),
        any::<u32>().prop_map(PageOperation::SetFlags),
    ]
}

fn page_change() -> impl Strategy<Value = PageChange> {
    (any::<u32>(), any::<u64>(), vec(page_operation(), 0..4)).prop_map(|(page, dbtime_before, operations)| {
        PageChange { page: PageNumber(page), dbtime_before: DbTime(dbtime_before), operations }
    })
}

fn record() -> impl Strategy<Value = LogRecord> {
    let time = || (0..4_000_000_000_000_u64).prop_map(LogTime::from_unix_ms);
    let kind = prop_oneof![
        Just(RestructureKind::Split),
        Just(RestructureKind::Merge),
        Just(RestructureKind::CreateTree),
        Just(RestructureKind::Space),
    ];
    prop_oneof![
        time().prop_map(|time| LogRecord::Init { time }),
        time().prop_map(|time| LogRecord::Term { time }),
        (any::<u8>(), any::<String>(), signature())
            .prop_map(|(dbid, name, signature)| LogRecord::CreateDatabase { dbid, name, signature }),
        (any::<u8>(), any::<String>(), signature())
            .prop_map(|(dbid, name, signature)| LogRecord::AttachDatabase { dbid, name, signature }),
        any::<u8>().prop_map(|dbid| LogRecord::DetachDatabase { dbid }),
        any::<(u8, u32)>().prop_map(|(dbid, pages)| LogRecord::ExtendDatabase { dbid, pages }),
        any::<(u32, u16)>().prop_map(|(transaction, procid)| LogRecord::Begin { transaction, procid }),
        any::<(u32, u16)>().prop_map(|(transaction, procid)| LogRecord::Commit { transaction, procid }),
        any::<(u32, u16)>().prop_map(|(transaction, procid)| LogRecord::Rollback { transaction, procid }),
        (operation(), bytes(), bytes()).prop_map(|(operation, key, data)| LogRecord::Insert {
            operation,
            key,
            data
        }),
        (operation(), bytes(), bytes(), bytes()).prop_map(|(operation, key, old_data, new_data)| {
            LogRecord::Replace { operation, key, old_data, new_data }
        }),
        (operation(), bytes(), bytes()).prop_map(|(operation, key, old_data)| LogRecord::Delete {
            operation,
            key,
            old_data
        }),
        (kind, any::<(u8, u64, u16, u32)>(), vec(page_change(), 0..4)).prop_map(
            |(kind, (dbid, dbtime, procid, transaction), changes)| LogRecord::Restructure {
                kind,
                dbid,
                dbtime: DbTime(dbtime),
                procid,
                transaction,
                changes,
            }
        ),
        any::<String>().prop_map(|text| LogRecord::Backup { text }),
        (any::<u8>(), vec(any::<(u32, u64, u64)>(), 0..200)).prop_map(|(dbid, stamps)| {
            let stamp =
                |(page, dbtime, hash)| PageStamp { page: PageNumber(page), dbtime: DbTime(dbtime), hash };
            LogRecord::PageStamps { dbid, stamps: stamps.into_iter().map(stamp).collect() }
        }),
    ]
}

proptest! {
    #[test]
    fn every_record_survives_a_round_trip_and_takes_only_its_own_bytes(
        record in record(), behind in vec(any::<u8>(), 0..20),
    ) {
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        let length = encoded.len();
        encoded.extend_from_slice(&behind);
        prop_assert_eq!(LogRecord::decode(&encoded), Ok((record, length)));
    }

    #[test]
    fn a_record_cut_anywhere_is_an_error(record in record(), cut: prop::sample::Index) {
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        let cut = cut.index(encoded.len());
        prop_assert_eq!(LogRecord::decode(&encoded[..cut]), Err(LogRecordError::Truncated));
    }

    #[test]
    fn no_bytes_make_decoding_panic(mut record_bytes in vec(any::<u8>(), 1..300), kind in 0..256_usize) {
        // The type byte selects the decoder: every type is tried equally often.
        record_bytes[0] = kind as u8;
        if let Ok((record, length)) = LogRecord::decode(&record_bytes) {
            prop_assert!(length <= record_bytes.len());
            let mut again = Vec::new();
            record.encode(&mut again);
            prop_assert_eq!(LogRecord::decode(&again).map(|(record, _)| record), Ok(record));
        }
    }
}

#[test]
fn heads_have_the_lengths_and_type_numbers_of_the_format() {
    let check = |record: LogRecord, kind: u8, length: usize| {
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        assert_eq!((encoded[0], encoded.len()), (kind, length), "{record:?}");
    };
    let operation = NodeOperation {
        procid: 1,
        dbid: 1,
        page: PageNumber(2),
        dbtime: DbTime(3),
        dbtime_before: DbTime(2),
        transaction: 4,
        level: 0,
        slot: 5,
        flags: 0,
        rceid: 6,
        tree_root: PageNumber(7),
        object: ObjectId(8),
    };
    let time = LogTime::from_unix_ms(0);
    check(LogRecord::Begin { transaction: 1, procid: 2 }, 8, 8);
    check(LogRecord::Commit { transaction: 1, procid: 2 }, 9, 8);
    check(LogRecord::Init { time }, 49, 576);
    check(LogRecord::Term { time }, 50, 26);
    check(LogRecord::Backup { text: String::new() }, 60, 35);
    check(LogRecord::Insert { operation, key: vec![1], data: vec![2, 3] }, 29, 53);
    check(LogRecord::Replace { operation, key: vec![1], old_data: vec![], new_data: vec![] }, 33, 51);
    assert_eq!(LogRecord::decode(&[200]), Err(LogRecordError::Truncated));
    assert_eq!(LogRecord::decode(&[77, 0, 0]), Err(LogRecordError::UnknownType(77)));
}
