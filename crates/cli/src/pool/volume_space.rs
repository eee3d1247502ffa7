//! `spindle volume space`: what keeps the data of a volume, and what each deletion would free.

use super::volume_access::{VerbOptions, VolumeAccess};
use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serde::Serialize;
use serving::pool::{
    folder::{VolumePath, refusal},
    volume_change::VolumeRef,
    volume_space::VolumeSpaceStatus,
};
use std::path::Path;
use world::{
    World,
    real::{self, RealOptions},
};

/// The answer as JSON.
#[derive(Serialize)]
struct SpaceAnswer<'a> {
    path: &'a Path,
    #[serde(flatten)]
    space: VolumeSpaceStatus,
}

/// Prints the exact space of a volume.
pub fn show(options: VerbOptions<'_>, (path, wanted): (&Path, &VolumePath)) -> Result<ExitStatus, Refusal> {
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(options.json, false);
        let access = VolumeAccess::open(&world, &wanted.folder, options.server, &console).await?;
        let counted = match &access {
            VolumeAccess::Stopped(open) => {
                let counted = open.pool.exact_space(wanted.volume.as_str()).await;
                let refused = |error| refusal(&wanted.folder, &error, "see 'spindle pool show'");
                counted.map(VolumeSpaceStatus::of).map_err(refused)
            }
            VolumeAccess::Served(served) => served.space(&VolumeRef::from(wanted.volume.as_str())).await,
        };
        let closed = access.close().await;
        let space = counted?;
        closed?;
        for line in space.lines(&path.display().to_string()) {
            console.say(&line);
        }
        if options.json {
            console.json_of(&SpaceAnswer { path, space })?;
        }
        console.finish(ExitStatus::Pass)
    })
}
