//! The record in a pool's folder: the pool's drives, their names, and their last paths.
//!
//! A drive is identified by the UUID in its superblock. The other fields say where to look first, and how to name a
//! missing drive.

use super::remote_drive::{DrivePlace, resolved};
use crate::{
    remote::{RemoteSettings, is_uri},
    uuid::parse_uuid,
};
use array::format::{DriveId, PoolId};
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use world::{
    IoErrorKind,
    real::{
        host::Disk,
        host_files::{self, PathKind},
    },
};

pub const RECORD_NAME: &str = "spindle-pool.json";
/// The first format was a list of paths.
const RECORD_FORMAT: u32 = 2;
/// With drives on other machines, which programs of before would look for in the folder.
const RECORD_FORMAT_REMOTE: u32 = 3;

/// The drives of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRecord {
    /// `None` in a record of format 1.
    pub pool: Option<PoolId>,
    /// In the order they were added.
    pub drives: Vec<RecordedDrive>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedDrive {
    /// `None` in a record of format 1.
    pub drive: Option<DriveId>,
    /// Last path, a relative one in the folder; or the URI of a drive on another machine.
    pub path: PathBuf,
    /// All `None` for a file.
    pub hardware: Hardware,
    /// What the server of a URI asks for.
    pub access: RemoteSettings,
}

/// Labels printed on a drive, and its slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hardware {
    /// Slot of the enclosure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bay: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Equal on every path to the drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwid: Option<String>,
}

impl Hardware {
    pub fn of(disk: &Disk) -> Self {
        let Disk { bay, model, serial, wwid, .. } = disk.clone();
        Self { bay, model, serial, wwid }
    }

    /// `bay 7, ST4000NM, serial Z1Z0ABCD`: the known parts; `None` if nothing is known.
    pub fn words(&self) -> Option<String> {
        let bay = self.bay.as_ref().map(|bay| format!("bay {bay}"));
        let serial = self.serial.as_ref().map(|serial| format!("serial {serial}"));
        let words: Vec<String> = [bay, self.model.clone(), serial].into_iter().flatten().collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// The record as JSON. Format 1 has a path for each drive and no UUIDs.
#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    drives: Vec<StoredDrive>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredDrive {
    Path(PathBuf),
    Drive {
        #[serde(skip_serializing_if = "Option::is_none")]
        drive: Option<String>,
        path: PathBuf,
        #[serde(flatten)]
        hardware: Hardware,
        #[serde(flatten)]
        access: Box<RemoteSettings>,
    },
}

impl PoolRecord {
    pub fn write(&self, folder: &Path) -> Result<(), Refusal> {
        let stored = Stored {
            format: if self.has_remote_drives() { RECORD_FORMAT_REMOTE } else { RECORD_FORMAT },
            pool: self.pool.map(|pool| pool.to_string()),
            drives: self.drives.iter().map(RecordedDrive::stored).collect(),
        };
        let text = serde_json::to_string_pretty(&stored).expect("plain fields") + "\n";
        host_files::write_atomically(&folder.join(RECORD_NAME), text.as_bytes())
            .map_err(|error| Refusal::new(error.to_string(), "check the folder"))
    }

    /// Reads the record of a folder.
    pub fn read(folder: &Path) -> Result<Self, Refusal> {
        let path = folder.join(RECORD_NAME);
        let text = host_files::read_to_string(&path).map_err(|error| match error.kind() {
            IoErrorKind::NotFound => Refusal::new(
                format!("{} is no pool: it has no {RECORD_NAME}", folder.display()),
                format!(
                    "if drives of a pool are there, 'spindle pool import {0}' writes it again; 'spindle pool create {0}' \
                     makes a new pool",
                    folder.display()
                ),
            ),
            _ => Refusal::new(error.to_string(), "check its permissions"),
        })?;
        Self::parse(&text).map_err(|why| {
            let remedy = "move the record away and let 'spindle pool import' write it again from the drives";
            Refusal::new(format!("{}: {why}", path.display()), remedy)
        })
    }

    fn has_remote_drives(&self) -> bool {
        self.drives.iter().any(|drive| is_uri(&drive.path))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let stored: Stored = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if !(1..=RECORD_FORMAT_REMOTE).contains(&stored.format) {
            return Err(format!(
                "it has format {}, and 1 to {RECORD_FORMAT_REMOTE} are known",
                stored.format
            ));
        }
        let pool = stored.pool.as_deref().map(parse_uuid).transpose()?.map(PoolId);
        let drives = stored.drives.into_iter().map(RecordedDrive::of).collect::<Result<_, String>>()?;
        Ok(Self { pool, drives })
    }
}

impl RecordedDrive {
    pub fn file(drive: DriveId, name: PathBuf) -> Self {
        Self::found(drive, name)
    }

    /// A drive of which only the path is known.
    pub fn found(drive: DriveId, path: PathBuf) -> Self {
        let (hardware, access) = (Hardware::default(), RemoteSettings::default());
        Self { drive: Some(drive), path, hardware, access }
    }

    /// Its last place, from here.
    pub fn place(&self, folder: &Path) -> DrivePlace {
        DrivePlace { path: resolved(folder, &self.path), access: self.access.clone() }
    }

