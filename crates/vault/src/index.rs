//! Index files: the packs, and the blobs in each. They are only a help: all of it is in the headers of the packs, too.

use crate::{
    VaultError, VaultResult,
    blob_id::BlobId,
    packs::{BLOB_BYTES_MAX, BlobKind, PackedBlob},
    sealing::SEAL_BYTES,
};
use serde::{Deserialize, Serialize};

/// Blobs of an index file (restic's bound).
pub const INDEX_BLOBS_MAX: usize = 50_000;

/// A pack with its blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedPack {
    pub id: BlobId,
    pub blobs: Vec<PackedBlob>,
}

#[derive(Serialize, Deserialize)]
struct IndexJson {
    /// Indexes that this one replaces; long unused, and empty today.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    supersedes: Option<Vec<String>>,
    packs: Vec<PackJson>,
}

#[derive(Serialize, Deserialize)]
struct PackJson {
    id: String,
    blobs: Vec<BlobJson>,
}

#[derive(Serialize, Deserialize)]
struct BlobJson {
    id: String,
    #[serde(rename = "type")]
    kind: KindJson,
    offset: u32,
    length: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uncompressed_length: Option<u32>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KindJson {
    Data,
    Tree,
}

pub fn encode(packs: &[IndexedPack]) -> Vec<u8> {
    let blob = |blob: &PackedBlob| BlobJson {
        id: blob.id.to_string(),
        kind: if blob.kind == BlobKind::Data { KindJson::Data } else { KindJson::Tree },
        offset: blob.offset,
        length: blob.length,
        uncompressed_length: blob.plain_length,
    };
    let pack = |pack: &IndexedPack| PackJson {
        id: pack.id.to_string(),
        blobs: pack.blobs.iter().map(blob).collect(),
    };
    let index = IndexJson { supersedes: None, packs: packs.iter().map(pack).collect() };
    serde_json::to_vec(&index).expect("plain fields")
}

/// # Errors
///
/// It is no index.
pub fn decode(bytes: &[u8]) -> VaultResult<Vec<IndexedPack>> {
    let damaged = |why: String| VaultError::damaged("an index", why);
    let index: IndexJson = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    let id_of = |text: &str| BlobId::parse(text).ok_or_else(|| damaged(format!("{text:?} is no SHA-256")));
    let mut packs = Vec::new();
    for pack in index.packs {
        let mut blobs = Vec::with_capacity(pack.blobs.len());
        for blob in &pack.blobs {
            let kind = if matches!(blob.kind, KindJson::Data) { BlobKind::Data } else { BlobKind::Tree };
            let blob = PackedBlob {
                kind,
                id: id_of(&blob.id)?,
                offset: blob.offset,
                length: blob.length,
                // Zero is how some programs say that it was not compressed.
                plain_length: blob.uncompressed_length.filter(|length| *length > 0),
            };
            let is_possible = blob.length as usize >= SEAL_BYTES
                && blob.offset.checked_add(blob.length).is_some()
                && blob.plain_bytes() <= BLOB_BYTES_MAX;
            if !is_possible {
                return Err(damaged(format!("blob {} has an impossible place", blob.id)));
            }
            blobs.push(blob);
        }
        packs.push(IndexedPack { id: id_of(&pack.id)?, blobs });
    }
    Ok(packs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_read_back_and_has_the_words_of_restic() {
        let blob = |number: u8, plain_length| PackedBlob {
            kind: if number == 1 { BlobKind::Tree } else { BlobKind::Data },
            id: BlobId([number; 32]),
            offset: 100 * u32::from(number),
            length: 60,
            plain_length,
        };
        let packs = vec![IndexedPack { id: BlobId([7; 32]), blobs: vec![blob(1, Some(90)), blob(2, None)] }];
        let text = String::from_utf8(encode(&packs)).unwrap();
        let (pack, one, two) = ("07".repeat(32), "01".repeat(32), "02".repeat(32));
        assert_eq!(
            text,
            format!(
                r#"{{"packs":[{{"id":"{pack}","blobs":[{{"id":"{one}","type":"tree","offset":100,"length":60,"uncompressed_length":90}},{{"id":"{two}","type":"data","offset":200,"length":60}}]}}]}}"#
            )
        );
        assert_eq!(decode(text.as_bytes()).unwrap(), packs);
        for (from, to) in
            [("60", "6"), ("100", "4294967290"), ("tree", "leaf"), (&*one, "00"), ("90", "999999999")]
        {
            assert!(decode(text.replace(from, to).as_bytes()).is_err(), "{to}");
        }
    }
}
