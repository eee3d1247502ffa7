//! Partitions of a device: GPT (UEFI 2.10, chapter 5) and MBR with its logical partitions.
//!
//! Pure functions of bytes read from the device; entries beyond its end, and tables that go round in circles, are left out.

use world::{BlockDevice, Buffer, ByteCount, ByteOffset, IoResult};

/// Entries of a GPT that are looked at: Linux uses no more than 128 by default.
const GPT_ENTRIES_MAX: u32 = 1024;
/// Logical partitions that are followed.
const LOGICAL_MAX: usize = 128;
/// Partition types that hold logical partitions: CHS, LBA, Linux.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// The partition type of an MBR that only protects a GPT.
const PROTECTIVE: u8 = 0xee;

/// A partition, with the number by which Linux names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    pub number: u32,
    pub start: ByteOffset,
    pub length: ByteCount,
}

/// Reads the partitions of a device; none if it has no table.
///
/// # Errors
///
/// It cannot be read.
pub async fn partitions_of(device: &dyn BlockDevice) -> IoResult<Vec<Partition>> {
    let geometry = device.geometry();
    let mut found = Vec::new();
    let first = read(device, 0, 4096).await?;
    if first.get(510..512).is_none_or(|mark| mark != [0x55, 0xaa]) {
        return Ok(found);
    }
    let entries = mbr_entries(&first);
    if entries.iter().any(|entry| entry.kind == PROTECTIVE) {
        // The table counts in sectors of the machine that made it, which may not be those of this device.
        for sector in [u64::from(geometry.sector), 512, 4096] {
            if let Some(partitions) = gpt(device, sector).await? {
                return Ok(partitions);
            }
        }
        return Ok(found);
    }
    for (index, entry) in entries.iter().enumerate() {
        if EXTENDED.contains(&entry.kind) {
            logical(device, u64::from(entry.start), &mut found).await?;
        } else if entry.kind != 0 && entry.count != 0 {
            found.push(entry.partition(index as u32 + 1, 0));
        }
    }
    found.retain(|partition| {
        partition.start.0.checked_add(partition.length.0).is_some_and(|end| end <= geometry.size.0)
    });
    found.sort_by_key(|partition| partition.number);
    Ok(found)
}

/// One of the four entries of an MBR, in sectors of 512 bytes.
#[derive(Clone, Copy)]
struct MbrEntry {
    kind: u8,
    start: u32,
    count: u32,
}

impl MbrEntry {
    fn partition(self, number: u32, base: u64) -> Partition {
        let start = ByteOffset((base + u64::from(self.start)) * 512);
        Partition { number, start, length: ByteCount(u64::from(self.count) * 512) }
    }
}

fn mbr_entries(sector: &[u8]) -> [MbrEntry; 4] {
    [0, 1, 2, 3].map(|index| {
        let at = 446 + 16 * index;
        MbrEntry { kind: sector[at + 4], start: u32_at(sector, at + 8), count: u32_at(sector, at + 12) }
    })
}

/// Follows the chain of logical partitions from the extended one; they are numbered from 5 on.
async fn logical(device: &dyn BlockDevice, extended: u64, found: &mut Vec<Partition>) -> IoResult<()> {
    let mut at = extended;
    for number in 5..5 + LOGICAL_MAX as u32 {
        if at.checked_mul(512).is_none_or(|byte| byte + 512 > device.geometry().size.0) {
            break;
        }
        let sector = read(device, at * 512, 512).await?;
        if sector[510..512] != [0x55, 0xaa] {
            break;
        }
        let [own, next, ..] = mbr_entries(&sector);
        if own.kind != 0 && own.count != 0 {
            found.push(own.partition(number, at));
        }
        let following = extended + u64::from(next.start);
        // A chain only goes forward; one that does not would be followed for ever.
        if !EXTENDED.contains(&next.kind) || following <= at {
            break;
        }
        at = following;
    }
    Ok(())
}

/// The partitions of a GPT in sectors of so many bytes, by its first header, or by the backup at the end.
async fn gpt(device: &dyn BlockDevice, sector: u64) -> IoResult<Option<Vec<Partition>>> {
    let size = device.geometry().size.0;
    if size < 4 * sector {
        return Ok(None);
    }
    for at in [sector, size - sector] {
        let header = read(device, at, 92).await?;
        if !header.starts_with(b"EFI PART") {
            continue;
        }
        let (table, count, bytes) = (u64_at(&header, 72), u32_at(&header, 80), u32_at(&header, 84));
        let count = count.min(GPT_ENTRIES_MAX);
        let (Some(start), length) = (table.checked_mul(sector), u64::from(count) * u64::from(bytes)) else {
            continue;
        };
        // An entry has 128 bytes, or a multiple by a power of two.
        let is_sound =
            (128..=4096).contains(&bytes) && start.checked_add(length).is_some_and(|end| end <= size);
        if !is_sound {
            continue;
        }
        let entries = read(device, start, length).await?;
        let partition = |(index, entry): (usize, &[u8])| {
            let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
            let is_used = entry[..16].iter().any(|&byte| byte != 0) && last >= first;
            let (start, end) = (first.checked_mul(sector)?, last.checked_add(1)?.checked_mul(sector)?);
            let partition = Partition {
                number: index as u32 + 1,
                start: ByteOffset(start),
                length: ByteCount(end - start),
            };
            (is_used && end <= size).then_some(partition)
        };
        let partitions = entries.chunks_exact(bytes as usize).enumerate().filter_map(partition);
        return Ok(Some(partitions.collect()));
    }
    Ok(None)
}

/// Reads bytes that need not be whole sectors; short at the end of the device, with zeroes behind it.
async fn read(device: &dyn BlockDevice, at: u64, length: u64) -> IoResult<Vec<u8>> {
    let geometry = device.geometry();
    let sector = u64::from(geometry.sector);
    let from = at / sector * sector;
    let until = (at + length).next_multiple_of(sector).min(geometry.size.0);
    let mut bytes = match until.saturating_sub(from) {
        0 => Vec::new(),
        count => device.read(ByteOffset(from), vec![Buffer::zeroed(count as usize)]).await?[0].to_vec(),
    };
    bytes.drain(..(at - from).min(bytes.len() as u64) as usize);
    bytes.resize(length as usize, 0);
    Ok(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |field| u32::from_le_bytes(*field))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |field| u64::from_le_bytes(*field))
}
