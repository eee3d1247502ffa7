//! `spindle protect`: sets of volumes that are backed up together.
//!
//! Reading order: `arguments`, then `sets` (sets that a server keeps) with `set_arguments`, `restore` and `verify_set` over
//! `backup_points` (backups as the pools have them), and `run` (the agent that keeps sets
//! on a mail host) with `server_pools` (a server's pools, as the keeper of a set asks them), `application` (what is frozen) and
//! `outlook` (what would be made and deleted), and `recovery` (backups opened on this host).

mod application;
pub mod arguments;
mod backup_points;
mod outlook;
mod recovery;
pub mod restore;
mod run;
mod server_pools;
mod set_arguments;
mod sets;
pub mod verify_set;

use crate::{console::Console, exit_status::ExitStatus};
use arguments::{ProtectArguments, ProtectVerb};
use report::Refusal;
use world::{
    World,
    real::{self, RealOptions},
};

/// Runs the verb to its end.
pub fn protect(arguments: &ProtectArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, false);
    real::run(0, RealOptions::default(), async |world: World| match &arguments.verb {
        ProtectVerb::Set(verb) => sets::run(&world, verb, &arguments.place, &console).await,
        ProtectVerb::Restore(restore) => restore::run(&world, restore, &arguments.place, &console).await,
        ProtectVerb::Verify(verify) => verify_set::run(&world, verify, &arguments.place, &console).await,
        ProtectVerb::Mount(mount) => recovery::mount(&world, mount, &arguments.place, &console).await,
        ProtectVerb::Open(open) => recovery::open(&world, open, &arguments.place, &console).await,
        ProtectVerb::Close(close) => recovery::close(&world, close, &arguments.place, &console).await,
        ProtectVerb::Find(find) => recovery::find(&world, find, &arguments.place, &console).await,
        ProtectVerb::Run(run) => run::run(&world, run, &arguments.place, &console).await,
    })
}
