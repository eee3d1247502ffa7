//! Copies: three numbers in code, of which the superblock stores one.
//!
//! Invariant: [`Copies::of`] alone derives the three numbers from the stored one, *log copies*.

use crate::format::{PoolGeometry, SegmentKind};

/// Copies of each kind of segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    pub log: usize,
    pub nodes: usize,
    /// Of data that is mirrored.
    pub data: usize,
}

impl Copies {
    /// The numbers of a pool.
    pub fn of(geometry: PoolGeometry) -> Self {
        let copies = usize::from(geometry.log_copies);
        Self { log: copies, nodes: copies, data: copies }
    }

    pub fn of_kind(self, kind: SegmentKind) -> usize {
        match kind {
            SegmentKind::Log => self.log,
            SegmentKind::Nodes => self.nodes,
            SegmentKind::Data => self.data,
        }
    }

    /// The largest of the three.
    pub fn most(self) -> usize {
        self.log.max(self.nodes).max(self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_on_disk_is_three_in_code() {
        let geometry = PoolGeometry { data_start_bytes: 1 << 20, slot_bytes: 1 << 20, log_copies: 2 };
        let copies = Copies::of(geometry);
        assert_eq!(copies, Copies { log: 2, nodes: 2, data: 2 });
        let copies = Copies { log: 3, ..copies };
        assert_eq!([SegmentKind::Log, SegmentKind::Nodes].map(|kind| copies.of_kind(kind)), [3, 2]);
        assert_eq!(copies.most(), 3);
    }
}
