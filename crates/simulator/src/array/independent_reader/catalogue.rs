//! The catalogue's rows, as far as the audit needs them.

use super::{
    ReadResult,
    bytes::{u16_at, u32_at, u64_at},
    nodes::RawEntry,
    segments::RawSegment,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug)]
pub struct RawBranch {
    volume: u32,
    pub is_deleted: bool,
    /// Its highest stamp, if the pool's features say that rows have it.
    stamp_max: u64,
}

/// The parsed catalogue.
#[derive(Debug, Default)]
pub struct RawCatalogue {
    /// Segments that are not free.
    pub segments: BTreeMap<u32, RawSegment>,
    pub branches: BTreeMap<u32, RawBranch>,
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
                3 => {
                    let stamp_max = u64_at(row, 24);
                    let branch = RawBranch { volume: u32_at(row, 4), is_deleted: row[2] == 3, stamp_max };
                    catalogue.branches.insert(number, branch);
                }
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
            .find(|(volume, branch)| self.branches.get(branch).is_none_or(|row| row.volume != **volume));
        if let Some((volume, branch)) = lost {
            return Err(format!("volume {volume} has branch {branch}, which is not its own"));
        }
        match self.points.iter().find(|(branch, _)| !self.branches.contains_key(branch)) {
            Some((branch, stamp)) => Err(format!("point {stamp} of branch {branch}, which is not there")),
            None => Ok(()),
        }
    }

    /// Checks that rows of branches have the stamps of their points, and that none is to come.
    pub fn check_stamps(&self, stamp_next: u64) -> ReadResult<()> {
        if let Some((branch, row)) = self.branches.iter().find(|(_, row)| row.stamp_max >= stamp_next) {
            return Err(format!("stamp {} of branch {branch} was not given yet", row.stamp_max));
        }
        self.points.iter().try_for_each(|&(branch, stamp)| self.check_stamp(branch, stamp))
    }

    /// Checks that the row of a branch has a stamp of its versions or points.
    pub fn check_stamp(&self, branch: u32, stamp: u64) -> ReadResult<()> {
        match self.branches.get(&branch) {
            Some(row) if row.stamp_max < stamp => {
                Err(format!("branch {branch} has stamp {stamp}, above {}", row.stamp_max))
            }
            _ => Ok(()),
        }
    }

    /// True if a point, deleted or not, lies in [birth, death).
    pub fn is_seen(&self, branch: u32, birth: u64, death: u64) -> bool {
        self.points.range((branch, birth)..(branch, death)).next().is_some()
    }
}
