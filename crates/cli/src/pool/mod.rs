//! `spindle pool`, `spindle volume` and `spindle group`: pools by their folders, what lies on them, their
//! volumes, and groups of volumes.

mod add_drive;
pub mod arguments;
mod branching;
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
mod level;
mod online_pool;
mod pool_place;
mod readmission;
pub mod reporter;
mod rollback;
mod salvage;
mod scrub;
mod set;
mod show;
mod volume;
mod volume_access;
mod volume_diff;
mod volume_limits;
mod volume_readmission;
mod volume_space;

pub use group::group;
pub use volume::volume;

use crate::exit_status::ExitStatus;
use arguments::{FailureSetsState, PoolArguments, PoolVerb, SparingArgument};
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
use world::{
    ByteCount, World,
    real::{self, RealOptions},
};

/// Runs the verb to its end.
pub fn pool(arguments: &PoolArguments) -> Result<ExitStatus, Refusal> {
    let json = arguments.json;
    real::run(0, RealOptions::default(), async |world: World| match &arguments.verb {
        PoolVerb::Create { pool, size, drives, device, copies, sparing, remote, domain } => {
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
            add_drive::add(&world, pool, (source, *domain), json).await
        }
        PoolVerb::Readmit { pool, drive } => readmission::readmit(&world, pool, drive, json).await,
        PoolVerb::Retire { pool, drive, keep } => departure::retire(&world, pool, drive, *keep, json).await,
        PoolVerb::Replace { pool, old, new, size, remote, domain } => {
            let new = (source_of(*size, new.as_deref(), remote.settings()), *domain);
            departure::replace(&world, pool, (old, new), json).await
        }
        PoolVerb::Forget { pool, drive } => departure::forget(&world, pool, drive, json).await,
        PoolVerb::Grow { pool, drive } => grow::grow(&world, pool, drive, json).await,
        PoolVerb::Import { places, pool, into, list, remote } => {
            let (access, into) = (remote.settings(), into.as_deref());
            let request = ImportRequest { places, access: &access, pool: pool.as_deref(), into };
            if *list {
                import::list(&world, &request, json).await
            } else {
                import::import(&world, &request, json).await
            }
        }
        PoolVerb::Settle { pools, give_up } => {
            cut::settle_pools(&world, pools, give_up.as_deref(), json).await
        }
        PoolVerb::Level { pool } => level::level(&world, pool, json).await,
        PoolVerb::Set { pool, sparing, domain, no_domain, failure_sets } => {
            let change = PoolSettingChange {
                sparing: sparing.map(SparingArgument::level),
                domains: domain.clone(),
                without_domain: no_domain.clone(),
                failure_sets: failure_sets.map(|state| state == FailureSetsState::On),
            };
            set::set(&world, pool, change, json).await
        }
        PoolVerb::Scrub { pool } => scrub::scrub(&world, pool, json).await,
        PoolVerb::ForceOpen { pool } => show::force_open(&world, pool, json).await,
        PoolVerb::Salvage { volume, out } => salvage::salvage(&world, volume, out, json).await,
        PoolVerb::Show { pool } => show::show(&world, pool, json).await,
    })
}

/// The new drive of a verb, which was given its size as a file or its device.
fn source_of(size: Option<ByteCount>, device: Option<&Path>, access: RemoteSettings) -> NewDriveSource {
    match size {
        Some(size) => NewDriveSource::File(size),
        None => NewDriveSource::Device(device.expect("one of both is required").to_owned(), access),
    }
}
