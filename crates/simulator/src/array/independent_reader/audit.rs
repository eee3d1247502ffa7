//! Audits a whole pool for consistency.

use super::{
    ReadResult,
    bytes::block_checksum,
    catalogue::RawCatalogue,
    log::{self, FoundRecord},
    nodes::{RawEntry, RawTree, TreeWalk, Versions, walk},
    platters::{BLOCK, Platters},
    segments::{Mirrored, RawSegment, RawSegmentKind, RawSegments, Slot},
    superblock::{RawSuperblock, elect, left_drives},
};
use std::collections::{BTreeMap, BTreeSet};

const GRAIN: u64 = 64;

/// The copies that must be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyRule {
    /// All copies on drives that count: no drive has done damage.
    All,
    /// All but the headers of mirrored segments that found no space: one header of each segment is right.
    AllButSomeHeaders,
    /// All but the headers of segments: a drive did damage, and a scrub fixed everything else.
    AllButHeaders,
    /// One copy of each block: a drive did damage.
    One,
}

/// The results of an audit without findings.
#[derive(Clone, Debug)]
pub struct Audit {
    /// The generation that counts.
    pub generation: u64,
    pub checkpoint: u64,
    /// Bytes of stored blocks that are referenced.
    pub live_bytes: u64,
    /// Minimum number of copies of all data on drives that count.
    pub copies_least: usize,
    /// The opening of the pool that wrote the superblock that counts.
    pub incarnation: u64,
    /// Position of the last record in the trees.
    pub position: u64,
    /// Records behind the checkpoint.
    pub records: Vec<FoundRecord>,
    /// Segments of the log, from that of the first of these records on.
    pub log_segments: Vec<Mirrored>,
    /// Start of the slots and length of a slot, in bytes.
    pub slots: (u64, u32),
    /// Drive index of each member that counts.
    pub drives: BTreeMap<u16, usize>,
    /// Operations on groups that are not complete, as of the checkpoint.
    pub intents: usize,
    /// Indices of the drives that have left.
    pub left: Vec<usize>,
    /// Number behind the last used slot, by drive index.
    pub slots_used: BTreeMap<usize, u32>,
    /// Segments in use of which all copies, several, lie in one failure domain.
    pub in_one_domain: Vec<u32>,
    /// Segments in use with copies in several failure sets.
    pub across_sets: Vec<u32>,
    /// Indices of the drives that count, by failure set.
    pub sets: BTreeMap<u8, Vec<usize>>,
}

impl Audit {
    /// The location of a block of a slot: drive, and byte offset.
    pub fn place(&self, (member, slot): Slot, block: u32) -> (usize, u64) {
        let (start, slot_bytes) = self.slots;
        let at = start + u64::from(slot) * u64::from(slot_bytes) + u64::from(block) * BLOCK as u64;
        (self.drives[&member], at)
    }
}

