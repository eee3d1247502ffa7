//! Rows of points. A point with a note has version 2, any other version 1.

use super::{THIS, VERSION, VOLUME_SECTORS_MAX, VolumeState, is_name, name};
use crate::format::{
    decode_error::{DecodeError, DecodeFault},
    units::{GroupNumber, SnapshotId, VolumeNumber, WallNanoseconds},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most bytes of the note of a point.
pub const NOTE_BYTES_MAX: usize = 768;

/// Version of the row of a point with a note.
const VERSION_NOTE: u16 = 2;

/// A stamp of a branch whose state is preserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointRow {
    /// May be empty.
    pub name: String,
    pub state: VolumeState,
    /// At least one is set.
    pub uses: PointUses,
    /// Number of branches, transfers and readers that need it.
    pub references: u32,
    /// The volume it is a snapshot of.
    pub volume: VolumeNumber,
    /// The group it is a snapshot of, if it is one.
    pub group: Option<GroupNumber>,
    /// The same for all volumes of one snapshot.
    pub snapshot: SnapshotId,
    pub created_at: WallNanoseconds,
    /// Time to delete it; 0 is never.
    pub expires_at: WallNanoseconds,
    /// Size of the volume then, in sectors of 512 bytes.
    pub sectors: u64,
    /// Bytes of the owner of the snapshot, without a meaning here; at most 768, empty without a note.
    pub note: Vec<u8>,
}

/// Reasons to keep a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointUses {
    /// A snapshot taken by a user.
    pub snapshot: bool,
    /// A branch begins here.
    pub fork: bool,
    /// A device reads it.
    pub reader: bool,
    /// Replication needs it.
    pub transfer: bool,
}

impl PointUses {
    fn to_byte(self) -> u8 {
        let bits = [self.snapshot, self.fork, self.reader, self.transfer];
        bits.iter().enumerate().map(|(index, &is_set)| u8::from(is_set) << index).sum()
    }

    fn decode(byte: u8, at: usize) -> Result<Self, DecodeError> {
        THIS.value((1..16).contains(&byte), at, "uses", byte, "1 to 15")?;
        let bit = |index: u8| byte >> index & 1 == 1;
        Ok(Self { snapshot: bit(0), fork: bit(1), reader: bit(2), transfer: bit(3) })
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPoint {
    version: le::U16,
    state: u8,
    uses: u8,
    references: le::U32,
    volume: le::U32,
    group: le::U32,
    snapshot: [u8; 16],
    created_at: le::U64,
    expires_at: le::U64,
    sectors: le::U64,
    name_length: u8,
    zero: [u8; 7],
}

const _: () = assert!(size_of::<RawPoint>() == 64);

/// Follows in version 2, then the note.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawNote {
    length: le::U16,
    zero: [u8; 6],
}

const _: () = assert!(size_of::<RawNote>() == 8);
const _: () = assert!(
    size_of::<RawPoint>() + size_of::<RawNote>() + NOTE_BYTES_MAX + super::NAME_BYTES_MAX
        <= super::ROW_BYTES_MAX
);

impl PointRow {
    pub fn encode(&self) -> Vec<u8> {
        assert!(is_name(&self.name), "a name is at most 128 bytes without control characters");
        assert!(self.uses != PointUses::default(), "a point is kept for a reason");
        assert!(self.group != Some(GroupNumber(0)), "numbers begin at 1");
        assert!(self.note.len() <= NOTE_BYTES_MAX, "a note has at most 768 bytes");
        let raw = RawPoint {
            version: if self.note.is_empty() { VERSION } else { VERSION_NOTE }.into(),
            state: self.state as u8,
            uses: self.uses.to_byte(),
            references: self.references.into(),
            volume: self.volume.0.into(),
            group: self.group.map_or(0, |group| group.0).into(),
            snapshot: self.snapshot.0,
            created_at: self.created_at.0.into(),
            expires_at: self.expires_at.0.into(),
            sectors: self.sectors.into(),
            name_length: self.name.len() as u8,
            zero: [0; 7],
        };
        let length = RawNote { length: (self.note.len() as u16).into(), zero: [0; 6] };
        let length = if self.note.is_empty() { &[][..] } else { length.as_bytes() };
        [raw.as_bytes(), length, &self.note, self.name.as_bytes()].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let version: &le::U16 = THIS.view(bytes, 0)?;
        let raw: &RawPoint = THIS.view(bytes, 0)?;
        let (note, name_at) = match version.get() {
            VERSION => (Vec::new(), size_of::<RawPoint>()),
            VERSION_NOTE => decode_note(bytes)?,
            other => return Err(THIS.refuse(0, DecodeFault::Version(other))),
        };
        THIS.zero(&raw.zero, offset_of!(RawPoint, zero))?;
        let is_size = raw.sectors.get() <= VOLUME_SECTORS_MAX;
        THIS.value(is_size, offset_of!(RawPoint, sectors), "sectors", raw.sectors.get(), "at most 2^37")?;
        Ok(Self {
            name: name(&bytes[name_at..], raw.name_length, offset_of!(RawPoint, name_length), name_at)?,
            state: VolumeState::decode(raw.state, offset_of!(RawPoint, state))?,
            uses: PointUses::decode(raw.uses, offset_of!(RawPoint, uses))?,
            references: raw.references.get(),
            volume: VolumeNumber(raw.volume.get()),
            group: Some(GroupNumber(raw.group.get())).filter(|group| group.0 > 0),
            snapshot: SnapshotId(raw.snapshot),
            created_at: WallNanoseconds(raw.created_at.get()),
            expires_at: WallNanoseconds(raw.expires_at.get()),
            sectors: raw.sectors.get(),
            note,
        })
    }
}

/// The note of a row of version 2, and where the name begins.
fn decode_note(bytes: &[u8]) -> Result<(Vec<u8>, usize), DecodeError> {
    let length_at = size_of::<RawPoint>();
    let raw: &RawNote = THIS.view(bytes, length_at)?;
    THIS.zero(&raw.zero, length_at + offset_of!(RawNote, zero))?;
    let (length, note_at) = (usize::from(raw.length.get()), length_at + size_of::<RawNote>());
    let is_length = (1..=NOTE_BYTES_MAX.min(bytes.len() - note_at)).contains(&length);
    THIS.value(is_length, length_at, "note length", raw.length.get(), "1 to 768, within the row")?;
    Ok((bytes[note_at..note_at + length].to_vec(), note_at + length))
}
