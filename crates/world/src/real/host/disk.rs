//! Identity of a disk: persistent names, model, serial number, and its bay.
//!
//! The sources are sysfs, /dev/disk/by-id and udev's database, so a disk that no longer responds still has
//! its name. Unknown facts are `None`.

use super::{
    drive::{DriveInfo, device_number, read_drive},
    fact, number,
};
use crate::{ByteCount, IoError, IoErrorKind, IoResult};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The places where a system describes its disks.
#[derive(Clone, Debug)]
pub struct DiskCatalogue {
    pub(super) sys: PathBuf,
    pub(super) dev: PathBuf,
    pub(super) proc: PathBuf,
    udev: PathBuf,
}

impl Default for DiskCatalogue {
    fn default() -> Self {
        Self::below(Path::new("/"))
    }
}

/// A block device: a whole disk or a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The kernel's name, which may be another disk's after a restart: `sdh`, `nvme0n1p2`, `dm-3`.
    pub name: String,
    /// Device node: `/dev/sdh`.
    pub node: PathBuf,
    /// Major and minor number.
    pub number: (u32, u32),
    pub size: ByteCount,
    /// A link below /dev/disk/by-id that leads to this disk on any port.
    pub by_id: Option<PathBuf>,
    pub model: Option<String>,
    pub serial: Option<String>,
    /// World-wide identifier: equal on every path to one disk and different for every other disk (NAA, EUI or
    /// T10 name); a partition's ends in `-partN`.
    pub wwid: Option<String>,
    /// The bay, as numbered by the enclosure, the SAS backplane or the PCI slot.
    pub bay: Option<String>,
    /// Thin provisioned, as the device reports it (SBC-4, logical block provisioning).
    pub is_thin: bool,
    /// Write-protected: by the medium, or by `blockdev --setro`.
    pub is_read_only: bool,
    /// Devices built on it: a RAID, a volume group, a multipath map.
    pub holders: Vec<String>,
}

impl DiskCatalogue {
    /// The catalogue of a system whose root folder is `root`.
    pub fn below(root: &Path) -> Self {
        Self {
            sys: root.join("sys"),
            dev: root.join("dev"),
            proc: root.join("proc"),
            udev: root.join("run/udev/data"),
        }
    }

    /// All block devices that can hold data, by kernel name. RAM disks, floppies, optical drives and devices
    /// of size 0 are omitted.
    ///
    /// # Errors
    ///
    /// sysfs is not mounted.
    pub fn disks(&self) -> IoResult<Vec<Disk>> {
        let folder = self.sys.join("class/block");
        let fail = |error| IoError::from_os(error, format!("listing {}", folder.display()));
        let mut disks = Vec::new();
        for entry in fs::read_dir(&folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // Removed since the listing.
            if !is_passed_over(&name)
                && let Some(disk) = fs::canonicalize(entry.path()).ok().and_then(|path| self.disk(&path))
                && disk.size > ByteCount(0)
            {
                disks.push(disk);
            }
        }
        disks.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(disks)
    }

    /// Describes the block device at `path`.
    ///
    /// # Errors
    ///
    /// `NotFound`, `WrongType`: no file there, or not a block device. `Unsupported`: sysfs does not list it.
    pub fn disk_at(&self, path: &Path) -> IoResult<Disk> {
        let (major, minor) = device_number(path)?;
        let folder = fs::canonicalize(self.sys.join(format!("dev/block/{major}:{minor}"))).ok();
        folder.and_then(|folder| self.disk(&folder)).ok_or_else(|| {
            IoError::new(IoErrorKind::Unsupported, format!("{}: not listed in /sys", path.display()))
        })
    }

    /// The drive that a disk is, or is a partition of: its name is not the disk's then. `None` if it is gone.
    pub fn drive_of(&self, disk: &Disk) -> Option<DriveInfo> {
        let folder = fs::canonicalize(self.sys.join("class/block").join(&disk.name)).ok()?;
        let whole = if folder.join("partition").exists() { folder.parent()? } else { &folder };
        Some(read_drive(whole))
    }

