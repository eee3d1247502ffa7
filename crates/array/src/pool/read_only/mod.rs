//! A pool opened for reading only, even if it is damaged. Nothing is written to any drive.
//!
//! [`open`](super::open()) refuses a pool that it cannot continue. Here missing data is a finding
//! ([`Condition`]), and the rest is read: by the superblock with the highest rank, or an older one if its
//! trees cannot be read; the log as far as it goes; copies on stale drives as well, since each block has a
//! checksum.

mod condition;
mod copies;
mod shield;
mod volume;

pub use condition::{Condition, DriveCondition, LogCondition, SkippedSuperblock, UnusedReason};
use copies::{Copies, RunBlocks};
pub(super) use shield::{WriteAnswer, WriteShield};
pub use volume::{PartContent, ReadOnlyVolume, VolumePart, VolumeSurvey};

use super::{
    Snapshot, VolumeInfo, replication_rows::records_of, site_rows::document_of, snapshots::no_snapshot,
};
use crate::{
    drive::Drives,
    election::{DriveSuperblock, KNOWN, OpenRefusal, check_layout, newest},
    engine::State,
    error::{Error, Result},
    format::{
        BlockIndex, BranchNumber, CatalogueTable, DriveId, FeatureAccess, GroupId, MemberIndex,
        MirroredSegment, PoolId, Position, Roots, RowKey, SegmentNumber, SegmentUse, Stamp, Superblock,
        TreeKind, VolumeNumber,
        row::{SegmentRow, SiteDocument, VolumeState},
    },
    log::{ReplayStart, replay_for_reading},
    map::PartialLookup,
    segments::Segments,
    superblocks::{SuperblockPlaces, read_places},
    tree::Trees,
};
use condition::{drives_of, may_be_newer_on};
use copies::ReadOnlyNodes;
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use world::{BlockDevice, BoxedFuture};

/// A pool that is opened for reading only.
pub struct ReadOnlyPool {
    copies: Rc<Copies>,
    trees: Trees,
    state: State,
    condition: Condition,
}

/// Opens the pool that most of `devices` belong to, for reading. Nothing is written or locked. `cache_bytes`
/// is the RAM for nodes of the trees.
///
/// # Errors
///
/// No superblock can be read; two pools have the same number of drives; or the pool uses unknown features.
pub fn open_read_only(
    devices: &[Rc<dyn BlockDevice>],
    cache_bytes: usize,
) -> BoxedFuture<'_, Result<Rc<ReadOnlyPool>>> {
    Box::pin(open_best(devices, cache_bytes))
}

async fn open_best(devices: &[Rc<dyn BlockDevice>], cache_bytes: usize) -> Result<Rc<ReadOnlyPool>> {
    let devices = WriteShield::over(devices, WriteAnswer::Refuse);
    let found = DriveScan::look(&devices).await?;
    let mut skipped = Vec::new();
    let mut best: Option<(usize, LoadedPool)> = None;
    for superblock in found.candidates() {
        let access = superblock.features.access(KNOWN);
        if let FeatureAccess::None(_) = access {
            return Err(OpenRefusal::Features(access).into());
        }
        check_layout(superblock)?;
        let reading = LoadedPool::of(&found, &devices, superblock, cache_bytes).await;
        let Some(reason) = reading.flaw().await else {
            best = Some((skipped.len(), reading));
            break;
        };
        let is_better = best.as_ref().is_none_or(|(_, best)| reading.named() > best.named());
        if is_better {
            best = Some((skipped.len(), reading));
        }
        let (generation, written_at) = (superblock.generation, superblock.checkpoint.written_at);
        skipped.push(SkippedSuperblock { generation, written_at, reason });
    }
    let (rank, reading) = best.ok_or(OpenRefusal::NoPool)?;
    skipped.truncate(rank);
    Ok(Rc::new(reading.into_pool(&found, skipped)))
}

/// Superblocks on the devices.
struct DriveScan {
    pool: PoolId,
    /// The newest superblock of each drive of the pool.
    seen: Vec<DriveSuperblock>,
    /// All superblocks of the pool, one for each generation and mark.
    superblocks: Vec<Superblock>,
    not_used: Vec<(usize, UnusedReason)>,
}

