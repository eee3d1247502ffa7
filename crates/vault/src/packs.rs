//! Packs: sealed blobs one behind the other, and a sealed header at the end.
//!
//! ```text
//! blob … blob | header, sealed | length of the sealed header, u32 LE
//! header: for each blob: kind u8, length u32 LE, if compressed its plain length u32 LE, SHA-256 of the plain bytes
//! kinds: 0 data, 1 tree, 2 data compressed, 3 tree compressed
//! ```
//!
//! Source: restic's design document, "Pack Format". A pack holds data or trees, not both, as restic wants it.

use crate::{
    VaultError, VaultResult,
    blob_id::BlobId,
    compression,
    sealing::{Nonce, SEAL_BYTES, SealingKey},
};

/// Bytes from which a pack is complete (restic's default of target size).
pub const PACK_BYTES: usize = 16 << 20;
/// Longest plain blob: restic's chunks have 8 MiB at most, trees may be longer.
pub const BLOB_BYTES_MAX: u32 = 256 << 20;
/// Longest header, as restic has it.
pub const HEADER_BYTES_MAX: usize = 16 << 20;
const LENGTH_BYTES: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlobKind {
    Data,
    Tree,
}

/// A blob ready to be put into a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedBlob {
    pub id: BlobId,
    pub bytes: Vec<u8>,
    /// Bytes before compression; `None` if it was not compressed.
    pub plain_length: Option<u32>,
}

/// A blob of a pack, as its header and the index have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedBlob {
    pub kind: BlobKind,
    pub id: BlobId,
    pub offset: u32,
    /// Sealed.
    pub length: u32,
    pub plain_length: Option<u32>,
}

impl SealedBlob {
    /// Compresses and seals. Data that do not become shorter stay as they are.
    pub fn seal(key: &SealingKey, nonce: &Nonce, (kind, id): (BlobKind, BlobId), plain: &[u8]) -> Self {
        let compressed = compression::compress(plain);
        if kind == BlobKind::Data && compressed.len() >= plain.len() {
            return Self { id, bytes: key.seal(nonce, plain), plain_length: None };
        }
        Self { id, bytes: key.seal(nonce, &compressed), plain_length: Some(plain.len() as u32) }
    }
}

impl PackedBlob {
    /// The plain bytes of a blob that was read from its pack.
    ///
    /// # Errors
    ///
    /// They are not what the blob's name says.
    pub fn open(&self, key: &SealingKey, sealed: &[u8]) -> VaultResult<Vec<u8>> {
        let damaged = |why| VaultError::damaged(format!("blob {}", self.id), why);
        let opened = key.open(sealed).ok_or_else(|| damaged("its MAC is wrong"))?;
        let plain = match self.plain_length {
            None => opened,
            Some(length) => compression::decompress(&opened, length as usize)
                .ok_or_else(|| damaged("it cannot be decompressed"))?,
        };
        if BlobId::of(&plain) == self.id { Ok(plain) } else { Err(damaged("its SHA-256 is wrong")) }
    }

    /// Bytes before it was compressed and sealed.
    pub fn plain_bytes(&self) -> u32 {
        self.plain_length.unwrap_or(self.length.saturating_sub(SEAL_BYTES as u32))
    }
}

/// A pack that is being filled.
#[derive(Debug, Default)]
pub struct PackBuilder {
    bytes: Vec<u8>,
    blobs: Vec<PackedBlob>,
}

impl PackBuilder {
    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }

    /// Bytes of the blobs so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn add(&mut self, kind: BlobKind, blob: &SealedBlob) {
        let offset = u32::try_from(self.bytes.len()).expect("a pack is complete long before 4 GiB");
        let length = u32::try_from(blob.bytes.len()).expect("a blob is shorter than 4 GiB");
        self.blobs.push(PackedBlob { kind, id: blob.id, offset, length, plain_length: blob.plain_length });
        self.bytes.extend_from_slice(&blob.bytes);
    }

    /// The file, and what is in it.
    pub fn finish(mut self, key: &SealingKey, nonce: &Nonce) -> (Vec<u8>, Vec<PackedBlob>) {
        let header = key.seal(nonce, &encode_header(&self.blobs));
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(&(header.len() as u32).to_le_bytes());
        (self.bytes, self.blobs)
    }
}

fn encode_header(blobs: &[PackedBlob]) -> Vec<u8> {
    let mut header = Vec::with_capacity(blobs.len() * 41);
    for blob in blobs {
        let kind = u8::from(blob.kind == BlobKind::Tree) | u8::from(blob.plain_length.is_some()) << 1;
        header.push(kind);
        header.extend_from_slice(&blob.length.to_le_bytes());
        if let Some(length) = blob.plain_length {
            header.extend_from_slice(&length.to_le_bytes());
        }
        header.extend_from_slice(&blob.id.0);
    }
    header
}