/// Audits a pool from its drives' raw contents.
///
/// # Errors
///
/// The first inconsistency, in words.
pub fn audit(platters: &Platters, copies: CopyRule) -> ReadResult<Audit> {
    let (superblock, drives) = elect(platters)?;
    let mut segments =
        RawSegments { platters, superblock: &superblock, drives: &drives, all: BTreeMap::new() };
    let of_checkpoint = |kind| move |named: &Mirrored| (named.number, kind, named.clone());
    let named = superblock.catalogue_segments.iter().map(of_checkpoint(RawSegmentKind::Nodes));
    for (number, kind, named) in named.chain([of_checkpoint(RawSegmentKind::Log)(&superblock.log_segment)]) {
        segments.all.insert(number, named.of_kind(kind, &superblock));
    }
    let [head, history, catalogue] = superblock.roots;
    let rows = walk(&segments, RawTree::Catalogue, catalogue)?;
    let catalogue = RawCatalogue::read(&rows.entries)?;
    adopt(&mut segments, &superblock, &catalogue);
    segments.check_slots()?;
    superblock.check_leaving()?;
    superblock.check_level()?;
    superblock.check_domains()?;
    superblock.check_sets()?;
    let left = left_drives(platters);
    check_left(&superblock, &segments, &left)?;
    let head = walk(&segments, RawTree::Head, head)?;
    let history = walk(&segments, RawTree::History, history)?;
    check_lives(&superblock, &catalogue, &head, &history)?;
    if catalogue.has_forks() && !superblock.may_have_forks {
        return Err("branches have parents, and the superblock's features do not say so".to_owned());
    }
    if catalogue.has_fillings() && !superblock.may_have_fillings {
        return Err("a branch is being filled, and the superblock's features do not say so".to_owned());
    }
    if catalogue.has_groups() && !superblock.may_have_groups {
        return Err("there are groups, and the superblock's features do not say so".to_owned());
    }
    if catalogue.has_notes() && !superblock.may_have_notes {
        return Err("points have notes, and the superblock's features do not say so".to_owned());
    }
    if !catalogue.cuts.is_empty() && !superblock.may_have_cuts {
        return Err("a cut is not settled, and the superblock's features do not say so".to_owned());
    }
    if catalogue.has_shared_groups() && !superblock.may_have_shared_groups {
        return Err("groups are of several pools, and the superblock's features do not say so".to_owned());
    }
    if !catalogue.withheld.is_empty() && !superblock.may_withhold {
        return Err("a volume is withheld, and the superblock's features do not say so".to_owned());
    }
    if catalogue.has_site && !superblock.may_have_site {
        return Err("there are rows of the site, and the superblock's features do not say so".to_owned());
    }
    if catalogue.has_replication && !superblock.may_have_replication {
        return Err("there are records of DR groups, and the superblock's features do not say so".to_owned());
    }
    check_fillings(&catalogue, &head, &history)?;
    if superblock.has_branch_stamps {
        catalogue.check_stamps(superblock.stamp_next)?;
        for run in versions(&head).chain(versions(&history)) {
            catalogue.check_stamp(run.branch, run.death.unwrap_or(run.birth))?;
        }
    }

    let mut space = Space::default();
    let mut wrong = Vec::new();
    for tree in [&head, &history, &rows] {
        wrong.extend(tree.wrong_copies.iter().cloned());
        for node in &tree.nodes {
            space.take((node.segment, 64 * node.block), 64 * u32::from(node.blocks), "a node")?;
        }
    }
    let mut live_bytes = 0;
    for run in versions(&head).chain(versions(&history)) {
        live_bytes += check_run(&segments, run, &mut space, &mut wrong)?;
    }
    space.check(&segments.all, &superblock)?;
    let (mut copies_least, mut in_one_domain, mut across_sets) = (usize::MAX, Vec::new(), Vec::new());
    for (&number, segment) in segments.all.iter().filter(|(number, _)| space.live.contains_key(number)) {
        let there = segment.copies(0)?.into_iter().filter(|(slot, _)| drives.contains_key(&slot.0));
        if segment.is_mirror() {
            let members: Vec<u16> = there.map(|(slot, _)| slot.0).collect();
            copies_least = copies_least.min(members.len());
            in_one_domain.extend(superblock.share_a_domain(&members).then_some(number));
            across_sets.extend(superblock.are_across_sets(&members).then_some(number));
        }
        let headers = (0..segment.slots.len()).map(|index| segments.check_header(number, segment, index));
        let wrong_headers: Vec<_> = headers.filter_map(Result::err).collect();
        let is_excused = match copies {
            CopyRule::All => false,
            CopyRule::AllButSomeHeaders => {
                let there = segment.slots.iter().filter(|slot| drives.contains_key(&slot.0)).count();
                segment.is_mirror() && wrong_headers.len() < there
            }
            CopyRule::AllButHeaders | CopyRule::One => true,
        };
        if !is_excused {
            wrong.extend(wrong_headers);
        }
    }
    if copies != CopyRule::One && !wrong.is_empty() {
        return Err(format!("{} copies are wrong: {}", wrong.len(), wrong[0]));
    }
    let log = log::read(&segments)?;
    let mut slots_used: BTreeMap<usize, u32> = BTreeMap::new();
    for (member, slot) in segments.all.values().flat_map(|segment| &segment.slots) {
        if let Some(&drive) = drives.get(member) {
            let used = slots_used.entry(drive).or_default();
            *used = (*used).max(slot + 1);
        }
    }
    Ok(Audit {
        generation: superblock.generation,
        checkpoint: superblock.checkpoint,
        live_bytes,
        copies_least,
        incarnation: superblock.incarnation,
        position: superblock.previous.0,
        records: log.records,
        log_segments: log.segments,
        slots: (superblock.data_start, superblock.slot_bytes),
        drives: drives.clone(),
        intents: catalogue.intents.len(),
        left: left.iter().map(|&(drive, ..)| drive).collect(),
        slots_used,
        in_one_domain,
        across_sets,
        sets: superblock.drives_by_set(&drives),
    })
}

