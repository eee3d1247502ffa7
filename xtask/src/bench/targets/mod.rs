//! Our servers beside tgt (iSCSI) and qemu-storage-daemon (NBD): one file, one client for both, write caches on.
//!
//! The client of iSCSI is our initiator (`iscsi` example `unit_load`), of NBD fio's engine. Processor time is that of the
//! server's process alone, for each I/O it did: it says more than times do where others are at work.
//!
//! Reading order: `servers`, `load` (one run, and its rows), `plain` (a file), `sessions`, `volumes` (a new pool),
//! `aged` (a full and overwritten pool), `steps` (of the server's thread meanwhile), `idle`.

mod aged;
mod idle;
mod load;
mod plain;
mod servers;
mod sessions;
mod steps;
mod volumes;

use super::{
    Setting, fio,
    our_programs::{Example, OurPrograms},
    record::Record,
    row::Row,
};
use crate::step;
use anyhow::Result;
use load::{Bench, Protocol};
use std::process::Command;

/// The client of iSCSI, and the maker of aged pools.
pub const EXAMPLES: [Example; 2] =
    [Example { package: "iscsi", name: "unit_load" }, Example { package: "array", name: "pool_load" }];

/// Sizes and durations.
struct Scale {
    /// Of the plain file, and of a volume.
    file_mib: u64,
    seconds: f64,
    rounds: usize,
}

const FULL: Scale = Scale { file_mib: 2048, seconds: 8.0, rounds: 5 };
const QUICK: Scale = Scale { file_mib: 512, seconds: 1.5, rounds: 3 };

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let scale = if setting.quick { QUICK } else { FULL };
    let file = setting.folder.join("disk");
    println!("   make a file of {} MiB", scale.file_mib);
    fio::lay_out(&file, scale.file_mib << 20, &setting.folder)?;
    let bench = Bench { setting, ours, file: &file, scale: &scale };
    let mut rows = Vec::new();
    for point in plain::POINTS {
        for protocol in [Protocol::Iscsi, Protocol::Nbd] {
            rows.extend(plain::rows(&bench, protocol, point)?);
        }
    }
    rows.extend(sessions::rows(&bench)?);
    rows.extend(volumes::rows(&bench)?);
    rows.extend(aged::rows(&bench, record)?);
    rows.extend(idle::rows(&bench)?);
    record.method(
        "one file, laid out once, its servers all under way at once and one measured at a time, in turn; all with a write \
         cache, nothing flushed",
    );
    record.method(
        "volumes: of a pool of eight drives that are files beside that file, filled once, everything twice",
    );
    record.method("tgt: the better of rdwr (page cache) and aio in each round, on the same file");
    Ok(rows)
}

/// Installs the peers, if they are missing and that is allowed.
pub fn prepare(install: bool) -> Result<()> {
    let is_there = |program: &str, flag: &str| step::succeeds(Command::new(program).arg(flag));
    if is_there("tgtadm", "--version") && is_there("qemu-storage-daemon", "--version") {
        return Ok(());
    }
    if !install {
        anyhow::bail!(
            "tgt and qemu-storage-daemon are compared with: apt-get install tgt qemu-system-common, or --install"
        );
    }
    crate::judges::packages(&["tgt", "qemu-system-common"])
}
