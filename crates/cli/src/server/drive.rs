//! `spindle drive`: what others know of a drive, and where it is.

use super::{connection::ServerConnection, place::ServerPlace};
use crate::{console::Console, exit_status::ExitStatus};
use clap::{Args, Subcommand};
use control::web::{
    client::{ConditionRow, DriveWarningBody, Method},
    health_rows::DriveRow,
};
use report::Refusal;
use serde::Serialize;
use std::path::{Path, PathBuf};
use world::{
    World,
    real::{
        self, RealOptions,
        host_files::{self},
    },
};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle drive warn WX11A1234567 'SMART: 24 pending sectors'
  spindle drive locate /dev/sdc

Ends with 0, or with 2 if it was refused.")]
pub struct DriveArguments {
    #[command(subcommand)]
    pub verb: DriveVerb,

    /// Pool of the drive [default: the one that has it]
    #[arg(long, value_name = "POOL", global = true)]
    pub pool: Option<String>,

    /// Print the answer as JSON on standard output; everything else goes to standard error
    #[arg(long, global = true)]
    pub json: bool,

    #[command(flatten)]
    pub place: ServerPlace,
}

#[derive(Clone, Debug, Subcommand)]
pub enum DriveVerb {
    /// Record what something else knows of a drive, as smartd does: an event, and a condition until the drive has left its pool
    #[command(after_help = "Examples:
  spindle drive warn WX11A1234567 'SMART: 24 pending sectors'
  spindle drive warn /dev/sdc --withdraw

For smartd, in smartd.conf: 'DEVICESCAN -m <nomailer> -M exec SCRIPT' with a script that calls \
'spindle drive warn \"$SMARTD_DEVICE\" \"$SMARTD_MESSAGE\"'. The answer names the command that takes the drive out in advance.")]
    Warn {
        /// UUID, serial number, name or path of the drive
        #[arg(value_name = "DRIVE")]
        drive: String,

        /// The warning, in a line
        #[arg(value_name = "TEXT", required_unless_present = "withdraw", conflicts_with = "withdraw")]
        text: Option<String>,

        /// Take the warning back
        #[arg(long)]
        withdraw: bool,
    },
    /// Switch on the light of a drive's bay, and tell where it is
    #[command(after_help = "Examples:
  spindle drive locate WX11A1234567
  spindle drive locate WX11A1234567 --off

It works on the machine with the drive, as root, if the enclosure is known to the kernel (/sys/class/enclosure). Otherwise it \
prints serial number, bay and path.")]
    Locate {
        /// UUID, serial number, name or path of the drive
        #[arg(value_name = "DRIVE")]
        drive: String,

        /// Switch it off again
        #[arg(long)]
        off: bool,
    },
}

/// The answer to a search for a drive as JSON.
#[derive(Serialize)]
struct LocatedDrive<'a> {
    pool: &'a str,
    drive: &'a DriveRow,
    /// File of the light; null if there is none.
    light: Option<PathBuf>,
    is_on: bool,
}

struct FoundDrive {
    pool: String,
    pool_id: String,
    row: DriveRow,
}

/// Runs the verb to its end.
pub fn drive(arguments: &DriveArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, false);
    real::run(0, RealOptions::default(), async |world: World| {
        let server = arguments.place.connection(&world)?;
        match &arguments.verb {
            DriveVerb::Warn { drive, text, .. } => {
                let found = find(&server, arguments, drive).await?;
                warn(&server, &found, text.as_deref(), &console).await?;
            }
            DriveVerb::Locate { drive, off } => {
                let found = find(&server, arguments, drive).await?;
                locate(&found, !off, &console)?;
            }
        }
        console.finish(ExitStatus::Pass)
    })
}

/// The drive that is meant, in all pools that this caller may see.
async fn find(
    server: &ServerConnection,
    arguments: &DriveArguments,
    meant: &str,
) -> Result<FoundDrive, Refusal> {
    let is_wanted = |name: &str| arguments.pool.as_ref().is_none_or(|pool| pool == name);
    let mut found = Vec::new();
    for pool in server.pools().await?.into_iter().filter(|pool| is_wanted(&pool.name)) {
        let Some(id) = pool.id else { continue };
        let rows: Vec<DriveRow> = server.get(&format!("/v1/pools/{id}/drives")).await?;
        let of_pool = rows.into_iter().filter(|row| is_meant(row, meant));
        found.extend(of_pool.map(|row| FoundDrive { pool: pool.name.clone(), pool_id: id.clone(), row }));
    }
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(Refusal::new(
            format!("no pool has a drive {meant:?}"),
            "'spindle pool show POOL' lists drives with serial numbers and paths",
        )),
        (Some(one), Some(other)) => Err(Refusal::new(
            format!("{meant:?} is {} of {} and {} of {}", one.row.name, one.pool, other.row.name, other.pool),
            "say its UUID, or ⟨pool⟩ POOL",
        )),
    }
}

