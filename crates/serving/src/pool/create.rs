//! Creating a pool of new files or of blank raw devices.

use super::{
    disks::{DeviceContent, content_of},
    domains::{NamedDomain, of_new_drives},
    folder::{hold, refusal},
    joining_drive::{JoiningDrive, check_apart, check_distinct},
    record::PoolRecord,
    remote_drive::{open_remote, to_record},
    sparing::{level_name, usual_level},
};
use crate::{
    notices::Notices,
    remote::{RemoteSettings, is_uri},
    uuid::random_uuid,
};
use array::{
    error::Error,
    format::{DomainName, PoolId, SparingLevel},
    pool::{NewPool, create_with_copies},
};
use report::Refusal;
use std::{
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    BlockDevice, ByteCount, World,
    real::{
        AccessMode, FileDevice, host,
        host_files::{self, PathKind},
    },
};

/// Slot sizes of large and of small drives, whose reserve would otherwise take most of them.
const SLOT_BYTES: u32 = 4 << 20;
const SLOT_BYTES_SMALL: u32 = 1 << 20;
/// Smaller drives get small slots.
const LARGE_BYTES: u64 = 1 << 30;

/// The drives of a new pool.
pub enum NewPoolDrives<'a> {
    /// Files in its folder.
    Files { count: u16, size: ByteCount },
    /// Devices here, or on other machines by their URIs, with what their servers ask for.
    Devices(&'a [PathBuf], &'a RemoteSettings),
}

impl NewPoolDrives<'_> {
    fn devices(&self) -> Option<&[PathBuf]> {
        match self {
            Self::Files { .. } => None,
            Self::Devices(devices, _) => Some(devices),
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Files { count, .. } => usize::from(*count),
            Self::Devices(devices, _) => devices.len(),
        }
    }
}

/// What is given for a new pool, besides its drives.
#[derive(Clone, Copy, Default)]
pub struct NewPoolSetting<'a> {
    /// Two if `None`, or one in a pool of one drive.
    pub copies: Option<usize>,
    /// As is usual for the number of drives if `None`.
    pub sparing: Option<SparingLevel>,
    /// Drives that none of them names fail alone.
    pub domains: &'a [NamedDomain],
    /// A new one if `None`.
    pub pool: Option<PoolId>,
}

/// A pool that was made.
pub struct CreatedPool {
    pub sparing: SparingLevel,
    pub drive_count: usize,
    /// Of all drives together.
    pub bytes: ByteCount,
    pub copies: usize,
}

/// A new pool, checked.
struct CheckedPool {
    copies: usize,
    sparing: SparingLevel,
    domains: Vec<Option<DomainName>>,
    /// Its folder is yet to be made.
    is_new: bool,
    name: String,
}

/// Checks all that can be checked before a pool is made in `folder`. Nothing is changed.
///
/// # Errors
///
/// The pool cannot be made of these drives, or there.
pub async fn check_new(
    world: &World,
    folder: &Path,
    drives: &NewPoolDrives<'_>,
    setting: NewPoolSetting<'_>,
) -> Result<(), Refusal> {
    checked(world, folder, drives, setting).await.map(|_| ())
}

async fn checked(
    world: &World,
    folder: &Path,
    drives: &NewPoolDrives<'_>,
    setting: NewPoolSetting<'_>,
) -> Result<CheckedPool, Refusal> {
    let copies = check_copies(setting.copies, drives.count())?;
    let sparing = check_sparing(setting.sparing, copies, drives.count())?;
    let domains = of_new_drives(setting.domains, drives.devices(), drives.count())?;
    let is_new = check_folder(folder)?;
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.ok_or_else(|| {
        Refusal::new(format!("{} has no name of its own", folder.display()), "name the folder of the pool")
    })?;
    if let NewPoolDrives::Devices(devices, access) = drives {
        check_distinct(devices)?;
        for device in *devices {
            check_device(world, device, access).await?;
        }
    }
    Ok(CheckedPool { copies, sparing, domains, is_new, name })
}

