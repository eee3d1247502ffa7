//! `spindle pool`, `spindle volume` and `spindle group`: pools by their folders, what lies on them, their
//! volumes, and groups of volumes.

mod add_drive;
pub mod arguments;
mod backup_locks;
mod branching;
pub mod confirmation;
mod copying;
mod create;
mod cut;
mod damaged;
mod departure;
mod filling;
mod group;
pub mod group_arguments;
mod grow;
mod import;
mod import_all;
mod import_arguments;
mod job;
pub mod job_arguments;
mod job_text;
mod level;
mod online_drives;
mod online_group;
mod online_pool;
mod online_wait;
mod pool_place;
mod presentations;
mod readmission;
pub mod reporter;
mod rollback;
mod room;
mod salvage;
mod scrub;
mod set;
mod setting_arguments;
mod show;
mod upgrade;
mod volume;
mod volume_access;
mod volume_diff;
mod volume_import;
mod volume_limits;
mod volume_readmission;
mod volume_space;

pub use group::group;
pub use job::job;
pub use volume::volume;

use crate::{console::Console, exit_status::ExitStatus, server::place::ServerAddress};
use arguments::{FailureSetsState, PoolArguments, PoolVerb, SparingArgument};
use confirmation::Destruction;
use pool_place::PoolPlace;
use report::Refusal;
use serving::{
    pool::{
        create::{NewPoolDrives, NewPoolSetting},
        import::ImportRequest,
        pool_change::{NewDriveSource, PoolSettingChange},
    },
    remote::RemoteSettings,
};
use std::path::Path;
use volume_access::VerbOptions;
use world::{
    ByteCount, World,
    real::{self, RealOptions},
};

/// Runs the verb to its end.
pub fn pool(arguments: &PoolArguments) -> Result<ExitStatus, Refusal> {
    let json = arguments.json;
    let options = VerbOptions { json, server: &arguments.server };
    real::run(0, RealOptions::default(), async |world: World| match &arguments.verb {
        PoolVerb::Create { pool, size, drives, device, copies, sparing, remote, domain } => {
            refuse_server(
                &arguments.server,
                "a server makes the pools of its site file: add a [[group]] to it, and 'spindle apply' it",
            )?;
            let access = remote.settings();
            let drives = match size {
                Some(size) => NewPoolDrives::Files { count: *drives, size: *size },
                None => NewPoolDrives::Devices(device, &access),
            };
            let sparing = sparing.map(SparingArgument::level);
            let setting = NewPoolSetting { copies: *copies, sparing, domains: domain, pool: None };
            create::create(&world, pool, drives, setting, json).await
        }
        PoolVerb::AddDrive { pool, size, device, remote, domain } => {
            let source = source_of(*size, device.as_deref(), remote.settings());
            add_drive::add(&world, pool, (source, *domain), options).await
        }
        PoolVerb::Readmit { pool, drive } => readmission::readmit(&world, pool, drive, options).await,
        PoolVerb::Retire { pool, drive, keep } => {
            departure::retire(&world, pool, (drive, *keep), options).await
        }
        PoolVerb::Replace { pool, old, new, size, remote, domain } => {
            let new = (source_of(*size, new.as_deref(), remote.settings()), *domain);
            departure::replace(&world, pool, (old, new), options).await
        }
        PoolVerb::Forget { pool, drive } => departure::forget(&world, pool, drive, options).await,
        PoolVerb::Grow { pool, drive } => grow::grow(&world, pool, drive, options).await,
        PoolVerb::Import(import) => {
            refuse_server(
                &arguments.server,
                "import reads the drives of this machine: repeat it there, without ⟨server⟩",
            )?;
            let access = import.remote.settings();
            let (places, pool) = (&import.places, import.pool.as_deref());
            let request = ImportRequest { places, access: &access, pool, into: import.into.as_deref() };
            match (import.all, import.list) {
                (true, _) => import_all::import_all(&world, &request, import, json).await,
                (false, true) => import::list(&world, &request, json).await,
                (false, false) => import::import(&world, &request, json).await,
            }
        }
        PoolVerb::Settle { pools, give_up } => {
            cut::settle_pools(&world, pools, give_up.as_deref(), options).await
        }
        PoolVerb::Level { pool } => level::level(&world, pool, options).await,
        PoolVerb::Set { pool, sparing, domain, no_domain, failure_sets } => {
            let change = PoolSettingChange {
                sparing: sparing.map(SparingArgument::level),
                domains: domain.clone(),
                without_domain: no_domain.clone(),
                failure_sets: failure_sets.map(|state| state == FailureSetsState::On),
            };
            set::set(&world, pool, change, options).await
        }
        PoolVerb::Upgrade(given) => upgrade::upgrade(&world, &given.pool, options).await,
        PoolVerb::Room { pool } => room::room(&world, pool, options).await,
        PoolVerb::Scrub { pool } => scrub::scrub(&world, pool, options).await,
        PoolVerb::ForceOpen { pool, yes } => {
            refuse_open(&world, pool, (&arguments.server, "it is open without the drives that are missing: 'spindle pool forget' removes one for good")).await?;
            let name = pool.file_name().unwrap_or(pool.as_os_str()).to_string_lossy().into_owned();
            let line = format!(
                "{}: its missing drives → given up, with what they alone hold; nothing brings that back",
                pool.display()
            );
            let (destruction, console) = (Destruction { line, name }, Console::new(json, false));
            destruction.confirm(&console, yes.as_deref())?;
            let status = show::force_open(&world, pool, json).await?;
            destruction.tell_done(&console, yes.as_deref());
            Ok(status)
        }
        PoolVerb::Salvage { volume, out } => {
            let pool = volume.parent().unwrap_or(volume);
            refuse_open(&world, pool, (&arguments.server, "its volumes can be read through the server: take a snapshot, and export that; or end the server, and repeat this")).await?;
            salvage::salvage(&world, volume, out, json).await
        }
        PoolVerb::Show { pool } => show::show(&world, pool, options).await,
    })
}

/// Refuses a verb that no server does, if one is named; `remedy` is what to do.
fn refuse_server(address: &ServerAddress, remedy: &str) -> Result<(), Refusal> {
    match &address.server {
        Some(_) => Err(Refusal::new("no server does this", remedy)),
        None => Ok(()),
    }
}

/// Refuses a pool that a server has open, with what to do instead.
async fn refuse_open(
    world: &World,
    pool: &Path,
    (address, remedy): (&ServerAddress, &str),
) -> Result<(), Refusal> {
    match PoolPlace::of_pool(world, pool, address).await? {
        PoolPlace::Folder => Ok(()),
        PoolPlace::Served(served) => Err(Refusal::new(
            format!("{} is open in the server at {}", pool.display(), served.server().address()),
            remedy,
        )),
    }
}

/// The new drive of a verb, which was given its size as a file or its device.
fn source_of(size: Option<ByteCount>, device: Option<&Path>, access: RemoteSettings) -> NewDriveSource {
    match size {
        Some(size) => NewDriveSource::File(size),
        None => NewDriveSource::Device(device.expect("one of both is required").to_owned(), access),
    }
}
