//! The expected content of the volume and its snapshots, from the child's output and the common script.

use std::collections::{BTreeMap, BTreeSet};
use world::Random;

pub const SECTOR: usize = 512;
/// Concurrent writers, each in its own region.
pub const WRITERS: u64 = 6;
/// Sectors of a region: whole blocks.
const REGION: u64 = 2728;
pub const SECTORS: usize = (WRITERS * REGION) as usize;
const BLOCK_SECTORS: u64 = 8;

/// A host command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    pub first: u64,
    pub count: u64,
    /// Value of its sectors; 0 for a discard.
    pub value: u64,
}

impl Command {
    pub fn is_discard(&self) -> bool {
        self.value == 0
    }

    /// The bytes to write.
    pub fn bytes(&self) -> Vec<u8> {
        (self.first..self.first + self.count).flat_map(|sector| sector_bytes(self.value, sector)).collect()
    }
}

/// The commands of one writer in a round. Child and parent compute the same ones.
pub struct Script {
    random: Random,
    round: u64,
    writer: u64,
    number: u64,
}

impl Script {
    pub fn new(round: u64, writer: u64) -> Self {
        Self { random: Random::new(round, &format!("writer {writer}")), round, writer, number: 0 }
    }

    /// The next command, and its number.
    pub fn next(&mut self) -> (u64, Command) {
        let number = self.number;
        self.number += 1;
        let value = (self.round + 1) << 40 | self.writer << 32 | (number + 1);
        let (unit, count_max, value) = match self.random.below(10) {
            0..=5 => (BLOCK_SECTORS, 4, value),
            6..=8 => (1, 64, value),
            _ => (BLOCK_SECTORS, 16, 0),
        };
        let count = (1 + self.random.below(count_max)) * unit;
        let first = self.random.below((REGION - count) / unit + 1) * unit;
        (number, Command { first: self.writer * REGION + first, count, value })
    }
}

/// A sector that holds `value`; the content differs for each value and sector.
fn sector_bytes(value: u64, sector: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    if value == 0 {
        return bytes;
    }
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        let mixed = value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ sector.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let filled = match index {
            0 => value,
            1 => sector,
            _ => mixed.rotate_left(index as u32).wrapping_add(index as u64),
        };
        word.copy_from_slice(&filled.to_le_bytes());
    }
    bytes
}

/// The values of the sectors read. Every byte is checked.
pub fn sectors_of(bytes: &[u8]) -> Vec<u64> {
    let sectors = bytes.chunks_exact(SECTOR).enumerate();
    let values = sectors.map(|(index, sector)| {
        let value = u64::from_le_bytes(sector[..8].try_into().expect("eight bytes"));
        assert!(
            sector == sector_bytes(value, index as u64),
            "sector {index}: a value that was never written"
        );
        value
    });
    let values: Vec<u64> = values.collect();
    assert_eq!(values.len(), SECTORS, "all of them");
    values
}

/// Other values that a sector may have.
type Also = BTreeMap<u64, BTreeSet<u64>>;

fn may_be_written(also: &mut Also, command: &Command) {
    for sector in command.first..command.first + command.count {
        also.entry(sector).or_default().insert(command.value);
    }
}

fn check(round: u64, what: &str, found: &[u64], sure: &[u64], also: &Also) {
    for (sector, (found, sure)) in found.iter().zip(sure).enumerate() {
        let also = also.get(&(sector as u64));
        assert!(
            found == sure || also.is_some_and(|also| also.contains(found)),
            "round {round}: sector {sector} of {what} has {found:x}, not {sure:x} nor one of {also:x?}"
        );
    }
}

/// Knowledge about a snapshot.
pub enum SnapshotKnown {
    /// Taken in the last round, not read yet.
    Fresh { sure: Vec<u64>, also: Also, is_answered: bool },
    /// The values read.
    Frozen(Vec<u64>),
}

/// Knowledge about volume and snapshots.
pub struct PoolModel {
    sectors: Vec<u64>,
    /// Values of commands under way when the child was killed.
    also: Also,
    pub snapshots: BTreeMap<String, SnapshotKnown>,
    /// Snapshots whose deletion began and was not acknowledged.
    deleting: BTreeSet<String>,
}