/// Makes a pool in `folder`.
pub async fn create(
    world: &World,
    folder: &Path,
    drives: NewPoolDrives<'_>,
    setting: NewPoolSetting<'_>,
    notices: &dyn Notices,
) -> Result<CreatedPool, Refusal> {
    // Everything is checked first: a refusal changes nothing.
    let CheckedPool { copies, sparing, domains, is_new, name } =
        checked(world, folder, &drives, setting).await?;
    if is_new {
        host_files::create_dir_all(folder).map_err(|error| storage(&error))?;
    }
    let made =
        make(world, folder, (name, setting.pool), (&drives, &domains), (copies, sparing), notices).await;
    if made.is_err() {
        undo(folder, &drives, is_new);
    }
    Ok(CreatedPool { sparing, drive_count: drives.count(), bytes: made?, copies })
}

/// The number of copies; refuses what the number of drives does not allow.
fn check_copies(copies: Option<usize>, drives: usize) -> Result<usize, Refusal> {
    let usual = drives.min(2);
    match copies.unwrap_or(usual) {
        copies if copies > drives => {
            let problem = format!("{copies} copies take {copies} drives, and {drives} were given");
            Err(Refusal::new(problem, "give more drives, or fewer copies"))
        }
        copies if copies < usual => Err(Refusal::new(
            format!("a pool of {drives} drives keeps two copies or three, not {copies}"),
            "one copy of what rests is for volumes: spindle volume create POOL/VOLUME SIZE --raid0",
        )),
        copies => Ok(copies),
    }
}

/// The level of sparing; refuses one for which the drives are too few.
fn check_sparing(
    sparing: Option<SparingLevel>,
    copies: usize,
    drives: usize,
) -> Result<SparingLevel, Refusal> {
    let level = sparing.unwrap_or_else(|| usual_level(drives));
    let needed = copies + usize::from(level.drives());
    if drives >= needed || level == SparingLevel::None {
        return Ok(level);
    }
    let problem = format!(
        "sparing {} takes {needed} drives with {copies} copies, and {drives} were given",
        level_name(level)
    );
    Err(Refusal::new(problem, "give more drives, fewer copies, or less sparing"))
}

/// True if the folder is yet to be made.
fn check_folder(folder: &Path) -> Result<bool, Refusal> {
    let shown = folder.display();
    match host_files::kind(folder).map_err(|error| storage(&error))? {
        PathKind::Missing => Ok(true),
        PathKind::Folder if host_files::list(folder).map_err(|error| storage(&error))?.is_empty() => {
            Ok(false)
        }
        PathKind::Folder => {
            Err(Refusal::new(format!("{shown} is not empty"), "give a folder that is not there yet"))
        }
        _ => Err(Refusal::new(format!("{shown} is no folder"), "give a folder that is not there yet")),
    }
}

/// Refuses a device that is not raw, not blank, or in use.
pub(super) async fn check_device(world: &World, path: &Path, access: &RemoteSettings) -> Result<(), Refusal> {
    if is_uri(path) {
        let (_, access) = to_record(path, access)?;
        let drive = open_remote(world, path, &access, AccessMode::ReadWrite).await;
        let drive =
            drive.map_err(|error| Refusal::new(error.to_string(), "check the server and its export"))?;
        return check_blank(path, &drive.device, "empty it on its server if you are sure").await;
    }
    let shown = path.display();
    if !matches!(host_files::kind(path), Ok(PathKind::BlockDevice)) {
        let remedy = "give raw block devices, or let files be made with ⟨size⟩";
        return Err(Refusal::new(format!("{shown} is no block device"), remedy));
    }
    let canonical = host_files::canonical(path).map_err(|error| storage(&error))?;
    let usages = host::usage_of_device(&canonical).map_err(|error| storage(&error))?;
    if !usages.is_empty() {
        let problem = format!("{shown} is in use: it is mounted, swap, or part of another device");
        return Err(Refusal::new(problem, "nothing unlocks it; choose another device"));
    }
    let device = FileDevice::open(&canonical, AccessMode::Read).map_err(|error| storage(&error))?;
    let device = Rc::new(device) as Rc<dyn BlockDevice>;
    let emptying = format!("empty it yourself if you are sure (blkdiscard --zeroout {shown})");
    check_blank(path, &device, &emptying).await
}

