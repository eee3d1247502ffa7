//! Detects the contents of a block device by magic numbers.
//!
//! Offsets and values are those the formats document (ext4, XFS, btrfs, FAT, NTFS, LVM2, md, swap, LUKS, ZFS,
//! GPT and MBR). A device without any of them that is not blank may still hold data.

use crate::{
    BlockDevice, Buffer, ByteOffset, IoResult, extent_directory::ExtentDirectory, extent_directory::Probe,
};
use std::fmt;

/// The detected contents of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceSignature {
    /// Spindle's extent directory.
    Spindle,
    /// A filesystem or container format, by its usual name.
    Known(&'static str),
    /// Data of no known format.
    Unknown,
    /// The first and last MiB are zero.
    Blank,
}

impl fmt::Display for DeviceSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spindle => "Spindle files",
            Self::Known(name) => name,
            Self::Unknown => "unknown data",
            Self::Blank => "nothing",
        })
    }
}

/// Bytes examined at the start, and at the end.
const SPAN: u64 = 1 << 20;

/// Examines a device without changing it.
pub async fn signature_of(device: &dyn BlockDevice) -> IoResult<DeviceSignature> {
    match ExtentDirectory::probe(device).await? {
        Probe::Ours => return Ok(DeviceSignature::Spindle),
        // No format below has its only magic number beyond the first MiB.
        Probe::Blank => return Ok(DeviceSignature::Blank),
        Probe::Foreign => {}
    }
    let size = device.geometry().size.0;
    let span = size.min(SPAN);
    let head = device.read(ByteOffset(0), vec![Buffer::zeroed(span as usize)]).await?;
    let tail = device.read(ByteOffset(size - span), vec![Buffer::zeroed(span as usize)]).await?;
    Ok(match recognise(&head[0], &tail[0], device.geometry().sector as usize) {
        Some(name) => DeviceSignature::Known(name),
        None => DeviceSignature::Unknown,
    })
}

/// Magic numbers at fixed offsets from the start.
const MARKS: &[(usize, &[u8], &str)] = &[
    (0, b"XFSB", "xfs"),
    (0, b"LUKS\xba\xbe", "LUKS encryption"),
    (0x1_0040, b"_BHRfS_M", "btrfs"),
    (0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "bcache"),
    (0x400, b"\x10\x20\xf5\xf2", "f2fs"),
    (0x8001, b"CD001", "ISO 9660"),
    (3, b"NTFS    ", "NTFS"),
    (3, b"EXFAT   ", "exFAT"),
    (82, b"FAT32   ", "FAT32"),
    (54, b"FAT16   ", "FAT16"),
    (54, b"FAT12   ", "FAT12"),
    (3, b"-FVE-FS-", "BitLocker"),
    (0xff6, b"SWAPSPACE2", "swap"),
    // Swap created on machines with 64 KiB pages.
    (0xfff6, b"SWAPSPACE2", "swap"),
    // md, metadata 1.1 and 1.2.
    (0, b"\xfc\x4e\x2b\xa9", "Linux RAID (md)"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "Linux RAID (md)"),
];

fn recognise(head: &[u8], tail: &[u8], sector: usize) -> Option<&'static str> {
    let marked = MARKS.iter().find(|(at, mark, _)| has(head, *at, mark));
    marked
        .map(|(_, _, name)| *name)
        .or_else(|| lvm(head))
        .or_else(|| ext(head))
        .or_else(|| md_at_end(tail))
        .or_else(|| (zfs(head) || zfs(tail)).then_some("ZFS"))
        .or_else(|| partition_table(head, tail, sector))
}

fn has(bytes: &[u8], at: usize, mark: &[u8]) -> bool {
    bytes.get(at..).is_some_and(|rest| rest.starts_with(mark))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |field| u32::from_le_bytes(*field))
}

/// The label of a physical volume is in one of the first four 512-byte sectors.
fn lvm(head: &[u8]) -> Option<&'static str> {
    (0..4)
        .any(|sector| has(head, sector * 512, b"LABELONE") && has(head, sector * 512 + 24, b"LVM2 001"))
        .then_some("LVM2 physical volume")
}

/// The superblock is at 1024; the feature words at 92 and 96 distinguish ext2, ext3 and ext4.
fn ext(head: &[u8]) -> Option<&'static str> {
    const HAS_JOURNAL: u32 = 0x4;
    // Extents, 64 bit, flexible groups: unknown to ext3.
    const EXT4_ONLY: u32 = 0x40 | 0x80 | 0x200;
    if !has(head, 1024 + 56, &[0x53, 0xef]) {
        return None;
    }
    let (compatible, incompatible) = (u32_at(head, 1024 + 92), u32_at(head, 1024 + 96));
    Some(match (incompatible & EXT4_ONLY != 0, compatible & HAS_JOURNAL != 0) {
        (true, _) => "ext4",
        (false, true) => "ext3",
        (false, false) => "ext2",
    })
}

