//! Rows of volumes. A volume that a rollback left has version 2, any other version 1.

use super::{THIS, VERSION, is_name, name};
use crate::format::{
    decode_error::{DecodeError, DecodeFault},
    location::Compression,
    segment::RedundancyClass,
    units::{BlockCount, BranchNumber, GroupNumber, VolumeId, VolumeNumber, WallNanoseconds},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most sectors of 512 bytes of a volume: 64 TiB.
pub const VOLUME_SECTORS_MAX: u64 = 1 << 37;

/// A volume: a name for the branch its head writes, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRow {
    /// The same on every replica.
    pub volume: VolumeId,
    /// UTF-8, at most 128 bytes.
    pub name: String,
    pub state: VolumeState,
    /// Redundancy of its data after destaging.
    pub class: RedundancyClass,
    /// The branch its head writes. Rollback only changes this.
    pub branch: BranchNumber,
    /// Its consistency group, if it has one.
    pub group: Option<GroupNumber>,
    pub write_cache: WriteCache,
    /// Compression applied when blocks are destaged.
    pub compression: Compression,
    /// Size in sectors of 512 bytes, at most 64 TiB.
    pub sectors: u64,
    /// Space reserved for it.
    pub reserve: BlockCount,
    /// Most space it may use; 0 is unlimited.
    pub limit: BlockCount,
    /// Most operations a second; 0 is unlimited.
    pub iops_max: u32,
    /// Most KiB a second; 0 is unlimited.
    pub kib_per_second_max: u32,
    pub created_at: WallNanoseconds,
    /// UUID of the key its blocks are encrypted with, or zeroes.
    pub key: [u8; 16],
    /// The volume whose rollback left it: its branch, which belongs to that volume, is never written again.
    pub left_by: Option<VolumeNumber>,
}

/// Version of the row of a volume that a rollback left.
const VERSION_LEFT: u16 = 2;

/// State of a volume. The numbers are those on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeState {
    Live = 1,
    /// Deleted, and hidden until its children are gone.
    Hidden = 2,
    /// Deleted; its space is being reclaimed.
    Deleting = 3,
}

/// Durability an acknowledgement promises. The numbers are those on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// Stable on as many drives as the class needs.
    Off = 0,
    /// Stable after the next flush, or with FUA.
    On = 1,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawVolume {
    version: le::U16,
    state: u8,
    class: u8,
    branch: le::U32,
    group: le::U32,
    write_cache: u8,
    compression: u8,
    zero: u8,
    name_length: u8,
    volume: [u8; 16],
    sectors: le::U64,
    reserve: le::U64,
    limit: le::U64,
    iops_max: le::U32,
    kib_per_second_max: le::U32,
    created_at: le::U64,
    key: [u8; 16],
}

const _: () = assert!(size_of::<RawVolume>() == 88);

/// Follows in version 2.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLeft {
    left_by: le::U32,
    zero: [u8; 4],
}

const _: () = assert!(size_of::<RawLeft>() == 8);

impl VolumeRow {
    pub fn encode(&self) -> Vec<u8> {
        assert!(is_name(&self.name), "a name is at most 128 bytes without control characters");
        assert!(self.sectors <= VOLUME_SECTORS_MAX, "a volume has at most 64 TiB");
        assert!(self.branch.0 > 0 && self.group != Some(GroupNumber(0)), "numbers begin at 1");
        assert!(self.left_by != Some(VolumeNumber(0)), "numbers begin at 1");
        let raw = RawVolume {
            version: if self.left_by.is_some() { VERSION_LEFT } else { VERSION }.into(),
            state: self.state as u8,
            class: self.class as u8,
            branch: self.branch.0.into(),
            group: self.group.map_or(0, |group| group.0).into(),
            write_cache: self.write_cache as u8,
            compression: self.compression as u8,
            zero: 0,
            name_length: self.name.len() as u8,
            volume: self.volume.0,
            sectors: self.sectors.into(),
            reserve: self.reserve.0.into(),
            limit: self.limit.0.into(),
            iops_max: self.iops_max.into(),
            kib_per_second_max: self.kib_per_second_max.into(),
            created_at: self.created_at.0.into(),
            key: self.key,
        };
        let left = self.left_by.map(|volume| RawLeft { left_by: volume.0.into(), zero: [0; 4] });
        let left = left.as_ref().map_or(&[][..], |left| left.as_bytes());
        [raw.as_bytes(), left, self.name.as_bytes()].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let version: &le::U16 = THIS.view(bytes, 0)?;
        let version = version.get();
        if version != VERSION && version != VERSION_LEFT {
            return Err(THIS.refuse(0, DecodeFault::Version(version)));
        }
        let raw: &RawVolume = THIS.view(bytes, 0)?;
        let (left_by, name_at) = match version {
            VERSION_LEFT => {
                let left: &RawLeft = THIS.view(bytes, size_of::<RawVolume>())?;
                let left_at = size_of::<RawVolume>();
                let left_by = left.left_by.get();
                THIS.value(left_by > 0, left_at, "left by", left_by, "from 1")?;
                THIS.zero(&left.zero, left_at + offset_of!(RawLeft, zero))?;
                (Some(VolumeNumber(left_by)), left_at + size_of::<RawLeft>())
            }
            _ => (None, size_of::<RawVolume>()),
        };
        THIS.zero(&[raw.zero], offset_of!(RawVolume, zero))?;
        let sectors = raw.sectors.get();
        let sectors_at = offset_of!(RawVolume, sectors);
        THIS.value(sectors <= VOLUME_SECTORS_MAX, sectors_at, "sectors", sectors, "at most 64 TiB")?;
        let branch = raw.branch.get();
        THIS.value(branch > 0, offset_of!(RawVolume, branch), "branch", branch, "from 1")?;
        let compression_at = offset_of!(RawVolume, compression);
        Ok(Self {
            volume: VolumeId(raw.volume),
            name: name(&bytes[name_at..], raw.name_length, offset_of!(RawVolume, name_length), name_at)?,
            state: VolumeState::decode(raw.state, offset_of!(RawVolume, state))?,
            class: RedundancyClass::decode(THIS, raw.class, offset_of!(RawVolume, class))?,
            branch: BranchNumber(branch),
            group: Some(GroupNumber(raw.group.get())).filter(|group| group.0 > 0),
            write_cache: match raw.write_cache {
                0 => WriteCache::Off,
                1 => WriteCache::On,
                other => {
                    THIS.value(false, offset_of!(RawVolume, write_cache), "write cache", other, "0 or 1")?;
                    unreachable!("refused above")
                }
            },
            compression: match raw.compression {
                0 => Compression::None,
                1 => Compression::Lz4,
                2 => Compression::Zstd,
                other => {
                    THIS.value(false, compression_at, "compression", other, "0 to 2")?;
                    unreachable!("refused above")
                }
            },
            sectors,
            reserve: BlockCount(raw.reserve.get()),
            limit: BlockCount(raw.limit.get()),
            iops_max: raw.iops_max.get(),
            kib_per_second_max: raw.kib_per_second_max.get(),
            created_at: WallNanoseconds(raw.created_at.get()),
            key: raw.key,
            left_by,
        })
    }
}

impl VolumeState {
    pub(super) fn decode(byte: u8, at: usize) -> Result<Self, DecodeError> {
        Ok(match byte {
            1 => Self::Live,
            2 => Self::Hidden,
            3 => Self::Deleting,
            _ => {
                THIS.value(false, at, "state", byte, "1 to 3")?;
                unreachable!("refused above")
            }
        })
    }
}
