//! Superblocks, and the election of the one that counts.

use super::{
    ReadResult,
    bytes::{array, check_sealed, u16_at, u32_at, u64_at},
    platters::{BLOCK, Platters},
    segments::Mirrored,
};
use std::collections::BTreeMap;

/// Offsets of the four superblock places.
const PLACES: [u64; 4] = [0, 256 << 10, 512 << 10, 768 << 10];
/// Length of a superblock, at most.
const IMAGE_MAX: usize = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawMember {
    /// Drive id.
    pub drive: [u8; 16],
    /// 1 active, 2 missing, 3 joining, 4 leaving, 5 gone, 6 withdrawn.
    pub state: u8,
    /// Number of slots.
    pub slot_count: u32,
    /// Name of the failure domain, filled up with zeroes; all zero for none.
    pub domain: [u8; 12],
    /// Number of the failure set, 0 for none.
    pub set: u8,
}

impl RawMember {
    fn holds_superblocks(&self) -> bool {
        matches!(self.state, 1 | 3 | 4)
    }
}

/// A reference to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    pub segment: u32,
    /// Block in the segment's data.
    pub block: u32,
    /// Seal of the node.
    pub seal: u32,
    /// Length in blocks.
    pub blocks: u8,
    /// Level in the tree; 0 is a leaf.
    pub level: u8,
    /// Upper bound of the birth stamps below.
    pub stamp_max: u64,
}

#[derive(Clone, Debug)]
pub struct RawSuperblock {
    /// Pool id.
    pub pool: [u8; 16],
    pub generation: u64,
    mark: u64,
    previous_mark: u64,
    /// True if rows of branches have their highest stamps.
    pub has_branch_stamps: bool,
    /// Number of the format level, from 2 on.
    level: u8,
    /// Its features say that a volume may be being imported.
    has_imports: bool,
    /// Its features say that there may be branches with a parent.
    pub may_have_forks: bool,
    /// Its features say that a drive may be leaving.
    may_have_leaving: bool,
    /// Its features say that a drive has a domain.
    has_domains: bool,
    /// Its features say that a drive is in a failure set, and that sets are wanted.
    has_sets: bool,
    wants_sets: bool,
    /// Its features say that a branch may be being filled.
    pub may_have_fillings: bool,
    /// Its features say that volumes may be in groups.
    pub may_have_groups: bool,
    /// Its features say that points may have notes.
    pub may_have_notes: bool,
    /// Its features say that cuts over several pools may not be settled.
    pub may_have_cuts: bool,
    pub may_have_shared_groups: bool,
    /// Its features say that volumes may be withheld from clients.
    pub may_withhold: bool,
    /// Its features say that there may be rows of the site.
    pub may_have_site: bool,
    /// Its features say that there may be records of DR groups.
    pub may_have_replication: bool,
    /// Start of the slots, in bytes.
    pub data_start: u64,
    pub slot_bytes: u32,
    pub members: Vec<RawMember>,
    this: u16,
    /// Number of the checkpoint.
    pub checkpoint: u64,
    /// The opening of the pool that wrote it.
    pub incarnation: u64,
    /// Lowest free stamp.
    pub stamp_next: u64,
    /// Lowest free segment use.
    pub segment_use_next: u64,
    /// All positions below were acknowledged.
    pub acknowledged_below: u64,
    /// Position and seal of the last record in the trees.
    pub previous: (u64, u32),
    /// Block of the next record in the log's segment.
    pub log_block: u32,
    pub log_segment: Mirrored,
    /// Roots of head, history and catalogue.
    pub roots: [Option<Pointer>; 3],
    /// Segments with nodes of the catalogue.
    pub catalogue_segments: Vec<Mirrored>,
}

impl Pointer {
    /// Parses a pointer; all zero is `None`.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let is_some = bytes[..24].iter().any(|&byte| byte != 0);
        is_some.then(|| Self {
            segment: u32_at(bytes, 0),
            block: u32_at(bytes, 4),
            seal: u32_at(bytes, 8),
            blocks: bytes[12],
            level: bytes[13],
            stamp_max: u64_at(bytes, 16),
        })
    }
}

impl RawSuperblock {
    /// Checks that a format level has what it stands for, and that imports came with it.
    pub fn check_level(&self) -> ReadResult<()> {
        match (self.level, self.has_branch_stamps) {
            (0, _) | (2.., true) => {}
            (level, has_stamps) => {
                return Err(format!("format level {level}, and stamps of branches {has_stamps}"));
            }
        }
        if self.has_imports && self.level < 2 {
            return Err(format!("an import in a pool of format level {}", self.level));
        }
        Ok(())
    }

    /// Checks that the features say whether a drive has a domain.
    pub fn check_domains(&self) -> ReadResult<()> {
        let has_domains = self.members.iter().any(|member| member.domain != [0; 12]);
        if has_domains == self.has_domains {
            Ok(())
        } else {
            Err(format!("domains: {has_domains}, and by the superblock's features {}", self.has_domains))
        }
    }