    fn disk(&self, folder: &Path) -> Option<Disk> {
        let number_text = fact(folder.join("dev"))?;
        let (major, minor) = number_text.split_once(':')?;
        let partition = number(folder.join("partition"));
        let whole = if partition.is_some() { folder.parent()? } else { folder };
        let drive = read_drive(whole);
        let udev = UdevRecord::read(&self.udev.join(format!("b{number_text}")));
        let device_name = uevent(folder, "DEVNAME").unwrap_or_else(|| name_of(folder));
        let serial = drive.serial.or_else(|| udev.value("ID_SERIAL_SHORT"));
        let wwid =
            ["device/wwid", "wwid", "dm/uuid", "md/uuid"].iter().find_map(|name| fact(whole.join(name)));
        let wwid = wwid.or_else(|| udev.value("ID_WWN_WITH_EXTENSION")).or_else(|| udev.value("ID_WWN"));
        Some(Disk {
            name: name_of(folder),
            by_id: self.by_id(&device_name, serial.as_deref()),
            node: self.dev.join(&device_name),
            number: (major.parse().ok()?, minor.parse().ok()?),
            // The kernel counts in 512 bytes here, whatever the sector.
            size: ByteCount(number(folder.join("size")).unwrap_or_default() * 512),
            model: drive.model.or_else(|| udev.value("ID_MODEL")),
            wwid: wwid.map(|wwid| match partition {
                Some(partition) => format!("{wwid}-part{partition}"),
                None => wwid,
            }),
            serial,
            bay: self.bay(whole),
            is_thin: names_in(&whole.join("device/scsi_disk")).iter().any(|name| {
                number(whole.join("device/scsi_disk").join(name).join("thin_provisioning")) == Some(1)
            }),
            is_read_only: number(folder.join("ro")).is_some_and(|flag| flag != 0),
            holders: names_in(&folder.join("holders")),
        })
    }

    /// The most specific link: with the serial number, else a mapper's or a RAID's UUID, else a bare WWN.
    fn by_id(&self, device_name: &str, serial: Option<&str>) -> Option<PathBuf> {
        let folder = self.dev.join("disk/by-id");
        let leads_here = |name: &String| {
            let target = fs::read_link(folder.join(name)).unwrap_or_default();
            target.to_string_lossy().trim_start_matches("../") == device_name
        };
        let rank = |name: &str| match name {
            // Names an LVM physical volume on the disk, not the disk.
            _ if name.starts_with("lvm-pv-") => None,
            _ if serial.is_some_and(|serial| name.contains(&serial.replace(' ', "_"))) => Some(0),
            _ if name.starts_with("dm-uuid-") || name.starts_with("md-uuid-") => Some(1),
            _ if name.starts_with("wwn-") || name.starts_with("nvme-eui.") => Some(2),
            _ => Some(3),
        };
        let names = names_in(&folder).into_iter().filter(leads_here);
        let best = names.filter_map(|name| Some((rank(&name)?, name))).min();
        best.map(|(_, name)| folder.join(name))
    }

    fn bay(&self, whole: &Path) -> Option<String> {
        self.enclosure_slot(whole).or_else(|| sas_bay(whole)).or_else(|| self.pci_slot(whole))
    }

    /// SES: the disk's folder has a link `enclosure_device:NAME` to its enclosure slot.
    fn enclosure_slot(&self, whole: &Path) -> Option<String> {
        let device = whole.join("device");
        let link = names_in(&device).into_iter().find(|name| name.starts_with("enclosure_device:"))?;
        let slot = fact(device.join(&link).join("slot"));
        slot.or_else(|| link.split_once(':').map(|(_, name)| name.to_owned()))
    }

    /// An NVMe disk in a hot-plug PCI slot.
    fn pci_slot(&self, whole: &Path) -> Option<String> {
        let slots = self.sys.join("bus/pci/slots");
        let addresses: Vec<(String, String)> = names_in(&slots)
            .into_iter()
            .filter_map(|slot| Some((fact(slots.join(&slot).join("address"))?, slot)))
            .collect();
        let functions =
            name_of(whole).starts_with("nvme").then(|| whole.ancestors().map(name_of)).into_iter();
        functions.flatten().find_map(|function| {
            let (address, _) = function.rsplit_once('.')?;
            let found = addresses.iter().find(|(known, _)| known == address);
            found.map(|(_, slot)| slot.clone())
        })
    }
}

/// A SAS disk without SES: its end device has the bay number.
fn sas_bay(whole: &Path) -> Option<String> {
    whole.ancestors().filter(|folder| name_of(folder).starts_with("end_device-")).find_map(|folder| {
        let name = name_of(folder);
        fact(folder.join("sas_device").join(name).join("bay_identifier"))
    })
}

/// Volatile or removable devices, which may also be slow to report that they hold no medium.
fn is_passed_over(name: &str) -> bool {
    ["ram", "zram", "fd", "sr"].iter().any(|kind| {
        name.strip_prefix(kind).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    })
}

fn name_of(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn uevent(folder: &Path, key: &str) -> Option<String> {
    let text = fact(folder.join("uevent"))?;
    text.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix('=')?.to_owned()))
}

/// Properties that udev recorded for one device: lines `E:KEY=value`.
struct UdevRecord(String);