impl DriveScan {
    async fn look(devices: &[Rc<dyn BlockDevice>]) -> Result<Self> {
        let mut places: Vec<(usize, SuperblockPlaces)> = Vec::new();
        let mut not_used = Vec::new();
        for (given, device) in devices.iter().enumerate() {
            let read = read_places(device).await;
            match read.newest {
                Some(_) => places.push((given, read)),
                None => not_used.push((given, UnusedReason::NoSuperblock)),
            }
        }
        let pool = most_frequent(places.iter().filter_map(|(_, places)| Some(places.newest.as_ref()?.pool)))?;
        // Of two copies of a drive, the newer one is read.
        places.sort_by_key(|(_, places)| std::cmp::Reverse(places.newest.as_ref().map(|own| own.generation)));
        let (mut seen, mut superblocks) = (Vec::<DriveSuperblock>::new(), BTreeMap::new());
        for (given, SuperblockPlaces { newest, others, .. }) in places {
            let superblock = newest.expect("those without one were left out");
            let drive = superblock.drive();
            if superblock.pool != pool {
                not_used.push((given, UnusedReason::OtherPool(superblock.pool)));
                continue;
            }
            if seen.iter().any(|seen| seen.superblock.drive() == drive) {
                not_used.push((given, UnusedReason::Copy(drive)));
                continue;
            }
            for own in others.into_iter().chain([superblock.clone()]).filter(|own| own.pool == pool) {
                superblocks.insert((own.generation, own.mark.0), own);
            }
            seen.push(DriveSuperblock { given, superblock });
        }
        seen.sort_by_key(|seen| seen.given);
        not_used.sort_by_key(|(given, _)| *given);
        Ok(Self { pool, seen, superblocks: superblocks.into_values().collect(), not_used })
    }

    /// Superblocks to try, in descending order of rank.
    fn candidates(&self) -> Vec<&Superblock> {
        let elected = newest(&self.seen);
        let is_older = |superblock: &&Superblock| {
            elected.is_some_and(|elected| superblock.generation < elected.generation)
        };
        let older = self.superblocks.iter().rev().filter(is_older);
        elected.into_iter().chain(older).collect()
    }

    /// The position below which all was acknowledged, according to the superblocks.
    fn acknowledged_below(&self, superblock: &Superblock) -> Position {
        let known = self.superblocks.iter().filter(|own| own.generation <= superblock.generation);
        let elected = newest(&self.seen).into_iter().chain(known).chain([superblock]);
        elected.map(|own| own.checkpoint.acknowledged_below).max().unwrap_or_default()
    }
}

/// The pool with the most drives.
fn most_frequent(pools: impl Iterator<Item = PoolId>) -> std::result::Result<PoolId, OpenRefusal> {
    let mut counts: BTreeMap<[u8; 16], usize> = BTreeMap::new();
    pools.for_each(|pool| *counts.entry(pool.0).or_default() += 1);
    let mut counts: Vec<(usize, PoolId)> =
        counts.into_iter().map(|(id, count)| (count, PoolId(id))).collect();
    counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    match counts[..] {
        [] => Err(OpenRefusal::NoPool),
        [(most, one), (count, other), ..] if most == count => Err(OpenRefusal::TwoPools(one, other)),
        [(_, pool), ..] => Ok(pool),
    }
}

/// A pool as read by one of its superblocks.
struct LoadedPool {
    superblock: Superblock,
    copies: Rc<Copies>,
    trees: Trees,
    state: State,
    log: LogCondition,
    gaps: Vec<Error>,
}

impl LoadedPool {
    async fn of(
        found: &DriveScan,
        devices: &[Rc<dyn BlockDevice>],
        superblock: &Superblock,
        cache_bytes: usize,
    ) -> Self {
        let copies = Rc::new(Copies::new(drives(found, devices, superblock), found.pool));
        let checkpoint = &superblock.checkpoint;
        checkpoint.catalogue_segments.iter().for_each(|segment| copies.add_mirrored(segment));
        let trees = Trees::new(Rc::new(ReadOnlyNodes(Rc::clone(&copies))), found.pool, cache_bytes);
        let state = State::of(checkpoint, Segments::new(superblock.geometry, [], SegmentUse(0)));
        let log = LogCondition {
            records: 0,
            last: checkpoint.log.previous.position,
            acknowledged_below: found.acknowledged_below(superblock),
            refused: None,
            may_go_on: false,
        };
        let superblock = superblock.clone();
        let mut reading = Self { superblock, copies, trees, state, log, gaps: Vec::new() };
        reading.read_catalogue().await;
        reading.read_log().await;
        // As an opening would, which cannot write here.
        if let Err(refusal) = reading.state.catalogue.complete_for_reading() {
            reading.gaps.push(Error::Damaged { what: "an operation on a group".to_owned(), refusal });
        }
        reading
    }

