//! `spindle protect rebuild`: a lost catalogue, made again from the notes of snapshots.

use super::{
    server_pools::ServerPools,
    vault::{
        arguments::VaultPassword,
        opening::OpenVault,
        rebuilt::{VaultCopies, note_copies},
    },
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    server::{connection::ServerConnection, place::ServerPlace},
};
use clap::Args;
use control::{
    sets::keep_copy,
    web::client::{BackupPointList, Method, RebuiltRow, SetKeeperName, SetRow, in_uri},
};
use protect::{
    catalogue::{MachineTime, SetId},
    set_keeper::collect_backups,
};
use report::Refusal;
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    process,
    rc::Rc,
};
use world::{
    IoErrorKind, World,
    real::{HostStateFile, host::machine},
};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect rebuild mail
  spindle protect rebuild mail --id 73cd3e2c16d9a5e1
  spindle protect rebuild mail --vault /mnt/nas/mail --password-file secret         with the copies there
  spindle protect rebuild mail --catalogue /var/lib/spindle/sets/mail.catalogue     of an agent, on its mail host

When a catalogue is lost, the set goes on with a new one, and says how many snapshots are of another. This makes that one again \
from the notes of the snapshots: numbers, kinds, slots and labels come back. Proofs, holds, evidence and history do not, and \
locks begin again. With --vault the copies there are noted, too, and backups that it alone has are listed. The present catalogue is kept as a copy beside it; backups of its own become another catalogue's, so rebuild \
before there are many. All pools must answer. End an agent first. It takes a token with the role admin; for an agent's, read.

Exits with 0, and with 2 if it was refused.")]
pub struct RebuildArguments {
    /// Name of the set
    #[arg(value_name = "SET")]
    pub set: String,

    /// Identity of the lost catalogue, if there are several
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,

    /// The catalogue's file of an agent that is ended
    #[arg(long, value_name = "FILE")]
    pub catalogue: Option<PathBuf>,

    /// Vault whose copies the catalogue is to have: a folder, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "VAULT", conflicts_with = "catalogue")]
    pub vault: Option<String>,

    #[command(flatten)]
    pub password: VaultPassword,
}

/// The answer as JSON.
#[derive(Serialize)]
struct RebuiltAnswer<'a> {
    #[serde(flatten)]
    rebuilt: &'a RebuiltRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    copies: Option<&'a VaultCopies>,
}

/// Runs the verb to its end.
pub async fn run(
    world: &World,
    arguments: &RebuildArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let server = Rc::new(place.connection(world)?);
    // Before anything is changed: a vault that does not open is known at once.
    let vault = match &arguments.vault {
        Some(vault) => Some(OpenVault::open(world, vault, &arguments.password).await?),
        None => None,
    };
    let rebuilt = match &arguments.catalogue {
        None => of_server(arguments, &server).await?,
        Some(file) => of_agent(world, arguments, file, &server).await?,
    };
    let RebuiltRow { catalogue, backups, incomplete, copy } = &rebuilt;
    let count = backups.len();
    console.say(&format!("{}: catalogue {catalogue} was made again, with {count} backups", arguments.set));
    for name in incomplete {
        console.warn(&format!(
            "{name} lacks snapshots: it is not in the catalogue, and what is left of it stays"
        ));
    }
    if let Some(copy) = copy {
        console.say(&format!("  the one before is {copy}"));
    }
    let copies = match &vault {
        Some(vault) => Some(note_copies(&server, (&arguments.set, &rebuilt), vault).await?),
        None => None,
    };
    if let Some(VaultCopies { noted, in_vault_alone, .. }) = &copies {
        console.say(&format!("  copies in the vault: {}", noted.len()));
        if !in_vault_alone.is_empty() {
            console.say(&format!(
                "  in the vault alone: {}; 'spindle protect vault restore' gets them back",
                in_vault_alone.join(", ")
            ));
        }
    }
    if console.is_for_programs() {
        console.json_of(&RebuiltAnswer { rebuilt: &rebuilt, copies: copies.as_ref() })?;
    }
    console.finish(ExitStatus::Pass)
}

async fn of_server(arguments: &RebuildArguments, server: &ServerConnection) -> Result<RebuiltRow, Refusal> {
    let path = format!("/v1/sets/{}", in_uri(&arguments.set));
    let row: SetRow = server.get(&path).await?;
    if row.kept_by == SetKeeperName::Agent {
        let problem = format!("an agent on the mail host keeps {}, and its catalogue", arguments.set);
        return Err(Refusal::new(problem, "end it, and say ⟨catalogue⟩ FILE there"));
    }
    let query = arguments.id.as_ref().map(|id| format!("?catalogue={}", in_uri(id))).unwrap_or_default();
    let path = format!("{path}/rebuild{query}");
    server.change_to_its_end(Method::POST, &path, None::<&()>).await?.parsed()
}

async fn of_agent(
    world: &World,
    arguments: &RebuildArguments,
    file: &Path,
    server: &Rc<ServerConnection>,
) -> Result<RebuiltRow, Refusal> {
    let refused = |problem: String| Refusal::new(problem, "");
    let state_file = HostStateFile::open(file).map_err(|error| {
        let remedy = if error.kind() == IoErrorKind::Busy { "end the agent that has it" } else { "" };
        Refusal::new(error.to_string(), remedy)
    })?;
    let id = arguments.id.clone().map(SetId::try_from).transpose();
    let id = id.map_err(|problem| Refusal::new(problem, "say 16 hexadecimal digits"))?;
    // The set need not be in the server's site file; a server that does not answer is refused here.
    let _: BackupPointList = server.get(&format!("/v1/points?set={}", in_uri(&arguments.set))).await?;
    let pools = ServerPools::new(world, server, &arguments.set, &[]);
    let collecting = collect_backups(world, &arguments.set, &pools, (id, None));
    let rebuilt = collecting.await.map_err(|error| refused(error.to_string()))?;
    let now = MachineTime::of(world);
    let copy = keep_copy(file, now.civil).map_err(|error| refused(error.to_string()))?;
    let generator = concat!("spindle ", env!("CARGO_PKG_VERSION"));
    let runner = format!("spindle protect rebuild, process {} on {}", process::id(), machine().hostname);
    let written = rebuilt.write(Box::new(state_file), generator, &runner, &now);
    written.map_err(|error| refused(error.to_string()))?;
    Ok(RebuiltRow {
        catalogue: rebuilt.id.to_string(),
        backups: rebuilt.backups.into_iter().map(|backup| backup.name).collect(),
        incomplete: rebuilt.incomplete,
        copy,
    })
}
