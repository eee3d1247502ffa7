//! Identities of exported disks, as initiators see them ([the decision](../../../../docs/decisions/2026-11-24-lun-identity.md)).
//!
//! Invariants:
//!
//! 1. Two disks that may differ have two identities; one disk has the same one at each start, under each name.
//! 2. An identity depends neither on the version of Rust nor on the name of an export: it is a SHA-256 of the disk's own names.

use crate::uuid::random_uuid;
use array::format::{SnapshotId, VolumeId};
use iscsi::scsi::identity::UnitIdentity;
use report::Refusal;
use ring::digest::{Context, SHA256};
use std::path::Path;
use world::{
    IoErrorKind, World,
    real::{
        host::{Disk, DiskCatalogue},
        host_files::{self, PathKind},
    },
};

/// Suffix of a file that holds an identity: it follows the disk's name.
const SUFFIX: &str = ".spindle-id";
const BYTES_MAX: u64 = 4096;

/// Source of an exported disk's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityOrigin {
    /// A volume: its UUID, which it keeps under every name, on every host that opens its pool.
    Volume(VolumeId),
    /// A snapshot: derived from the UUIDs of volume and snapshot, because its content is not the volume's.
    Snapshot(VolumeId, SnapshotId),
    /// A file: a UUID stored beside it. A file that was just made has none, whatever lies beside it.
    File {
        /// The file was just made.
        is_new: bool,
    },
    /// A block device: its own WWID or serial number.
    Device,
}

impl IdentityOrigin {
    /// The identity of a volume or a snapshot, which its UUIDs give; `None` for others.
    pub fn of_pool(&self) -> Option<UnitIdentity> {
        match self {
            Self::Volume(volume) => Some(UnitIdentity(volume.0)),
            Self::Snapshot(volume, snapshot) => Some(of_snapshot(*volume, *snapshot)),
            Self::File { .. } | Self::Device => None,
        }
    }
}

/// An identity, and a warning about where it is stored.
pub struct IdentityLookup {
    pub identity: UnitIdentity,
    pub caveat: Option<String>,
}

/// The identity of the disk at `path`; `state` is the folder for identities that can be stored nowhere else.
///
/// # Errors
///
/// It cannot be stored anywhere; the stored one is no UUID.
pub fn identify(
    world: &World,
    path: &Path,
    origin: &IdentityOrigin,
    state: &Path,
) -> Result<IdentityLookup, Refusal> {
    let plain = |identity| IdentityLookup { identity, caveat: None };
    match origin {
        IdentityOrigin::Volume(_) | IdentityOrigin::Snapshot(..) => {
            Ok(plain(origin.of_pool().expect("its UUIDs give it")))
        }
        IdentityOrigin::File { is_new } => of_file(world, path, *is_new, state),
        IdentityOrigin::Device => {
            match DiskCatalogue::default().disk_at(path).ok().and_then(|disk| of_disk(&disk)) {
                Some(identity) => Ok(plain(identity)),
                None => {
                    keep_by_path(world, path, (state, false), "it has neither a WWID nor a serial number")
                }
            }
        }
    }
}

