//! An encoded example of each structure, and what may be done to it.

use crate::examples;
use array::format::{
    Location, Record, Refusal, SlotHeader, SummaryBlock, Superblock, checkpoint::Checkpoint, checksum::crc32c,
};

/// One structure, encoded.
pub struct Image {
    /// File name of its golden image.
    pub name: &'static str,
    pub bytes: Vec<u8>,
    /// Decodes, and encodes what came out.
    pub again: fn(&[u8]) -> Result<Vec<u8>, Refusal>,
    /// Puts right whatever checksums the structure has.
    pub reseal: fn(&mut [u8]),
}

/// An example of each structure of the format.
pub fn all() -> Vec<Image> {
    let mut images = vec![
        Image {
            name: "superblock-1",
            bytes: examples::superblock().encode(),
            again: |bytes| Superblock::decode(bytes).map(|value| value.encode()),
            reseal: |bytes| {
                if bytes.len() > 4096 {
                    reseal(&mut bytes[4096..]);
                }
                reseal(bytes);
            },
        },
        Image {
            name: "checkpoint-1",
            bytes: examples::checkpoint().encode(),
            again: |bytes| Checkpoint::decode(bytes).map(|value| value.encode()),
            reseal,
        },
        Image {
            name: "slot-header-log-1",
            bytes: examples::log_slot_header().encode().to_vec(),
            again: |bytes| SlotHeader::decode(bytes).map(|value| value.encode().to_vec()),
            reseal,
        },
        Image {
            name: "slot-header-raid50-1",
            bytes: examples::raid50_slot_header().encode().to_vec(),
            again: |bytes| SlotHeader::decode(bytes).map(|value| value.encode().to_vec()),
            reseal,
        },
        Image {
            name: "summary-1",
            bytes: examples::summary().encode().to_vec(),
            again: |bytes| SummaryBlock::decode(bytes).map(|value| value.encode().to_vec()),
            reseal,
        },
        Image {
            name: "record-1",
            bytes: examples::record().encode().to_vec(),
            again: |bytes| Record::decode(bytes).map(|value| value.encode().to_vec()),
            reseal,
        },
    ];
    images.extend(examples::locations().into_iter().map(|(name, location)| Image {
        name,
        bytes: location.encode().to_vec(),
        again: |bytes| Location::decode(bytes).map(|value| value.encode().to_vec()),
        reseal: |_| (),
    }));
    images
}

impl Image {
    /// Whether it has a checksum of its own; a location has that of what it lies in.
    pub fn is_sealed(&self) -> bool {
        self.bytes.len() > Location::BYTES
    }
}

/// Puts the checksum of a structure right, as `docs/format.md` says it is made.
fn reseal(bytes: &mut [u8]) {
    if bytes.len() >= 16 {
        bytes[12..16].fill(0);
        let checksum = crc32c(bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Sixteen bytes a line; lines of zeroes are left out, and the last line is the length.
pub fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (index, line) in bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|&byte| byte != 0)) {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&format!("{:06x}  {}\n", index * 16, hex.join(" ")));
    }
    text.push_str(&format!("{:06x}\n", bytes.len()));
    text
}

/// The bytes of a dump.
pub fn undump(text: &str) -> Vec<u8> {
    let hex = |word: &str| usize::from_str_radix(word, 16).unwrap_or_else(|_| panic!("{word:?} is not hex"));
    let mut bytes = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        bytes.resize(hex(words.next().expect("each line has an offset")), 0);
        bytes.extend(words.map(|word| hex(word) as u8));
    }
    bytes
}
