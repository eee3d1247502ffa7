//! What is written into a sector: who wrote it, and where it belongs, so that whatever is read back tells its story.

use world::Random;

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;

/// A write, a discard or a cut-off end, over a whole run. 0: the beginning, when all is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationNumber(pub u32);

/// A volume over a whole run; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeKey(pub u32);

/// What a sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing but zeroes.
    Zeroes,
    /// Whole, and written by this operation for this very place.
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
    for (index, word) in bytes.chunks_exact_mut(WORD).enumerate() {
        let value = match index {
            0 => first,
            1 => second,
            _ => salt.wrapping_add(index as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// What a sector of a volume holds.
///
/// # Errors
///
/// What it is instead, in words: nothing that anybody wrote there.
pub fn content_of(bytes: &[u8], volume: VolumeKey, sector: u64) -> Result<Content, String> {
    assert_eq!(bytes.len(), SECTOR_BYTES);
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(Content::Zeroes);
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
            return match (writer, word(1)) == (volume, sector) {
                true => Ok(Content::Of(operation)),
                false => Err(format!(
                    "what operation {} wrote to sector {} of volume {}",
                    operation.0,
                    word(1),
                    writer.0
                )),
            };
        }
    }
    Err("bytes nobody wrote".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_tells_who_wrote_it_and_nothing_else_passes() {
        let mut bytes = [0; SECTOR_BYTES];
        assert_eq!(content_of(&bytes, VolumeKey(1), 9), Ok(Content::Zeroes));
        fill(&mut bytes, OperationNumber(7), VolumeKey(1), 9);
        assert_eq!(content_of(&bytes, VolumeKey(1), 9), Ok(Content::Of(OperationNumber(7))));
        assert!(content_of(&bytes, VolumeKey(1), 10).unwrap_err().contains("sector 9 of volume 1"));
        assert!(content_of(&bytes, VolumeKey(2), 9).is_err());
        bytes[500] ^= 1;
        assert!(content_of(&bytes, VolumeKey(1), 9).unwrap_err().contains("nobody wrote"));
    }
}
