//! Trees: nodes and the entries of their leaves.

use super::{
    ReadResult,
    bytes::{Numbers, check_sealed, u16_at, u32_at, u64_at},
    platters::BLOCK,
    segments::{RawSegmentKind, RawSegments},
    superblock::Pointer,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawTree {
    /// Versions visible to heads.
    Head = 1,
    Catalogue = 3,
    /// Versions visible only to points.
    History = 4,
}

/// A run of versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    pub branch: u32,
    pub first: u64,
    pub count: u64,
    /// Stamp of the write.
    pub birth: u64,
    /// Stamp of the replacement, in history only.
    pub death: Option<u64>,
    /// Segment, start in grains and length of each in bytes, if stored.
    pub stored: Option<(u32, u32, u16)>,
    /// Checksum of each version, if stored.
    pub checksums: Vec<u32>,
}

/// An entry of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawEntry {
    /// An entry of the head or history tree.
    Versions(Versions),
    /// An entry of the catalogue: table, id, sub, bytes.
    Row(u8, u64, u64, Vec<u8>),
}

impl RawEntry {
    /// Keys of its first and last item.
    fn keys(&self, tree: RawTree) -> [(u32, u64, u64); 2] {
        match self {
            Self::Row(table, id, sub, _) => [(u32::from(*table), *id, *sub); 2],
            Self::Versions(run) => {
                let ends = [run.first, run.first + run.count - 1];
                match (tree, run.death) {
                    (RawTree::History, Some(death)) => {
                        ends.map(|block| (run.branch, pivot(run.birth, death), block))
                    }
                    _ => ends.map(|block| (run.branch, block, 0)),
                }
            }
        }
    }
}

/// The pivot of the stamps in [birth, death): the one with the most factors of two. It is the only multiple
/// there of the largest power of two that has a multiple there.
fn pivot(birth: u64, death: u64) -> u64 {
    let mut step = 1;
    while (death - 1) / (2 * step) * (2 * step) >= birth {
        step *= 2;
    }
    (death - 1) / step * step
}

/// The results of a tree walk.
pub struct TreeWalk {
    pub nodes: Vec<Pointer>,
    /// All entries of the leaves, in order.
    pub entries: Vec<RawEntry>,
    /// Invalid copies of nodes.
    pub wrong_copies: Vec<String>,
}

pub fn walk(segments: &RawSegments<'_>, tree: RawTree, root: Option<Pointer>) -> ReadResult<TreeWalk> {
    let mut walk = TreeWalk { nodes: Vec::new(), entries: Vec::new(), wrong_copies: Vec::new() };
    if let Some(root) = root {
        walk.descend(segments, tree, root)?;
    }
    let keys: Vec<_> = walk.entries.iter().map(|entry| entry.keys(tree)).collect();
    match keys.windows(2).find(|pair| pair[0][1] >= pair[1][0]) {
        Some(pair) => Err(format!("{tree:?}: {:?} comes before {:?}", pair[0], pair[1])),
        None => Ok(walk),
    }
}

impl TreeWalk {
    fn descend(&mut self, segments: &RawSegments<'_>, tree: RawTree, pointer: Pointer) -> ReadResult<u64> {
        let place = format!("node at {} of segment {}", pointer.block, pointer.segment);
        segments.of_kind(pointer.segment, &[RawSegmentKind::Nodes])?;
        let mut right = None;
        for copy in segments.read(pointer.segment, pointer.block, pointer.blocks.into())? {
            match check_node(&copy, &segments.superblock.pool, tree, &pointer) {
                Ok(()) => right = Some(copy),
                Err(error) => self.wrong_copies.push(format!("{place}: {error}")),
            }
        }
        let node =
            right.ok_or_else(|| format!("{place}: no copy is right: {:?}", self.wrong_copies.last()))?;
        self.nodes.push(pointer);
        let stamp_max = match (pointer.level, tree) {
            (0, _) => self.read_leaf(&node, tree)?,
            (_, _) => self.read_inner(segments, tree, &node, pointer.level)?,
        };
        if stamp_max != pointer.stamp_max {
            return Err(format!("{place}: its newest is of {stamp_max}, not {}", pointer.stamp_max));
        }
        Ok(stamp_max)
    }

