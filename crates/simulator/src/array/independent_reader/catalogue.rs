//! The catalogue's rows, as far as the audit needs them.

use super::{
    ReadResult,
    bytes::{u16_at, u32_at},
    nodes::RawEntry,
    segments::RawSegment,
};
use std::collections::{BTreeMap, BTreeSet};

/// The parsed catalogue.
#[derive(Debug, Default)]
pub struct RawCatalogue {
    /// Segments that are not free.
    pub segments: BTreeMap<u32, RawSegment>,
    /// Branches: volume, and whether they are being deleted.
    pub branches: BTreeMap<u32, (u32, bool)>,
    /// Volumes: branch.
    pub volumes: BTreeMap<u32, u32>,
    /// Points: branch and stamp, including those being deleted.
    pub points: BTreeSet<(u32, u64)>,
}

impl RawCatalogue {
    pub fn read(entries: &[RawEntry]) -> ReadResult<Self> {
        let mut catalogue = Self::default();
        for entry in entries {
            let RawEntry::Row(table, id, sub, row) = entry else {
                return Err("versions among rows".to_owned());
            };
            if u16_at(row, 0) != 1 {
                return Err(format!("row {id} of table {table} has version {}", u16_at(row, 0)));
            }
            let number = *id as u32;
            match table {
                1 => {
                    if let Some(segment) = RawSegment::of_row(row)? {
                        catalogue.segments.insert(number, segment);
                    }
                }
                2 => drop(catalogue.volumes.insert(number, u32_at(row, 4))),
                3 => drop(catalogue.branches.insert(number, (u32_at(row, 4), row[2] == 3))),
                4 => drop(catalogue.points.insert((number, *sub))),
                5..=8 => {}
                _ => return Err(format!("table {table}")),
            }
        }
        catalogue.check()?;
        Ok(catalogue)
    }

    fn check(&self) -> ReadResult<()> {
        let lost = self
            .volumes
            .iter()
            .find(|(volume, branch)| self.branches.get(branch).is_none_or(|(writer, _)| writer != *volume));
        if let Some((volume, branch)) = lost {
            return Err(format!("volume {volume} has branch {branch}, which is not its own"));
        }
        match self.points.iter().find(|(branch, _)| !self.branches.contains_key(branch)) {
            Some((branch, stamp)) => Err(format!("point {stamp} of branch {branch}, which is not there")),
            None => Ok(()),
        }
    }

    /// True if a point, deleted or not, lies in [birth, death).
    pub fn is_seen(&self, branch: u32, birth: u64, death: u64) -> bool {
        self.points.range((branch, birth)..(branch, death)).next().is_some()
    }
}
