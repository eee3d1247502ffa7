//! Bases of a copy, and the server's differences to them.

use crate::{protect::backup_points::SetPoints, server::connection::ServerConnection};
use control::web::{
    client::{BackupPointRow, in_uri},
    differences::DifferenceEnd,
};
use report::Refusal;
use serving::pool::difference::{ChangeWord, RangeLine};
use vault::{
    contents::CopiedBackup,
    copying::{ChangedRange, VolumeDifference},
    layout::SliceLayout,
};

/// A volume of a copy in the vault whose snapshot the server still has.
pub struct VolumeBase<'v> {
    pub copy: &'v CopiedBackup,
    /// Name and identity of the snapshot.
    snapshot: &'v str,
    snapshot_id: &'v str,
}

/// The newest copy of the volume of `point` whose snapshot is still there; the copies are in the order of their numbers.
pub fn base_of<'v>(
    copies: &'v [CopiedBackup],
    known: &SetPoints,
    point: &BackupPointRow,
    layout: SliceLayout,
) -> Option<VolumeBase<'v>> {
    let is_there = |snapshot_id: &str| {
        let mut points = known.backups().flat_map(|backup| &backup.points);
        points.any(|known| known.volume_id == point.volume_id && known.snapshot_id == snapshot_id)
    };
    copies.iter().rev().find_map(|copy| {
        let is_base = |volume: &&vault::record::VolumeRecord| {
            volume.volume_id == point.volume_id && volume.layout == layout && is_there(&volume.snapshot_id)
        };
        let volume = copy.record.volumes.iter().find(is_base)?;
        Some(VolumeBase { copy, snapshot: &volume.snapshot, snapshot_id: &volume.snapshot_id })
    })
}

/// Everything that differs between a base and a point; `None` if the server cannot compare them, as when the base is newer.
///
/// # Errors
///
/// The server does not answer, or not to the end.
pub async fn difference(
    server: &ServerConnection,
    base: &VolumeBase<'_>,
    point: &BackupPointRow,
) -> Result<Option<VolumeDifference>, Refusal> {
    let mut found = VolumeDifference { base: base.copy.id, ranges: Vec::new() };
    if base.snapshot_id == point.snapshot_id {
        return Ok(Some(found));
    }
    let (volume, from, to) = (in_uri(&point.volume_id), in_uri(base.snapshot), in_uri(&point.name));
    let path = format!("/v1/volumes/{volume}/difference?from={from}&to={to}");
    let (mut lines, mut is_whole) = (0_u64, false);
    let taken = server
        .get_lines(&path, |line| {
            lines += 1;
            is_whole = serde_json::from_str::<DifferenceEnd>(line).is_ok();
            if let Ok(RangeLine { at, length, change }) = serde_json::from_str(line) {
                match change {
                    // A discarded range may read as anything, so it is read.
                    ChangeWord::Data | ChangeWord::Discarded => {
                        found.ranges.push(ChangedRange { at, length, is_zero: false });
                    }
                    ChangeWord::Zeroes => found.ranges.push(ChangedRange { at, length, is_zero: true }),
                    ChangeWord::BeyondSize => {}
                }
            }
            Ok(())
        })
        .await;
    match taken {
        // It was refused before it began.
        Err(_) if lines == 0 => Ok(None),
        Err(refusal) => Err(refusal),
        Ok(_) if is_whole => Ok(Some(found)),
        Ok(_) => Err(Refusal::new(
            format!("the difference of {}/{} to {from} broke off", point.pool, point.volume),
            "give the same command again",
        )),
    }
}
