//! `spindle volume readmit`.

use super::volume_access::{ChangeFacts, VerbOptions, VolumeAccess};
use crate::{console::Console, exit_status::ExitStatus};
use clap::Args;
use report::Refusal;
use serde::Serialize;
use serving::pool::{
    folder::VolumePath,
    volume_change::{VolumeChange, VolumeRef},
    withholding::{ReadmissionAnswer, ReadmittedClients},
};
use std::path::{Path, PathBuf};
use world::{
    World,
    real::{self, RealOptions},
};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle volume readmit mail/store --initiator iqn.2026-11.org.example:mail1
  spindle volume readmit mail/store --nbd             NBD clients have no names: all of them
  spindle volume readmit mail/store --all --json

A rollback under clients withholds the volume from each of them: what they have cached belongs to the contents of before, \
and would be written into those of now. An initiator gets the volume again once it has logged out and logs in, also after \
a restart of the export. Readmit a client that cannot log out, such as a host that was reset, and only if it \
has nothing cached: restart it, or unmount its filesystems first. 'spindle pool show' lists the clients. --json prints \
{\"path\", \"done\", \"initiators\", \"nbd\"}.")]
pub struct ReadmitArguments {
    /// Pool and name of the volume
    #[arg(value_name = "POOL/VOLUME")]
    pub volume: PathBuf,

    /// iSCSI name of an initiator; may be repeated
    #[arg(long = "initiator", value_name = "NAME", required_unless_present_any = ["nbd", "all"])]
    pub initiators: Vec<String>,

    /// All NBD clients
    #[arg(long)]
    pub nbd: bool,

    /// All clients
    #[arg(long, conflicts_with_all = ["initiators", "nbd"])]
    pub all: bool,
}

#[derive(Serialize)]
struct JsonAnswer<'a> {
    path: &'a Path,
    done: &'static str,
    #[serde(flatten)]
    readmitted: ReadmissionAnswer,
}

/// Readmits clients from which a forced rollback withheld a volume.
pub fn readmit_clients(
    options: VerbOptions<'_>,
    arguments: &ReadmitArguments,
    volume: &VolumePath,
) -> Result<ExitStatus, Refusal> {
    let ReadmitArguments { volume: path, initiators, nbd, all } = arguments;
    let clients = match all {
        true => ReadmittedClients::All,
        false => ReadmittedClients::Named { initiators: initiators.clone(), nbd: *nbd },
    };
    let change = VolumeChange::Readmit { volume: VolumeRef::from(volume.volume.as_str()), clients };
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(options.json, false);
        let access = VolumeAccess::open(&world, &volume.folder, options.server, &console).await?;
        let done = access.perform_and_close(&change).await?;
        let ChangeFacts::Readmitted(readmitted) = done.facts else { unreachable!("clients were readmitted") };
        console.say(&readmitted.text(path));
        if options.json {
            console.json_of(&JsonAnswer { path, done: "readmitted", readmitted })?;
        }
        console.finish(ExitStatus::Pass)
    })
}