    /// Name for a person in front of the machine: `bay 7, ST4000NM, serial Z1Z0ABCD, now /dev/sdh`.
    /// `now` is the current path, `None` if the drive is missing.
    pub fn name(&self, folder: &Path, now: Option<&Path>) -> String {
        let recorded = self.place(folder).path;
        match (self.hardware.words(), now) {
            (None, now) => now.unwrap_or(&recorded).display().to_string(),
            (Some(words), Some(now)) => format!("{words}, now {}", now.display()),
            (Some(words), None) => format!("{words}, last at {}", recorded.display()),
        }
    }

    fn of(stored: StoredDrive) -> Result<Self, String> {
        Ok(match stored {
            StoredDrive::Path(path) => {
                let (hardware, access) = (Hardware::default(), RemoteSettings::default());
                Self { drive: None, path, hardware, access }
            }
            StoredDrive::Drive { drive, path, hardware, access } => {
                let drive = drive.as_deref().map(parse_uuid).transpose()?.map(DriveId);
                Self { drive, path, hardware, access: *access }
            }
        })
    }

    fn stored(&self) -> StoredDrive {
        let Self { drive, path, hardware, access } = self.clone();
        StoredDrive::Drive {
            drive: drive.map(|drive| drive.to_string()),
            path,
            hardware,
            access: access.into(),
        }
    }
}

/// True if a folder has a pool's record.
pub fn is_pool(folder: &Path) -> bool {
    matches!(host_files::kind(&folder.join(RECORD_NAME)), Ok(PathKind::File))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_what_it_was_given_and_the_older_format_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let hardware = Hardware {
            bay: Some("7".into()),
            model: Some("ST4000NM".into()),
            serial: Some("Z1Z0ABCD".into()),
            wwid: None,
        };
        let device = RecordedDrive { hardware, ..RecordedDrive::found(DriveId([7; 16]), "/dev/sdh".into()) };
        let file = RecordedDrive::file(DriveId([8; 16]), "drive-2.spindle".into());
        let mut record = PoolRecord { pool: Some(PoolId([9; 16])), drives: vec![device, file] };
        let stored = || host_files::read_to_string(&folder.path().join(RECORD_NAME)).unwrap();
        record.write(folder.path()).unwrap();
        assert_eq!(PoolRecord::read(folder.path()).unwrap(), record);
        assert!(stored().contains("\"format\": 2"), "older programs may read it");
        let access = RemoteSettings { chap_name: Some("mail".into()), digests: true, ..Default::default() };
        let uri = "iscsi://shelf:3260/iqn.x:disks/3".into();
        let remote = RecordedDrive { access, ..RecordedDrive::found(DriveId([6; 16]), uri) };
        assert_eq!(remote.place(folder.path()).path, Path::new("iscsi://shelf:3260/iqn.x:disks/3"));
        record.drives.push(remote);
        record.write(folder.path()).unwrap();
        assert_eq!(PoolRecord::read(folder.path()).unwrap(), record);
        assert!(stored().contains("\"format\": 3"), "programs of before refuse it");
        let older =
            PoolRecord::parse("{\"format\": 1, \"drives\": [\"drive-1.spindle\", \"/dev/sdc\"]}").unwrap();
        assert_eq!((older.pool, older.drives.len()), (None, 2));
        assert_eq!((older.drives[1].drive, older.drives[1].path.to_str()), (None, Some("/dev/sdc")));
    }

    #[test]
    fn what_is_no_record_is_refused_with_the_reason() {
        for (text, why) in [
            ("{\"format\": 9, \"drives\": []}", "it has format 9, and 1 to 3 are known"),
            ("{\"format\": 2, \"pool\": \"x\", \"drives\": []}", "\"x\" is no UUID"),
            ("{\"format\": 2, \"drives\": [{\"path\": \"a\", \"drive\": \"zz\"}]}", "\"zz\" is no UUID"),
            ("{", "EOF"),
        ] {
            let refused = PoolRecord::parse(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn a_drive_is_called_by_what_is_known_of_it() {
        let folder = Path::new("mail");
        let name = |hardware: &Hardware, now: Option<&str>| {
            let drive = RecordedDrive {
                hardware: hardware.clone(),
                ..RecordedDrive::found(DriveId([1; 16]), "/dev/sdc".into())
            };
            drive.name(folder, now.map(Path::new))
        };
        let mut hardware = Hardware::default();
        assert_eq!(name(&hardware, None), "/dev/sdc");
        assert_eq!(name(&hardware, Some("/dev/sdh")), "/dev/sdh");
        hardware.serial = Some("Z1Z0ABCD".into());
        assert_eq!(name(&hardware, None), "serial Z1Z0ABCD, last at /dev/sdc");
        (hardware.bay, hardware.model) = (Some("7".into()), Some("ST4000NM".into()));
        assert_eq!(name(&hardware, Some("/dev/sdh")), "bay 7, ST4000NM, serial Z1Z0ABCD, now /dev/sdh");
        let file = RecordedDrive::file(DriveId([1; 16]), "drive-1.spindle".into());
        assert_eq!(file.name(folder, None), "mail/drive-1.spindle");
    }
}
