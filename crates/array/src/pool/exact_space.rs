//! Exact space of a volume: what keeps its data, and what each deletion would free.
//!
//! Invariants of an answer:
//!
//! 1. All of it is as of one moment: the map, the snapshots and what is in memory are noted in one step.
//! 2. `used_bytes` is the sum of `volume_bytes`, `snapshots_bytes` and `others_bytes`.
//! 3. The thread is held for the changes in memory, of which there are [`COPIED_MAX`] at most, or for a leaf of the map.

use super::{Pool, VolumeKey};
use crate::{
    engine::{BranchLoss, Catalogue, MapReader, PlannedDeletion, State, UsageCounter},
    error::{Error, Result},
    format::{BranchNumber, GRAIN_BYTES, SnapshotId, Stamp, VolumeNumber, row::VolumeState},
    map::{BranchSpace, BranchSpaceQuery, ReclaimableQuery},
    tree::{Trees, WalkPace},
};
use std::collections::BTreeMap;

/// More changes in memory than this are merged into the map first, since they have to be copied in one step.
const COPIED_MAX: usize = 8192;

/// Space of a volume in bytes of one copy of its data, exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeSpace {
    /// All data of the volume, its snapshots and what its rollbacks left. Data that a clone shares with the volume it was made
    /// of counts there; data of a deleted volume that its clones read counts to none.
    pub used_bytes: u64,
    /// The part that the volume reads itself.
    pub volume_bytes: u64,
    /// The part that snapshots keep beyond it: deleting all of them frees it.
    pub snapshots_bytes: u64,
    /// The part that clones and volumes left by rollbacks keep beyond both.
    pub others_bytes: u64,
    /// Freed by deleting the volume with its snapshots.
    pub reclaimable_bytes: u64,
    /// In the order in which they were taken.
    pub snapshots: Vec<SnapshotSpace>,
}

/// Space of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSpace {
    pub name: String,
    pub snapshot: SnapshotId,
    /// Freed of its volume's data by deleting this snapshot alone; nothing if a clone or a rollback began at it. What
    /// several snapshots keep together is in no one's.
    pub reclaimable_bytes: u64,
}

impl Pool {
    /// The exact space of a volume. The first call for a volume reads its whole map, later ones its history; no write waits.
    ///
    /// # Errors
    ///
    /// No such volume; a part of its map cannot be read; or the pool has stopped.
    pub async fn exact_space<'k>(&self, volume: impl Into<VolumeKey<'k>>) -> Result<VolumeSpace> {
        let number = self.number_of(volume.into())?;
        let own = own_branches(&self.shared.state.borrow().catalogue, number);
        for branch in own {
            self.usage.count_branch(branch, WalkPace::LeafByLeaf).await?;
        }
        let copied = || {
            let state = self.shared.state.borrow();
            state.table.len() + state.merging.as_ref().map_or(0, |table| table.len())
        };
        if copied() > COPIED_MAX {
            self.checkpoints.make_to_its_end().await?;
        }
        let _reading = self.shared.begin_reading();
        let question = SpaceQuestion::new(&self.shared.state.borrow(), &self.usage, number)?;
        question.answer(&self.map).await
    }
}

/// The branches whose data counts to a volume. To one that a rollback left, only that which it reads.
fn own_branches(catalogue: &Catalogue, number: VolumeNumber) -> Vec<BranchNumber> {
    let branches = match catalogue.volume(number) {
        Some(row) if row.left_by.is_some() => vec![row.branch],
        _ => catalogue.branches_of(number).collect(),
    };
    // What nothing needs any more is removed by checkpoints.
    branches.into_iter().filter(|&branch| !catalogue.is_given_up(branch)).collect()
}

/// All that is to be computed, as of one moment.
struct SpaceQuestion {
    /// The branch that the volume reads.
    branch: BranchNumber,
    /// Its own branches, with the grains that are stored of each.
    own: BTreeMap<BranchNumber, i64>,
    walks: Vec<BranchQuestion>,
    snapshots: Vec<(SnapshotSpace, SnapshotLoss)>,
    /// Number of sets of points that are asked about.
    sets: usize,
    /// Branches of which the deletion of the volume frees everything, and the others that lose a part.
    freed_whole: Vec<BranchNumber>,
    freed_parts: Vec<ReclaimableQuery>,
}

struct BranchQuestion {
    branch: BranchNumber,
    query: BranchSpaceQuery,
    /// The sets that its answers are about.
    sets: Vec<usize>,
}

/// Points that are lost with a snapshot.
enum SnapshotLoss {
    Nothing,
    Point(BranchNumber, Stamp),
    /// Those of this set.
    Set(usize),
}

/// The set of what is lost with all snapshots.
const ALL_SNAPSHOTS: usize = 0;

