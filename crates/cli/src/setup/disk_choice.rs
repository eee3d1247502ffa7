//! Disks that are named for a set-up, found among those of the machine.

use super::division::{LogDisks, SetupDisk};
use crate::disks::reason_of;
use report::Refusal;
use serving::pool::disks::{DiskState, ListedDisk};
use std::path::Path;
use world::real::host_files;

/// All that are free.
pub const FREE: &str = "free";
/// No disks of their own for the logs.
const NONE: &str = "none";

/// The whole disks that are free. Loop devices are left out: files lie below them.
pub fn free_disks(listed: &[ListedDisk]) -> Vec<&ListedDisk> {
    let is_whole = |disk: &ListedDisk| disk.partition_of.is_none() && !disk.disk.name.starts_with("loop");
    listed.iter().filter(|disk| disk.state == DiskState::Free && is_whole(disk)).collect()
}

/// The disks of both lists, each once, and which of them are of the logs.
///
/// # Errors
///
/// A disk is not there, is not free, or is named twice in a list.
pub fn chosen(
    listed: &[ListedDisk],
    names: &[String],
    log_names: &[String],
) -> Result<(Vec<SetupDisk>, LogDisks), Refusal> {
    let mut disks = named(listed, names)?;
    let logs = match log_names {
        [] => LogDisks::Chosen,
        [none] if none == NONE => LogDisks::None,
        names => {
            let logs = named(listed, names)?;
            let paths = logs.iter().map(|disk| disk.path.clone()).collect();
            let unknown: Vec<SetupDisk> = logs.into_iter().filter(|log| !disks.contains(log)).collect();
            disks.extend(unknown);
            LogDisks::Named(paths)
        }
    };
    Ok((disks, logs))
}

fn named(listed: &[ListedDisk], names: &[String]) -> Result<Vec<SetupDisk>, Refusal> {
    let mut disks: Vec<SetupDisk> = Vec::new();
    if let [free] = names
        && free == FREE
    {
        disks.extend(free_disks(listed).into_iter().map(setup_disk));
        return match disks.is_empty() {
            true => Err(Refusal::new("no disk is free", "'spindle disks' says what is on each")),
            false => Ok(disks),
        };
    }
    for name in names {
        let disk = setup_disk(free_one(listed, name)?);
        if disks.contains(&disk) {
            return Err(Refusal::new(format!("{name}: that disk is named twice"), "name each once"));
        }
        disks.push(disk);
    }
    Ok(disks)
}

fn setup_disk(disk: &ListedDisk) -> SetupDisk {
    SetupDisk { path: disk.path().clone(), size: disk.size(), is_rotational: disk.is_rotational }
}

/// The free disk of a name.
fn free_one<'d>(listed: &'d [ListedDisk], name: &str) -> Result<&'d ListedDisk, Refusal> {
    const REMEDY: &str = "'spindle disks --free' lists those that are free";
    let node = host_files::canonical(Path::new(name)).ok();
    let is_meant = |disk: &&ListedDisk| {
        let by_id = disk.disk.by_id.as_ref();
        disk.disk.name == name
            || by_id
                .is_some_and(|path| path.as_os_str() == name || path.file_name().is_some_and(|id| id == name))
            || node.as_ref().is_some_and(|node| *node == disk.disk.node)
    };
    let found = listed.iter().find(is_meant);
    let disk = found.ok_or_else(|| Refusal::new(format!("{name} is no disk of this machine"), REMEDY))?;
    match reason_of(&disk.state) {
        None => Ok(disk),
        Some(reason) => Err(Refusal::new(format!("{name} is not free: {reason}"), REMEDY)),
    }
}
