//! The first bytes: folders made, places held, records written; and undone if one of them fails.

use super::{
    clean::clean,
    ground::Door,
    layout::{GroupLayout, Places, databases_in, logs_in},
    manifest::{Beginning, MANIFEST_FORMAT, Manifest, Shape},
    place::{Ground, Place},
    pools::layout::{GroupDrives, drives_in},
    pristine::{Pristine, Task},
    survey::Survey,
};
use crate::{outputs::shown_time, refusal::Refusal};
use workload::database::plan::RunPlan;
use world::{
    IoError, World,
    real::host_files::{self, FolderLock},
};

/// Makes the places ready for the run. What this returns is held until the run has ended.
pub async fn set(
    world: &World,
    survey: &Survey,
    plan: &RunPlan,
    layout: &[GroupLayout],
    drives: &[GroupDrives],
    beginning: Beginning,
    copies: Task,
) -> Result<Vec<FolderLock>, Refusal> {
    let mut held = Vec::new();
    if beginning == Beginning::Attach {
        return Ok(held);
    }
    let mut made: Vec<(Door, Manifest)> = Vec::new();
    for (index, place) in survey.places.all.iter().enumerate() {
        let pristine = (copies == Task::Keep).then(Pristine::keeping);
        let manifest = Manifest { pristine, ..manifest(world, place, index, plan, (layout, drives)) };
        if let Err(error) = set_one(world, place, &manifest, beginning, &mut held).await {
            for (door, manifest) in &made {
                // The first failure is the news; what could not be undone is owned by its record.
                let _ = clean(world, door, manifest).await;
            }
            return Err(Refusal::new(
                format!("{} could not be made ready: {error}", place.given.display()),
                "check the storage and try again",
            ));
        }
        made.push((Door::of(&place.ground), manifest));
    }
    Ok(held)
}

async fn set_one(
    world: &World,
    place: &Place,
    manifest: &Manifest,
    beginning: Beginning,
    held: &mut Vec<FolderLock>,
) -> Result<(), IoError> {
    let door = Door::of(&place.ground);
    if let (Beginning::Replace, Some(earlier)) = (beginning, place.manifest()) {
        // The folder stays: this run needs it.
        let earlier = Manifest { folder_made: false, ..earlier.clone() };
        clean(world, &door, &earlier).await?;
    }
    if manifest.folder_made && !door.is_device {
        host_files::create_dir_all(&door.path)?;
    }
    if is_new(place) {
        held.push(host_files::lock_folder(&door.path)?);
    }
    door.prepare(world).await?;
    door.write_manifest(world, manifest).await
}

fn is_new(place: &Place) -> bool {
    matches!(&place.ground, Ground::Folder(folder) if !folder.exists)
}

fn manifest(
    world: &World,
    place: &Place,
    index: usize,
    plan: &RunPlan,
    (layout, drives): (&[GroupLayout], &[GroupDrives]),
) -> Manifest {
    Manifest {
        format: MANIFEST_FORMAT,
        made_by: concat!("spindle ", env!("CARGO_PKG_VERSION")).to_owned(),
        created: shown_time(world.wall()),
        run: format!("{:x}-{:x}", world.wall().seconds, plan.seed),
        folder_made: is_new(place) || place.manifest().is_some_and(|earlier| earlier.folder_made),
        shape: Shape {
            profile: plan.profile.name.clone(),
            page_size: plan.profile.page_size().bytes() as u32,
            record_size: plan.profile.record_bytes() as u32,
            groups: plan.groups,
            databases: plan.databases_per_group,
            size: plan.database_bytes * plan.database_count(),
            seed: plan.seed,
            pools: !drives.is_empty(),
        },
        databases: databases_in(layout, index),
        log_series: logs_in(layout, index),
        drives: drives_in(drives, index),
        pools_made: false,
        pristine: None,
    }
}

/// Refuses to attach if the paths are not those of the earlier run, in the same order.
pub fn check_same_layout(
    places: &Places,
    layout: &[GroupLayout],
    drives: &[GroupDrives],
) -> Result<(), Refusal> {
    for (index, place) in places.all.iter().enumerate() {
        let manifest = place.manifest().expect("a run attaches where every place has a record");
        let is_same = manifest.databases == databases_in(layout, index)
            && manifest.log_series == logs_in(layout, index)
            && manifest.drives == drives_in(drives, index);
        if !is_same {
            return Err(Refusal::new(
                format!(
                    "{} holds other files of that run than this order of paths gives it",
                    place.given.display()
                ),
                "give the paths as in the run before, or --fresh to replace those databases",
            ));
        }
    }
    Ok(())
}