/// A UUID of version 8 (RFC 9562, 5.8) derived from the parts: equal parts give equal UUIDs, and others do not.
fn derived(kind: &str, parts: &[&[u8]]) -> UnitIdentity {
    let mut hash = Context::new(&SHA256);
    for part in [kind.as_bytes()].iter().chain(parts) {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut bytes: [u8; 16] = hash.finish().as_ref()[..16].try_into().expect("SHA-256 has 32 bytes");
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    UnitIdentity(bytes)
}

fn of_snapshot(volume: VolumeId, snapshot: SnapshotId) -> UnitIdentity {
    derived("spindle snapshot", &[&volume.0, &snapshot.0])
}

/// Identity of a device that reports one. Names of an authority (NAA, EUI, UUID) suffice; a serial number is unique only for
/// its maker, and often the same on all virtual disks: the host's ID is added to those.
fn of_disk(disk: &Disk) -> Option<UnitIdentity> {
    const UNIQUE: [&str; 7] = ["naa.", "eui.", "uuid.", "LVM-", "CRYPT-", "mpath-", "0x"];
    let wwid = disk.wwid.as_deref().filter(|wwid| !wwid.trim().is_empty());
    if let Some(wwid) = wwid.filter(|wwid| UNIQUE.iter().any(|kind| wwid.starts_with(kind))) {
        return Some(derived("spindle device", &[wwid.as_bytes()]));
    }
    let name = wwid.or(disk.serial.as_deref())?;
    let model = disk.model.as_deref().unwrap_or_default();
    let host = host_files::read_to_string(Path::new("/etc/machine-id")).unwrap_or_default();
    // A partition is another disk than the whole, with the same serial number.
    let part = if wwid.is_some() { "" } else { disk.name.as_str() };
    Some(derived(
        "spindle device of a host",
        &[host.trim().as_bytes(), model.as_bytes(), name.as_bytes(), part.as_bytes()],
    ))
}

fn of_file(world: &World, path: &Path, is_new: bool, state: &Path) -> Result<IdentityLookup, Refusal> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(SUFFIX);
    match kept_in(world, Path::new(&beside), is_new) {
        Ok(identity) => Ok(IdentityLookup { identity, caveat: None }),
        Err(IdentityFileError::Damaged(refusal)) => Err(refusal),
        Err(IdentityFileError::Unwritable(why)) => keep_by_path(world, path, (state, is_new), &why),
    }
}

/// Stores an identity in the server's own folder, by the disk's path; a stale one is replaced.
fn keep_by_path(
    world: &World,
    path: &Path,
    (state, is_stale): (&Path, bool),
    why: &str,
) -> Result<IdentityLookup, Refusal> {
    let shown = path.display();
    let refuse = |problem: &str| {
        let problem = format!("{shown} cannot be given an identity: {why}; {}: {problem}", state.display());
        Refusal::new(problem, "name a folder that may be written, with ⟨state⟩ FOLDER")
    };
    let folder = state.join("identities");
    let whole = host_files::canonical(path).map_err(|error| refuse(&error.to_string()))?;
    host_files::create_dir_all(&folder).map_err(|error| refuse(&error.to_string()))?;
    let name = whole.to_string_lossy().replace('%', "%25").replace('/', "%2F");
    let file = folder.join(format!("{name}{SUFFIX}"));
    match kept_in(world, &file, is_stale) {
        Ok(identity) => {
            let caveat = format!(
                "{shown}: {why}; its identity for initiators is stored by its path, in {}",
                file.display()
            );
            Ok(IdentityLookup { identity, caveat: Some(caveat) })
        }
        Err(IdentityFileError::Damaged(refusal)) => Err(refusal),
        Err(IdentityFileError::Unwritable(why)) => Err(refuse(&why)),
    }
}

enum IdentityFileError {
    /// It holds something else.
    Damaged(Refusal),
    /// It can be neither read nor written.
    Unwritable(String),
}

