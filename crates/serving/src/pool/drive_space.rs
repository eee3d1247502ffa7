//! Space of a drive on its storage: reserved if it is missing, with warnings where it cannot be.
//!
//! The pool relies on each drive's size. A sparse file, a copy-on-write filesystem and a thin disk
//! run out of space before that; the pool continues without the space, but its administrator should know beforehand.

use super::drive_search::OpenDrive;
use std::path::Path;
use world::{
    BlockDevice, ByteCount, IoErrorKind,
    real::{
        FileDevice,
        host::{Disk, filesystem_of},
    },
};

/// Reserves the space a drive lacks, and returns a line for each reason why it may still run out of space.
pub async fn secure(name: &str, open: &OpenDrive) -> Vec<String> {
    match (&open.disk, &open.file) {
        (Some(disk), _) => of_disk(name, disk).into_iter().collect(),
        (None, Some(file)) => of_file(name, &open.path, file).await,
        // Its server does not say how much room there is.
        (None, None) => Vec::new(),
    }
}

/// The warning about a thin disk.
fn of_disk(name: &str, disk: &Disk) -> Option<String> {
    disk.is_thin.then(|| {
        format!(
            "{name} is thin provisioned: its storage can run out of space while the pool has room; keep {} free there",
            disk.size
        )
    })
}

async fn of_file(name: &str, path: &Path, device: &FileDevice) -> Vec<String> {
    let allocation = match device.allocation().await {
        Ok(allocation) => allocation,
        Err(error) => {
            return vec![format!("{name}: {error}; it may run out of space when its filesystem is full")];
        }
    };
    let mut warnings = Vec::new();
    let size = device.geometry().size;
    if let Some(filesystem) = allocation.copy_on_write {
        warnings.push(format!(
            "{name} lies on {filesystem}, which writes each change to a new place: no space can be set aside for it, and \
             writes fail when the filesystem is full; keep {size} free there"
        ));
        return warnings;
    }
    if allocation.missing.0 > 0 {
        let missing = allocation.missing;
        warnings.push(match device.allocate_missing().await {
            Ok(()) => format!("{name} was sparse: the {missing} it lacked on its filesystem are set aside for it now"),
            Err(error) if error.kind() == IoErrorKind::NoSpace => {
                let free = filesystem_of(path).map_or(ByteCount(0), |filesystem| filesystem.free);
                format!(
                    "{name} is sparse and lacks {missing}, of which its filesystem has {free}: writes fail when that is \
                     full; make room there and open the pool again"
                )
            }
            Err(error) => format!(
                "{name} is sparse and lacks {missing}: {error}; writes fail when its filesystem is full; keep that \
                 much free there"
            ),
        });
    }
    if allocation.shared.0 > 0 {
        warnings.push(format!(
            "{name} shares {} with another file (a reflink copy, or a snapshot of its filesystem): the next write there \
             needs new space, and fails when the filesystem is full; keep that much free there",
            allocation.shared
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thin_disk_is_warned_of_and_another_is_not() {
        let disk = |is_thin| Disk {
            name: "sda".into(),
            node: "/dev/sda".into(),
            number: (8, 0),
            size: ByteCount::gib(4),
            by_id: None,
            model: None,
            serial: None,
            wwid: None,
            bay: None,
            is_thin,
            is_read_only: false,
            holders: Vec::new(),
        };
        let warning = of_disk("bay 7, now /dev/sda", &disk(true)).unwrap();
        assert_eq!(
            warning,
            "bay 7, now /dev/sda is thin provisioned: its storage can run out of space while the pool has room; keep 4.00 \
             GiB free there"
        );
        assert_eq!(of_disk("sda", &disk(false)), None);
    }
}
