//! A volume beside a model of it: its bytes, and for each block the number of the write that it has.

use crate::scene::make_volume;
use array::{
    pool::{DifferenceRange, Pool, RangeChange},
    volume::VolumeDevice,
};
use std::{rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, Random, Stability};

const SECTOR: usize = 512;
const BLOCK: usize = 4096;
const BLOCK_SECTORS: usize = BLOCK / SECTOR;
const BLOCKS_MAX: u64 = 512;

/// A volume at one time.
#[derive(Clone)]
pub struct ModelState {
    pub bytes: Vec<u8>,
    /// Of each block; 0 if it has none.
    writes: Vec<u32>,
}

pub struct ModelVolume {
    name: String,
    volume: VolumeDevice,
    pub state: ModelState,
    count: u32,
}

impl ModelVolume {
    pub async fn make(pool: &Rc<Pool>, name: &str) -> Self {
        let blocks = BLOCKS_MAX as usize / 2;
        let volume = make_volume(pool, name, (blocks * BLOCK) as u64).await.expect("it is made");
        let state = ModelState { bytes: vec![0; blocks * BLOCK], writes: vec![0; blocks] };
        Self { name: name.to_owned(), volume, state, count: 0 }
    }

    /// A volume that begins with a state of another one. Its writes have numbers of their own, above `count`.
    pub fn of(pool: &Rc<Pool>, name: &str, state: ModelState, count: u32) -> Self {
        let volume = VolumeDevice(pool.volume(name).expect("it is there"));
        Self { name: name.to_owned(), volume, state, count }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    fn sectors(&self) -> u64 {
        (self.state.bytes.len() / SECTOR) as u64
    }

    /// Writes a few sectors.
    pub async fn write(&mut self, random: &mut Random) {
        self.count += 1;
        let first = random.below(self.sectors());
        let count = (1 + random.below(100)).min(self.sectors() - first);
        let (at, length) = (first as usize * SECTOR, count as usize * SECTOR);
        let mut data = Buffer::zeroed(length);
        random.fill(&mut data);
        self.state.bytes[at..at + length].copy_from_slice(&data);
        self.state.writes[at / BLOCK..(at + length).div_ceil(BLOCK)].fill(self.count);
        let written = self.volume.write(ByteOffset(at as u64), vec![Arc::new(data)], Stability::Stable);
        written.await.expect("it is written");
    }

    /// Discards a few blocks.
    pub async fn discard(&mut self, random: &mut Random) {
        let whole = self.sectors() / BLOCK_SECTORS as u64;
        if whole > 0 {
            let first = random.below(whole);
            self.discard_blocks(first, (1 + random.below(30)).min(whole - first)).await;
        }
    }

    pub async fn discard_blocks(&mut self, first: u64, count: u64) {
        let whole = self.sectors() / BLOCK_SECTORS as u64;
        let (first, end) = (first.min(whole) as usize, (first + count).min(whole) as usize);
        if first == end {
            return;
        }
        self.state.bytes[first * BLOCK..end * BLOCK].fill(0);
        self.state.writes[first..end].fill(0);
        let (at, length) = ((first * BLOCK) as u64, ((end - first) * BLOCK) as u64);
        self.volume.discard(ByteOffset(at), ByteCount(length)).await.expect("it is discarded");
    }

    /// Gives it another size; a block that is cut is written.
    pub async fn resize(&mut self, pool: &Rc<Pool>, random: &mut Random) {
        self.count += 1;
        let sectors = 1 + random.below(BLOCKS_MAX * BLOCK_SECTORS as u64) as usize;
        let (blocks, is_cut) = (sectors.div_ceil(BLOCK_SECTORS), !sectors.is_multiple_of(BLOCK_SECTORS));
        let ModelState { bytes, writes } = &mut self.state;
        if sectors * SECTOR < bytes.len() && is_cut {
            writes[blocks - 1] = self.count;
        }
        bytes.resize(sectors * SECTOR, 0);
        writes.resize(blocks, 0);
        pool.resize_volume(&self.name, (sectors * SECTOR) as u64).await.expect("it is resized");
    }
}

/// Checks the ranges between two states on different branches: they have each block that differs, and none
/// that both have from one write. A block without a write may be there as zeroes.
pub fn check_across(from: &ModelState, to: &ModelState, ranges: &[DifferenceRange], story: &str) {
    let change_of = |sector: usize| {
        let at = (sector * SECTOR) as u64;
        let range = ranges.iter().find(|range| range.at_bytes <= at && at < range.end_bytes());
        range.map(|range| range.change)
    };
    let [from_sectors, to_sectors] = [from, to].map(|state| state.bytes.len() / SECTOR);
    for sector in 0..from_sectors.max(to_sectors) {
        let of = |state: &ModelState| state.writes.get(sector / BLOCK_SECTORS).copied().unwrap_or(0);
        let (before, after, change) = (of(from), of(to), change_of(sector));
        let is_right = match change {
            None => sector < from_sectors.min(to_sectors) && before == after,
            Some(RangeChange::BeyondSize) => sector >= from_sectors.min(to_sectors),
            Some(RangeChange::Data) => sector < to_sectors && after > 0 && after != before,
            Some(RangeChange::Zeroes | RangeChange::Discarded) => sector < to_sectors && after == 0,
        };
        assert!(is_right, "{story}: sector {sector} from write {before} to {after} is {change:?}");
    }
}

/// For each sector up to the larger size, how it changed.
pub fn changed_sectors(from: &ModelState, to: &ModelState) -> Vec<Option<RangeChange>> {
    let [from_sectors, to_sectors] = [from, to].map(|state| state.bytes.len() / SECTOR);
    let change = |sector: usize| {
        let block = sector / BLOCK_SECTORS;
        let [before, after] = [from, to].map(|state| state.writes.get(block).copied().unwrap_or(0));
        if sector >= to_sectors {
            Some(RangeChange::BeyondSize)
        } else if after > 0 && after != before {
            Some(RangeChange::Data)
        } else if sector >= from_sectors {
            Some(RangeChange::BeyondSize)
        } else {
            (before > 0 && after == 0).then_some(RangeChange::Discarded)
        }
    };
    (0..from_sectors.max(to_sectors)).map(change).collect()
}

/// The same as ranges.
pub fn ranges_of(sectors: &[Option<RangeChange>]) -> Vec<DifferenceRange> {
    let mut ranges: Vec<DifferenceRange> = Vec::new();
    for (sector, change) in sectors.iter().enumerate() {
        let (at, sector_bytes) = ((sector * SECTOR) as u64, SECTOR as u64);
        let Some(change) = *change else { continue };
        match ranges.last_mut().filter(|last| last.end_bytes() == at && last.change == change) {
            Some(last) => last.length_bytes += sector_bytes,
            None => ranges.push(DifferenceRange { at_bytes: at, length_bytes: sector_bytes, change }),
        }
    }
    ranges
}