/// The identity in `file`, which is made if it is missing or belongs to a disk that no longer exists.
fn kept_in(world: &World, file: &Path, is_stale: bool) -> Result<UnitIdentity, IdentityFileError> {
    let unwritable = |error: world::IoError| IdentityFileError::Unwritable(error.to_string());
    match host_files::kind(file).map_err(unwritable)? {
        PathKind::Missing => {}
        _ if is_stale => {}
        _ => {
            let text = match host_files::read_at_most(file, BYTES_MAX) {
                Err(error) if error.kind() != IoErrorKind::Damaged => return Err(unwritable(error)),
                read => String::from_utf8(read.unwrap_or_default()).unwrap_or_default(),
            };
            return text.trim().parse().map_err(|_| {
                let problem = format!("{}: it holds no UUID", file.display());
                let remedy =
                    "put the right one back, or remove it: then the disk is a new one to all initiators";
                IdentityFileError::Damaged(Refusal::new(problem, remedy))
            });
        }
    }
    let identity = UnitIdentity(random_uuid(world));
    host_files::write_atomically(file, format!("{identity}\n").as_bytes()).map_err(unwritable)?;
    Ok(identity)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::fs;
    use world::real::{self, RealOptions};

    fn in_world<T>(test: impl FnOnce(&World) -> T) -> T {
        real::run(0, RealOptions::default(), async |world: World| test(&world))
    }

    #[test]
    fn what_is_derived_is_the_same_for_ever_and_a_snapshot_is_not_its_volume() {
        let (volume, point) = (VolumeId([7; 16]), SnapshotId([9; 16]));
        let identity = of_snapshot(volume, point);
        assert_eq!(
            identity.to_string(),
            "58f44d42-856b-8c4f-9b67-4858393a1121",
            "a new Rust, a new Spindle: the same disk"
        );
        assert_ne!(identity, UnitIdentity(volume.0));
        assert_ne!(identity, of_snapshot(volume, SnapshotId([8; 16])), "another point is another disk");
        assert_ne!(identity, of_snapshot(VolumeId([6; 16]), point), "so is another volume of the same cut");
    }

    fn disk(wwid: Option<&str>, serial: Option<&str>) -> Disk {
        Disk {
            name: "sdb".to_owned(),
            node: "/dev/sdb".into(),
            number: (8, 16),
            size: world::ByteCount(1 << 30),
            by_id: None,
            model: Some("QEMU HARDDISK".to_owned()),
            serial: serial.map(str::to_owned),
            wwid: wwid.map(str::to_owned),
            bay: None,
            is_thin: false,
            is_read_only: false,
            holders: Vec::new(),
        }
    }

    #[test]
    fn a_device_is_known_by_its_own_name_and_by_none_that_it_has_not() {
        let naa = of_disk(&disk(Some("naa.5000c500a1b2c3d4"), Some("QM00001"))).unwrap();
        assert_eq!(Some(naa), of_disk(&disk(Some("naa.5000c500a1b2c3d4"), None)), "its WWID says all");
        assert_ne!(Some(naa), of_disk(&disk(Some("naa.5000c500a1b2c3d4-part1"), None)));
        assert_ne!(Some(naa), of_disk(&disk(Some("t10.ATA QEMU HARDDISK QM00001"), None)));
        let serial = of_disk(&disk(None, Some("QM00001"))).unwrap();
        assert_ne!(Some(serial), of_disk(&disk(None, Some("QM00002"))));
        let partition = Disk { name: "sdb1".to_owned(), ..disk(None, Some("QM00001")) };
        assert_ne!(Some(serial), of_disk(&partition));
        assert_eq!(of_disk(&disk(None, None)), None);
    }

    #[test]
    fn a_file_keeps_its_identity_under_another_name_and_loses_it_when_it_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a.img"), folder.path().join("b.img"));
        let state = folder.path().join("state");
        fs::write(&a, "disk").unwrap();
        let of = |path: &Path, is_new| {
            in_world(|world| {
                identify(world, path, &IdentityOrigin::File { is_new }, &state).map(|known| known.identity)
            })
        };
        let identity = of(&a, false).unwrap();
        assert_eq!(of(&a, false).unwrap(), identity, "at each start");
        fs::rename(&a, &b).unwrap();
        fs::rename(folder.path().join("a.img.spindle-id"), folder.path().join("b.img.spindle-id")).unwrap();
        assert_eq!(of(&b, false).unwrap(), identity);
        assert_ne!(of(&b, true).unwrap(), identity, "made anew");
        fs::write(folder.path().join("b.img.spindle-id"), "what?").unwrap();
        let refused = of(&b, false).unwrap_err().to_string();
        assert!(refused.contains("b.img.spindle-id: it holds no UUID"), "{refused}");
        assert!(!state.exists(), "nothing was kept elsewhere");
    }

    #[test]
    fn where_nothing_can_be_kept_beside_a_file_the_server_keeps_it_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.img");
        fs::write(&path, "disk").unwrap();
        // A folder is in the way, which root cannot overwrite either.
        fs::create_dir(folder.path().join("a.img.spindle-id")).unwrap();
        let state = folder.path().join("state");
        let of = |state: &Path| {
            in_world(|world| identify(world, &path, &IdentityOrigin::File { is_new: false }, state))
        };
        let known = of(&state).unwrap();
        assert_eq!(of(&state).unwrap().identity, known.identity);
        assert!(known.caveat.unwrap().contains("is stored by its path, in"));
        fs::write(folder.path().join("taken"), "").unwrap();
        let refused = of(&folder.path().join("taken")).err().unwrap().to_string();
        assert!(
            refused.contains("cannot be given an identity") && refused.contains("⟨state⟩ FOLDER"),
            "{refused}"
        );
    }
}