fn is_meant(row: &DriveRow, meant: &str) -> bool {
    let same_file = || {
        let canonical = |path: &str| host_files::canonical(Path::new(path)).ok();
        meant.starts_with('/') && canonical(meant).is_some() && canonical(meant) == canonical(&row.path)
    };
    row.id.as_deref().is_some_and(|id| id.eq_ignore_ascii_case(meant))
        || row.serial.as_deref().is_some_and(|serial| serial.trim() == meant)
        || row.name == meant
        || row.path == meant
        || same_file()
}

async fn warn(
    server: &ServerConnection,
    FoundDrive { pool, pool_id, row }: &FoundDrive,
    text: Option<&str>,
    console: &Console,
) -> Result<(), Refusal> {
    let id = row.id.as_ref().ok_or_else(|| {
        Refusal::new(format!("drive {} of {pool} was never found, and has no UUID", row.name), "")
    })?;
    let path = format!("/v1/pools/{pool_id}/drives/{id}/warning");
    match text {
        Some(text) => {
            let body = DriveWarningBody { text: text.to_owned() };
            let open: ConditionRow = server.change(Method::POST, &path, Some(&body)).await?.parsed()?;
            if console.is_for_programs() {
                console.json_of(&open)?;
            }
            console.say(&format!("{pool}: {} [{}]", open.text, open.id));
            console.say(&format!("  {}", open.next_step));
        }
        None => {
            server.change(Method::DELETE, &path, None::<&()>).await?.checked()?;
            console.say(&format!("{pool}: drive {}: no warning is open", row.name));
        }
    }
    Ok(())
}

fn locate(FoundDrive { pool, row, .. }: &FoundDrive, is_on: bool, console: &Console) -> Result<(), Refusal> {
    let light = light_of(Path::new("/sys/class/block"), &row.path);
    if let Some(light) = &light {
        host_files::write_in_place(light, if is_on { b"1" } else { b"0" }).map_err(|error| {
            Refusal::new(error.to_string(), "run it as root on the machine with the drive")
        })?;
    }
    if console.is_for_programs() {
        console.json_of(&LocatedDrive {
            pool,
            drive: row,
            light: light.clone(),
            is_on: light.is_some() && is_on,
        })?;
    }
    let state = match (&light, is_on) {
        (Some(_), true) => "the light of its bay is on",
        (Some(_), false) => "the light of its bay is off",
        (None, _) => "this machine knows no light for it",
    };
    let serial = row.serial.as_deref().unwrap_or("unknown");
    let bay = row.bay.as_ref().map_or_else(String::new, |bay| format!(", bay {bay}"));
    console.say(&format!("{pool}: drive {}: {state}; serial number {serial}{bay}, {}", row.name, row.path));
    Ok(())
}

/// The file in sysfs that switches the light of a drive's bay (drivers/misc/enclosure.c of Linux), if there is one.
fn light_of(blocks: &Path, path: &str) -> Option<PathBuf> {
    let node = host_files::canonical(Path::new(path)).ok()?;
    let block = blocks.join(node.file_name()?);
    // A partition lies in its disk.
    let folders = [block.join("device"), block.join("../device")];
    folders.into_iter().find_map(|folder| {
        let names = host_files::list(&folder).ok()?;
        let link = names.into_iter().find(|name| name.starts_with("enclosure_device:"))?;
        let light = folder.join(link).join("locate");
        host_files::metadata(&light).is_ok().then_some(light)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)]
    use super::*;
    use std::fs;

    #[test]
    fn the_light_of_a_bay_is_found_by_the_kernels_links() {
        let root = tempfile::tempdir().unwrap();
        let (node, blocks) = (root.path().join("sdc"), root.path().join("block"));
        fs::write(&node, "").unwrap();
        let path = node.to_str().unwrap();
        assert_eq!(light_of(&blocks, path), None);
        let slot = blocks.join("sdc/device/enclosure_device:Slot 03");
        fs::create_dir_all(&slot).unwrap();
        assert_eq!(light_of(&blocks, path), None, "an enclosure without a light");
        fs::write(slot.join("locate"), "0").unwrap();
        let light = light_of(&blocks, path).unwrap();
        assert_eq!(light, slot.join("locate"));
        host_files::write_in_place(&light, b"1").unwrap();
        assert_eq!(fs::read(&light).unwrap(), b"1");
    }
}