    async fn read_catalogue(&mut self) {
        let Self { trees, state, copies, gaps, .. } = self;
        let mut damaged_rows = Vec::new();
        let put = |key: RowKey, bytes: &[u8]| {
            let taken = match key.table {
                CatalogueTable::Segment => {
                    SegmentRow::decode(bytes).map(|row| copies.add_row(SegmentNumber(key.id as u32), &row))
                }
                _ => state.catalogue.put(key, bytes),
            };
            if let Err(refusal) = taken {
                damaged_rows.push(Error::Damaged { what: format!("row {key:?}"), refusal });
            }
        };
        trees.rows_or_gaps(state.roots.catalogue, put, |error| gaps.push(error)).await;
        gaps.append(&mut damaged_rows);
        state.catalogue.is_as_of_checkpoint();
        state.table.set_unfinished(&state.catalogue.discards());
    }

    /// Applies the log as far as it goes.
    async fn read_log(&mut self) {
        let Self { superblock: Superblock { checkpoint, pool, .. }, copies, state, log, .. } = self;
        let start = ReplayStart {
            pool: *pool,
            log: &checkpoint.log,
            position_next: checkpoint.position_next,
            acknowledged_below: log.acknowledged_below,
        };
        let (replayed, acknowledged_below) = replay_for_reading(copies.drives(), start, |taken| {
            if log.refused.is_some() {
                return;
            }
            let position = taken.record.position;
            match state.take(&taken.record, taken.rows) {
                Ok(()) => (log.records, log.last) = (log.records + 1, position),
                Err(refusal) => {
                    let what = format!("a row in record {position}");
                    log.refused = Some(Error::Damaged { what, refusal });
                }
            }
        })
        .await;
        log.acknowledged_below = acknowledged_below;
        let is_away = |segment: &MirroredSegment| copies.drives().copies_there(&segment.slots) == 0;
        log.may_go_on = !replayed.has_header || replayed.successors.iter().any(is_away);
        replayed.segments.iter().for_each(|segment| copies.add_mirrored(segment));
        state.announced.iter().for_each(|(number, row)| copies.add_row(*number, row));
    }

    /// The reason why an older superblock may give access to more; `None` if this one gives access to
    /// everything.
    async fn flaw(&self) -> Option<Error> {
        if let Some(gap) = self.gaps.first() {
            return Some(gap.clone());
        }
        let Roots { head, history, .. } = self.state.roots;
        for (tree, root) in [(TreeKind::Head, head), (TreeKind::History, history)] {
            if let Err(error) = self.trees.check_root(tree, root).await {
                return Some(error);
            }
        }
        None
    }

    /// Number of volumes and snapshots found.
    fn named(&self) -> usize {
        let catalogue = &self.state.catalogue;
        let live = catalogue.volumes().filter(|(_, row)| row.state == VolumeState::Live);
        live.map(|(number, _)| 1 + catalogue.unsorted_snapshots_of(number).count()).sum()
    }

    fn into_pool(self, found: &DriveScan, skipped: Vec<SkippedSuperblock>) -> ReadOnlyPool {
        let superblock = &self.superblock;
        let condition = Condition {
            pool: superblock.pool,
            name: superblock.name.clone(),
            generation: superblock.generation,
            checkpoint: superblock.checkpoint.number,
            written_at: superblock.checkpoint.written_at,
            skipped,
            drives: drives_of(superblock, &found.seen),
            may_be_newer_on: may_be_newer_on(&found.seen),
            not_used: not_used(found, superblock),
            log: self.log,
            catalogue_gaps: self.gaps,
        };
        ReadOnlyPool { copies: self.copies, trees: self.trees, state: self.state, condition }
    }
}

