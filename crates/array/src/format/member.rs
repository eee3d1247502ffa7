//! The member table: the drives of a pool, and their states.

use super::{
    decode_error::{DecodeError, Structure},
    domain::{DOMAIN_NAME_BYTES_MAX, DomainName},
    failure_set::SetNumber,
    units::{DriveId, Generation},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most bytes of a drive's serial number.
pub const SERIAL_BYTES_MAX: usize = 48;

const THIS: Structure = Structure::Superblock;

/// State of a drive in its pool. The numbers are those on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// Has every superblock and all of its slots.
    Active = 1,
    /// Failed or away. If the drive comes back it is stale, and joins again through rebuild only.
    Missing = 2,
    /// Named for the first time: it has every superblock, and neither a vote nor a slot yet.
    Joining = 3,
    /// Whole, and being emptied: it has every superblock, its slots and its vote until nothing lies on it.
    Leaving = 4,
    /// No member any more; the row stays, because old headers refer to its index.
    Gone = 5,
    /// Was joining and is absent. Other drives may hold a generation that made it a member.
    Withdrawn = 6,
}

impl MemberState {
    /// True if every superblock must be stable on it.
    pub fn holds_superblocks(self) -> bool {
        matches!(self, Self::Active | Self::Joining | Self::Leaving)
    }

    /// True if it votes on opening the pool.
    pub fn has_vote(self) -> bool {
        matches!(self, Self::Active | Self::Leaving)
    }

    /// True if it has neither vote nor slots, although other drives may hold a generation that gave it both.
    pub fn is_applicant(self) -> bool {
        matches!(self, Self::Joining | Self::Withdrawn)
    }

    /// True if it may have slots, present or not.
    pub fn has_slots(self) -> bool {
        !self.is_applicant() && self != Self::Gone
    }

    /// True if its row may name a failure set.
    pub fn may_be_in_a_set(self) -> bool {
        !matches!(self, Self::Gone | Self::Withdrawn)
    }

    fn decode(byte: u8, at: usize) -> Result<Self, DecodeError> {
        Ok(match byte {
            1 => Self::Active,
            2 => Self::Missing,
            3 => Self::Joining,
            4 => Self::Leaving,
            5 => Self::Gone,
            6 => Self::Withdrawn,
            _ => {
                THIS.value(false, at, "member state", byte, "1 to 6")?;
                unreachable!("refused above")
            }
        })
    }
}

/// A drive of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub drive: DriveId,
    /// The manufacturer's serial number: printable ASCII, at most 48 characters.
    pub serial: String,
    pub state: MemberState,
    /// The first superblock with this state.
    pub since: Generation,
    /// Bytes of its sector: 512 or 4096. Everything is aligned to 4096 in both cases.
    pub sector_bytes: u16,
    /// Slots on the drive.
    pub slot_count: u32,
    /// Drives of one domain fail together; without one the drive fails alone. A gone drive has none.
    pub domain: Option<DomainName>,
    /// Copies lie on drives of one failure set. A drive that is gone or withdrawn has none, and none has one in a pool
    /// without sets.
    pub set: Option<SetNumber>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawMember {
    drive: [u8; 16],
    serial: [u8; SERIAL_BYTES_MAX],
    since: le::U64,
    slot_count: le::U32,
    sector_bytes: le::U16,
    state: u8,
    serial_length: u8,
    domain: [u8; DOMAIN_NAME_BYTES_MAX],
    set: u8,
    zero: [u8; 3],
}

const _: () = assert!(size_of::<RawMember>() == 96);

impl Member {
    /// True if its vote was given up after `settled`, the last generation that every voter is known to have.
    pub fn is_voteless_since(&self, settled: Generation) -> bool {
        self.state == MemberState::Missing && self.since > settled
    }

    pub(super) fn to_raw(&self) -> RawMember {
        let mut raw = RawMember::new_zeroed();
        assert!(is_serial(self.serial.as_bytes()), "a serial is printable ASCII, at most 48 characters");
        assert!(is_sector(self.sector_bytes), "a sector has 512 or 4096 bytes");
        raw.drive = self.drive.0;
        raw.serial[..self.serial.len()].copy_from_slice(self.serial.as_bytes());
        raw.serial_length = self.serial.len() as u8;
        raw.since = self.since.0.into();
        raw.slot_count = self.slot_count.into();
        raw.sector_bytes = self.sector_bytes.into();
        raw.state = self.state as u8;
        raw.domain = DomainName::to_bytes(self.domain);
        raw.set = SetNumber::to_byte(self.set);
        raw
    }
}

impl RawMember {
    /// The row at byte `at` of the superblock.
    pub(super) fn decode(&self, at: usize) -> Result<Member, DecodeError> {
        let place = |field: usize| at + field;
        let length = usize::from(self.serial_length);
        let length_at = place(offset_of!(Self, serial_length));
        THIS.value(length <= SERIAL_BYTES_MAX, length_at, "serial length", length as u64, "at most 48")?;
        let (serial, rest) = self.serial.split_at(length);
        let serial_at = place(offset_of!(Self, serial));
        THIS.agree(is_serial(serial), serial_at, "a serial is printable ASCII")?;
        THIS.zero(rest, serial_at + length)?;
        THIS.zero(&self.zero, place(offset_of!(Self, zero)))?;
        let domain = DomainName::of_bytes(self.domain);
        let rule = "a domain is 1 to 12 letters, digits, '-', '_' and '.', filled up with zeroes";
        THIS.agree(domain.is_ok(), place(offset_of!(Self, domain)), rule)?;
        let sector_at = place(offset_of!(Self, sector_bytes));
        let sector = self.sector_bytes.get();
        THIS.value(is_sector(sector), sector_at, "sector bytes", sector, "512 or 4096")?;
        Ok(Member {
            drive: DriveId(self.drive),
            serial: serial.iter().map(|&byte| char::from(byte)).collect(),
            state: MemberState::decode(self.state, place(offset_of!(Self, state)))?,
            since: Generation(self.since.get()),
            sector_bytes: sector,
            slot_count: self.slot_count.get(),
            domain: domain.expect("looked at above"),
            set: SetNumber::new(self.set),
        })
    }
}

fn is_serial(bytes: &[u8]) -> bool {
    bytes.len() <= SERIAL_BYTES_MAX && bytes.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

fn is_sector(bytes: u16) -> bool {
    matches!(bytes, 512 | 4096)
}