/// Checks that nothing lies on drives that have left, in the checkpoint that counts.
fn check_left(
    superblock: &RawSuperblock,
    segments: &RawSegments<'_>,
    left: &[(usize, u16, [u8; 16])],
) -> ReadResult<()> {
    for &(drive, member, name) in left {
        let row = superblock.members.get(usize::from(member)).filter(|row| row.drive == name);
        if row.is_some_and(|row| matches!(row.state, 1 | 3)) {
            return Err(format!("drive {drive} has left, and the table says that it stays"));
        }
        let is_named = |segment: &RawSegment| segment.slots.iter().any(|slot| slot.0 == member);
        let named = segments.all.iter().find(|(_, segment)| row.is_some() && is_named(segment));
        if let Some((number, segment)) = named {
            return Err(format!(
                "segment {number} of {:?} lies on drive {drive}, which has left",
                segment.kind
            ));
        }
    }
    Ok(())
}

/// Takes the segments of the catalogue, apart from those the superblock itself names.
fn adopt(segments: &mut RawSegments<'_>, superblock: &RawSuperblock, catalogue: &RawCatalogue) {
    for (&number, segment) in &catalogue.segments {
        match segments.all.get_mut(&number) {
            Some(named) if named.segment_use == segment.segment_use && named.kind == RawSegmentKind::Log => {
                named.live = segment.live;
            }
            Some(_) => {}
            None => drop(segments.all.insert(number, segment.clone())),
        }
    }
    let log = superblock.log_segment.number;
    if !catalogue.segments.contains_key(&log) {
        // It was created since the checkpoint; no reference to it can exist.
        segments.all.get_mut(&log).expect("put above").live = Some(0);
    }
}

fn versions(walk: &TreeWalk) -> impl Iterator<Item = &Versions> {
    walk.entries.iter().filter_map(|entry| match entry {
        RawEntry::Versions(run) => Some(run),
        RawEntry::Row(..) => None,
    })
}

/// Checks every copy of every block of a run and returns the bytes they take.
fn check_run(
    segments: &RawSegments<'_>,
    run: &Versions,
    space: &mut Space,
    wrong: &mut Vec<String>,
) -> ReadResult<u64> {
    let Some((number, place, length)) = run.stored else { return Ok(0) };
    segments.of_kind(number, &[RawSegmentKind::Log, RawSegmentKind::Data])?;
    let is_plain = usize::from(length) == BLOCK;
    let grains = if is_plain { 64 } else { u32::from(length).div_ceil(GRAIN as u32) };
    let whose = format!("block {} of branch {}", run.first, run.branch);
    space.take((number, place), grains * run.count as u32, &whose)?;
    let blocks = if is_plain { run.count as u32 } else { 1 };
    let copies = segments.read(number, place / 64, blocks)?;
    if copies.is_empty() && !segments.get(number)?.is_mirror() {
        // It was lost with its drive.
        return Ok(u64::from(grains) * run.count * GRAIN);
    }
    let start = (place % 64) as usize * GRAIN as usize;
    for (index, &checksum) in run.checksums.iter().enumerate() {
        let key = (run.branch, run.first + index as u64, run.birth);
        let part = start + index * BLOCK..start + index * BLOCK + usize::from(length);
        let is_right =
            |copy: &Vec<u8>| block_checksum(&segments.superblock.pool, key, &copy[part.clone()]) == checksum;
        let right = copies.iter().filter(|copy| is_right(copy)).count();
        if right == 0 {
            return Err(format!("no copy of {key:?} is right, in segment {number} at grain {place}"));
        }
        if right < copies.len() {
            wrong.push(format!("a copy of {key:?}, in segment {number} at grain {place}"));
        }
    }
    Ok(u64::from(grains) * run.count * GRAIN)
}

