//! The ledger on disk: two slots with checksums in one file.
//!
//! | Offset in a slot | Size | Field |
//! |---|---|---|
//! | 0 | 8 | magic `SPDLWTNS` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | number of groups, at most 1024 |
//! | 16 | 8 | sequence, from 1 on; rises with each change |
//! | 24 | 4 | bytes of the groups |
//! | 28 | 4 | CRC-32C of the 28 bytes before and of the groups |
//! | 32 | | groups, as `codec` has them, ascending |
//!
//! Invariants:
//!
//! 1. What an answer relied on is stable in both slots before the answer is sent: each change is written to
//!    the first slot and made stable, then to the second one. So a slot that rots loses nothing.
//! 2. At most one slot is torn at any moment. A file with no whole slot is damaged, or its creation was cut
//!    short; the second is so if it ends within the header of the first slot.
//! 3. After an error of the file it takes no more changes: nothing is known of those before.

use super::{
    codec::{ByteReader, WitnessCodecError, write_group},
    group::WitnessGroup,
    ledger::GROUPS_MAX,
};
use array::format::GroupId;
use std::collections::BTreeMap;
use world::{IoError, IoErrorKind, IoResult, StateFile, crc32c::crc32c};

const MAGIC: &[u8; 8] = b"SPDLWTNS";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
/// Room of a slot: 1024 groups of at most 588 bytes.
const SLOT_BYTES: u64 = 640 * 1024;
const SLOT_OFFSETS: [u64; 2] = [0, SLOT_BYTES];

/// Groups as a file keeps them.
type KeptGroups = BTreeMap<GroupId, WitnessGroup>;

/// The open file of a witness.
#[derive(Debug)]
pub struct WitnessFile {
    file: Box<dyn StateFile>,
    sequence: u64,
    has_failed: bool,
}

impl WitnessFile {
    /// Opens the file, or begins it if it is empty. Both slots are whole and stable afterwards.
    ///
    /// # Errors
    ///
    /// `Damaged` with one line for a file that is not a witness's, is damaged, or is of a later version; it
    /// is not changed. Errors of the file.
    pub fn open(file: Box<dyn StateFile>) -> IoResult<(Self, KeptGroups)> {
        let slots = [read_slot(&*file, 0)?, read_slot(&*file, 1)?];
        let newest = slots.iter().flatten().max_by_key(|(sequence, _)| *sequence);
        let (sequence, groups) = match newest {
            Some(newest) => newest.clone(),
            None if is_unfinished(&*file)? => (0, KeptGroups::new()),
            None => return Err(damaged(&*file, "no whole copy of a witness's state is in it")),
        };
        let mut opened = Self { file, sequence, has_failed: false };
        opened.store(groups.iter().map(|(group, state)| (*group, state)))?;
        Ok((opened, groups))
    }

    /// The kept groups of a file, without changing it.
    ///
    /// # Errors
    ///
    /// As for [`WitnessFile::open`].
    pub fn examine(file: &dyn StateFile) -> IoResult<KeptGroups> {
        let slots = [read_slot(file, 0)?, read_slot(file, 1)?];
        match slots.into_iter().flatten().max_by_key(|(sequence, _)| *sequence) {
            Some((_, groups)) => Ok(groups),
            None => Err(damaged(file, "no whole copy of a witness's state is in it")),
        }
    }

    /// Makes groups stable in both slots.
    ///
    /// # Errors
    ///
    /// Errors of the file. The witness has to end then: nothing may be answered that relies on the change.
    pub fn store<'g>(
        &mut self,
        groups: impl ExactSizeIterator<Item = (GroupId, &'g WitnessGroup)>,
    ) -> IoResult<()> {
        if self.has_failed {
            return Err(IoError::new(
                IoErrorKind::Medium,
                format!("writing {}: it failed before", self.file.name()),
            ));
        }
        self.has_failed = true;
        self.sequence += 1;
        let bytes = encode(self.sequence, groups);
        for offset in SLOT_OFFSETS {
            self.file.write_at(offset, &bytes)?;
            self.file.sync()?;
        }
        self.has_failed = false;
        Ok(())
    }
}