    fn read_inner(
        &mut self,
        segments: &RawSegments<'_>,
        tree: RawTree,
        node: &[u8],
        level: u8,
    ) -> ReadResult<u64> {
        let mut stamp_max = 0;
        for index in 0..usize::from(u16_at(node, 72)) {
            let entry = &node[80 + 48 * index..][..48];
            let child = Pointer::read(&entry[24..]).ok_or("a pointer to nothing")?;
            if child.level + 1 != level {
                return Err(format!("a child of level {} of a node of level {level}", child.level));
            }
            let begins = self.entries.len();
            stamp_max = stamp_max.max(self.descend(segments, tree, child)?);
            let key = (u32_at(entry, 0), u64_at(entry, 8), u64_at(entry, 16));
            if self.entries[begins].keys(tree)[0] != key {
                return Err(format!("{key:?} leads to {:?}", self.entries[begins].keys(tree)[0]));
            }
        }
        Ok(stamp_max)
    }

    fn read_leaf(&mut self, node: &[u8], tree: RawTree) -> ReadResult<u64> {
        let (count, body_end) = (usize::from(u16_at(node, 72)), u32_at(node, 68) as usize);
        let (stamp_base, branch_base) = (u64_at(node, 56), u32_at(node, 64));
        let begins = self.entries.len();
        let mut numbers = Numbers::new(node, 80);
        let mut before = PreviousEntry::default();
        for index in 0..count {
            if index % 16 == 0 {
                let named = usize::from(u16_at(node, node.len() - 2 * (index / 16 + 1)));
                if named != numbers.at {
                    return Err(format!("group {} is said to begin at {named}", index / 16));
                }
                before = PreviousEntry { branch: branch_base, block: 0, birth: stamp_base, segment: 0 };
            }
            self.entries.push(match tree {
                RawTree::Catalogue => read_row(&mut numbers)?,
                _ => RawEntry::Versions(before.read(&mut numbers, tree)?),
            });
        }
        if numbers.at != body_end {
            return Err(format!("entries end at {}, not {body_end}", numbers.at));
        }
        let births = self.entries[begins..].iter().map(|entry| match entry {
            RawEntry::Versions(run) => run.birth,
            RawEntry::Row(..) => 0,
        });
        births.max().ok_or_else(|| "an empty leaf".to_owned())
    }
}

fn check_node(node: &[u8], pool: &[u8; 16], tree: RawTree, pointer: &Pointer) -> ReadResult<()> {
    check_sealed(node, b"SPNDLNOD")?;
    let is_it = node[10] == tree as u8
        && node[11] == pointer.level
        && u32_at(node, 12) == pointer.seal
        && node[16..32] == *pool
        && u32_at(node, 40) == pointer.segment
        && u32_at(node, 44) == pointer.block
        && u64_at(node, 48) == pointer.stamp_max
        && usize::from(node[74]) * BLOCK == node.len();
    if is_it { Ok(()) } else { Err("another node".to_owned()) }
}

fn read_row(numbers: &mut Numbers<'_>) -> ReadResult<RawEntry> {
    let (table, id, sub) = (numbers.byte()?, numbers.number()?, numbers.number()?);
    let length = numbers.number()? as usize;
    Ok(RawEntry::Row(table, id, sub, numbers.take(length)?.to_vec()))
}

/// The previous entry of the same group.
#[derive(Default)]
struct PreviousEntry {
    branch: u32,
    block: u64,
    birth: u64,
    segment: u32,
}

impl PreviousEntry {
    fn read(&mut self, numbers: &mut Numbers<'_>, tree: RawTree) -> ReadResult<Versions> {
        let control = numbers.byte()?;
        let (count, form) = (u64::from(control & 0x3f) + 1, control >> 6);
        let place = numbers.number()?;
        let (branch, first) = match place & 1 {
            0 => (self.branch, self.block + (place >> 1)),
            _ => (self.branch + numbers.number()? as u32, place >> 1),
        };
        let birth = numbers.beside(self.birth)?;
        let death = match tree {
            RawTree::History => Some(birth + numbers.number()?),
            _ => None,
        };
        let (mut stored, mut checksums) = (None, Vec::new());
        match form {
            0 | 1 => {
                self.segment = numbers.beside(self.segment.into())? as u32;
                let place = numbers.number()? as u32;
                stored = Some(match form {
                    0 => (self.segment, 64 * place, BLOCK as u16),
                    _ => (self.segment, place, u16_at(numbers.take(3)?, 1)),
                });
                for _ in 0..count {
                    checksums.push(u32_at(numbers.take(4)?, 0));
                }
            }
            2 => {}
            _ => drop(numbers.take(16)?),
        }
        (self.branch, self.block, self.birth) = (branch, first + count - 1, birth);
        Ok(Versions { branch, first, count, birth, death, stored, checksums })
    }
}
