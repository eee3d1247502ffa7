//! The structures of the array's format: input that decodes must encode to the same bytes.
//!
//! Input is tried as it is, and once more with valid checksums: a fuzzer does not find a CRC, and decoding
//! errors are behind it.

use crate::image::{self, Image};
use array::format::checksum::crc32c;
use std::sync::OnceLock;

/// The examples of a structure, by the start of their name: all versions and kinds.
pub fn images(structure: &str) -> impl Iterator<Item = &'static Image> {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    let name = structure.replace('_', "-");
    IMAGES.get_or_init(image::all).iter().filter(move |image| image.name.starts_with(&name))
}

/// Decodes `data` as every kind of `structure`.
pub fn check(structure: &str, data: &[u8]) {
    let mut tried: Vec<fn(&[u8]) -> _> = Vec::new();
    for image in images(structure) {
        // Kinds of one structure share their decoder; each row has its own.
        if tried.iter().any(|other| std::ptr::fn_addr_eq(*other, image.again)) {
            continue;
        }
        tried.push(image.again);
        check_one(image, data);
        let mut sealed = data.to_vec();
        seal(structure, &mut sealed);
        check_one(image, &sealed);
    }
}

fn check_one(image: &Image, bytes: &[u8]) {
    if let Ok(again) = (image.again)(bytes) {
        assert!(bytes.starts_with(&again), "{} encodes to other bytes", image.name);
    }
}

/// Computes the checksums of a structure at the start of `bytes`, over the length it claims.
fn seal(structure: &str, bytes: &mut [u8]) {
    let number = |bytes: &[u8], at: usize, width: usize| {
        let field = bytes.get(at..at + width)?;
        Some(field.iter().rev().fold(0_usize, |sum, &byte| sum << 8 | usize::from(byte)))
    };
    let length = match structure {
        "superblock" => {
            if let (Some(at), Some(end)) = (number(bytes, 108, 4), number(bytes, 104, 4))
                && at < end
                && end <= bytes.len()
            {
                seal_one(&mut bytes[at..end]);
            }
            number(bytes, 104, 4)
        }
        "checkpoint" => number(bytes, 224, 4),
        "node" => number(bytes, 74, 1).map(|blocks| blocks * 4096),
        "slot_header" | "summary" | "record" => Some(4096),
        _ => None,
    };
    if let Some(length) = length.filter(|&length| length <= bytes.len()) {
        seal_one(&mut bytes[..length]);
    }
}

fn seal_one(bytes: &mut [u8]) {
    if bytes.len() >= 16 {
        bytes[12..16].fill(0);
        let checksum = crc32c(bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    }
}
