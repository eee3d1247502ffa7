//! Rows of the records of DR groups. They are kept as they are, and decoded on demand.

use super::Catalogue;
use crate::format::{
    CatalogueTable, DecodeError, GroupId, RowKey,
    row::{ReplicationHeadRow, ReplicationRecord},
};

const FIRST: RowKey = RowKey { table: CatalogueTable::Replication, id: 0, sub: 0 };
const LAST: RowKey = RowKey { table: CatalogueTable::Replication, id: u64::MAX, sub: u64::MAX };

/// The rows of one number of the table.
pub(crate) struct StoredReplicationRecord {
    /// `None` if the first part is missing or too short.
    pub group: Option<GroupId>,
    pub keys: Vec<RowKey>,
    pub record: Result<ReplicationRecord, DecodeError>,
}

impl Catalogue {
    /// All records, damaged ones included, in the order of their numbers.
    pub fn replication_records(&self) -> Vec<StoredReplicationRecord> {
        let rows: Vec<(RowKey, &[u8])> =
            self.others.range(FIRST..=LAST).map(|(key, bytes)| (*key, bytes.as_slice())).collect();
        let of_number = |rows: &[(RowKey, &[u8])]| {
            let head = rows.first().filter(|(key, _)| key.sub == 0);
            StoredReplicationRecord {
                group: head.and_then(|(_, bytes)| ReplicationHeadRow::group_of(bytes)),
                keys: rows.iter().map(|(key, _)| *key).collect(),
                record: ReplicationRecord::of_rows(rows.iter().copied()),
            }
        };
        rows.chunk_by(|(one, _), (other, _)| one.id == other.id).map(of_number).collect()
    }

    pub fn has_replication_rows(&self) -> bool {
        self.others.range(FIRST..=LAST).next().is_some()
    }
}
