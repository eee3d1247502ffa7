//! Drives as reported by the kernel's block layer.

use super::{fact, mount::filesystem_of, number};
use crate::{ByteCount, IoError, IoErrorKind, IoResult};
use rustix::fs::{major, minor};
use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveInfo {
    /// The kernel's name: `sda`, `nvme0n1`, `dm-3`.
    pub name: String,
    pub size: ByteCount,
    pub model: Option<String>,
    /// Serial number; for a mapped device the mapper's unique name.
    pub serial: Option<String>,
    /// True if the kernel considers it rotational (virtual drives often report that wrongly).
    pub rotational: Option<bool>,
    /// Logical sector size, in bytes.
    pub logical_sector: Option<u32>,
    /// Physical sector size, in bytes.
    pub physical_sector: Option<u32>,
    /// `write back` (volatile cache) or `write through`.
    pub write_cache: Option<String>,
    pub read_only: bool,
    /// Whole drives below a composed device; empty for a plain one.
    pub underlying: Vec<String>,
}

/// The drive that a block device is, or is a partition of. `WrongType`: not a block device.
pub fn drive_of_device(path: &Path) -> IoResult<DriveInfo> {
    let number = device_number(path)?;
    let folder = whole_folder(number).ok_or_else(|| {
        IoError::new(IoErrorKind::Unsupported, format!("{}: not listed in /sys", path.display()))
    })?;
    Ok(read_drive(&folder))
}

/// The drive under the filesystem that holds `path`; `None` if it has none (tmpfs, network) or it cannot be
/// determined.
pub fn drive_of_path(path: &Path) -> Option<DriveInfo> {
    let device = fs::metadata(path).ok()?.dev();
    let by_number = whole_folder((major(device), minor(device)));
    // btrfs and overlays have device numbers of their own; the mount's source may still be a device.
    let folder = by_number.or_else(|| {
        let source = filesystem_of(path).ok()?.source;
        whole_folder(device_number(Path::new(&source)).ok()?)
    })?;
    Some(read_drive(&folder))
}

/// Major and minor number of a block device. `WrongType`: not a block device.
pub fn device_number(path: &Path) -> IoResult<(u32, u32)> {
    let context = || format!("examining {}", path.display());
    let found = fs::metadata(path).map_err(|error| IoError::from_os(error, context()))?;
    if found.file_type().is_block_device() {
        Ok((major(found.rdev()), minor(found.rdev())))
    } else {
        Err(IoError::new(IoErrorKind::WrongType, format!("{}: not a block device", context())))
    }
}

/// The /sys folder of the whole drive that a device number belongs to.
fn whole_folder((major, minor): (u32, u32)) -> Option<PathBuf> {
    let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if folder.join("partition").exists() { folder.parent().map(Path::to_owned) } else { Some(folder) }
}