    /// Checks that the features say whether a drive is in a failure set, and that sets have the sizes that they may have.
    pub fn check_sets(&self) -> ReadResult<()> {
        let mut sizes: BTreeMap<u8, usize> = BTreeMap::new();
        let mut counted = 0;
        for member in &self.members {
            // One that leaves does not count, and one that has left is missing for a while.
            let counts = matches!((member.state, member.set), (1 | 3, _) | (2, 1..));
            counted += usize::from(counts);
            if counts && member.set > 0 {
                *sizes.entry(member.set).or_default() += 1;
            }
            if member.set > 0 && matches!(member.state, 5 | 6) {
                return Err(format!("a drive of state {} is in failure set {}", member.state, member.set));
            }
        }
        let has_sets = self.members.iter().any(|member| member.set > 0);
        if has_sets != self.has_sets || has_sets && !self.wants_sets {
            let (wanted, said) = (self.wants_sets, self.has_sets);
            return Err(format!("failure sets: {has_sets}, by the features {said}, wanted: {wanted}"));
        }
        // Lost drives may make a set larger for a while.
        let are_whole = sizes.values().sum::<usize>() == counted && sizes.values().all(|size| *size >= 6);
        if has_sets && !(are_whole && counted >= 12) {
            return Err(format!("{counted} drives are in failure sets of {:?}", sizes.values()));
        }
        Ok(())
    }

    /// The drives that count, by failure set; none without sets.
    pub fn drives_by_set(&self, drives: &BTreeMap<u16, usize>) -> BTreeMap<u8, Vec<usize>> {
        let mut sets: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
        for (&member, &drive) in drives {
            let set = self.members[usize::from(member)].set;
            if set > 0 {
                sets.entry(set).or_default().push(drive);
            }
        }
        sets
    }

    /// True if these members are in several failure sets.
    pub fn are_across_sets(&self, members: &[u16]) -> bool {
        let sets: Vec<u8> = members.iter().map(|&member| self.members[usize::from(member)].set).collect();
        sets.windows(2).any(|pair| pair[0] != pair[1])
    }

    /// True if all of these members, several, are in one domain.
    pub fn share_a_domain(&self, members: &[u16]) -> bool {
        let domains: Vec<_> =
            members.iter().map(|&member| self.members[usize::from(member)].domain).collect();
        domains.len() > 1 && domains[0] != [0; 12] && domains.iter().all(|domain| *domain == domains[0])
    }

    pub fn check_leaving(&self) -> ReadResult<()> {
        if self.may_have_leaving || self.members.iter().all(|member| member.state != 4) {
            return Ok(());
        }
        let states: Vec<_> = self.members.iter().map(|member| member.state).collect();
        let generation = self.generation;
        Err(format!(
            "a drive is leaving in generation {generation}, {states:?}, and its features do not say so"
        ))
    }

    fn read(image: &[u8], place: usize) -> ReadResult<Self> {
        let length = u32_at(image, 104) as usize;
        if !(2 * BLOCK..=IMAGE_MAX).contains(&length) || !length.is_multiple_of(BLOCK) {
            return Err(format!("a superblock of {length} bytes"));
        }
        let image = &image[..length];
        check_sealed(image, b"SPNDLSUP")?;
        let generation = u64_at(image, 48);
        if usize::from(image[116]) != place || place as u64 % 2 != generation % 2 {
            return Err(format!("generation {generation} in place {place}"));
        }
        let members = (0..usize::from(u16_at(image, 112))).map(|index| {
            let row = &image[256 + 96 * index..][..96];
            RawMember {
                drive: array(row, 0),
                state: row[78],
                slot_count: u32_at(row, 72),
                domain: array(row, 80),
                set: row[92],
            }
        });
        let checkpoint = &image[u32_at(image, 108) as usize..];
        let checkpoint = &checkpoint[..u32_at(checkpoint, 224) as usize];
        check_sealed(checkpoint, b"SPNDLCHK")?;
        let segments = (0..usize::from(u16_at(checkpoint, 228)))
            .map(|index| Mirrored::read(&checkpoint[256 + 40 * index..]));
        Ok(Self {
            pool: array(image, 16),
            generation,
            mark: u64_at(image, 192),
            previous_mark: u64_at(image, 200),
            has_branch_stamps: u64_at(image, 64) & 1 << 1 != 0,
            level: (u64_at(image, 56) >> 8) as u8,
            has_imports: u64_at(image, 72) & 1 << 21 != 0,
            may_have_forks: u64_at(image, 72) & 1 != 0,
            may_have_leaving: u64_at(image, 72) & 1 << 7 != 0,
            has_domains: u64_at(image, 72) & 1 << 14 != 0,
            has_sets: u64_at(image, 72) & 1 << 15 != 0,
            wants_sets: u64_at(image, 56) & 1 << 2 != 0,
            may_have_fillings: u64_at(image, 72) & 1 << 9 != 0,
            may_have_groups: u64_at(image, 72) & 1 << 10 != 0,
            may_have_notes: u64_at(image, 72) & 1 << 11 != 0,
            may_have_cuts: u64_at(image, 72) & 1 << 12 != 0,
            may_have_shared_groups: u64_at(image, 72) & 1 << 16 != 0,
            may_withhold: u64_at(image, 72) & 1 << 17 != 0,
            may_have_site: u64_at(image, 72) & 1 << 18 != 0,
            may_have_replication: u64_at(image, 72) & 1 << 20 != 0,
            data_start: u64_at(image, 80),
            slot_bytes: u32_at(image, 96),
            members: members.collect(),
            this: u16_at(image, 114),
            checkpoint: u64_at(checkpoint, 32),
            incarnation: u64_at(checkpoint, 40),
            stamp_next: u64_at(checkpoint, 64),
            segment_use_next: u64_at(checkpoint, 72),
            acknowledged_below: u64_at(checkpoint, 56),
            previous: (u64_at(checkpoint, 96), u32_at(checkpoint, 104)),
            log_block: u32_at(checkpoint, 108),
            log_segment: Mirrored::read(&checkpoint[112..]),
            roots: [152, 176, 200].map(|at| Pointer::read(&checkpoint[at..])),
            catalogue_segments: segments.collect(),
        })
    }

