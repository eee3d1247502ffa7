//! `spindle volume clone`.

use super::{
    copying::copy_to_pool,
    filling::{going_on, wait_until_filled},
    volume::VolumeAnswer,
    volume_access::{VerbOptions, VolumeAccess},
};
use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serving::pool::{
    filling::FillEnd,
    folder::VolumePath,
    volume_change::{SnapshotRef, VolumeChange, VolumeRef},
};
use std::path::Path;
use world::{
    World,
    real::{self, RealOptions},
};

/// Makes a clone of what `source` names, and waits until it is independent if it is to be.
pub fn clone(
    (options, is_independent): (VerbOptions<'_>, bool),
    source: &Path,
    (path, new): (&Path, &VolumePath),
) -> Result<ExitStatus, Refusal> {
    let from = VolumePath::of(source).ok_or_else(|| {
        Refusal::new(format!("{} names no volume of a pool", source.display()), "say POOL/VOLUME[@SNAPSHOT]")
    })?;
    if from.folder != new.folder && is_independent {
        return copy_to_pool(options, (source, &from), (path, new));
    }
    if from.folder != new.folder {
        let problem = format!("{} and {} are in different pools", source.display(), path.display());
        let remedy = "a clone shares the data of its source: name a volume of its pool, or say --independent";
        return Err(Refusal::new(problem, remedy));
    }
    let change = VolumeChange::Clone {
        source: VolumeRef::from(from.volume.as_str()),
        snapshot: from.snapshot.as_deref().map(SnapshotRef::from),
        name: new.volume.clone(),
        is_independent,
    };
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(options.json, false);
        let access = VolumeAccess::open(&world, &new.folder, options.server, &console).await?;
        let cloned = access.perform(&change).await.map(|done| done.size);
        let filled = match (&cloned, &access) {
            (Ok(size), access) => {
                console.say(&format!("{}: a clone of {}, {size}", path.display(), source.display()));
                match access {
                    VolumeAccess::Stopped(open) => {
                        wait_until_filled(&world, open, path, &new.volume, &console).await
                    }
                    VolumeAccess::Served(_) => Ok(None),
                }
            }
            (Err(_), _) => Ok(None),
        };
        let is_served = matches!(access, VolumeAccess::Served(_));
        let closed = access.close().await;
        let size = cloned?;
        let filled = filled?;
        closed?;
        if options.json {
            let waits_for = filled.as_ref().and_then(FillEnd::waits_for);
            let answer =
                VolumeAnswer { size_bytes: Some(size.0), waits_for, ..VolumeAnswer::of(path, "cloned") };
            console.json_of(&answer)?;
        }
        match filled {
            Some(filled) => console.say(&filled.text(path)),
            None if is_served && is_independent => console.say(&going_on(path)),
            None => {}
        }
        console.finish(ExitStatus::Pass)
    })
}