impl UdevRecord {
    fn read(path: &Path) -> Self {
        Self(fact(path).unwrap_or_default())
    }

    fn value(&self, key: &str) -> Option<String> {
        let lines = self.0.lines().filter_map(|line| line.strip_prefix("E:")?.split_once('='));
        let value = lines.filter(|(name, _)| *name == key).map(|(_, value)| value.trim().to_owned()).next();
        value.filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A fake root folder with the files of the kernel and udev.
    pub(in crate::real::host) struct FakeSystem(tempfile::TempDir);

    impl FakeSystem {
        pub fn new() -> Self {
            let system = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(system.path("sys/class/block")).unwrap();
            system
        }

        pub fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) {
            let path = self.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }

        pub fn link(&self, name: &str, target: &str) {
            let path = self.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        }

        /// Adds a block device whose folder is `device`, below `sys/devices`.
        pub fn disk(&self, device: &str, number: &str, sectors: u64) {
            let name = device.rsplit_once('/').unwrap().1;
            self.file(&format!("sys/devices/{device}/dev"), number);
            self.file(&format!("sys/devices/{device}/size"), sectors.to_string());
            self.file(&format!("sys/devices/{device}/uevent"), format!("MAJOR=8\nDEVNAME={name}\n"));
            self.link(&format!("sys/class/block/{name}"), &format!("../../devices/{device}"));
            self.link(&format!("sys/dev/block/{number}"), &format!("../../devices/{device}"));
        }

        pub fn disks(&self) -> Vec<Disk> {
            self.catalogue().disks().unwrap()
        }

        pub fn catalogue(&self) -> DiskCatalogue {
            DiskCatalogue::below(self.0.path())
        }
    }

    const SCSI: &str = "pci0/host0/port-0:3/end_device-0:3/target0:0:3/0:0:3:0";

    #[test]
    fn a_scsi_disk_has_bay_model_serial_and_persistent_name() {
        let system = FakeSystem::new();
        system.disk(&format!("{SCSI}/block/sdh"), "8:112", 8 << 20);
        system.link(&format!("sys/devices/{SCSI}/block/sdh/device"), "../../../0:0:3:0");
        system.file(&format!("sys/devices/{SCSI}/vendor"), "SEAGATE ");
        system.file(&format!("sys/devices/{SCSI}/model"), "ST4000NM0023    ");
        system.file(&format!("sys/devices/{SCSI}/wwid"), "naa.5000c500a1b2c3d4\n");
        system.file(&format!("sys/devices/{SCSI}/vpd_pg80"), b"\0\x80\0\x08Z1Z0ABCD");
        system.file(&format!("sys/devices/{SCSI}/scsi_disk/0:0:3:0/thin_provisioning"), "0\n");
        system.file("sys/devices/pci0/enclosure/0:0:9:0/Slot 07/slot", "7\n");
        system.link(
            &format!("sys/devices/{SCSI}/enclosure_device:Slot 07"),
            &system.path("sys/devices/pci0/enclosure/0:0:9:0/Slot 07").display().to_string(),
        );
        for name in
            ["wwn-0x5000c500a1b2c3d4", "scsi-35000c500a1b2c3d4", "scsi-SSEAGATE_ST4000NM0023_Z1Z0ABCD"]
        {
            system.link(&format!("dev/disk/by-id/{name}"), "../../sdh");
        }
        system.link("dev/disk/by-id/scsi-SSEAGATE_ST4000NM0023_Z1Z0OTHER", "../../sdi");
        let [disk] = &system.disks()[..] else { panic!("one disk") };
        assert_eq!(disk.node, system.path("dev/sdh"));
        assert_eq!((disk.number, disk.size), ((8, 112), ByteCount::gib(4)));
        assert_eq!(disk.model.as_deref(), Some("SEAGATE ST4000NM0023"));
        assert_eq!(disk.serial.as_deref(), Some("Z1Z0ABCD"));
        assert_eq!(disk.wwid.as_deref(), Some("naa.5000c500a1b2c3d4"));
        assert_eq!(disk.bay.as_deref(), Some("7"));
        let by_id = system.path("dev/disk/by-id/scsi-SSEAGATE_ST4000NM0023_Z1Z0ABCD");
        assert_eq!(disk.by_id.as_ref(), Some(&by_id));
        assert!(!disk.is_thin && !disk.is_read_only && disk.holders.is_empty());
        system.file(&format!("sys/devices/{SCSI}/block/sdh/ro"), "1\n");
        assert!(system.disks()[0].is_read_only);
    }