/// Checks that lives of a block do not overlap, that a point sees each life in the history, and that no birth
/// lies in the future.
fn check_lives(
    superblock: &RawSuperblock,
    catalogue: &RawCatalogue,
    head: &TreeWalk,
    history: &TreeWalk,
) -> ReadResult<()> {
    let mut lives = Vec::new();
    for run in versions(history) {
        let death = run.death.expect("in history");
        let is_deleted = catalogue.branches.get(&run.branch).is_none_or(|branch| branch.is_deleted);
        if !is_deleted && !catalogue.is_seen(run.branch, run.birth, death) {
            return Err(format!("no point sees block {} of branch {}", run.first, run.branch));
        }
        let blocks = run.first..run.first + run.count;
        lives.extend(blocks.map(|block| ((run.branch, block), run.birth, death)));
    }
    lives.sort_unstable();
    let mut ends: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for ((branch, block), birth, death) in lives {
        if ends.insert((branch, block), death).is_some_and(|end| end > birth) {
            return Err(format!("two lives of block {block} of branch {branch} overlap"));
        }
    }
    for run in versions(head).chain(versions(history)) {
        if run.birth >= superblock.stamp_next || !catalogue.branches.contains_key(&run.branch) {
            return Err(format!("block {} of branch {} has no owner", run.first, run.branch));
        }
    }
    for run in versions(head) {
        let last =
            ends.range((run.branch, run.first)..(run.branch, run.first + run.count)).map(|(_, end)| end);
        if last.max().is_some_and(|&end| end > run.birth) {
            return Err(format!("block {} of branch {} was born too early", run.first, run.branch));
        }
    }
    Ok(())
}

/// Checks that a branch which is being filled has a version of each block, below where it is filled, that it
/// would read through its ancestors.
fn check_fillings(catalogue: &RawCatalogue, head: &TreeWalk, history: &TreeWalk) -> ReadResult<()> {
    let filling = catalogue.branches.iter().filter(|(_, row)| !row.is_deleted);
    for (&branch, end) in filling.filter_map(|(branch, row)| Some((branch, row.filled_below?))) {
        let blocks_of = |run: &Versions| run.first..(run.first + run.count).min(end);
        let of_branch = versions(head).filter(|run| run.branch == branch);
        let own: BTreeSet<u64> = of_branch.flat_map(blocks_of).collect();
        // By block: true if the nearest ancestor that has a version stores data.
        let mut inherited: BTreeMap<u64, bool> = BTreeMap::new();
        let ancestors = catalogue.ancestors(branch);
        for &(ancestor, fork) in &ancestors {
            let is_seen = |run: &&Versions| {
                run.branch == ancestor && run.birth <= fork && run.death.is_none_or(|death| fork < death)
            };
            for run in versions(head).chain(versions(history)).filter(is_seen) {
                blocks_of(run).for_each(|block| {
                    inherited.entry(block).or_insert(run.stored.is_some());
                });
            }
        }
        // A discard that hides a version may be in no tree yet.
        let line: Vec<u32> = ancestors.iter().map(|&(ancestor, _)| ancestor).chain([branch]).collect();
        let is_discarded = |block| line.iter().any(|&branch| catalogue.is_in_a_discard(branch, block));
        let missing = inherited.iter().filter(|(block, is_data)| **is_data && !own.contains(block));
        if let Some((block, _)) = missing.into_iter().find(|(block, _)| !is_discarded(**block)) {
            return Err(format!(
                "block {block} of branch {branch} was not filled, and it says so below {end}"
            ));
        }
    }
    Ok(())
}

/// Allocated grains.
#[derive(Default)]
struct Space {
    /// End of each allocation, by segment and first grain.
    taken: BTreeMap<(u32, u32), u32>,
    /// Live grains by segment.
    live: BTreeMap<u32, u64>,
}

impl Space {
    fn take(&mut self, (segment, first): (u32, u32), grains: u32, whose: &str) -> ReadResult<()> {
        let end = first + grains;
        let before = self.taken.range((segment, 0)..(segment, end)).next_back();
        if before.is_some_and(|(_, &before)| before > first) {
            return Err(format!("{whose} shares grain {first} of segment {segment} with another"));
        }
        self.taken.insert((segment, first), end);
        *self.live.entry(segment).or_default() += u64::from(grains);
        Ok(())
    }

    /// Compares the rows with the counts.
    fn check(&self, all: &BTreeMap<u32, RawSegment>, superblock: &RawSuperblock) -> ReadResult<()> {
        for (number, segment) in all {
            let counted = self.live.get(number).copied().unwrap_or(0);
            let is_named = superblock.catalogue_segments.iter().any(|named| named.number == *number);
            if segment.live.is_some_and(|live| live != counted) && !is_named {
                let (kind, live) = (segment.kind, segment.live);
                return Err(format!(
                    "segment {number} of {kind:?} has {live:?} grains live, and {counted} are"
                ));
            }
        }
        Ok(())
    }
}
