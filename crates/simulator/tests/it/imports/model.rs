//! Contents that each sector of the volume may have: the last acknowledged tag, and those of commands whose end is not known.

use std::ops::Range;

pub const SECTOR: usize = 512;
/// Sectors of a block.
pub const OF_BLOCK: u64 = 8;

/// The tag of a sector of zeroes.
pub const ZERO: u64 = 0;

/// Allowed tags by sector.
pub struct Model {
    allowed: Vec<Vec<u64>>,
    /// Blocks that a host has changed, or may have.
    pub touched: Vec<bool>,
    /// Blocks that have an acknowledged command: they are the volume's own.
    owned: Vec<bool>,
    next_tag: u64,
}

impl Model {
    /// Of a volume with the content of a source; bytes behind its end are zeroes.
    pub fn of(source: &[u8]) -> Self {
        let sectors = (source.len() as u64).next_multiple_of(4096) as usize / SECTOR;
        let tag = |sector: usize| source.get(sector * SECTOR..(sector + 1) * SECTOR).map_or(ZERO, tag_of);
        Self {
            allowed: (0..sectors).map(|sector| vec![tag(sector)]).collect(),
            touched: vec![false; sectors / OF_BLOCK as usize],
            owned: vec![false; sectors / OF_BLOCK as usize],
            next_tag: 1 << 40,
        }
    }

    pub fn sectors(&self) -> u64 {
        self.allowed.len() as u64
    }

    pub fn new_tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// A command begins that sets sectors to a tag.
    pub fn begin(&mut self, sectors: Range<u64>, tag: u64) {
        for sector in sectors {
            self.allowed[sector as usize].push(tag);
            self.touched[(sector / OF_BLOCK) as usize] = true;
        }
    }

    /// The command was acknowledged.
    pub fn acknowledge(&mut self, sectors: Range<u64>, tag: u64) {
        for sector in sectors {
            self.allowed[sector as usize] = vec![tag];
            self.owned[(sector / OF_BLOCK) as usize] = true;
        }
    }

    /// Takes in what was read from sector `first` on: it stays that way.
    pub fn check(&mut self, first: u64, bytes: &[u8]) {
        for (sector, found) in (first..).zip(bytes.chunks_exact(SECTOR)) {
            let (found, allowed) = (tag_of(found), &mut self.allowed[sector as usize]);
            assert!(allowed.contains(&found), "sector {sector} has {found:x}, allowed are {allowed:x?}");
            *allowed = vec![found];
        }
    }

    /// Blocks that were given up read as zeroes, unless a host has changed them. A command that failed, or whose end is not known,
    /// may have changed its part.
    pub fn give_up(&mut self, block: u64) {
        for sector in block * OF_BLOCK..(block + 1) * OF_BLOCK {
            match (self.owned[block as usize], self.touched[block as usize]) {
                (true, _) => {}
                (false, true) => self.allowed[sector as usize].push(ZERO),
                (false, false) => self.allowed[sector as usize] = vec![ZERO],
            }
        }
    }
}

/// The tag of a sector, which repeats it.
fn tag_of(sector: &[u8]) -> u64 {
    let tag = u64::from_le_bytes(sector[..8].try_into().expect("eight bytes"));
    assert!(
        sector.chunks_exact(8).all(|part| part == tag.to_le_bytes()),
        "a sector of two writes, or damaged"
    );
    tag
}

/// A sector or more of a tag.
pub fn sectors_of(tag: u64, count: u64) -> Vec<u8> {
    tag.to_le_bytes().repeat(count as usize * SECTOR / 8)
}