impl Default for PoolModel {
    fn default() -> Self {
        Self {
            sectors: vec![0; SECTORS],
            also: Also::new(),
            snapshots: BTreeMap::new(),
            deleting: BTreeSet::new(),
        }
    }
}

impl PoolModel {
    /// Takes in the output of a child. Returns the number of acknowledged commands.
    pub fn hear(&mut self, round: u64, lines: &[String]) -> u64 {
        let mut scripts: Vec<Script> = (0..WRITERS).map(|writer| Script::new(round, writer)).collect();
        let mut under_way: BTreeMap<u64, Command> = BTreeMap::new();
        let mut answered = 0;
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["killed", "begin", writer, number, "."] => {
                    let writer: u64 = writer.parse().expect("a writer");
                    let (drawn, command) = scripts[writer as usize].next();
                    assert_eq!(drawn.to_string(), number, "child and parent draw the same");
                    under_way.insert(writer, command);
                    for snapshot in self.snapshots.values_mut() {
                        if let SnapshotKnown::Fresh { also, is_answered: false, .. } = snapshot {
                            may_be_written(also, &command);
                        }
                    }
                }
                ["killed", "done", writer, _, "."] => {
                    let command = under_way.remove(&writer.parse().expect("a writer")).expect("it was begun");
                    self.sectors[command.first as usize..(command.first + command.count) as usize]
                        .fill(command.value);
                    answered += 1;
                }
                ["killed", "snap", name, "."] => {
                    let mut also = Also::new();
                    under_way.values().for_each(|command| may_be_written(&mut also, command));
                    let fresh = SnapshotKnown::Fresh { sure: self.sectors.clone(), also, is_answered: false };
                    self.snapshots.insert(name.to_owned(), fresh);
                }
                ["killed", "snapped", name, "."] => {
                    let Some(SnapshotKnown::Fresh { is_answered, .. }) = self.snapshots.get_mut(name) else {
                        panic!("{name} was not begun");
                    };
                    *is_answered = true;
                    answered += 1;
                }
                ["killed", "delete", name, "."] => drop(self.deleting.insert(name.to_owned())),
                ["killed", "deleted", name, "."] => {
                    self.deleting.remove(name);
                    self.snapshots.remove(name).expect("it was there");
                    answered += 1;
                }
                _ => {}
            }
        }
        self.also = Also::new();
        under_way.values().for_each(|command| may_be_written(&mut self.also, command));
        answered
    }

    /// Checks the content of the volume, and keeps it as the known one.
    pub fn settle_volume(&mut self, round: u64, found: &[u64]) {
        check(round, "the volume", found, &self.sectors, &self.also);
        self.sectors = found.to_vec();
        self.also.clear();
    }

    /// Checks the list of snapshots.
    pub fn settle_names(&mut self, round: u64, names: &[String]) {
        for name in names {
            assert!(
                self.snapshots.contains_key(name),
                "round {round}: {name} was never taken, or was deleted"
            );
        }
        let deleting = std::mem::take(&mut self.deleting);
        self.snapshots.retain(|name, known| {
            let may_be_gone =
                deleting.contains(name) || matches!(known, SnapshotKnown::Fresh { is_answered: false, .. });
            let is_there = names.contains(name);
            assert!(is_there || may_be_gone, "round {round}: snapshot {name} is gone");
            is_there
        });
    }

    /// Checks the content of a snapshot, and keeps it as the known one.
    pub fn settle_snapshot(&mut self, round: u64, name: &str, found: &[u64]) {
        let what = format!("snapshot {name}");
        match &self.snapshots[name] {
            SnapshotKnown::Fresh { sure, also, .. } => check(round, &what, found, sure, also),
            SnapshotKnown::Frozen(sure) => check(round, &what, found, sure, &Also::new()),
        }
        self.snapshots.insert(name.to_owned(), SnapshotKnown::Frozen(found.to_vec()));
    }
}
