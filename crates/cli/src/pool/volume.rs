//! `spindle volume`: volumes and snapshots, made and deleted.

use super::{
    arguments::{VolumeArguments, VolumeVerb},
    folder::{OpenPool, VolumePath, refusal},
    uuid,
};
use crate::{console::Console, ending::Ending, refusal::Refusal};
use array::{
    error::Error,
    format::{SnapshotId, VolumeId, row::WriteCache},
    pool::{NewVolume, Pool, VolumeSetting},
};
use std::path::Path;
use world::{
    World,
    real::{self, RealOptions},
};

/// Runs the verb to its end.
pub fn volume(arguments: &VolumeArguments) -> Result<Ending, Refusal> {
    let (VolumeVerb::Create { volume: path, .. }
    | VolumeVerb::Snapshot { snapshot: path }
    | VolumeVerb::Delete { volume: path }) = &arguments.verb;
    let wanted = VolumePath::of(path).ok_or_else(|| {
        Refusal::new(format!("{} names no volume of a pool", path.display()), "say POOL/VOLUME")
    })?;
    check_form(&arguments.verb, path, &wanted)?;
    real::run(0, RealOptions::default(), async |world: World| {
        let open = OpenPool::open(&world, &wanted.folder).await?;
        let done = perform(&world, &open.pool, &arguments.verb, &wanted).await;
        let closed = open.close().await;
        done.map_err(|error| refusal(&wanted.folder, &error, "see 'spindle volume --help'"))?;
        closed?;
        let console = Console::new(false, false);
        let what = match &arguments.verb {
            VolumeVerb::Create { size, .. } => format!("a volume of {size}"),
            VolumeVerb::Snapshot { .. } => "a snapshot".to_owned(),
            VolumeVerb::Delete { .. } => "deleted".to_owned(),
        };
        console.say(&format!("{}: {what}", path.display()));
        console.told(Ending::Pass)
    })
}

fn check_form(verb: &VolumeVerb, path: &Path, wanted: &VolumePath) -> Result<(), Refusal> {
    let shown = path.display();
    match (verb, &wanted.snapshot) {
        (VolumeVerb::Create { .. }, Some(_)) => {
            Err(Refusal::new(format!("{shown} would be a snapshot"), "use 'spindle volume snapshot'"))
        }
        (VolumeVerb::Snapshot { .. }, None) => {
            Err(Refusal::new(format!("{shown} names no snapshot"), "say POOL/VOLUME@SNAPSHOT"))
        }
        _ => Ok(()),
    }
}

async fn perform(world: &World, pool: &Pool, verb: &VolumeVerb, wanted: &VolumePath) -> Result<(), Error> {
    let volume = wanted.volume.as_str();
    match (verb, &wanted.snapshot) {
        (VolumeVerb::Create { size, write_cache, .. }, _) => {
            let write_cache = if *write_cache { WriteCache::On } else { WriteCache::Off };
            let new = NewVolume {
                name: volume.to_owned(),
                volume: VolumeId(uuid(world)),
                size_bytes: size.0,
                setting: VolumeSetting { write_cache, ..VolumeSetting::default() },
            };
            pool.create_volume(&new).await
        }
        (VolumeVerb::Snapshot { .. } | VolumeVerb::Delete { .. }, Some(name)) => match verb {
            VolumeVerb::Delete { .. } => pool.delete_snapshot(volume, name).await,
            _ => pool.snapshot(&[volume], name, SnapshotId(uuid(world))).await,
        },
        (_, None) => pool.delete_volume(volume, false).await,
    }
}