/// All present drives that ever were members, current or not: checksums decide what is right.
fn drives(found: &DriveScan, devices: &[Rc<dyn BlockDevice>], superblock: &Superblock) -> Drives {
    let members = superblock.members.iter().enumerate().filter_map(|(index, member)| {
        let seen = found.seen.iter().find(|seen| seen.superblock.drive() == member.drive)?;
        Some((MemberIndex(index as u16), Rc::clone(&devices[seen.given])))
    });
    Drives::new(superblock.geometry, members)
}

fn not_used(found: &DriveScan, superblock: &Superblock) -> Vec<(usize, UnusedReason)> {
    let members: BTreeSet<DriveId> = superblock.members.iter().map(|member| member.drive).collect();
    let strangers = found.seen.iter().filter(|seen| !members.contains(&seen.superblock.drive()));
    let strangers = strangers.map(|seen| (seen.given, UnusedReason::NoMember(seen.superblock.drive())));
    found.not_used.iter().copied().chain(strangers).collect()
}

impl ReadOnlyPool {
    pub fn condition(&self) -> &Condition {
        &self.condition
    }

    /// Live bytes on absent drives only, as of the checkpoint, as far as the catalogue can be read.
    pub fn bytes_without_copy(&self) -> u64 {
        self.copies.bytes_without_copy()
    }

    /// All volumes found, by number.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let catalogue = &self.state.catalogue;
        let live = catalogue.volumes().filter(|(_, row)| row.state == VolumeState::Live);
        live.map(|(number, row)| VolumeInfo::of(catalogue, number, row)).collect()
    }

    /// Snapshots of a volume that were found, oldest first.
    ///
    /// # Errors
    ///
    /// No such volume was found.
    pub fn snapshots(&self, volume: &str) -> Result<Vec<Snapshot>> {
        let number = self.number_of(volume)?;
        let rows = self
            .state
            .catalogue
            .snapshots_of(number)
            .map(|(_, _, row)| Snapshot::of(&self.state.catalogue, row));
        Ok(rows.collect())
    }

    /// The head of a volume, as of the last record found.
    ///
    /// # Errors
    ///
    /// No such volume was found; or it is being imported.
    pub fn volume(self: &Rc<Self>, name: &str) -> Result<ReadOnlyVolume> {
        let number = self.number_of(name)?;
        let row = self.state.catalogue.volume(number).expect("it was found by name");
        if self.state.catalogue.import_of(number).is_some() {
            return Err(Error::SourceNotAttached(row.name.clone()));
        }
        Ok(ReadOnlyVolume::new(Rc::clone(self), (row.branch, None), row.sectors))
    }

    /// A snapshot of a volume, also one that is pending: another pool may lack its part.
    ///
    /// # Errors
    ///
    /// No such volume or snapshot was found.
    pub fn snapshot(self: &Rc<Self>, volume: &str, name: &str) -> Result<ReadOnlyVolume> {
        let mut snapshots = self.state.catalogue.unsorted_snapshots_of(self.number_of(volume)?);
        let found = snapshots.find(|(_, _, row)| row.name == name);
        let (branch, stamp, row) = found.ok_or_else(|| no_snapshot(volume, name))?;
        Ok(ReadOnlyVolume::new(Rc::clone(self), (branch, Some(stamp)), row.sectors))
    }

    /// The document of the site that serves the pool.
    ///
    /// # Errors
    ///
    /// Its rows are damaged.
    pub fn site_document(&self) -> Result<Option<SiteDocument>> {
        document_of(&self.state.catalogue)
    }

    /// The records of DR groups, as [`Pool::replication_records`](super::Pool::replication_records).
    pub fn replication_records(&self) -> Vec<(GroupId, Result<Vec<u8>>)> {
        records_of(&self.state.catalogue)
    }

    fn number_of(&self, volume: &str) -> Result<VolumeNumber> {
        let number = self.state.catalogue.volume_named(volume);
        number.ok_or_else(|| Error::NoVolume(volume.to_owned()))
    }

    /// The versions of `count` blocks from `first`, at the head or at a point.
    pub(crate) async fn map_of(
        &self,
        (branch, as_of): (BranchNumber, Option<Stamp>),
        first: BlockIndex,
        count: u64,
    ) -> PartialLookup {
        self.state.sources().look_up(branch, as_of, first, count as usize).finish_past_gaps(&self.trees).await
    }
}