fn encode<'g>(sequence: u64, groups: impl ExactSizeIterator<Item = (GroupId, &'g WitnessGroup)>) -> Vec<u8> {
    assert!(groups.len() <= GROUPS_MAX, "the ledger has a limit");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + groups.len() * 192);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((groups.len() as u32).to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.extend([0; 8]);
    groups.for_each(|(group, state)| write_group(&mut bytes, group, state));
    let length = (bytes.len() - HEADER_BYTES) as u32;
    bytes[24..28].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32c(&[&bytes[..28], &bytes[HEADER_BYTES..]]);
    bytes[28..32].copy_from_slice(&checksum.to_le_bytes());
    assert!(bytes.len() as u64 <= SLOT_BYTES, "all groups fit into a slot");
    bytes
}

/// A slot's sequence and groups; none if it is not whole.
fn read_slot(file: &dyn StateFile, index: usize) -> IoResult<Option<(u64, KeptGroups)>> {
    let (offset, size) = (SLOT_OFFSETS[index], file.size()?);
    if size < offset + HEADER_BYTES as u64 {
        return Ok(None);
    }
    let mut header = [0; HEADER_BYTES];
    file.read_at(offset, &mut header)?;
    if &header[..8] != MAGIC {
        return Ok(None);
    }
    let number = |at: usize| u32::from_le_bytes(*header[at..].first_chunk().expect("within the header"));
    let length = u64::from(number(24));
    if length > SLOT_BYTES - HEADER_BYTES as u64 || size < offset + HEADER_BYTES as u64 + length {
        return Ok(None);
    }
    let mut body = vec![0; length as usize];
    file.read_at(offset + HEADER_BYTES as u64, &mut body)?;
    if crc32c(&[&header[..28], &body]) != number(28) {
        return Ok(None);
    }
    if number(8) != VERSION {
        return Err(damaged(file, &format!("its version is {}, this program knows 1", number(8))));
    }
    let sequence = u64::from_le_bytes(*header[16..].first_chunk().expect("within the header"));
    let groups = decode_groups(number(12) as usize, &body);
    let groups = groups.map_err(|error| damaged(file, &error.to_string()))?;
    Ok(Some((sequence, groups)))
}

fn decode_groups(count: usize, body: &[u8]) -> Result<KeptGroups, WitnessCodecError> {
    let mut reader = ByteReader::new(body);
    let mut groups = KeptGroups::new();
    for _ in 0..count {
        let (group, state) = reader.group()?;
        if groups.len() >= GROUPS_MAX || groups.last_key_value().is_some_and(|(last, _)| *last >= group) {
            return Err(reader.fault("the order of groups"));
        }
        groups.insert(group, state);
    }
    reader.end()?;
    Ok(groups)
}

/// True if a file without a whole slot is empty, or what a cut creation left: nothing was answered from it.
fn is_unfinished(file: &dyn StateFile) -> IoResult<bool> {
    let size = file.size()?;
    if size == 0 {
        return Ok(true);
    }
    // The first slot of a new file is a header without groups.
    if size > HEADER_BYTES as u64 {
        return Ok(false);
    }
    let mut bytes = vec![0; size as usize];
    file.read_at(0, &mut bytes)?;
    let first = encode(1, BTreeMap::new().iter().map(|(group, state)| (*group, state)));
    Ok(bytes.iter().all(|byte| *byte == 0) || first.starts_with(&bytes))
}

fn damaged(file: &dyn StateFile, why: &str) -> IoError {
    IoError::new(
        IoErrorKind::Damaged,
        format!("{} is not the state of a witness, or is damaged: {why}", file.name()),
    )
}