    /// The valid superblock with the highest generation on a drive.
    fn newest(platters: &Platters, drive: usize) -> Option<Self> {
        let images = PLACES.iter().enumerate().filter_map(|(place, &at)| {
            let image = platters.read(drive, at, IMAGE_MAX);
            Self::read(&image, place).ok()
        });
        images.max_by_key(|image| image.generation)
    }
}

/// The opinion of `own` on `wanted`, if its drive should have that: it is up to date, or contradicts it.
fn standing(wanted: &RawSuperblock, own: &RawSuperblock) -> Option<bool> {
    let row = wanted.members.get(usize::from(own.this))?;
    let name = &own.members[usize::from(own.this)].drive;
    if !row.holds_superblocks() || row.drive != *name {
        return None;
    }
    match own.generation {
        generation if generation == wanted.generation => Some(own.mark == wanted.mark),
        generation if generation + 1 == wanted.generation => Some(own.mark == wanted.previous_mark),
        _ => None,
    }
}

/// Drives whose own superblock says that they are missing, or gone, by index, with the name of each and its
/// row: they have left, and hold nothing.
pub fn left_drives(platters: &Platters) -> Vec<(usize, u16, [u8; 16])> {
    let newest = newest_of_all(platters).into_iter();
    let rows = newest.map(|(drive, own)| (drive, own.this, own.members[usize::from(own.this)].clone()));
    let left = rows.filter(|(_, _, row)| matches!(row.state, 2 | 5));
    left.map(|(drive, this, row)| (drive, this, row.drive)).collect()
}

fn newest_of_all(platters: &Platters) -> Vec<(usize, RawSuperblock)> {
    let drives = 0..platters.0.len();
    drives.filter_map(|drive| Some((drive, RawSuperblock::newest(platters, drive)?))).collect()
}

/// Elects the superblock that counts. Also returns the drives of up-to-date members.
pub fn elect(platters: &Platters) -> ReadResult<(RawSuperblock, BTreeMap<u16, usize>)> {
    let newest = newest_of_all(platters);
    let all: Vec<&RawSuperblock> = newest.iter().map(|(_, own)| own).collect();
    let highest = all.iter().map(|own| own.generation).max().ok_or("no superblock counts")?;
    // An older superblock matters only if it contradicts the newest.
    let mut candidates: Vec<&RawSuperblock> =
        all.iter().copied().filter(|own| own.generation == highest).collect();
    for looked_at in 0.. {
        let Some(wanted) = candidates.get(looked_at).copied() else { break };
        let speaks_against = |own: &&RawSuperblock| {
            standing(wanted, own) == Some(false) && !candidates.iter().any(|known| std::ptr::eq(*known, *own))
        };
        let more: Vec<&RawSuperblock> = all.iter().copied().filter(speaks_against).collect();
        candidates.extend(more);
    }
    // Of two with one number, neither of which is contradicted, a complete one is on more drives.
    let holds = |wanted: &RawSuperblock, own: &RawSuperblock| {
        (own.generation, own.mark) == (wanted.generation, wanted.mark) && standing(wanted, own) == Some(true)
    };
    let holders = |wanted: &RawSuperblock| all.iter().filter(|own| holds(wanted, own)).count();
    candidates.sort_by_key(|wanted| std::cmp::Reverse((wanted.generation, holders(wanted))));
    let is_disproved = |wanted: &RawSuperblock| all.iter().any(|own| standing(wanted, own) == Some(false));
    let proved = candidates.iter().find(|wanted| !is_disproved(wanted));
    let known_to =
        |wanted: &&RawSuperblock| all.iter().filter(|own| standing(wanted, own) == Some(true)).count();
    let elected = proved.or_else(|| candidates.iter().rev().max_by_key(|wanted| known_to(wanted)));
    let elected = *elected.ok_or("no superblock counts")?;
    let up_to_date = newest.iter().filter(|(_, own)| standing(elected, own) == Some(true));
    Ok((elected.clone(), up_to_date.map(|(drive, own)| (own.this, *drive)).collect()))
}
