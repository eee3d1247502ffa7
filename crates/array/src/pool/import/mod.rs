//! Imports: a device elsewhere becomes a volume that hosts use at once, while its blocks are copied.
//!
//! The volume's branch begins at a point of an empty branch, as that of a clone does. So discards of hosts leave
//! tombstones, copies have the stamp of the fork, and neither is anything new to log, map and checkpoints. A row names
//! the source; what a branch has no version of is read there (`volume::importing`).
//!
//! Invariants:
//!
//! 1. While the row is there, nobody opens the volume without its source: what is not copied would read as zeroes.
//! 2. Nothing but the volume's own commands needs it to be complete: it has no points, and gets none; it is in no group.
//! 3. Below `filled_below` of the branch every block was looked at, and what was copied is stable. It is a place to go on
//!    from and nothing else: the volume reads right whatever it is.
//! 4. The import ends in one record, which takes the row and the fork away. Before, every block that no host wrote was
//!    read in the volume, and compared with the source unless that is read once: what the volume has no version of is
//!    read there in any case, and is zero there, or was given up by order.

mod compare;
mod end;
mod findings;
mod pass;

pub use findings::{ImportFindings, ImportedVolume};

use super::{Pool, VolumeKey, VolumeSetting, volumes::check_name};
use crate::{
    engine::Catalogue,
    error::{Error, Result},
    format::{
        BLOCK_BYTES, BlockCount, BlockIndex, BranchNumber, Compression, RedundancyClass, RowKey,
        SECTOR_BYTES, SnapshotId, Stamp, VolumeId, VolumeNumber, WallNanoseconds,
        features::{INCOMPATIBLE_BRANCHES, INCOMPATIBLE_FILLING, INCOMPATIBLE_IMPORTS},
        row::{BranchRow, IMPORT_SOURCE_BYTES_MAX, ImportRow, PointRow, PointUses, VolumeRow, VolumeState},
        sectors_to_blocks,
    },
    log::LogItem,
    map::BlockMapping,
    volume::{ImportSource, ImportedBlock},
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use world::BlockDevice;

/// A volume to be imported. It gets the size of its source, rounded up to blocks of 4096 bytes.
#[derive(Clone, Debug)]
pub struct NewImport {
    /// Unique in the pool.
    pub name: String,
    /// Globally unique.
    pub volume: VolumeId,
    /// Without bounds.
    pub setting: VolumeSetting,
    /// Description of the source, by which it is found again: 1 to 960 bytes that the pool keeps and does not look at.
    pub source: Vec<u8>,
}

/// Conditions of the end of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportTerms {
    /// It ends although blocks cannot be read, which are zeroes then, or have changed in the source, which stay as copied.
    pub keeps_findings: bool,
    /// Copies are read back in the pool and must have the checksums that they were made with; the source is not read again
    /// for them. So nobody notices what somebody wrote there meanwhile, or what it read wrong once.
    pub reads_once: bool,
}

/// State of a volume that is being imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportStatus {
    /// The description of the source.
    pub source: Vec<u8>,
    pub source_bytes: u64,
    /// Bytes of the volume, from its beginning, that were looked at, and copied unless they are zeroes.
    pub filled_bytes: u64,
    pub total_bytes: u64,
    /// Bytes that were compared with the source, once all are filled.
    pub compared_bytes: Option<u64>,
    /// Bytes that the source could not read since the pool was opened.
    pub bad_bytes: u64,
    /// The source is attached.
    pub is_attached: bool,
    /// The reason why it does not go on at present; it is tried again.
    pub problem: Option<String>,
}

/// Progress and findings of an import under way, until the pool is closed.
#[derive(Debug, Default)]
pub(super) struct ImportState {
    problem: Option<String>,
    bad: BTreeSet<u64>,
    compared_bytes: Option<u64>,
    /// Held by each copy under way.
    copies: Rc<Cell<()>>,
}

pub(super) type ImportProblems = RefCell<BTreeMap<VolumeId, ImportState>>;

/// The blocks of a volume that is being imported.
#[derive(Clone, Debug)]
struct ImportTarget {
    volume: VolumeId,
    number: VolumeNumber,
    branch: BranchNumber,
    fork: Stamp,
    /// Number of the first block that was not looked at, and of all blocks.
    from: u64,
    end: u64,
}

