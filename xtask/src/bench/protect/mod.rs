//! `bench protect`: what backups cost the application that is backed up, and how fast they are verified.
//!
//! Reading order: `freeze_window` with its peers (`frozen_peers`, `answer_gaps`), `served_mail` (a server with volumes
//! that have a mailbox database), `kept_backups` and `verified_snapshots` on it.

mod answer_gaps;
mod freeze_window;
mod frozen_peers;
mod kept_backups;
mod served_mail;
mod verified_snapshots;

use super::{Setting, our_programs::OurPrograms, record::Record, row::Row};
use crate::{judges, step};
use anyhow::{Result, bail};
use std::process::Command;

/// Programs that are compared with, the flag that they answer, and their Debian packages.
const PEERS: [(&str, &str, &str); 4] = [
    ("mkfs.btrfs", "--version", "btrfs-progs"),
    ("mkfs.xfs", "-V", "xfsprogs"),
    ("fsfreeze", "--version", "util-linux"),
    ("qemu-img", "--version", "qemu-utils"),
];

/// Installs what is missing, if it may.
pub fn prepare(install: bool) -> Result<()> {
    let is_missing = |program: &str, flag: &str| !step::succeeds(Command::new(program).arg(flag));
    let missing = PEERS.iter().filter(|(program, flag, _)| is_missing(program, flag));
    let missing: Vec<&str> = missing.map(|(_, _, package)| *package).collect();
    match missing.is_empty() {
        true => Ok(()),
        false if install => judges::packages(&missing),
        false => bail!("missing: install them by apt-get install {}, or --install", missing.join(" ")),
    }
}

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let mut rows = freeze_window::run(setting, ours, record)?;
    rows.extend(kept_backups::run(setting, ours, record)?);
    rows.extend(verified_snapshots::run(setting, ours, record)?);
    Ok(rows)
}
