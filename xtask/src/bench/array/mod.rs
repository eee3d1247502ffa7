//! The bench of the array: a pool on eight drives that are files, and its parts, beside fio on the same storage.
//!
//! Each file here is a set of rows that share what they need, makes it in a folder of its own, and removes it.

mod aged;
mod branches;
mod btrfs;
mod checksum;
mod cuts;
mod difference;
mod loads;
mod map;
mod moving;
mod recovery;
mod snapshots;
mod two_pools;

use super::{
    Setting,
    our_programs::{Example, OurPrograms},
    record::Record,
    row::Row,
};
use anyhow::Result;
use serde_json::Value;
use std::{fs, path::Path};

/// The programs that are measured.
pub const EXAMPLES: [Example; 3] = [
    Example { package: "array", name: "pool_load" },
    Example { package: "array", name: "map_speed" },
    Example { package: "array", name: "checksum_speed" },
];
/// Bytes of a host's command.
const BLOCK_BYTES: u64 = 8192;
const DEPTH: u32 = 32;
const DRIVES: u32 = 8;
/// The volume of a pool that `pool_load` makes.
pub(super) const VOLUME: &str = "load";
/// Share of reads of the mixed load, in percent.
const READ_PERCENT: u32 = 70;

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let mut rows = loads::run(setting, ours, record)?;
    rows.extend(aged::run(setting, ours, record)?);
    rows.extend(btrfs::run(setting, ours, record)?);
    rows.extend(snapshots::run(setting, ours, record)?);
    rows.extend(two_pools::run(setting, ours, record)?);
    rows.extend(cuts::run(setting, ours, record)?);
    rows.extend(branches::run(setting, ours, record)?);
    rows.extend(moving::run(setting, ours)?);
    rows.extend(recovery::run(setting, ours)?);
    rows.extend(map::run(setting, ours, record)?);
    rows.extend(difference::run(setting, ours, record)?);
    rows.extend(checksum::run(setting, ours)?);
    Ok(rows)
}

/// A pool in a folder of its own, its volume filled once: to so many percent of what hosts can store.
pub(super) fn make_pool(
    ours: &OurPrograms,
    folder: &Path,
    volume_bytes: u64,
    full_percent: u32,
) -> Result<()> {
    fs::create_dir_all(folder)?;
    let arguments =
        ["make".to_owned(), DRIVES.to_string(), volume_bytes.to_string(), full_percent.to_string()];
    ours.pool_load(folder, &arguments).map(drop)
}

/// Overwrites the volume of a pool at random: so many times what hosts can store in the pool. Returns figures for the
/// record.
pub(super) fn age_pool(ours: &OurPrograms, folder: &Path, times: f64) -> Result<Value> {
    ours.example("pool_load", |command| command.arg(folder).args(["age", &times.to_string()]))
}