/// Reads a plain header. Returns the blobs, and the bytes of the pack before the header.
///
/// # Errors
///
/// It is not one.
pub fn decode_header(mut header: &[u8]) -> VaultResult<(Vec<PackedBlob>, u64)> {
    let damaged = |why: &str| VaultError::damaged("the header of a pack", why);
    let (mut blobs, mut offset) = (Vec::new(), 0_u32);
    while let Some((&kind, rest)) = header.split_first() {
        let short = || damaged("it ends early");
        if kind > 3 {
            return Err(damaged("a blob is of an unknown kind"));
        }
        let (length, mut rest) = rest.split_first_chunk().ok_or_else(short)?;
        let length = u32::from_le_bytes(*length);
        let mut plain_length = None;
        if kind & 2 != 0 {
            let (plain, behind) = rest.split_first_chunk().ok_or_else(short)?;
            (plain_length, rest) = (Some(u32::from_le_bytes(*plain)), behind);
        }
        let (id, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let kind = if kind & 1 == 0 { BlobKind::Data } else { BlobKind::Tree };
        let blob = PackedBlob { kind, id: BlobId(*id), offset, length, plain_length };
        if (length as usize) < SEAL_BYTES || blob.plain_bytes() > BLOB_BYTES_MAX {
            return Err(damaged("a blob has an impossible length"));
        }
        offset = offset.checked_add(length).ok_or_else(|| damaged("it is of a pack beyond 4 GiB"))?;
        blobs.push(blob);
        header = rest;
    }
    Ok((blobs, offset.into()))
}

/// Bytes of the sealed header, from the last four bytes of a pack of `pack_bytes`.
///
/// # Errors
///
/// No header is so long.
pub fn header_length(last: [u8; LENGTH_BYTES], pack_bytes: u64) -> VaultResult<u64> {
    let length = u32::from_le_bytes(last);
    let is_possible = (SEAL_BYTES..=HEADER_BYTES_MAX).contains(&(length as usize))
        && u64::from(length) + LENGTH_BYTES as u64 <= pack_bytes;
    let length = is_possible.then_some(length.into());
    length.ok_or_else(|| VaultError::damaged("a pack", "the length of its header is impossible"))
}

/// Bytes of a pack that holds these blobs.
pub fn pack_bytes(blobs: &[PackedBlob]) -> u64 {
    let content: u64 = blobs.iter().map(|blob| u64::from(blob.length)).sum();
    let header: usize = blobs.iter().map(|blob| if blob.plain_length.is_some() { 41 } else { 37 }).sum();
    content + (header + SEAL_BYTES + LENGTH_BYTES) as u64
}

/// Reads the header of a whole pack.
///
/// # Errors
///
/// The pack is damaged, or sealed by another key.
pub fn blobs_of(key: &SealingKey, pack: &[u8]) -> VaultResult<Vec<PackedBlob>> {
    let damaged = |why| VaultError::damaged("a pack", why);
    let last = pack.last_chunk().ok_or_else(|| damaged("it is too short"))?;
    let length = header_length(*last, pack.len() as u64)? as usize;
    let start = pack.len() - LENGTH_BYTES - length;
    let header = key
        .open(&pack[start..pack.len() - LENGTH_BYTES])
        .ok_or_else(|| damaged("its header cannot be opened"))?;
    let (blobs, bytes) = decode_header(&header)?;
    if bytes == start as u64 { Ok(blobs) } else { Err(damaged("its header is of another pack")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SealingKey {
        SealingKey::of(&[3; 64])
    }

    fn pack() -> (Vec<u8>, Vec<PackedBlob>) {
        let mut builder = PackBuilder::default();
        let hardly: Vec<u8> = (0..200_u8).map(|byte| byte.wrapping_mul(91) ^ byte.rotate_left(3)).collect();
        for (number, plain) in [vec![0; 5000], hardly, vec![1; 9]].into_iter().enumerate() {
            let sealed =
                SealedBlob::seal(&key(), &[number as u8; 16], (BlobKind::Data, BlobId::of(&plain)), &plain);
            builder.add(BlobKind::Data, &sealed);
        }
        builder.finish(&key(), &[9; 16])
    }

    #[test]
    fn blobs_of_a_pack_are_read_back() {
        let (bytes, blobs) = pack();
        assert_eq!(blobs_of(&key(), &bytes).unwrap(), blobs);
        assert_eq!(pack_bytes(&blobs), bytes.len() as u64);
        assert_eq!(blobs.iter().map(|blob| blob.plain_length).collect::<Vec<_>>(), [Some(5000), None, None]);
        for blob in &blobs {
            let range = blob.offset as usize..(blob.offset + blob.length) as usize;
            assert_eq!(BlobId::of(&blob.open(&key(), &bytes[range.clone()]).unwrap()), blob.id);
            let mut changed = bytes[range].to_vec();
            changed[20] ^= 1;
            assert!(blob.open(&key(), &changed).is_err());
        }
    }

    #[test]
    fn a_pack_that_was_cut_off_or_changed_is_damaged() {
        let (bytes, _) = pack();
        for length in 0..bytes.len() {
            assert!(blobs_of(&key(), &bytes[..length]).is_err(), "{length}");
        }
        for at in bytes.len() - 150..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(blobs_of(&key(), &changed).is_err(), "{at}");
        }
        assert!(blobs_of(&SealingKey::of(&[4; 64]), &bytes).is_err());
        assert!(blobs_of(&key(), &[&[0], &bytes[..]].concat()).is_err());
    }
}