impl ImportTarget {
    /// True for a version that was copied from the source: copies have the stamp of the fork.
    fn is_copy(&self, found: &BlockMapping) -> bool {
        found.version.birth == self.fork
    }

    /// True for a block that a host has written or discarded.
    fn is_of_host(&self, owner: &ImportedBlock) -> bool {
        match owner {
            ImportedBlock::Stored(found) => !self.is_copy(found),
            ImportedBlock::Discarded => true,
            ImportedBlock::OfSource => false,
        }
    }
}

impl Pool {
    /// Makes a volume that reads from `device` what it has no block of. It can be used at once. [`Pool::import`] copies the
    /// blocks. The device must not be written by anyone until that has ended.
    ///
    /// # Errors
    ///
    /// The name is taken or invalid; the source is empty, larger than a volume may be, or its description too long; the class
    /// is not implemented; or the pool cannot write.
    pub async fn begin_import(&self, new: &NewImport, device: Rc<dyn BlockDevice>) -> Result<()> {
        check_name(&new.name)?;
        let source_bytes = device.geometry().size.0;
        let size_bytes = source_bytes.next_multiple_of(BLOCK_BYTES as u64);
        let sectors = super::volumes::check_size(size_bytes)?;
        if !(1..=IMPORT_SOURCE_BYTES_MAX).contains(&new.source.len()) {
            return Err(Error::NoteTooLong(new.source.len()));
        }
        if !matches!(new.setting.class, RedundancyClass::Raid0 | RedundancyClass::Raid1) {
            return Err(Error::NotYet("a volume of a class other than raid0 and raid1"));
        }
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let features = INCOMPATIBLE_BRANCHES | INCOMPATIBLE_FILLING | INCOMPATIBLE_IMPORTS;
        let feature = self.shared.begin_rows(features).await?;
        self.check_new_volume(&new.name)?;
        self.check_new_identity(new.volume)?;
        let (parts, branch) = self.parts_of_import(new, sectors, source_bytes);
        self.host.imports.borrow_mut().insert(branch, Rc::new(ImportSource { device, source_bytes }));
        let made = self.answer((one_at_a_time, feature), self.log.append_together(parts)).await;
        if made.is_err() {
            self.host.imports.borrow_mut().remove(&branch);
        }
        made
    }

    /// The rows of a new import, in an order in which none of them is given up: the branch comes before what it began on.
    fn parts_of_import(
        &self,
        new: &NewImport,
        sectors: u64,
        source_bytes: u64,
    ) -> (Vec<LogItem>, BranchNumber) {
        let created_at = self.shared.wall_now();
        let mut state = self.shared.state.borrow_mut();
        let (number, empty) = (state.catalogue.volume_next(), state.catalogue.branch_next());
        let branch = BranchNumber(empty.0 + 1);
        let fork = state.next_stamp_of([empty]);
        let row = VolumeRow {
            volume: new.volume,
            name: new.name.clone(),
            state: VolumeState::Live,
            class: new.setting.class,
            branch,
            group: None,
            write_cache: new.setting.write_cache,
            compression: Compression::None,
            sectors,
            reserve: BlockCount(0),
            limit: BlockCount(0),
            iops_max: new.setting.rates.iops_max,
            kib_per_second_max: new.setting.rates.kib_per_second_max,
            created_at,
            key: [0; 16],
            left_by: None,
        };
        let branch_row = BranchRow {
            state: VolumeState::Live,
            volume: number,
            parent: Some((empty, fork)),
            depth: 1,
            is_replica: false,
            stamp_max: Stamp(0),
            filled_below: Some(BlockIndex(0)),
        };
        let empty_row = BranchRow {
            state: VolumeState::Deleting,
            parent: None,
            depth: 0,
            stamp_max: fork,
            filled_below: None,
            ..branch_row.clone()
        };
        let point_row = PointRow {
            name: String::new(),
            state: VolumeState::Live,
            uses: PointUses { fork: true, ..PointUses::default() },
            references: 1,
            volume: number,
            group: None,
            snapshot: SnapshotId::default(),
            created_at,
            expires_at: WallNanoseconds(0),
            sectors,
            note: Vec::new(),
        };
        let import_row = ImportRow { source_bytes, source: new.source.clone() };
        let rows = [
            (RowKey::of_branch(branch), branch_row.encode()),
            (RowKey::of_branch(empty), empty_row.encode()),
            (RowKey::of_point(empty, fork), point_row.encode()),
            (RowKey::of_volume(number), row.encode()),
            (RowKey::of_import(number), import_row.encode()),
        ];
        (rows.into_iter().map(|(row, bytes)| LogItem::Put { row, bytes }).collect(), branch)
    }