impl SpaceQuestion {
    fn new(state: &State, usage: &UsageCounter, number: VolumeNumber) -> Result<Self> {
        let catalogue = &state.catalogue;
        let row = catalogue.volume(number).expect("numbers of volumes stay");
        if row.state != VolumeState::Live {
            return Err(Error::NoVolume(row.name.clone()));
        }
        let lineage = catalogue.lineage_of(number);
        let all: Vec<_> = catalogue.snapshots_of(number).collect();
        let together = PlannedDeletion {
            snapshots: all.iter().map(|&(branch, stamp, _)| (branch, stamp)).collect(),
            heads: [].into(),
        };
        let mut sets = vec![catalogue.losses_among(lineage.iter().copied(), &together)];
        let mut snapshots = Vec::with_capacity(all.len());
        for (branch, stamp, point) in all {
            let losses = catalogue.losses_by_snapshot((branch, stamp), number);
            let loss = match &losses[..] {
                [] => SnapshotLoss::Nothing,
                [BranchLoss { branch, points, .. }] if points.len() == 1 => {
                    SnapshotLoss::Point(*branch, points[0])
                }
                _ => {
                    sets.push(losses);
                    SnapshotLoss::Set(sets.len() - 1)
                }
            };
            let (name, snapshot) = (point.name.clone(), point.snapshot);
            snapshots.push((SnapshotSpace { name, snapshot, reclaimable_bytes: 0 }, loss));
        }
        let own: BTreeMap<_, _> = own_branches(catalogue, number)
            .into_iter()
            .map(|branch| (branch, usage.stored_by(state, branch)))
            .collect();
        let (freed_whole, freed_parts) = Self::deletion(state, number, &own);
        let lost: Vec<BranchNumber> = sets.iter().flatten().map(|loss| loss.branch).collect();
        let mut walked: Vec<_> = own.keys().copied().chain(lost).collect();
        walked.sort_unstable();
        walked.dedup();
        let walk = |branch: BranchNumber| {
            let mut here = Vec::new();
            for (index, losses) in sets.iter().enumerate() {
                let loss = losses.iter().find(|loss| loss.branch == branch);
                here.extend(loss.map(|loss| (index, loss.points.as_slice())));
            }
            let points: Vec<_> = here.iter().map(|(_, points)| *points).collect();
            let query = BranchSpaceQuery::new(&state.sources(), catalogue.points(), branch, &points);
            BranchQuestion { branch, query, sets: here.into_iter().map(|(index, _)| index).collect() }
        };
        let walks = walked.into_iter().map(walk).collect();
        Ok(Self { branch: row.branch, own, walks, snapshots, sets: sets.len(), freed_whole, freed_parts })
    }

    /// The parts of [`Self::freed_whole`] and [`Self::freed_parts`].
    fn deletion(
        state: &State,
        number: VolumeNumber,
        own: &BTreeMap<BranchNumber, i64>,
    ) -> (Vec<BranchNumber>, Vec<ReclaimableQuery>) {
        let catalogue = &state.catalogue;
        let planned = PlannedDeletion::of_volume(catalogue, number);
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        for BranchLoss { branch, points, loses_head } in
            catalogue.losses_among(catalogue.lineage_of(number), &planned)
        {
            if own.contains_key(&branch) && !catalogue.is_needed(branch, &planned) {
                whole.push(branch);
                continue;
            }
            let query = ReclaimableQuery::new(&state.sources(), catalogue.points(), branch, &points);
            parts.push(if loses_head { query.with_head() } else { query });
        }
        (whole, parts)
    }

    async fn answer(self, map: &MapReader) -> Result<VolumeSpace> {
        let Self { branch, mut own, walks, snapshots, sets, freed_whole, freed_parts } = self;
        let trees: &Trees = &map.trees;
        let mut by_set = vec![0; sets];
        let mut by_point = BTreeMap::new();
        let (mut volume, mut all_snapshots, mut past_of_own) = (0, 0, 0);
        for BranchQuestion { branch: walked, query, sets } in walks {
            let BranchSpace { past, by_point: points, by_set: answers, dead } = query.finish(trees).await?;
            for (set, grains) in sets.into_iter().zip(answers) {
                by_set[set] += grains;
                if set == ALL_SNAPSHOTS && own.contains_key(&walked) {
                    all_snapshots += grains;
                }
            }
            by_point.extend(points.into_iter().map(|(point, grains)| ((walked, point), grains)));
            if let Some(stored) = own.get_mut(&walked) {
                *stored -= dead;
                past_of_own += past;
                if walked == branch {
                    volume = *stored - past;
                }
            }
        }
        let used: i64 = own.values().sum();
        debug_assert!(
            volume >= 0 && volume + past_of_own <= used && all_snapshots <= past_of_own,
            "{volume} read, {past_of_own} kept, {all_snapshots} of it by snapshots, of {used}"
        );
        let mut freed: i64 = freed_whole.iter().map(|branch| own[branch]).sum();
        for query in freed_parts {
            freed += query.finish(trees).await?.total();
        }
        let snapshot = |(space, loss): (SnapshotSpace, SnapshotLoss)| {
            let grains = match loss {
                SnapshotLoss::Nothing => 0,
                SnapshotLoss::Point(branch, stamp) => by_point.get(&(branch, stamp)).copied().unwrap_or(0),
                SnapshotLoss::Set(set) => by_set[set],
            };
            SnapshotSpace { reclaimable_bytes: bytes(grains), ..space }
        };
        Ok(VolumeSpace {
            used_bytes: bytes(used),
            volume_bytes: bytes(volume),
            snapshots_bytes: bytes(all_snapshots),
            others_bytes: bytes(used - volume - all_snapshots),
            reclaimable_bytes: bytes(freed),
            snapshots: snapshots.into_iter().map(snapshot).collect(),
        })
    }
}

fn bytes(grains: i64) -> u64 {
    debug_assert!(grains >= 0, "nothing is freed more than once");
    u64::try_from(grains).unwrap_or(0) * GRAIN_BYTES as u64
}
