//! One copy of a backup to a vault: its snapshots exported, what changed read, and what is new stored.
//!
//! The verb, the server's own thread and the agent of a mail host run it.

use super::{
    differences::{base_of, difference},
    exported::VaultExports,
    opening::OpenVault,
};
use crate::{
    protect::{
        backup_points::{PointsOfBackup, SetPoints},
        restore::points_to_restore,
    },
    server::{connection::ServerConnection, place::ServerPlace},
};
use control::web::client::{BackupCopyBody, BackupPointRow, Method, SetBackupRow, SetRow, in_uri};
use protect::backup_schedule::BackupKind;
use report::Refusal;
use std::rc::Rc;
use vault::{
    contents::{CopiedBackup, copied_backups},
    copying::{self, CopyOrder, CopyOutcome, VolumeSource},
    forgetting::forget,
    layout::SliceLayout,
    pruning::prune,
    record::{BackupRecord, RECORD_FORMAT, RECORD_VERSION, VolumeRecord},
    time_text,
};
use world::{BlockDevice, ByteCount, Job, World};

const WEEK_S: i64 = 7 * 86_400;

/// Copies backups of a server to a vault.
pub struct BackupCopier<'c> {
    pub world: &'c World,
    pub server: &'c ServerConnection,
    pub place: &'c ServerPlace,
    pub vault: &'c OpenVault,
}

/// Unit, rate, and fate of a copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyingWay {
    /// Bytes of a chunk.
    pub chunk: u32,
    pub throttle: Option<ByteCount>,
    /// Copies by the clock that stay in the vault; `None` for one by hand, which stays until someone removes it.
    pub stay: Option<u32>,
}

/// A backup that is in the vault.
pub struct MadeCopy {
    /// Name of the snapshot there.
    pub snapshot: String,
    /// The vault had it already.
    pub was_there: bool,
    pub read_bytes: u64,
    pub stored_bytes: u64,
    /// Volumes that were read as a whole, and why.
    pub whole: Vec<(String, &'static str)>,
    /// Packs of a copy that ended early, used now.
    pub resumed_packs: usize,
    /// Numbers of all backups of the set's catalogue that have a copy there now.
    pub copies: Vec<u64>,
    /// The reason why copies that are too many, or what they alone needed, are left.
    pub left: Option<String>,
}

impl BackupCopier<'_> {
    /// Copies a backup, unless it is there. `job` counts the bytes to be read.
    ///
    /// # Errors
    ///
    /// The server does not answer, or the vault cannot be used; or `job` was cancelled.
    pub async fn copy(
        &self,
        (known, backup, row): (&SetPoints, &PointsOfBackup, &SetRow),
        way: CopyingWay,
        job: &Job,
    ) -> Result<MadeCopy, Refusal> {
        let mut points = points_to_restore(known, backup)?;
        points.sort_by(|a, b| (&a.pool, &a.volume).cmp(&(&b.pool, &b.volume)));
        let repository = &self.vault.repository;
        let there = copied_backups(repository).await.map_err(|error| self.vault.refused(&error))?;
        let (catalogue, number) = (backup.note.set.to_string(), backup.note.sequence);
        if let Some(copy) = there.iter().find(|copy| is_of(copy, &catalogue, backup)) {
            return Ok(MadeCopy {
                snapshot: copy.id.to_string(),
                was_there: true,
                read_bytes: 0,
                stored_bytes: 0,
                whole: Vec::new(),
                resumed_packs: 0,
                copies: numbers_of(&there, &catalogue),
                left: None,
            });
        }
        let mut exports = VaultExports::new(self.server, self.place, &repository.config.id);
        let copied = async {
            let mut volumes = Vec::new();
            for point in &points {
                volumes.push(self.source((known, &there), point, way.chunk, &mut exports).await?);
            }
            let record = record(backup, row, way.stay.is_some());
            let order = CopyOrder { record, volumes, throttle: way.throttle };
            copying::copy(repository, order, job).await.map_err(|error| self.vault.refused(&error))
        };
        let copied = copied.await;
        let deleted = exports.delete().await;
        let CopyOutcome { snapshot, read_bytes, stored_bytes, whole, resumed_packs } = copied?;
        deleted?;
        let mut copies = numbers_of(&there, &catalogue);
        copies.push(number);
        let mut left = None;
        if let Some(stay) = way.stay {
            let removing = async {
                let removed = forget(repository, &catalogue, stay as usize).await?;
                copies.retain(|one| !removed.contains(one));
                if is_first_of_its_week(&there, &catalogue, self.world.wall().seconds) {
                    prune(repository, job).await?;
                }
                Ok(())
            };
            // The copy stands all the same.
            left = removing.await.err().map(|error| self.vault.refused(&error).to_string());
        }
        let snapshot = snapshot.to_string();
        Ok(MadeCopy {
            snapshot,
            was_there: false,
            read_bytes,
            stored_bytes,
            whole,
            resumed_packs,
            copies,
            left,
        })
    }

