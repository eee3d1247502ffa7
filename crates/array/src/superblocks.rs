//! Reading and writing superblocks.
//!
//! Invariant: a generation is complete, and may be relied on, only when both of its places are stable on
//! every member that should have it ([`write_generation`] returned Ok).

use crate::{
    drive::{DriveWrites, Drives, WriteFailures, all_written},
    election::DriveSuperblock,
    error::Error,
    format::{
        BLOCK_BYTES, DecodeError, DecodeFault, MemberIndex, Superblock,
        superblock::{SUPERBLOCK_BYTES_MAX, SUPERBLOCK_PLACES, superblock_places, superblock_start_bytes},
    },
};
use std::{rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, IoError, Stability};

/// Content of a drive's places for superblocks.
#[derive(Clone, Debug)]
pub struct SuperblockPlaces {
    /// The valid one with the highest generation.
    pub newest: Option<Superblock>,
    /// The other valid ones.
    pub others: Vec<Superblock>,
    /// Errors of places that begin like a superblock, and are invalid.
    pub refused: Vec<DecodeError>,
    /// Errors of places that could not be read whole. The part before the first bad block is still used.
    pub unreadable: Vec<IoError>,
}

/// Reads all places of one drive.
pub async fn read_places(device: &Rc<dyn BlockDevice>) -> SuperblockPlaces {
    let mut places =
        SuperblockPlaces { newest: None, others: Vec::new(), refused: Vec::new(), unreadable: Vec::new() };
    for place in 0..SUPERBLOCK_PLACES as u8 {
        let at = ByteOffset(superblock_start_bytes(place));
        let room = ByteCount(at.0 + SUPERBLOCK_BYTES_MAX as u64);
        if room > device.geometry().size {
            continue;
        }
        let image = match device.read(at, vec![Buffer::zeroed(SUPERBLOCK_BYTES_MAX)]).await {
            Ok(mut buffers) => buffers.pop().expect("a read gives its buffer back"),
            Err(error) => {
                places.unreadable.push(error);
                read_front(device, at).await
            }
        };
        match Superblock::decode(&image) {
            Ok(found) => {
                let is_newer = places.newest.as_ref().is_none_or(|known| known.generation < found.generation);
                if found.place != place {
                    continue;
                }
                if is_newer {
                    places.others.extend(places.newest.replace(found));
                } else {
                    places.others.push(found);
                }
            }
            Err(refusal) if refusal.fault == DecodeFault::Magic => {}
            Err(refusal) => places.refused.push(refusal),
        }
    }
    places
}

/// Reads a damaged place up to its first bad block: an image is shorter than its place, so the rest may not
/// matter.
async fn read_front(device: &Rc<dyn BlockDevice>, place: ByteOffset) -> Buffer {
    let mut image = Buffer::zeroed(SUPERBLOCK_BYTES_MAX);
    for (index, into) in image.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        let at = ByteOffset(place.0 + (index * BLOCK_BYTES) as u64);
        let Ok(read) = device.read(at, vec![Buffer::zeroed(BLOCK_BYTES)]).await else { break };
        into.copy_from_slice(&read[0]);
    }
    image
}

/// Reads the superblocks of all drives given; drives without one are omitted.
pub async fn look(devices: &[Rc<dyn BlockDevice>]) -> Vec<DriveSuperblock> {
    let mut seen = Vec::new();
    for (given, device) in devices.iter().enumerate() {
        if let Some(superblock) = read_places(device).await.newest {
            seen.push(DriveSuperblock { given, superblock });
        }
    }
    seen
}

/// Writes `superblock` to both places of its generation on every member that should have it, and on departing
/// drives while others may not know that they have no vote. Only `this` and `place` differ between the copies.
/// On Ok the generation is complete; the error lists the members that cannot be written.
///
/// Departing drives are written first: if any drive has a generation that took the vote of another, that one
/// knows it, and is not missed in an election.
pub async fn write_generation(drives: &Drives, superblock: &Superblock) -> Result<(), WriteFailures> {
    let departing = drives.departing_members();
    let mut failures = WriteFailures::new();
    if !departing.is_empty() {
        let first = writes_of(drives, superblock, |member| departing.contains(&member));
        failures = all_written(first).await.err().unwrap_or_default();
    }
    // If the first ones failed, too: drives that miss a generation would be stale after the next.
    let others = writes_of(drives, superblock, |member| !departing.contains(&member));
    failures.extend(all_written(others).await.err().unwrap_or_default());
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

/// Starts to write a generation to some of the members that get it.
fn writes_of(
    drives: &Drives,
    superblock: &Superblock,
    is_meant: impl Fn(MemberIndex) -> bool,
) -> DriveWrites {
    let mut writes = DriveWrites::new();
    for (index, member) in superblock.members.iter().enumerate() {
        let index = MemberIndex(index as u16);
        let gets_it = member.state.holds_superblocks() || member.is_voteless_since(superblock.settled);
        let gets_it = gets_it && is_meant(index);
        let Some(device) = drives.superblock_device(index).filter(|_| gets_it) else { continue };
        for place in superblock_places(superblock.generation) {
            let image = superblock.for_place(index, place).encode();
            let at = ByteOffset(superblock_start_bytes(place));
            writes
                .push((index, device.write(at, vec![Arc::new(Buffer::copy_of(&image))], Stability::Stable)));
        }
    }
    writes
}

/// Zeroes all places of the drives.
///
/// # Errors
///
/// A drive that cannot be written.
pub async fn clear_places(drives: &Drives) -> Result<(), Error> {
    for member in drives.members() {
        let device = drives.device(member).expect("a member that is listed is there");
        clear_device(member, &device).await?;
    }
    Ok(())
}

/// As [`clear_places`], for one drive that is or will be `member`.
///
/// # Errors
///
/// It cannot be written.
pub async fn clear_device(member: MemberIndex, device: &Rc<dyn BlockDevice>) -> Result<(), Error> {
    for place in 0..SUPERBLOCK_PLACES as u8 {
        let (at, zeroes) = (ByteOffset(superblock_start_bytes(place)), Buffer::zeroed(SUPERBLOCK_BYTES_MAX));
        let written = device.write(at, vec![Arc::new(zeroes)], Stability::Stable).await;
        written.map_err(|error| Error::Drive { member, error })?;
    }
    Ok(())
}
