//! Signature detection against the formats' own tools.

use std::process::{Command, Stdio};
use world::{
    ByteCount,
    real::{
        AccessMode, FileDevice, RealOptions,
        host::{DeviceSignature, drive_activity, drive_of_path, signature_of},
        run,
    },
};

#[test]
fn filesystems_made_by_their_own_tools_are_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let tools: [(&str, &[&str], &str); 9] = [
        ("mkfs.ext2", &["-qF"], "ext2"),
        ("mkfs.ext3", &["-qF"], "ext3"),
        ("mkfs.ext4", &["-qF"], "ext4"),
        ("mkfs.xfs", &["-qf"], "xfs"),
        ("mkfs.btrfs", &["-qf"], "btrfs"),
        ("mkfs.fat", &["-F", "32"], "FAT32"),
        ("mkfs.ntfs", &["-qfF"], "NTFS"),
        ("mkswap", &["-q"], "swap"),
        ("sfdisk", &["-q", "--label=dos"], "MBR partition table"),
    ];
    for (tool, arguments, name) in tools {
        let path = folder.path().join(tool);
        std::fs::File::create(&path).unwrap().set_len(ByteCount::mib(384).0).unwrap();
        let script = folder.path().join("partitions");
        std::fs::write(&script, "start=2048,type=83\n").unwrap();
        let mut made = Command::new(tool);
        made.args(arguments).arg(&path).stdin(std::fs::File::open(&script).unwrap());
        match made.stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Ok(status) if status.success() => {}
            _ => {
                println!("skipped: {tool} is not installed");
                continue;
            }
        }
        run(1, RealOptions::default(), async |_| {
            let device = FileDevice::open(&path, AccessMode::Read).unwrap();
            assert_eq!(signature_of(&device).await.unwrap(), DeviceSignature::Known(name));
        });
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn random_bytes_are_unknown_and_zeroes_are_blank() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    run(1, RealOptions::default(), async |world| {
        std::fs::write(&path, vec![0; 4 << 20]).unwrap();
        let device = FileDevice::open(&path, AccessMode::Read).unwrap();
        assert_eq!(signature_of(&device).await.unwrap(), DeviceSignature::Blank);
        let mut bytes = vec![0; 4 << 20];
        world.random("bytes").fill(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(signature_of(&device).await.unwrap(), DeviceSignature::Unknown);
    });
}

#[test]
fn a_drive_reports_its_activity() {
    let folder = tempfile::tempdir().unwrap();
    let Some(drive) = drive_of_path(folder.path()) else { return println!("skipped: no drive visible") };
    run(1, RealOptions::default(), async |world| {
        let span = std::time::Duration::from_millis(20);
        let activity = drive_activity(&world, &drive.name, span).await.expect("a drive has counters");
        assert!(activity.span >= span && (0.0..=100.0).contains(&activity.busy_percent()), "{activity:?}");
        assert_eq!(drive_activity(&world, "no such drive", span).await, None);
    });
}