    /// Attaches the source of a volume that is being imported, after the pool was opened: only then can the volume be used.
    ///
    /// # Errors
    ///
    /// No such volume; it is not being imported; or the source has another size than it had.
    pub fn attach_source<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        device: Rc<dyn BlockDevice>,
    ) -> Result<()> {
        let number = self.number_of(volume.into())?;
        let row = self.volume_row(number);
        let state = self.shared.state.borrow();
        let import =
            state.catalogue.import_of(number).ok_or_else(|| Error::NotImporting(row.name.clone()))?;
        let (source_bytes, found_bytes) = (import.source_bytes, device.geometry().size.0);
        if found_bytes != source_bytes {
            return Err(Error::SourceSize { source_bytes, found_bytes });
        }
        let source = Rc::new(ImportSource { device, source_bytes });
        self.host.imports.borrow_mut().insert(row.branch, source);
        Ok(())
    }

    /// Fails if the volume is being imported, and its source is not attached.
    pub(super) fn check_source(&self, number: VolumeNumber) -> Result<()> {
        let row = self.volume_row(number);
        match self.host.source_of(row.branch) {
            Err(_) => Err(Error::SourceNotAttached(row.name)),
            Ok(_) => Ok(()),
        }
    }

    /// Fails if the volume is being imported.
    pub(super) fn check_not_importing(&self, row: &VolumeRow) -> Result<()> {
        match self.shared.state.borrow().catalogue.is_importing(row.branch) {
            true => Err(Error::Importing(row.name.clone())),
            false => Ok(()),
        }
    }

    /// Adds to the status of an import what is known since the pool was opened.
    pub(super) fn explain_import(&self, volume: VolumeId, status: ImportStatus) -> ImportStatus {
        let branch = self.number_of(volume.into()).map(|number| self.volume_row(number).branch);
        let is_attached = branch.is_ok_and(|branch| self.host.imports.borrow().contains_key(&branch));
        let states = self.import_problems.borrow();
        let Some(state) = states.get(&volume) else { return ImportStatus { is_attached, ..status } };
        ImportStatus {
            // A comparison may go along with the copy.
            compared_bytes: state.compared_bytes.filter(|_| status.filled_bytes == status.total_bytes),
            bad_bytes: (state.bad.len() * BLOCK_BYTES) as u64,
            is_attached,
            problem: state.problem.clone(),
            ..status
        }
    }

    fn import_target(&self, number: VolumeNumber) -> Result<ImportTarget> {
        self.shared.check_runs()?;
        self.check_source(number)?;
        let row = self.volume_row(number);
        if self.host.source_of(row.branch)?.is_none() {
            return Err(Error::NotImporting(row.name));
        }
        Ok(self.known_target(number))
    }

    /// Of a volume that is being imported.
    fn known_target(&self, number: VolumeNumber) -> ImportTarget {
        let row = self.volume_row(number);
        let state = self.shared.state.borrow();
        let branch = state.catalogue.branch(row.branch).expect("a volume has it");
        let (_, fork) = branch.parent.expect("an import begins at a fork");
        ImportTarget {
            volume: row.volume,
            number,
            branch: row.branch,
            fork,
            from: branch.filled_below.unwrap_or_default().0,
            end: sectors_to_blocks(row.sectors),
        }
    }
}

impl ImportStatus {
    /// Of a volume; `None` if it is not being imported.
    pub(super) fn of(catalogue: &Catalogue, number: VolumeNumber, row: &VolumeRow) -> Option<Self> {
        let import = catalogue.import_of(number)?;
        let total_bytes = row.sectors * SECTOR_BYTES;
        let filled = catalogue.branch(row.branch)?.filled_below.unwrap_or_default();
        Some(Self {
            source: import.source.clone(),
            source_bytes: import.source_bytes,
            filled_bytes: (filled.0 * BLOCK_BYTES as u64).min(total_bytes),
            total_bytes,
            compared_bytes: None,
            bad_bytes: 0,
            is_attached: false,
            problem: None,
        })
    }
}
