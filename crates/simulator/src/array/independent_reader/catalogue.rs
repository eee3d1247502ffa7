//! The catalogue's rows, as far as the audit needs them.

use super::{
    ReadResult,
    bytes::{array, u16_at, u32_at, u64_at},
    nodes::RawEntry,
    segments::RawSegment,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug)]
pub struct RawBranch {
    volume: u32,
    /// The parent and the stamp of the fork; 0 none.
    parent: (u32, u64),
    depth: u8,
    pub is_deleted: bool,
    /// While it is being filled: below, its head reads nothing through its parent.
    pub filled_below: Option<u64>,
    /// Its highest stamp, if the pool's features say that rows have it.
    stamp_max: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct RawVolume {
    branch: u32,
    is_deleted: bool,
    /// The volume whose rollback left it; 0 none.
    left_by: u32,
    /// 0 none.
    group: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct RawPoint {
    volume: u32,
    is_deleted: bool,
    /// A snapshot, a reader or a transfer.
    is_used: bool,
    has_reader: bool,
    has_note: bool,
    references: u32,
    /// 0 none.
    group: u32,
    is_snapshot: bool,
    snapshot: [u8; 16],
}

/// The parsed catalogue.
#[derive(Debug, Default)]
pub struct RawCatalogue {
    /// Segments that are not free.
    pub segments: BTreeMap<u32, RawSegment>,
    pub branches: BTreeMap<u32, RawBranch>,
    pub volumes: BTreeMap<u32, RawVolume>,
    /// Points by branch and stamp, including those being deleted.
    pub points: BTreeMap<(u32, u64), RawPoint>,
    /// Names of groups by number.
    groups: BTreeMap<u32, Vec<u8>>,
    /// The row of a group, or of an operation on one, names several pools.
    are_groups_shared: bool,
    /// Operations on groups: the snapshot of each, by the group's number.
    pub intents: BTreeMap<u32, [u8; 16]>,
    /// Cuts over several pools that are not settled, by snapshot.
    pub cuts: BTreeSet<[u8; 16]>,
    /// Withheld volumes, with the names of initiator ports, or none for all NBD clients.
    pub withheld: BTreeSet<(u32, Vec<u8>)>,
    /// There are rows of the site that serves the pool.
    pub has_site: bool,
    /// There are records of DR groups.
    pub has_replication: bool,
    /// Unfinished discards: branch, first block and number of blocks.
    pub discards: Vec<(u32, u64, u64)>,
}

impl RawCatalogue {
    pub fn read(entries: &[RawEntry]) -> ReadResult<Self> {
        let mut catalogue = Self::default();
        for entry in entries {
            let RawEntry::Row(table, id, sub, row) = entry else {
                return Err("versions among rows".to_owned());
            };
            let version = u16_at(row, 0);
            if version != 1 && !(version == 2 && [2, 4, 5, 9].contains(table)) {
                return Err(format!("row {id} of table {table} has version {version}"));
            }
            let number = *id as u32;
            match table {
                1 => {
                    if let Some(segment) = RawSegment::of_row(row)? {
                        catalogue.segments.insert(number, segment);
                    }
                }
                2 => {
                    let left_by = if u16_at(row, 0) == 2 { u32_at(row, 88) } else { 0 };
                    let volume = RawVolume {
                        branch: u32_at(row, 4),
                        is_deleted: row[2] == 3,
                        left_by,
                        group: u32_at(row, 8),
                    };
                    catalogue.volumes.insert(number, volume);
                }
                3 => {
                    let stamp_max = u64_at(row, 24);
                    let branch = RawBranch {
                        volume: u32_at(row, 4),
                        parent: (u32_at(row, 8), u64_at(row, 16)),
                        depth: row[3],
                        is_deleted: row[2] == 3,
                        filled_below: (row[13] == 1).then(|| u64_at(row, 32)),
                        stamp_max,
                    };
                    catalogue.branches.insert(number, branch);
                }
                4 => {
                    check_name(row)?;
                    let point = RawPoint {
                        volume: u32_at(row, 8),
                        is_deleted: row[2] == 3,
                        is_used: row[3] & (1 | 4 | 8) != 0,
                        has_reader: row[3] & 4 != 0,
                        has_note: version == 2,
                        references: u32_at(row, 4),
                        group: u32_at(row, 12),
                        is_snapshot: row[3] & 1 != 0,
                        snapshot: array(row, 16),
                    };
                    catalogue.points.insert((number, *sub), point);
                }
                7 => catalogue.discards.push((number, u64_at(row, 8), u64_at(row, 16))),
                5 => {
                    let name_at = 40 + pools_bytes(row, version, row[3])?;
                    catalogue.are_groups_shared |= version == 2;
                    catalogue.groups.insert(number, row[name_at..].to_vec());
                }
                9 => {
                    let suffix_at = 48 + pools_bytes(row, version, row[6])?;
                    let is_state = matches!((version, row[5]), (1, 0) | (2, 1 | 2));
                    let is_kind = matches!((row[2], row[4]), (1, 1..=128) | (2, 0));
                    if !is_kind || !is_state || row.len() != suffix_at + usize::from(row[4]) {
                        return Err(format!("an intent of kind {} with {} bytes", row[2], row.len()));
                    }
                    catalogue.are_groups_shared |= version == 2;
                    catalogue.intents.insert(number, array(row, 8));
                }
                10 => {
                    let pools = usize::from(row[3]);
                    let is_cut = matches!(row[2], 1 | 2) && (2..=32).contains(&pools);
                    if !is_cut || row.len() != 16 + 16 * pools {
                        return Err(format!("a cut in state {} with {} bytes", row[2], row.len()));
                    }
                    let halves = [id.to_le_bytes(), sub.to_le_bytes()].concat();
                    catalogue.cuts.insert(array(&halves, 0));
                }
                11 => {
                    let name = &row[16..];
                    let is_client = matches!((row[2], row[3]), (1, 0) | (2, 1..=240));
                    if !is_client || name.len() != usize::from(row[3]) {
                        return Err(format!("a withheld client of kind {} with {} bytes", row[2], row.len()));
                    }
                    if !catalogue.withheld.insert((number, name.to_vec())) {
                        return Err(format!("volume {number} is withheld from one client twice"));
                    }
                }
                12 => catalogue.has_site = true,
                13 => catalogue.has_replication = true,
                6 | 8 => {}
                _ => return Err(format!("table {table}")),
            }
        }
        catalogue.check()?;
        Ok(catalogue)
    }

    fn check(&self) -> ReadResult<()> {
        let mut heads = BTreeMap::new();
        for (&number, volume) in self.volumes.iter().filter(|(_, volume)| !volume.is_deleted) {
            let owner = if volume.left_by > 0 { volume.left_by } else { number };
            let branch =
                self.branches.get(&volume.branch).filter(|row| row.volume == owner && !row.is_deleted);
            if branch.is_none() || heads.insert(volume.branch, number).is_some() {
                return Err(format!("volume {number} has branch {}, which is not its own", volume.branch));
            }
        }
        if let Some((branch, _)) =
            self.branches.iter().find(|(branch, row)| !row.is_deleted && !heads.contains_key(branch))
        {
            return Err(format!("branch {branch} is live, and no volume has it"));
        }
        if let Some(((branch, stamp), _)) =
            self.points.iter().find(|((branch, _), _)| !self.branches.contains_key(branch))
        {
            return Err(format!("point {stamp} of branch {branch}, which is not there"));
        }
        self.check_groups()?;
        self.check_cuts()?;
        let is_live = |number: u32| self.volumes.get(&number).is_some_and(|volume| !volume.is_deleted);
        if let Some((volume, _)) = self.withheld.iter().find(|(volume, _)| !is_live(*volume)) {
            return Err(format!("volume {volume} is withheld, and is not there"));
        }
        self.check_forks()
    }

    fn members(&self, group: u32) -> BTreeSet<u32> {
        let live = self.volumes.iter().filter(|(_, volume)| !volume.is_deleted && volume.group == group);
        live.map(|(&number, _)| number).collect()
    }

    /// Checks that groups have rows, names of their own and as many volumes as they may, and that each snapshot
    /// of a group is one of all its volumes, at one stamp.
    fn check_groups(&self) -> ReadResult<()> {
        let mut names = BTreeSet::new();
        let used: BTreeSet<u32> =
            self.volumes.values().filter(|row| !row.is_deleted).map(|row| row.group).collect();
        for &group in used.iter().filter(|&&group| group > 0) {
            let members = self.members(group);
            let name = self.groups.get(&group).ok_or(format!("group {group} has volumes, and no row"))?;
            if members.len() > 124 || !names.insert(name) {
                return Err(format!(
                    "group {group} has {} volumes, or another one has its name",
                    members.len()
                ));
            }
            let mut cuts: BTreeMap<([u8; 16], u64), BTreeSet<u32>> = BTreeMap::new();
            let is_its = |point: &RawPoint| point.group == group && point.is_snapshot && !point.is_deleted;
            for ((_, stamp), point) in self.points.iter().filter(|(_, point)| is_its(point)) {
                cuts.entry((point.snapshot, *stamp)).or_default().insert(point.volume);
            }
            if let Some((cut, found)) = cuts.iter().find(|(_, found)| **found != members) {
                return Err(format!("snapshot {cut:?} of group {group} is of {found:?}, not of {members:?}"));
            }
            let intent = self.intents.get(&group);
            if intent.is_some_and(|snapshot| !cuts.keys().any(|(cut, _)| cut == snapshot)) {
                return Err(format!("an operation on group {group} has no snapshot"));
            }
        }
        match self.intents.keys().find(|group| !used.contains(group)) {
            Some(group) => Err(format!("an operation on group {group}, which has no volumes")),
            None => Ok(()),
        }
    }

    /// Checks that each cut has a snapshot.
    fn check_cuts(&self) -> ReadResult<()> {
        let is_there = |cut: &[u8; 16]| {
            self.points.values().any(|point| point.snapshot == *cut && point.is_snapshot && !point.is_deleted)
        };
        match self.cuts.iter().find(|cut| !is_there(cut)) {
            Some(cut) => Err(format!("cut {cut:?} has no snapshot")),
            None => Ok(()),
        }
    }

    /// Counts the branches that begin at each point, and checks the line of each branch that is needed.
    fn check_forks(&self) -> ReadResult<()> {
        let mut counts: BTreeMap<(u32, u64), u32> = BTreeMap::new();
        for (&number, branch) in self.branches.iter().filter(|(number, _)| self.is_needed(**number)) {
            let (parent, _) = branch.parent;
            if parent == 0 && branch.depth == 0 {
                continue;
            }
            *counts.entry(branch.parent).or_default() += 1;
            let above = self.branches.get(&parent).filter(|row| row.depth + 1 == branch.depth);
            let depth_max = 15 + u8::from(branch.filled_below.is_some());
            if parent >= number || above.is_none() || branch.depth > depth_max {
                return Err(format!("branch {number}, {} deep, begins at {:?}", branch.depth, branch.parent));
            }
            if !self.points.contains_key(&branch.parent) {
                return Err(format!("branch {number} begins at {:?}, which is no point", branch.parent));
            }
        }
        // All readers are one reference; a point under deletion has none.
        let count = |key: &(u32, u64), point: &RawPoint| {
            counts.get(key).copied().unwrap_or(0) + u32::from(point.has_reader && !point.is_deleted)
        };
        match self.points.iter().find(|(key, point)| count(key, point) != point.references) {
            Some((key, point)) => {
                let counted = count(key, point);
                Err(format!("point {key:?} has {} references, and {counted} were counted", point.references))
            }
            None => Ok(()),
        }
    }

    /// True if a volume, a snapshot or another branch reads a branch.
    fn is_needed(&self, branch: u32) -> bool {
        let is_live = self.branches.get(&branch).is_some_and(|row| !row.is_deleted);
        let mut points = self.points.range((branch, 0)..=(branch, u64::MAX));
        let is_there = |volume: u32| self.volumes.get(&volume).is_some_and(|row| !row.is_deleted);
        is_live
            || points.any(|(_, row)| row.is_used && !row.is_deleted && is_there(row.volume))
            || self.branches.iter().any(|(&child, row)| row.parent.0 == branch && self.is_needed(child))
    }

    /// True if the pool must say that it has branches with a parent, or volumes that rollbacks left.
    pub fn has_forks(&self) -> bool {
        self.branches.values().any(|row| row.parent.0 > 0)
            || self.volumes.values().any(|volume| volume.left_by > 0)
    }

    /// True if the pool must say that there are groups.
    pub fn has_groups(&self) -> bool {
        let is_grouped = |volume: &RawVolume| !volume.is_deleted && volume.group > 0;
        self.volumes.values().any(is_grouped) || !self.intents.is_empty()
    }

    /// True if the pool must say that groups, or operations on them, have several pools.
    pub fn has_shared_groups(&self) -> bool {
        self.are_groups_shared
    }

    /// True if the pool must say that points have notes.
    pub fn has_notes(&self) -> bool {
        self.points.values().any(|point| point.has_note)
    }

    /// True if the pool must say that a branch is being filled.
    pub fn has_fillings(&self) -> bool {
        self.branches.values().any(|row| row.filled_below.is_some())
    }

    /// Its parent with the stamp of the fork, the parent's parent, and so on.
    pub fn ancestors(&self, branch: u32) -> Vec<(u32, u64)> {
        let above = |branch: u32| Some(self.branches.get(&branch)?.parent).filter(|(parent, _)| *parent > 0);
        std::iter::successors(above(branch), |&(parent, _)| above(parent)).collect()
    }

    /// True if a block is in an unfinished discard of a branch.
    pub fn is_in_a_discard(&self, branch: u32, block: u64) -> bool {
        self.discards
            .iter()
            .any(|&(of, first, count)| of == branch && (first..first + count).contains(&block))
    }

    /// Checks that rows of branches have the stamps of their points, and that none is to come.
    pub fn check_stamps(&self, stamp_next: u64) -> ReadResult<()> {
        if let Some((branch, row)) = self.branches.iter().find(|(_, row)| row.stamp_max >= stamp_next) {
            return Err(format!("stamp {} of branch {branch} was not given yet", row.stamp_max));
        }
        self.points.keys().try_for_each(|&(branch, stamp)| self.check_stamp(branch, stamp))
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

/// The bytes of the pools that a row of a group, or of an operation on one, names: none in version 1.
fn pools_bytes(row: &[u8], version: u16, count: u8) -> ReadResult<usize> {
    let is_count = if version == 2 { (2..=32).contains(&count) } else { count == 0 };
    if is_count {
        Ok(16 * usize::from(count))
    } else {
        Err(format!("{count} pools in a row of {} bytes", row.len()))
    }
}

/// Checks that the name of a point, behind its note if it has one, is all of the rest of its row.
fn check_name(row: &[u8]) -> ReadResult<()> {
    let note = if u16_at(row, 0) == 2 { 8 + usize::from(u16_at(row, 64)) } else { 0 };
    let end = 64 + note + usize::from(row[56]);
    if note == 8 || note > 8 + 768 || end != row.len() {
        return Err(format!("a point of {} bytes with {note} bytes of a note", row.len()));
    }
    Ok(())
}
