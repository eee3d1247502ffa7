//! The contents of a drive: sparse, cheap to copy.
//!
//! Invariant: a block never written is absent and reads as zero. Blocks are immutable and shared between
//! copies of an image until one copy changes.

use std::{collections::BTreeMap, sync::Arc};

/// Unit of sharing, in bytes.
pub(super) const BLOCK_BYTES: usize = 4096;
const ZEROES: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

type Block = [u8; BLOCK_BYTES];

#[derive(Clone)]
pub(super) struct Image {
    blocks: BTreeMap<u64, Arc<Block>>,
    /// The block that all blocks of zeroes share.
    zero: Arc<Block>,
}

impl Image {
    pub fn new() -> Self {
        Self { blocks: BTreeMap::new(), zero: Arc::new(ZEROES) }
    }

    /// Blocks ever written, zeroes included.
    pub fn blocks_written(&self) -> usize {
        self.blocks.len()
    }

    /// Number of blocks of a range that were never written.
    pub fn blocks_missing(&self, at: u64, length: u64) -> usize {
        let range = at / BLOCK_BYTES as u64..(at + length).div_ceil(BLOCK_BYTES as u64);
        (range.end - range.start) as usize - self.blocks.range(range).count()
    }

    /// Picks a written block by number: the same for the same image.
    pub fn written_block(&self, pick: impl FnOnce(usize) -> usize) -> Option<u64> {
        if self.blocks.is_empty() {
            return None;
        }
        self.blocks.keys().nth(pick(self.blocks.len())).copied()
    }

    pub fn read(&self, at: u64, into: &mut [u8]) {
        let mut rest = into;
        let mut at = at;
        while !rest.is_empty() {
            let (block, within) = (at / BLOCK_BYTES as u64, at as usize % BLOCK_BYTES);
            let length = rest.len().min(BLOCK_BYTES - within);
            let (now, later) = rest.split_at_mut(length);
            match self.blocks.get(&block) {
                Some(bytes) => now.copy_from_slice(&bytes[within..within + length]),
                None => now.fill(0),
            }
            at += length as u64;
            rest = later;
        }
    }

    pub fn write(&mut self, at: u64, from: &[u8]) {
        let mut rest = from;
        let mut at = at;
        while !rest.is_empty() {
            let (block, within) = (at / BLOCK_BYTES as u64, at as usize % BLOCK_BYTES);
            let (now, later) = rest.split_at(rest.len().min(BLOCK_BYTES - within));
            match <&Block>::try_from(now) {
                Ok(whole) if *whole == ZEROES => drop(self.blocks.insert(block, Arc::clone(&self.zero))),
                Ok(whole) => drop(self.blocks.insert(block, Arc::new(*whole))),
                Err(_) => {
                    let shared = self.blocks.entry(block).or_insert_with(|| Arc::clone(&self.zero));
                    Arc::make_mut(shared)[within..within + now.len()].copy_from_slice(now);
                }
            }
            at += now.len() as u64;
            rest = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn an_image_reads_like_an_array_and_copies_are_independent() {
        const BYTES: usize = 16 * BLOCK_BYTES;
        let (mut image, mut model) = (Image::new(), vec![0; BYTES]);
        let mut random = Random::new(1, "image");
        for _ in 0..300 {
            let at = random.below(BYTES as u64 / 512) * 512;
            let length = (512 * (1 + random.below(20))).min(BYTES as u64 - at) as usize;
            let mut bytes = vec![0; length];
            if random.percent(70.0) {
                random.fill(&mut bytes);
            }
            let copy = image.clone();
            let before = model.clone();
            image.write(at, &bytes);
            model[at as usize..][..length].copy_from_slice(&bytes);
            for (image, model) in [(&image, &model), (&copy, &before)] {
                let mut found = vec![1; BYTES];
                image.read(0, &mut found);
                assert!(found == *model);
            }
        }
    }

    #[test]
    fn zeroes_written_count_as_written() {
        let mut image = Image::new();
        assert_eq!(image.blocks_missing(4096, 4097), 2);
        image.write(4096, &[0; 4096]);
        assert_eq!(image.blocks_missing(4096, 4097), 1);
        assert_eq!((image.blocks_written(), image.written_block(|_| 0)), (1, Some(1)));
    }
}