/// Reads the sysfs folder of a whole drive.
pub(super) fn read_drive(folder: &Path) -> DriveInfo {
    let read = |name: &str| fact(folder.join(name));
    let count = |name: &str| number(folder.join(name));
    let mut underlying: Vec<String> = fs::read_dir(folder.join("slaves"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    underlying.sort();
    let vendor = read("device/vendor").filter(|vendor| !vendor.starts_with("0x"));
    let model = read("device/model").or_else(|| read("dm/name")).or_else(|| read("md/level"));
    let model = match (vendor, model) {
        // "ATA" names the transport, not the vendor.
        (Some(vendor), Some(model)) if vendor != "ATA" => Some(format!("{vendor} {model}")),
        (_, model) => model,
    };
    DriveInfo {
        name: folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        // The kernel counts in 512 bytes here, whatever the sector.
        size: ByteCount(count("size").unwrap_or_default() * 512),
        model,
        serial: ["serial", "device/serial", "dm/uuid", "md/uuid"]
            .iter()
            .find_map(|name| read(name))
            .or_else(|| unit_serial(&fs::read(folder.join("device/vpd_pg80")).ok()?)),
        rotational: count("queue/rotational").map(|flag| flag != 0),
        logical_sector: count("queue/logical_block_size").and_then(|size| size.try_into().ok()),
        physical_sector: count("queue/physical_block_size").and_then(|size| size.try_into().ok()),
        write_cache: read("queue/write_cache"),
        read_only: count("ro").is_some_and(|flag| flag != 0),
        underlying,
    }
}

/// The serial number in a SCSI Unit Serial Number page (SPC: four header bytes, the last of them
/// the length, then ASCII).
fn unit_serial(page: &[u8]) -> Option<String> {
    let (header, rest) = page.split_first_chunk::<4>()?;
    let serial = rest.get(..usize::from(header[3]))?;
    let serial = String::from_utf8_lossy(serial).trim().to_owned();
    (header[1] == 0x80 && !serial.is_empty()).then_some(serial)
}

/// A drive's I/O during a sampling interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveActivity {
    /// Length of the interval.
    pub span: Duration,
    pub operations: u64,
    /// Bytes read and written.
    pub bytes: ByteCount,
    /// Time with at least one operation in flight; at most `span`, give or take a tick.
    pub busy: Duration,
}

impl DriveActivity {
    /// Share of the interval in which the drive was busy, 0 to 100 percent.
    pub fn busy_percent(&self) -> f64 {
        (self.busy.as_secs_f64() / self.span.as_secs_f64() * 100.0).min(100.0)
    }
}

/// Samples the counters of a drive (kernel name, as in [`DriveInfo::name`]) over `span`; 200 ms is enough to
/// detect other users. `None` if it has no counters.
pub async fn drive_activity(world: &crate::World, name: &str, span: Duration) -> Option<DriveActivity> {
    let path = format!("/sys/class/block/{name}/stat");
    let before = Counters::parse(&fact(&path)?)?;
    let start = world.now();
    world.sleep(span).await;
    let after = Counters::parse(&fact(&path)?)?;
    Some(DriveActivity {
        span: world.now().since(start),
        operations: after.operations.wrapping_sub(before.operations),
        bytes: ByteCount(after.sectors.wrapping_sub(before.sectors).saturating_mul(512)),
        busy: Duration::from_millis(after.busy_ms.wrapping_sub(before.busy_ms)),
    })
}

/// Documentation/block/stat.rst of the kernel: reads, merges, sectors, ms, writes, merges, sectors,
/// ms, in flight, busy ms, …
struct Counters {
    operations: u64,
    sectors: u64,
    busy_ms: u64,
}

impl Counters {
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let field = |index: usize| fields.get(index).copied();
        Some(Self {
            operations: field(0)?.wrapping_add(field(4)?),
            sectors: field(2)?.wrapping_add(field(6)?),
            busy_ms: field(9)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_formats_are_understood() {
        assert_eq!(unit_serial(b"\0\x80\0\x06 Z1A2 trailing"), Some("Z1A2".to_owned()));
        assert_eq!(unit_serial(b"\0\x80\0\x20short"), None);
        assert_eq!(unit_serial(b"\0\x83\0\x04Z1A2"), None);
        let counters = Counters::parse("  10 1 200 3 40 5 600 7 0 88 99 0 0").unwrap();
        assert_eq!((counters.operations, counters.sectors, counters.busy_ms), (50, 800, 88));
        assert!(Counters::parse("10 1").is_none());
    }

    #[test]
    fn a_path_that_is_not_a_block_device_is_refused() {
        let refused = drive_of_device(Path::new("/dev/null")).unwrap_err();
        assert_eq!(refused.kind(), IoErrorKind::WrongType);
    }

    #[test]
    fn the_drive_of_a_path_has_a_name_and_a_size() {
        let folder = tempfile::tempdir().unwrap();
        // A container may hide it; a tmpfs has none.
        let Some(drive) = drive_of_path(folder.path()) else {
            return println!("skipped: no drive visible");
        };
        assert!(!drive.name.is_empty() && drive.size > ByteCount(0), "{drive:?}");
    }
}
