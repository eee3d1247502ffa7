//! Facts about this machine, for pre-flight checks and the report.
//!
//! Sources are /proc, /sys and statvfs; no program is started. A fact that the kernel or a container hides is
//! `None`, never a guess.

mod backing;
pub mod disk;
pub mod drive;
pub mod kernel_log;
pub mod machine;
pub mod mount;
pub mod mounts_below;
pub mod signature;
pub mod usage;
mod usage_text;

pub(super) use backing::{Backing, mount_id, open_path};
pub use disk::{Disk, DiskCatalogue};
pub use drive::{DriveActivity, DriveInfo, device_number, drive_activity, drive_of_device, drive_of_path};
pub use kernel_log::{DeviceNames, KernelDeviceError, KernelLog, KernelLogUpdate};
pub use machine::{Machine, ProcessUse, machine, process_use};
pub(super) use mount::Mount;
pub use mount::{Filesystem, filesystem_of};
pub use mounts_below::{
    FolderUser, LoopDevice, MountBelow, loop_devices_below, mounts_below, users_of_folder,
};
pub use signature::{DeviceSignature, signature_of};
pub use usage::{DeviceUse, usage_of_device};
pub use usage_text::usages_text;

use std::{fs, path::Path};

/// Reads a small text file of /proc or /sys and trims it; `None` if absent or empty.
fn fact(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// Reads a small text file that holds one number.
fn number(path: impl AsRef<Path>) -> Option<u64> {
    fact(path)?.parse().ok()
}
