//! The contents of a sector: each written sector names its writer and its address, so any data read back
//! identifies itself.

use std::collections::BTreeSet;
use world::Random;

pub const SECTOR_BYTES: usize = 512;

/// Number of a write, discard or truncation, unique in a run. 0 is the initial state, all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationNumber(pub u32);

/// Number of a volume, unique in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeKey(pub u32);

/// The content of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorContent {
    Zeroes,
    /// Intact, written by this operation for this very address.
    Of(OperationNumber),
}

const WORD: usize = 8;

fn first_words(operation: OperationNumber, volume: VolumeKey, sector: u64) -> [u64; 2] {
    [u64::from(operation.0) << 32 | u64::from(volume.0), sector]
}

/// Fills one sector of a volume.
pub fn fill(bytes: &mut [u8], operation: OperationNumber, volume: VolumeKey, sector: u64) {
    assert_eq!(bytes.len(), SECTOR_BYTES);
    assert!(operation.0 > 0, "the beginning writes nothing");
    let [first, second] = first_words(operation, volume, sector);
    let salt = Random::new(first, "sector").next_u64() ^ second.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Words as arrays: copied as slices, in a test build, they took a quarter of the simulator's time.
    let (words, _) = bytes.as_chunks_mut::<WORD>();
    for (index, word) in words.iter_mut().enumerate() {
        *word = salt.wrapping_add(index as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes();
    }
    words[0] = first.to_le_bytes();
    words[1] = second.to_le_bytes();
}

/// Identifies the content of a sector of a volume, which one of `writers` wrote: the volume itself, or one
/// that it was cloned from.
///
/// # Errors
///
/// A description of the actual content, if it is none that was written there.
pub fn content_of(bytes: &[u8], writers: &BTreeSet<VolumeKey>, sector: u64) -> Result<SectorContent, String> {
    assert_eq!(bytes.len(), SECTOR_BYTES);
    if bytes == [0; SECTOR_BYTES] {
        return Ok(SectorContent::Zeroes);
    }
    let word = |index: usize| {
        let word = &bytes[index * WORD..(index + 1) * WORD];
        u64::from_le_bytes(word.try_into().expect("eight bytes"))
    };
    let (operation, writer) = (OperationNumber((word(0) >> 32) as u32), VolumeKey(word(0) as u32));
    if operation.0 > 0 {
        let mut whole = [0; SECTOR_BYTES];
        fill(&mut whole, operation, writer, word(1));
        if whole == *bytes {
            return if writers.contains(&writer) && word(1) == sector {
                Ok(SectorContent::Of(operation))
            } else {
                Err(format!(
                    "what operation {} wrote to sector {} of volume {}",
                    operation.0,
                    word(1),
                    writer.0
                ))
            };
        }
    }
    Err("bytes that no operation wrote".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_identifies_its_writer_and_anything_else_is_refused() {
        let mut bytes = [0; SECTOR_BYTES];
        let [one, other] = [1, 2].map(|key| BTreeSet::from([VolumeKey(key)]));
        assert_eq!(content_of(&bytes, &one, 9), Ok(SectorContent::Zeroes));
        fill(&mut bytes, OperationNumber(7), VolumeKey(1), 9);
        assert_eq!(content_of(&bytes, &one, 9), Ok(SectorContent::Of(OperationNumber(7))));
        assert!(content_of(&bytes, &one, 10).unwrap_err().contains("sector 9 of volume 1"));
        assert!(content_of(&bytes, &other, 9).is_err());
        bytes[500] ^= 1;
        assert!(content_of(&bytes, &one, 9).unwrap_err().contains("no operation wrote"));
    }
}
