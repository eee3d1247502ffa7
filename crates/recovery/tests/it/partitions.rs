//! Partition tables that sfdisk made, and bytes that nobody made.

use crate::filesystems::missing;
use recovery::partition_table::partitions_of;
use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};
use world::{
    Directory, Random,
    real::{self, FolderDirectory, RealOptions},
};

const DEVICE_BYTES: u64 = 64 << 20;
const MIB: u64 = 1 << 20;

/// Partitions of a file in a folder: number, start and length.
fn partitions(folder: &Path) -> Vec<(u32, u64, u64)> {
    let folder = folder.to_owned();
    real::run(0, RealOptions::default(), async move |_| {
        let file = FolderDirectory::open(&folder).unwrap().open("device").await.unwrap();
        let found = partitions_of(&*file).await.unwrap();
        found.iter().map(|one| (one.number, one.start.0, one.length.0)).collect()
    })
}

fn check(table: &str, expected: &[(u32, u64, u64)]) {
    if let Some(why) = missing(&["sfdisk"]) {
        return println!("skipped: {why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    fs::File::create(&path).unwrap().set_len(DEVICE_BYTES).unwrap();
    let mut sfdisk = Command::new("sfdisk");
    let mut sfdisk = sfdisk.arg("-q").arg(&path).stdin(Stdio::piped()).spawn().unwrap();
    sfdisk.stdin.take().unwrap().write_all(table.as_bytes()).unwrap();
    assert!(sfdisk.wait().unwrap().success());
    assert_eq!(partitions(folder.path()), expected, "{table}");
    // Without its first header, a GPT is read from its backup.
    if table.contains("gpt") {
        let mut bytes = fs::read(&path).unwrap();
        bytes[512..1024].fill(0);
        fs::write(&path, &bytes).unwrap();
        assert_eq!(partitions(folder.path()), expected, "the backup of {table}");
    }
}

#[test]
fn partitions_are_those_that_sfdisk_made() {
    let (first, second) = ((1, MIB, 20 * MIB), (2, 21 * MIB, 10 * MIB));
    check("label: gpt\nsize=40960\nsize=20480\n", &[first, second]);
    check("label: gpt\n3 : start=2048, size=40960\n", &[(3, MIB, 20 * MIB)]);
    check("label: dos\nsize=40960\nsize=20480\n", &[first, second]);
    // Two logical ones in an extended one.
    check(
        "label: dos\n1 : start=2048, size=2048\n4 : start=4096, size=61440, type=5\n5 : start=6144, size=2048\n6 : start=10240, size=4096\n",
        &[(1, MIB, MIB), (5, 3 * MIB, MIB), (6, 5 * MIB, 2 * MIB)],
    );
}

#[test]
fn a_table_beyond_the_device_and_random_bytes_are_no_partitions_and_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let mut random = Random::new(1, "tables");
    for round in 0..200 {
        let mut bytes = vec![0; 64 << 10];
        random.fill(&mut bytes);
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        match round % 3 {
            // A chain of extended partitions that leads somewhere.
            0 => bytes[450] = 5,
            1 => {
                bytes[450] = 0xee;
                bytes[512..520].copy_from_slice(b"EFI PART");
                // Entries of a size that is allowed, at a place that may be.
                bytes[512 + 84..512 + 88].copy_from_slice(&128u32.to_le_bytes());
                let start = u64::from(bytes[600]) % 200;
                bytes[512 + 72..512 + 80].copy_from_slice(&start.to_le_bytes());
            }
            _ => {}
        }
        fs::write(&path, &bytes).unwrap();
        for (number, start, length) in partitions(folder.path()) {
            assert!(start.checked_add(length).is_some_and(|end| end <= 64 << 10), "{number} of {round}");
        }
    }
}