/// md metadata 0.90 (the last whole 64 KiB but one) and 1.0 (8 KiB before the end, on 4 KiB).
fn md_at_end(tail: &[u8]) -> Option<&'static str> {
    let mark = b"\xfc\x4e\x2b\xa9";
    // The exact offset depends on the device's size; the magic number always begins a 4 KiB block.
    let last = tail.len().saturating_sub(192 << 10);
    tail[last..].chunks(512).any(|block| block.starts_with(mark)).then_some("Linux RAID (md)")
}

/// Uberblocks, 1 KiB apart in the second half of each 256 KiB label, begin with 0x00bab10c.
fn zfs(bytes: &[u8]) -> bool {
    let mark = 0x00ba_b10c_u64;
    let marked =
        |block: &[u8]| block.starts_with(&mark.to_le_bytes()) || block.starts_with(&mark.to_be_bytes());
    bytes.chunks(1024).filter(|block| marked(block)).count() >= 2
}

fn partition_table(head: &[u8], tail: &[u8], sector: usize) -> Option<&'static str> {
    let gpt = [512, 4096, sector].iter().any(|&at| has(head, at, b"EFI PART"));
    let backup = [512, 4096].iter().any(|&back| has(tail, tail.len().saturating_sub(back), b"EFI PART"));
    if gpt || backup {
        return Some("GPT partition table");
    }
    // Many boot sectors end with the boot mark too; the partition entries decide (status byte 0x00 or 0x80, a
    // type, a length).
    let entries = head.get(446..510)?.chunks(16);
    let plausible = entries.clone().all(|entry| entry[0] & 0x7f == 0);
    let used = entries.filter(|entry| entry[4] != 0 && u32_at(entry, 12) != 0).count();
    (has(head, 510, &[0x55, 0xaa]) && plausible && used > 0).then_some("MBR partition table")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(marks: &[(usize, &[u8])], expected: Option<&str>) {
        let mut head = vec![0; SPAN as usize];
        for (at, mark) in marks {
            head[*at..at + mark.len()].copy_from_slice(mark);
        }
        let blank = vec![0; SPAN as usize];
        assert_eq!(recognise(&head, &blank, 512), expected);
    }

    #[test]
    fn formats_are_known_by_their_marks() {
        check(&[], None);
        check(&[(0, b"XFSB")], Some("xfs"));
        check(&[(0x1_0040, b"_BHRfS_M")], Some("btrfs"));
        check(&[(512, b"LABELONE"), (536, b"LVM2 001")], Some("LVM2 physical volume"));
        check(&[(1080, b"\x53\xef")], Some("ext2"));
        check(&[(1080, b"\x53\xef"), (1116, b"\x04")], Some("ext3"));
        check(&[(1080, b"\x53\xef"), (1116, b"\x04"), (1120, b"\xc2\x02")], Some("ext4"));
        check(&[(4096, b"EFI PART")], Some("GPT partition table"));
        check(&[(510, b"\x55\xaa")], None);
        check(&[(510, b"\x55\xaa"), (450, b"\x83"), (458, b"\x01")], Some("MBR partition table"));
        check(&[(131_072, &0x00ba_b10c_u64.to_le_bytes())], None);
        check(
            &[(131_072, &0x00ba_b10c_u64.to_le_bytes()), (132_096, &0x00ba_b10c_u64.to_le_bytes())],
            Some("ZFS"),
        );
    }

    #[test]
    fn marks_at_the_end_count_too() {
        let head = vec![0; SPAN as usize];
        for (back, mark, expected) in [
            (512, b"EFI PART".as_slice(), "GPT partition table"),
            (8192, b"\xfc\x4e\x2b\xa9", "Linux RAID (md)"),
            (65536, b"\xfc\x4e\x2b\xa9", "Linux RAID (md)"),
        ] {
            let mut tail = vec![0; SPAN as usize];
            let at = tail.len() - back;
            tail[at..at + mark.len()].copy_from_slice(mark);
            assert_eq!(recognise(&head, &tail, 512), Some(expected));
        }
    }

    #[test]
    fn short_and_random_input_does_not_panic() {
        let mut random = crate::Random::new(1, "signatures");
        for length in (0..5000).step_by(97) {
            let mut bytes = vec![0; length];
            random.fill(&mut bytes);
            recognise(&bytes, &bytes, 4096);
        }
    }
}
