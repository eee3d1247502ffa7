//! `spindle pool` and `spindle volume`: pools by their folders, what lies on them, and their volumes.

mod add_drive;
mod advice;
pub mod arguments;
mod create;
pub mod damaged;
mod drive_search;
mod drive_space;
pub mod events;
pub mod folder;
mod import;
mod joining_drive;
mod mapfile;
mod publisher;
pub mod record;
pub mod reporter;
mod salvage;
mod scrub;
mod show;
mod sighting;
mod snapshot_room;
mod status;
mod unused;
mod volume;
mod volume_limits;

pub use volume::volume;

use crate::exit_status::ExitStatus;
use add_drive::DriveSource;
use arguments::{PoolArguments, PoolVerb};
use report::Refusal;
use world::{
    World,
    real::{self, RealOptions},
};

/// Runs the verb to its end.
pub fn pool(arguments: &PoolArguments) -> Result<ExitStatus, Refusal> {
    let json = arguments.json;
    real::run(0, RealOptions::default(), async |world: World| match &arguments.verb {
        PoolVerb::Create { pool, size, drives, device, copies } => {
            let drives = match size {
                Some(size) => create::NewPoolDrives::Files { count: *drives, size: *size },
                None => create::NewPoolDrives::Devices(device),
            };
            create::create(&world, pool, drives, *copies, json).await
        }
        PoolVerb::AddDrive { pool, size, device } => {
            let source = match (size, device) {
                (Some(size), _) => DriveSource::File(*size),
                (None, device) => DriveSource::Device(device.as_deref().expect("one of both is required")),
            };
            add_drive::add(&world, pool, source, json).await
        }
        PoolVerb::Import { places, pool, into, list } => {
            let request = import::ImportRequest { places, pool: pool.as_deref(), into: into.as_deref() };
            match list {
                true => import::list(&world, &request, json).await,
                false => import::import(&world, &request, json).await,
            }
        }
        PoolVerb::Scrub { pool } => scrub::scrub(&world, pool, json).await,
        PoolVerb::ForceOpen { pool } => show::force_open(&world, pool, json).await,
        PoolVerb::Salvage { volume, out } => salvage::salvage(&world, volume, out, json).await,
        PoolVerb::Show { pool } => show::show(&world, pool, json).await,
    })
}

/// A random UUID (RFC 9562, version 4).
pub fn uuid(world: &World) -> [u8; 16] {
    let mut bytes = [0; 16];
    world.fill_secret(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}
