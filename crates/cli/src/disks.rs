//! `spindle disks`: the disks of this machine, and which of them are free for a pool.

use crate::{console::Console, exit_status::ExitStatus};
use clap::Args;
use report::Refusal;
use serde::Serialize;
use serving::pool::disks::{DeviceContent, DiskState, ListedDisk, list_disks};
use std::path::PathBuf;
use world::{
    World,
    real::{
        self, RealOptions,
        host::{DiskCatalogue, usages_text},
    },
};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle disks              all disks and partitions, and what is on them
  spindle disks --free       those of which a pool can be made
  spindle disks --json | jq -r '.disks[] | select(.state == \"free\") | .path'

A disk is free if it is not mounted, not swap, not part of another device, and its first and last MiB are zero: 'spindle pool \
create --device' takes no other. Nothing is written, and a disk in use is not read. Give a pool the name below \
/dev/disk/by-id: it stays with the disk when others are plugged in.

--json prints {\"disks\": [{\"name\", \"path\", \"node\", \"by_id\", \"partition_of\", \"size_bytes\", \"model\", \"serial\", \
\"wwid\", \"bay\", \"rotational\", \"volatile_write_cache\", \"thin\", \"read_only\", \"state\" (free, in-use, pool-drive, \
holds-data, read-only, denied or unreadable), \"reason\", \"pool\"}]}.

Ends with 0, or 2 if the disks cannot be listed.")]
pub struct DisksArguments {
    /// Only the disks that are free
    #[arg(long)]
    free: bool,

    /// Print the disks as JSON on standard output; everything else goes to standard error
    #[arg(long)]
    json: bool,
}

/// The answer as JSON.
#[derive(Serialize)]
struct DiskList<'d> {
    disks: Vec<DiskRow<'d>>,
}

#[derive(Serialize)]
struct DiskRow<'d> {
    name: &'d str,
    /// To give to a pool.
    path: &'d PathBuf,
    node: &'d PathBuf,
    by_id: Option<&'d PathBuf>,
    partition_of: Option<&'d str>,
    size_bytes: u64,
    model: Option<&'d str>,
    serial: Option<&'d str>,
    wwid: Option<&'d str>,
    bay: Option<&'d str>,
    rotational: Option<bool>,
    volatile_write_cache: Option<bool>,
    thin: bool,
    read_only: bool,
    state: &'static str,
    /// The reason why it is not free.
    reason: Option<String>,
    /// UUID of the pool that it is a drive of.
    pool: Option<String>,
}

/// Runs the verb to its end.
pub fn disks(arguments: &DisksArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, false);
    real::run(0, RealOptions::default(), async |world: World| {
        let listed = list_disks(&world, &DiskCatalogue::default()).await.map_err(|error| {
            Refusal::new(error.to_string(), "mount sysfs at /sys, or run this outside the container")
        })?;
        let is_wanted = |disk: &&ListedDisk| !arguments.free || disk.state == DiskState::Free;
        let disks: Vec<&ListedDisk> = listed.iter().filter(is_wanted).collect();
        if arguments.json {
            console.json_of(&DiskList { disks: disks.iter().map(|disk| row_of(disk)).collect() })?;
        }
        lines_of(&disks).iter().for_each(|line| console.say(line));
        match (disks.is_empty(), arguments.free) {
            (true, true) => console.say("no disk is free; 'spindle disks' says what is on each"),
            (true, false) => console.say("this machine shows no disks"),
            (false, _) => {}
        }
        let denied = listed.iter().filter(|disk| disk.state == DiskState::Denied).count();
        if denied > 0 {
            console.warn(&format!(
                "{denied} not examined: you may not read them; run this as root, or as a member of the group disk"
            ));
        }
        console.finish(ExitStatus::Pass)
    })
}

fn row_of(listed: &ListedDisk) -> DiskRow<'_> {
    let disk = &listed.disk;
    let pool = match &listed.state {
        DiskState::Holds(DeviceContent::PoolDrive { pool, .. }) => Some(pool.to_string()),
        _ => None,
    };
    DiskRow {
        name: &disk.name,
        path: listed.path(),
        node: &disk.node,
        by_id: disk.by_id.as_ref(),
        partition_of: listed.partition_of.as_deref(),
        size_bytes: disk.size.0,
        model: disk.model.as_deref(),
        serial: disk.serial.as_deref(),
        wwid: disk.wwid.as_deref(),
        bay: disk.bay.as_deref(),
        rotational: listed.is_rotational,
        volatile_write_cache: listed.has_volatile_cache,
        thin: disk.is_thin,
        read_only: disk.is_read_only,
        state: word_of(&listed.state),
        reason: reason_of(&listed.state),
        pool,
    }
}

/// Two lines for a disk: the facts that choose it, and the path to give to a pool; one for a partition.
pub fn lines_of(disks: &[&ListedDisk]) -> Vec<String> {
    let name = |listed: &ListedDisk| {
        let indent = if listed.partition_of.is_some() { "  " } else { "" };
        format!("{indent}{}", listed.disk.name)
    };
    let width = disks.iter().map(|listed| name(listed).len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for listed in disks {
        let state = reason_of(&listed.state).unwrap_or_else(|| "free".to_owned());
        let mut facts = vec![listed.size().to_string(), kind_of(listed).to_owned()];
        facts.extend(listed.disk.model.clone().filter(|_| listed.partition_of.is_none()));
        facts.extend(listed.disk.serial.as_ref().map(|serial| format!("serial {serial}")));
        facts.extend(listed.disk.bay.as_ref().map(|bay| format!("bay {bay}")));
        lines.push(format!("{:width$}  {state}", name(listed)));
        lines.push(format!("{:width$}  {}", "", facts.join(", ")));
        lines.push(format!("{:width$}  {}", "", listed.path().display()));
    }
    lines
}

fn kind_of(listed: &ListedDisk) -> &'static str {
    match (listed.is_rotational, listed.has_volatile_cache) {
        (Some(true), Some(true)) => "rotating with a volatile write cache",
        (Some(true), _) => "rotating",
        (_, Some(true)) => "not rotating, with a volatile write cache",
        (Some(false), _) => "not rotating",
        (None, _) => "of an unknown kind",
    }
}

fn word_of(state: &DiskState) -> &'static str {
    match state {
        DiskState::Free => "free",
        DiskState::InUse(_) => "in-use",
        DiskState::Holds(DeviceContent::PoolDrive { .. }) => "pool-drive",
        DiskState::Holds(_) => "holds-data",
        DiskState::ReadOnly => "read-only",
        DiskState::Denied => "denied",
        DiskState::Unreadable(_) => "unreadable",
    }
}

/// The reason why a disk is not free; `None` if it is.
pub fn reason_of(state: &DiskState) -> Option<String> {
    Some(match state {
        DiskState::Free => return None,
        DiskState::InUse(usage) => usages_text(usage).unwrap_or_default(),
        DiskState::Holds(DeviceContent::PoolDrive { name, pool }) => {
            format!("drive of the pool {name:?} ({pool})")
        }
        DiskState::Holds(DeviceContent::Held(held)) => format!("holds {held}"),
        DiskState::Holds(DeviceContent::Blank) => "holds nothing".to_owned(),
        DiskState::ReadOnly => "write-protected".to_owned(),
        DiskState::Denied => "not examined: no permission to read it".to_owned(),
        DiskState::Unreadable(problem) => format!("cannot be read: {problem}"),
    })
}
