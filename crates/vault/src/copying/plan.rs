//! Plans of copies: the chunks of a volume that are read.

use crate::{
    VaultResult,
    planted::{self, VaultBug},
    record::VolumeRecord,
};
use std::ops::Range;
use world::{ByteCount, ByteOffset, IoError, IoErrorKind, Sparse};

/// A range that may differ from the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedRange {
    pub at: u64,
    pub length: u64,
    /// It reads as zeroes now.
    pub is_zero: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkPlan {
    /// As in the base.
    Keep,
    /// Zeroes, without being read.
    Zero,
    Read,
}

/// A byte for each chunk of a volume: 16 MiB for a TiB.
pub struct VolumePlan(Vec<ChunkPlan>);

impl VolumePlan {
    /// Everything, but for holes.
    pub async fn of_whole(record: &VolumeRecord, holes: Option<&dyn Sparse>) -> VaultResult<Self> {
        let size = record.size_bytes;
        let Some(holes) = holes else {
            return Ok(Self(vec![ChunkPlan::Read; record.layout.chunks(size)]));
        };
        let mut plan = Self(vec![ChunkPlan::Zero; record.layout.chunks(size)]);
        let mut at = 0;
        while at < size {
            let extents = holes.extents(ByteOffset(at), ByteCount(size - at)).await?;
            let before = at;
            for extent in extents {
                let length = extent.length.0.min(size - at);
                if !extent.is_zero {
                    plan.read(record, at, length);
                }
                at += length;
            }
            if at == before {
                let story = format!("{}: no extents at {at}", record.path());
                return Err(IoError::new(IoErrorKind::Damaged, story).into());
            }
        }
        Ok(plan)
    }

    /// The changes since `base`.
    pub fn of_difference(record: &VolumeRecord, base: &VolumeRecord, ranges: &[ChangedRange]) -> Self {
        let (size, layout) = (record.size_bytes, record.layout);
        let chunk = u64::from(layout.chunk_bytes);
        let mut plan = Self(vec![ChunkPlan::Keep; layout.chunks(size)]);
        // Beyond the base there is nothing but what the difference names.
        let whole_in_base = (base.size_bytes / chunk) as usize;
        let beyond = layout.chunks(base.size_bytes);
        if size > base.size_bytes && beyond > whole_in_base {
            plan.0[whole_in_base] = ChunkPlan::Read;
        }
        if let Some(beyond) = plan.0.get_mut(beyond..) {
            beyond.fill(ChunkPlan::Zero);
        }
        // A last chunk that is shorter than it was.
        if size < base.size_bytes && !size.is_multiple_of(chunk) {
            plan.0[(size / chunk) as usize] = ChunkPlan::Read;
        }
        // Zeroes first: of a chunk with both, data decide.
        for range in ranges.iter().filter(|range| range.is_zero) {
            plan.zero(record, range);
        }
        for range in ranges.iter().filter(|range| !range.is_zero) {
            plan.read(record, range.at, range.length);
        }
        plan
    }

    fn zero(&mut self, record: &VolumeRecord, range: &ChangedRange) {
        let (size, layout) = (record.size_bytes, record.layout);
        let end = range.at.saturating_add(range.length).min(size);
        if range.at >= end {
            return;
        }
        let chunk = u64::from(layout.chunk_bytes);
        for number in range.at / chunk..end.div_ceil(chunk) {
            let bytes = layout.chunk_range(number, size);
            let is_covered = range.at <= bytes.start && bytes.end <= end;
            let plan = &mut self.0[number as usize];
            *plan = match *plan {
                ChunkPlan::Read => ChunkPlan::Read,
                _ if is_covered => ChunkPlan::Zero,
                // The rest of a chunk of zeroes beyond the base is zeroes.
                ChunkPlan::Zero => ChunkPlan::Zero,
                ChunkPlan::Keep => ChunkPlan::Read,
            };
        }
    }

    fn read(&mut self, record: &VolumeRecord, at: u64, length: u64) {
        let chunk = u64::from(record.layout.chunk_bytes);
        let end = at.saturating_add(length).min(record.size_bytes);
        if at >= end {
            return;
        }
        let mut last = end.div_ceil(chunk);
        if planted::is(VaultBug::ChangeCutShort) {
            last = (end / chunk).max(at / chunk);
        }
        self.0[(at / chunk) as usize..last as usize].fill(ChunkPlan::Read);
    }

    /// The chunks of one folder.
    pub fn of_folder(&self, record: &VolumeRecord, range: Range<u64>) -> &[ChunkPlan] {
        let first = (range.start / u64::from(record.layout.chunk_bytes)) as usize;
        &self.0[first..first + record.layout.chunks(range.end - range.start)]
    }

    pub fn bytes_to_read(&self, record: &VolumeRecord) -> u64 {
        let to_read = self.0.iter().filter(|plan| **plan == ChunkPlan::Read).count() as u64;
        (to_read * u64::from(record.layout.chunk_bytes)).min(record.size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::SliceLayout;
    use ChunkPlan::{Keep, Read, Zero};

    fn record(size_bytes: u64) -> VolumeRecord {
        let layout = SliceLayout { chunk_bytes: 4096, slice_bytes: 8192, folder_bytes: 16384 };
        let [pool, volume, volume_id, snapshot, snapshot_id] = ["p", "v", "1", "s", "2"].map(str::to_owned);
        VolumeRecord { pool, volume, volume_id, snapshot, snapshot_id, size_bytes, block_bytes: 512, layout }
    }

    fn plan(size: u64, base: u64, ranges: &[(u64, u64, bool)]) -> Vec<ChunkPlan> {
        let range = |&(at, length, is_zero)| ChangedRange { at, length, is_zero };
        let ranges: Vec<ChangedRange> = ranges.iter().map(range).collect();
        VolumePlan::of_difference(&record(size), &record(base), &ranges).0
    }

    #[test]
    fn chunks_that_a_range_touches_are_read_and_zeroes_are_not() {
        assert_eq!(plan(16384, 16384, &[]), [Keep; 4]);
        assert_eq!(plan(16384, 16384, &[(4095, 2, false)]), [Read, Read, Keep, Keep]);
        assert_eq!(plan(16384, 16384, &[(4096, 8192, true)]), [Keep, Zero, Zero, Keep]);
        assert_eq!(plan(16384, 16384, &[(4096, 8192, true), (8192, 512, false)]), [Keep, Zero, Read, Keep]);
        assert_eq!(plan(16384, 16384, &[(512, 1024, true)]), [Read, Keep, Keep, Keep]);
        assert_eq!(
            plan(16384, 16384, &[(16000, 1 << 40, false), (1 << 50, 1, true)]),
            [Keep, Keep, Keep, Read]
        );
    }

    #[test]
    fn volumes_that_grew_or_shrank_end_as_they_are_now() {
        assert_eq!(plan(16384, 4096, &[(12288, 512, false)]), [Keep, Zero, Zero, Read]);
        assert_eq!(plan(16384, 4608, &[]), [Keep, Read, Zero, Zero]);
        assert_eq!(plan(4608, 16384, &[]), [Keep, Read]);
        assert_eq!(plan(4096, 16384, &[]), [Keep]);
        assert_eq!(plan(8192, 512, &[(8000, 100, true)]), [Read, Zero]);
    }
}
