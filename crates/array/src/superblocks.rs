//! Superblocks on drives: found when a pool is opened, written when its state changes.
//!
//! Invariant: a generation is complete, and may be relied on, only when both of its places are stable on every member
//! that is to have it ([`write_generation`] returned Ok).

use crate::{
    drive::{Drives, WriteFailures, Writes, all_written},
    election::Seen,
    error::Error,
    format::{
        BLOCK_BYTES, Fault, MemberIndex, Refusal, Superblock,
        superblock::{SUPERBLOCK_BYTES_MAX, SUPERBLOCK_PLACES, superblock_places, superblock_start_bytes},
    },
};
use std::{rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, IoError, Stability};

/// What a drive that was given has in its places for superblocks.
#[derive(Clone, Debug)]
pub struct Places {
    /// The valid one with the highest generation; none if none is.
    pub newest: Option<Superblock>,
    /// Other valid ones, of whatever generation.
    pub others: Vec<Superblock>,
    /// Places that hold something that begins as a superblock does, and is refused.
    pub refused: Vec<Refusal>,
    /// Places that could not be read whole. What lies in front of the first bad block counts all the same.
    pub unreadable: Vec<IoError>,
}

/// Reads all places of one drive.
pub async fn read_places(device: &Rc<dyn BlockDevice>) -> Places {
    let mut places = Places { newest: None, others: Vec::new(), refused: Vec::new(), unreadable: Vec::new() };
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
                match found.place == place {
                    true if is_newer => places.others.extend(places.newest.replace(found)),
                    true => places.others.push(found),
                    false => {}
                }
            }
            Err(refusal) if refusal.fault == Fault::Magic => {}
            Err(refusal) => places.refused.push(refusal),
        }
    }
    places
}

/// A place that cannot be read whole, as far as it can: an image is shorter than its place, and a bad sector behind
/// it does no harm.
async fn read_front(device: &Rc<dyn BlockDevice>, place: ByteOffset) -> Buffer {
    let mut image = Buffer::zeroed(SUPERBLOCK_BYTES_MAX);
    for (index, into) in image.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        let at = ByteOffset(place.0 + (index * BLOCK_BYTES) as u64);
        let Ok(read) = device.read(at, vec![Buffer::zeroed(BLOCK_BYTES)]).await else { break };
        into.copy_from_slice(&read[0]);
    }
    image
}

/// Reads what every drive given says; those that say nothing are left out.
pub async fn look(devices: &[Rc<dyn BlockDevice>]) -> Vec<Seen> {
    let mut seen = Vec::new();
    for (given, device) in devices.iter().enumerate() {
        if let Some(superblock) = read_places(device).await.newest {
            seen.push(Seen { given, superblock });
        }
    }
    seen
}

/// Writes `superblock` to both places of its generation on every member that is to have it; all but `this` and `place`
/// is the same for all. Ok: the generation is complete. Else: which members cannot be written.
pub async fn write_generation(drives: &Drives, superblock: &Superblock) -> Result<(), WriteFailures> {
    let mut writes = Writes::new();
    for (index, member) in superblock.members.iter().enumerate() {
        let index = MemberIndex(index as u16);
        let Some(device) = drives.superblock_device(index).filter(|_| member.state.holds_superblocks())
        else {
            continue;
        };
        for place in superblock_places(superblock.generation) {
            let image = superblock.for_place(index, place).encode();
            let at = ByteOffset(superblock_start_bytes(place));
            writes
                .push((index, device.write(at, vec![Arc::new(Buffer::copy_of(&image))], Stability::Stable)));
        }
    }
    all_written(writes).await
}

/// Makes all places of the drives say nothing, whatever they held.
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
