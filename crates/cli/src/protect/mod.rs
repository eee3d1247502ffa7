//! `spindle protect`: sets of volumes that are backed up together.
//!
//! Reading order: `arguments`, then `sets` (sets that a server keeps, `freed_space` of their backups) with `set_arguments`. `backup_points` (backups as the
//! pools have them) and `backup_exports` are beneath `restore` with `log_chain` (databases brought forward), `verify_set` with `verification` (on a `worker`
//! of its own: `verifier_thread`), `drill_set` with `drills`, `vault`, and `recovery` (backups opened on this host); drills and open backups have `temporary_clones`. `mailboxes` reads databases of backups.
//! `report_set` and `rebuild_set` are about catalogues. `run` is the agent that keeps sets on a mail host, with
//! `server_pools` (a server's pools, as the keeper of a set asks them), `application` (what is frozen), `agent_work` (verifications
//! and copies beside) and `outlook` (what would be made and deleted).

mod agent_work;
mod application;
pub mod arguments;
mod backup_exports;
mod backup_points;
mod catalogue_file;
mod drill_set;
mod drills;
mod freed_space;
mod log_chain;
mod mailboxes;
mod outlook;
mod rebuild_set;
mod recovery;
mod report_set;
pub mod restore;
mod run;
mod server_pools;
mod set_arguments;
mod sets;
mod temporary_clones;
pub mod vault;
mod verification;
pub mod verifier_thread;
pub mod verify_set;
pub mod worker;

pub use catalogue_file::read_catalogue;

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
        ProtectVerb::DialTone(one) => {
            Box::pin(restore::dial_tone(&world, one, &arguments.place, &console)).await
        }
        ProtectVerb::Merge(one) => Box::pin(restore::merge(&world, one, &arguments.place, &console)).await,
        ProtectVerb::Verify(verify) => verify_set::run(&world, verify, &arguments.place, &console).await,
        ProtectVerb::Drill(drill) => drill_set::run(&world, drill, &arguments.place, &console).await,
        ProtectVerb::Report(report) => report_set::run(&world, report, &arguments.place, &console).await,
        ProtectVerb::Rebuild(rebuild) => rebuild_set::run(&world, rebuild, &arguments.place, &console).await,
        ProtectVerb::Vault { verb } => vault::run(&world, verb, &arguments.place, &console).await,
        ProtectVerb::Mount(mount) => recovery::mount(&world, mount, &arguments.place, &console).await,
        ProtectVerb::Open(open) => recovery::open(&world, open, &arguments.place, &console).await,
        ProtectVerb::Close(close) => recovery::close(&world, close, &arguments.place, &console).await,
        ProtectVerb::Find(find) => recovery::find(&world, find, &arguments.place, &console).await,
        ProtectVerb::Fetch(one) => mailboxes::fetch(&world, one, &arguments.place, &console).await,
        ProtectVerb::Run(run) => run::run(&world, run, &arguments.place, &console).await,
    })
}