    #[test]
    fn a_thin_disk_is_recognised_and_one_that_only_discards_is_not() {
        let system = FakeSystem::new();
        for (name, number, thin) in [("sda", "8:0", "1"), ("sdb", "8:16", "0")] {
            let device = format!("host/{name}device");
            system.disk(&format!("{device}/block/{name}"), number, 2048);
            system.link(
                &format!("sys/devices/{device}/block/{name}/device"),
                &format!("../../../{name}device"),
            );
            system.file(&format!("sys/devices/{device}/scsi_disk/0:0:0:0/thin_provisioning"), thin);
            system.file(&format!("sys/devices/{device}/scsi_disk/0:0:0:0/provisioning_mode"), "unmap");
            system.file(&format!("sys/devices/{device}/block/{name}/queue/discard_max_bytes"), "4294966784");
        }
        let thin: Vec<_> = system.disks().into_iter().map(|disk| (disk.name, disk.is_thin)).collect();
        assert_eq!(thin, [("sda".to_owned(), true), ("sdb".to_owned(), false)]);
    }

    #[test]
    fn a_partition_has_the_serial_of_its_disk_and_its_own_wwid() {
        let system = FakeSystem::new();
        system.disk("virtual/sdc", "8:32", 4096);
        system.disk("virtual/sdc/sdc2", "8:34", 2048);
        system.file("sys/devices/virtual/sdc/sdc2/partition", "2");
        system.file("sys/devices/virtual/sdc/serial", "ABC");
        system.file("sys/devices/virtual/sdc/wwid", "eui.0025385b71b0a1c2");
        system.link("dev/disk/by-id/nvme-X_ABC", "../../sdc");
        system.link("dev/disk/by-id/nvme-X_ABC-part2", "../../sdc2");
        system.file("sys/devices/virtual/sdc/sdc2/holders/dm-0", "");
        let [whole, part] = &system.disks()[..] else { panic!("a disk and its partition") };
        assert_eq!((whole.serial.as_deref(), part.serial.as_deref()), (Some("ABC"), Some("ABC")));
        assert_eq!(whole.wwid.as_deref(), Some("eui.0025385b71b0a1c2"));
        assert_eq!(part.wwid.as_deref(), Some("eui.0025385b71b0a1c2-part2"));
        assert_eq!(part.by_id, Some(system.path("dev/disk/by-id/nvme-X_ABC-part2")));
        assert_eq!((part.holders.len(), whole.holders.len()), (1, 0));
        system.file("sys/devices/virtual/sdc/queue/rotational", "1\n");
        system.file("sys/devices/virtual/sdc/queue/write_cache", "write back\n");
        let drive = system.catalogue().drive_of(part).expect("it is there");
        assert_eq!((&*drive.name, drive.rotational), ("sdc", Some(true)));
        assert_eq!(drive.write_cache.as_deref(), Some("write back"));
    }

    #[test]
    fn an_nvme_disk_reports_its_pci_slot_and_a_sas_disk_its_bay() {
        let system = FakeSystem::new();
        system.disk("pci0000:3a/0000:3b:00.0/nvme/nvme0/nvme0n1", "259:0", 2048);
        system.file("sys/bus/pci/slots/12/address", "0000:3b:00\n");
        system.file("sys/bus/pci/slots/3/address", "0000:18:00\n");
        system.disk(&format!("{SCSI}/block/sda"), "8:0", 2048);
        system.file(
            "sys/devices/pci0/host0/port-0:3/end_device-0:3/sas_device/end_device-0:3/bay_identifier",
            "5\n",
        );
        let bays: Vec<_> = system.disks().into_iter().map(|disk| disk.bay).collect();
        assert_eq!(bays, [Some("12".to_owned()), Some("5".to_owned())]);
    }

    #[test]
    fn udev_supplies_missing_facts_and_ram_disks_are_omitted() {
        let system = FakeSystem::new();
        system.disk("usb/sdd", "8:48", 2048);
        system.file(
            "run/udev/data/b8:48",
            "S:disk/by-id/x\nE:ID_MODEL=Bridge\nE:ID_SERIAL_SHORT=77\nE:ID_WWN=0x5\n",
        );
        system.disk("virtual/ram0", "1:0", 2048);
        system.disk("virtual/zram0", "253:0", 2048);
        system.disk("virtual/loop9", "7:9", 0);
        let [disk] = &system.disks()[..] else { panic!("one disk") };
        let known = [&disk.model, &disk.serial, &disk.wwid].map(|fact| fact.as_deref());
        assert_eq!(known, [Some("Bridge"), Some("77"), Some("0x5")]);
        assert_eq!(disk.by_id, None);
        let refused = DiskCatalogue::default().disk_at(Path::new("/dev/null")).unwrap_err();
        assert_eq!(refused.kind(), IoErrorKind::WrongType);
    }
}
