//! The oracle: a slow map that keeps every version ever written, and applies the definitions literally.

use array::format::{BlockIndex, BlockKey, BlockLocation, BranchNumber, Stamp};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug)]
pub struct OracleVersion {
    pub birth: Stamp,
    /// Current location.
    pub location: BlockLocation,
}

#[derive(Clone, Debug, Default)]
pub struct OracleBranch {
    pub parent: Option<(BranchNumber, Stamp)>,
    /// Deletion stamp, if the branch has no head.
    pub has_head: bool,
    pub points: BTreeSet<Stamp>,
    /// By block, the oldest first.
    pub versions: BTreeMap<u64, Vec<OracleVersion>>,
    /// Intervals that were discarded.
    pub discards: Vec<(u64, u64, Stamp)>,
}

#[derive(Clone, Debug, Default)]
pub struct Oracle {
    pub branches: BTreeMap<BranchNumber, OracleBranch>,
}

impl Oracle {
    pub fn write(&mut self, key: BlockKey, location: BlockLocation) {
        let branch = self.branches.get_mut(&key.branch).expect("it is there");
        let versions = branch.versions.entry(key.block.0).or_default();
        assert!(versions.last().is_none_or(|last| last.birth < key.stamp));
        versions.push(OracleVersion { birth: key.stamp, location });
    }

    pub fn discard(&mut self, branch: BranchNumber, first: u64, end: u64, stamp: Stamp) {
        self.branches.get_mut(&branch).expect("it is there").discards.push((first, end, stamp));
    }

    /// The branch, birth and location of the version a block reads; none is zero.
    pub fn read(
        &self,
        branch: BranchNumber,
        point: Option<Stamp>,
        block: u64,
    ) -> Option<(BranchNumber, OracleVersion)> {
        let own = &self.branches[&branch];
        let is_seen = |stamp: Stamp| point.is_none_or(|point| stamp <= point);
        let versions = own.versions.get(&block).map_or(&[][..], Vec::as_slice);
        let newest = versions.iter().rfind(|version| is_seen(version.birth));
        let discarded = own.discards.iter().filter(|(first, end, _)| (*first..*end).contains(&block));
        let discarded = discarded.map(|discard| discard.2).filter(|stamp| is_seen(*stamp)).max();
        match newest {
            Some(newest) if discarded < Some(newest.birth) => {
                (newest.location != BlockLocation::Zero).then_some((branch, *newest))
            }
            None if discarded.is_none() => {
                let (parent, fork) = own.parent?;
                self.read(parent, Some(fork), block)
            }
            _ => None,
        }
    }

    /// All versions that ever stored data, in order.
    pub fn written(&self) -> Vec<BlockKey> {
        let mut written = Vec::new();
        for (&branch, known) in &self.branches {
            for (&block, versions) in &known.versions {
                let stored = versions.iter().filter(|version| version.location != BlockLocation::Zero);
                let key = |version: &OracleVersion| BlockKey {
                    branch,
                    block: BlockIndex(block),
                    stamp: version.birth,
                };
                written.extend(stored.map(key));
            }
        }
        written
    }

    /// All versions kept if the points `deleted` were gone: the newest of their branch, and those a point
    /// sees.
    pub fn kept(&self, deleted: &[(BranchNumber, Stamp)]) -> Vec<(BlockKey, BlockLocation)> {
        let mut kept = Vec::new();
        for (&number, branch) in &self.branches {
            for (&block, versions) in &branch.versions {
                for (index, version) in versions.iter().enumerate() {
                    let next = versions.get(index + 1).map(|next| next.birth);
                    let over =
                        branch.discards.iter().filter(|(first, end, _)| (*first..*end).contains(&block));
                    let discarded =
                        over.map(|discard| discard.2).filter(|stamp| *stamp > version.birth).min();
                    let death = next.into_iter().chain(discarded).min();
                    let is_newest = death.is_none() && branch.has_head;
                    let alive = |point: &&Stamp| {
                        version.birth <= **point && death.is_none_or(|death| **point < death)
                    };
                    let points = branch.points.iter().filter(|point| !deleted.contains(&(number, **point)));
                    if version.location != BlockLocation::Zero
                        && (is_newest || points.clone().any(|point| alive(&point)))
                    {
                        let block = BlockIndex(block);
                        kept.push((
                            BlockKey { branch: number, block, stamp: version.birth },
                            version.location,
                        ));
                    }
                }
            }
        }
        kept
    }

    /// Changes the location of a version.
    pub fn relocate(&mut self, key: BlockKey, location: BlockLocation) {
        let versions =
            self.branches.get_mut(&key.branch).and_then(|branch| branch.versions.get_mut(&key.block.0));
        let version =
            versions.and_then(|versions| versions.iter_mut().find(|version| version.birth == key.stamp));
        version.expect("it was written").location = location;
    }
}
