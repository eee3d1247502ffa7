//! Drives whose files or devices have become larger.

use super::{departure::NamedDrive, folder::OpenPool, status::DriveStatuses};
use array::pool::Pool;
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::path::Path;
use world::ByteCount;

/// A drive that has become larger than the pool uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GrownStatus {
    /// Bay, model and serial number as far as they are known, and the path.
    pub name: String,
    pub drive: String,
    pub unused_bytes: u64,
}

impl GrownStatus {
    /// The line that says it, with the next step.
    pub fn text(&self, folder: &Path) -> String {
        format!(
            "drive {} has become larger by {}, which 'spindle pool grow {} DRIVE' uses",
            self.name,
            ByteCount(self.unused_bytes),
            folder.display()
        )
    }
}

/// Drives that have become larger.
pub(super) fn grown_of(pool: &Pool, drives: &DriveStatuses) -> Vec<GrownStatus> {
    let status = |(drive, unused_bytes): (array::format::DriveId, u64)| {
        let drive = drive.to_string();
        let known = drives.drives.iter().find(|known| known.drive.as_ref() == Some(&drive));
        let name = known.map_or_else(|| drive.clone(), |known| known.name.clone());
        GrownStatus { name, drive, unused_bytes }
    };
    pool.unused_growth().into_iter().map(status).collect()
}

/// Uses all of a drive that has become larger. Returns the bytes gained.
///
/// # Errors
///
/// It has not grown, is not in use, or leaves; nothing was changed.
pub async fn grow(open: &OpenPool, drive: &NamedDrive) -> Result<u64, Refusal> {
    let grown = open.pool.grow(drive.drive).await;
    match grown.map_err(|error| open.refusal(&error, "nothing was changed"))? {
        0 => Err(Refusal::new(
            format!("{}: {} has not become larger", open.folder().display(), drive.name),
            "enlarge its file, partition or volume first; a pool sees that when it is opened",
        )),
        bytes => Ok(bytes),
    }
}
