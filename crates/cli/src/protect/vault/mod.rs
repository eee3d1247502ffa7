//! `spindle protect vault`: copies of backups in a folder or a bucket elsewhere, in restic's format.
//!
//! Reading order: `arguments`, `opening` (the vault, and its password) with `s3_place`, `watch` (progress, Ctrl-C), `exported` (volumes and
//! snapshots of a server as devices), `differences`, `copying` (one copy), then the verbs `copy`, `list`, `check`, `prune`, and
//! `restore` with `targets`; `rebuilt` (copies for `protect rebuild`); and `copier_thread` (copies by the clock).

pub mod arguments;
mod check;
pub mod copier_thread;
mod copy;
pub mod copying;
mod differences;
mod exported;
mod list;
pub mod opening;
mod prune;
pub mod rebuilt;
mod restore;
mod s3_place;
mod targets;
mod watch;

use crate::{console::Console, exit_status::ExitStatus, server::place::ServerPlace};
use arguments::{VaultInitArguments, VaultVerb};
use opening::OpenVault;
use report::Refusal;
use serde::Serialize;
use world::World;

/// Runs a verb to its end.
pub async fn run(
    world: &World,
    verb: &VaultVerb,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    match verb {
        VaultVerb::Init(init) => make(world, init, console).await,
        VaultVerb::Copy(arguments) => copy::run(world, arguments, place, console).await,
        VaultVerb::List(arguments) => list::run(world, arguments, console).await,
        VaultVerb::Check(arguments) => check::run(world, arguments, console).await,
        VaultVerb::Prune(arguments) => prune::run(world, arguments, console).await,
        VaultVerb::Restore(arguments) => restore::run(world, arguments, place, console).await,
    }
}

/// The answer as JSON.
#[derive(Serialize)]
struct MadeVault {
    vault: String,
    /// Identity in its config.
    id: String,
}

async fn make(
    world: &World,
    arguments: &VaultInitArguments,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let made = OpenVault::make(world, &arguments.vault, &arguments.password).await?;
    let (vault, id) = (made.place(), made.repository.config.id.clone());
    console
        .say(&format!("{vault}: a vault is made; without its password nobody can read it, Spindle neither"));
    if console.is_for_programs() {
        console.json_of(&MadeVault { vault, id })?;
    }
    console.finish(ExitStatus::Pass)
}