    /// A volume to be copied: exported, with its difference to the vault.
    async fn source(
        &self,
        (known, copies): (&SetPoints, &[CopiedBackup]),
        point: &BackupPointRow,
        chunk: u32,
        exports: &mut VaultExports<'_>,
    ) -> Result<VolumeSource, Refusal> {
        let layout = SliceLayout::with_chunks(chunk);
        let since = match base_of(copies, known, point, layout) {
            Some(base) => difference(self.server, &base, point).await?,
            None => None,
        };
        let device = Rc::new(exports.snapshot(self.world, point).await?);
        let geometry = device.geometry();
        let record = VolumeRecord {
            pool: point.pool.clone(),
            volume: point.volume.clone(),
            volume_id: point.volume_id.clone(),
            snapshot: point.name.clone(),
            snapshot_id: point.snapshot_id.clone(),
            size_bytes: geometry.size.0,
            block_bytes: geometry.sector,
            layout,
        };
        let holes = Some(Rc::clone(&device));
        Ok(VolumeSource {
            record,
            device: device as Rc<dyn BlockDevice>,
            holes: holes.map(|one| one as _),
            since,
        })
    }
}

/// Notes a copy in the catalogue of a set that the server keeps.
///
/// # Errors
///
/// The server does not answer, or refuses.
pub async fn note_copy(
    server: &ServerConnection,
    (set, number): (&str, u64),
    body: &BackupCopyBody,
) -> Result<(), Refusal> {
    let path = format!("/v1/sets/{}/backups/{number}/copies", in_uri(set));
    server.change_to_its_end(Method::POST, &path, Some(body)).await?.checked().map(drop)
}

impl MadeCopy {
    /// The copy as the catalogue has it.
    pub fn body(&self, vault: &OpenVault) -> BackupCopyBody {
        BackupCopyBody {
            to: vault.noted_place(),
            id: self.snapshot.clone(),
            bytes: self.stored_bytes,
            copies: Some(self.copies.clone()),
            problem: None,
        }
    }
}

/// True if no earlier copy by the clock was made in this week: it is the one that prunes.
fn is_first_of_its_week(earlier: &[CopiedBackup], catalogue: &str, now_s: i64) -> bool {
    let of_clock = earlier.iter().filter(|one| one.record.is_scheduled && one.record.catalogue == catalogue);
    let last_s = of_clock.filter_map(|one| time_text::seconds_of(&one.snapshot.time)).max();
    last_s.is_some_and(|last_s| last_s.div_euclid(WEEK_S) < now_s.div_euclid(WEEK_S))
}

/// True if a copy is of this backup. A catalogue that was made again may give a number that the vault knows to another one, and
/// the name with it: the snapshots tell.
fn is_of(copy: &CopiedBackup, catalogue: &str, backup: &PointsOfBackup) -> bool {
    let CopiedBackup { record, .. } = copy;
    let snapshots = backup.points.iter().map(|point| point.snapshot_id.as_str());
    record.catalogue == catalogue && record.backup == backup.note.sequence && has_all(record, snapshots)
}

/// True if the copy has all these snapshots.
pub fn has_all<'s>(record: &BackupRecord, mut snapshots: impl Iterator<Item = &'s str>) -> bool {
    snapshots.all(|snapshot| record.volumes.iter().any(|volume| volume.snapshot_id == snapshot))
}

fn numbers_of(copies: &[CopiedBackup], catalogue: &str) -> Vec<u64> {
    let of_set = copies.iter().filter(|copy| copy.record.catalogue == catalogue);
    of_set.map(|copy| copy.record.backup).collect()
}

/// The record of a backup, by the notes of its points and by the server's catalogue.
fn record(backup: &PointsOfBackup, row: &SetRow, is_scheduled: bool) -> BackupRecord {
    let note = &backup.note;
    let known: Option<&SetBackupRow> = row.backups.iter().find(|row| row.number == note.sequence);
    let kind = match note.kind {
        BackupKind::Full => "full",
        BackupKind::InterimLogs => "logs",
        BackupKind::InterimCrash => "crash",
    };
    let reasons = known.map(|row| row.reasons.clone()).unwrap_or_default();
    BackupRecord {
        format: RECORD_FORMAT.to_owned(),
        version: RECORD_VERSION,
        set: row.name.clone(),
        catalogue: note.set.to_string(),
        backup: note.sequence,
        name: backup.name.clone(),
        kind: kind.to_owned(),
        label: known.map_or(note.label.word(), |row| &row.label).to_owned(),
        reason: reasons.first().cloned(),
        evidence: reasons,
        needs: note.needs,
        note: note.encode(),
        cut_at: known.map(|row| row.at.clone()),
        is_scheduled,
        volumes: Vec::new(),
        program: format!("spindle {}", env!("CARGO_PKG_VERSION")),
    }
}