/// Refuses a device that holds something; a drive of a pool, which may hold the last copy of something, without advice
/// to empty it at once.
async fn check_blank(path: &Path, device: &Rc<dyn BlockDevice>, emptying: &str) -> Result<(), Refusal> {
    let shown = path.display();
    match content_of(device).await.map_err(|error| storage(&error))? {
        DeviceContent::Blank => Ok(()),
        DeviceContent::PoolDrive { name, pool } => Err(Refusal::new(
            format!("{shown} is not empty: it is a drive of the pool {name:?} ({pool})"),
            format!(
                "'spindle pool show' of that pool says whether anything lies on it alone; if nothing does, {emptying}"
            ),
        )),
        DeviceContent::Held(held) => Err(Refusal::new(
            format!("{shown} is not empty: it holds {held}"),
            format!("{emptying}, or choose another"),
        )),
    }
}

async fn make(
    world: &World,
    folder: &Path,
    (name, id): (String, Option<PoolId>),
    (drives, domains): (&NewPoolDrives<'_>, &[Option<DomainName>]),
    (copies, sparing): (usize, SparingLevel),
    notices: &dyn Notices,
) -> Result<ByteCount, Refusal> {
    let _held = hold(folder)?;
    let mut joining = Vec::new();
    match drives {
        NewPoolDrives::Files { count, size } => {
            for number in 1..=*count {
                joining.push(JoiningDrive::file(world, folder, drive_name(number), *size).await?);
            }
        }
        NewPoolDrives::Devices(devices, access) => {
            for device in *devices {
                joining.push(JoiningDrive::device(world, device, access).await?);
            }
        }
    }
    check_apart(&joining).await?;
    joining.iter_mut().zip(domains).for_each(|(drive, &domain)| drive.domain = domain);
    let least = joining.iter().map(|drive| drive.size().0).min().unwrap_or(0);
    let all = joining.iter().fold(ByteCount(0), |all, drive| all + drive.size());
    for drive in &joining {
        drive.warn(folder, notices).await;
    }
    let new: Vec<_> = joining.iter().map(JoiningDrive::new_drive).collect();
    let id = id.unwrap_or_else(|| PoolId(random_uuid(world)));
    let slot_bytes = if least < LARGE_BYTES { SLOT_BYTES_SMALL } else { SLOT_BYTES };
    let pool = NewPool { pool: id, name, slot_bytes, sparing };
    let remedy = "give it larger drives, or others";
    create_with_copies(world, &pool, &new, copies).await.map_err(|error| match error {
        // The pool numbers the drives it was given; a person knows their names.
        Error::TooSmall { drive, .. } | Error::InUse { drive, .. } => {
            let (number, name) = (format!("drive {drive} "), format!("{} ", joining[drive].name(folder)));
            Refusal::new(error.to_string().replacen(&number, &name, 1), remedy)
        }
        error => refusal(folder, &error, remedy),
    })?;
    // Last: without a record the folder is no pool.
    let drives = joining.iter().map(|drive| drive.recorded.clone()).collect();
    PoolRecord { pool: Some(id), drives }.write(folder)?;
    Ok(all)
}

pub(super) fn drive_name(number: u16) -> PathBuf {
    format!("drive-{number}.spindle").into()
}

/// Removes the files of a pool that could not be made.
fn undo(folder: &Path, drives: &NewPoolDrives<'_>, is_new: bool) {
    if let NewPoolDrives::Files { count, .. } = drives {
        for number in 1..=*count {
            let _ = host_files::remove_file(&folder.join(drive_name(number)));
        }
    }
    if is_new {
        // The error is reported already; only an empty folder is left.
        let _ = host_files::remove_folder_if_empty(folder);
    }
}

pub(super) fn storage(error: &world::IoError) -> Refusal {
    Refusal::new(error.to_string(), "check the storage")
}
