//! The first writes: folders are made, locked and recorded; undone if one of them fails.

use crate::{
    cleaning::clean,
    layout::{GroupLayout, RunLocations, databases_in, logs_in},
    location::{LocationFacts, RunLocation},
    manifest::{DatabaseAction, MANIFEST_FORMAT, Manifest, Shape},
    pools::layout::{GroupDrives, drives_in},
    pristine::{CopyTask, Pristine},
    storage_endpoint::StorageEndpoint,
    survey::StorageSurvey,
};
use report::{Refusal, calendar::shown_time};
use workload::database::plan::RunPlan;
use world::{
    IoError, WallTime, World,
    real::host_files::{self, FolderLock},
};

/// Prepares the locations for the run. The caller holds the returned locks until the run has ended.
pub async fn set(
    world: &World,
    survey: &StorageSurvey,
    plan: &RunPlan,
    layout: &[GroupLayout],
    drives: &[GroupDrives],
    action: DatabaseAction,
    copies: CopyTask,
) -> Result<Vec<FolderLock>, Refusal> {
    let mut held = Vec::new();
    if action == DatabaseAction::Attach {
        return Ok(held);
    }
    let mut made: Vec<(StorageEndpoint, Manifest)> = Vec::new();
    // All locations have one name of the run, however long it takes to write them.
    let began = world.wall();
    for (index, location) in survey.locations.all.iter().enumerate() {
        let pristine = (copies == CopyTask::Keep).then(Pristine::keeping);
        let manifest = Manifest { pristine, ..manifest(began, location, index, plan, (layout, drives)) };
        if let Err(error) = set_one(world, location, &manifest, action, &mut held).await {
            for (endpoint, manifest) in &made {
                // The first failure is reported; the record owns what could not be undone.
                let _ = clean(world, endpoint, manifest).await;
            }
            return Err(Refusal::new(
                format!("{} could not be made ready: {error}", location.given.display()),
                "check the storage and try again",
            ));
        }
        made.push((StorageEndpoint::of(&location.facts), manifest));
    }
    Ok(held)
}

async fn set_one(
    world: &World,
    location: &RunLocation,
    manifest: &Manifest,
    action: DatabaseAction,
    held: &mut Vec<FolderLock>,
) -> Result<(), IoError> {
    let endpoint = StorageEndpoint::of(&location.facts);
    if let (DatabaseAction::Replace, Some(earlier)) = (action, location.manifest()) {
        // The folder stays: this run needs it.
        let earlier = Manifest { folder_made: false, ..earlier.clone() };
        clean(world, &endpoint, &earlier).await?;
    }
    if manifest.folder_made && !endpoint.is_device {
        host_files::create_dir_all(&endpoint.path)?;
    }
    if is_new(location) {
        held.push(host_files::lock_folder(&endpoint.path)?);
    }
    endpoint.prepare(world).await?;
    endpoint.write_manifest(world, manifest).await
}

fn is_new(location: &RunLocation) -> bool {
    matches!(&location.facts, LocationFacts::Folder(folder) if !folder.exists)
}

fn manifest(
    began: WallTime,
    location: &RunLocation,
    index: usize,
    plan: &RunPlan,
    (layout, drives): (&[GroupLayout], &[GroupDrives]),
) -> Manifest {
    Manifest {
        format: MANIFEST_FORMAT,
        made_by: concat!("spindle ", env!("CARGO_PKG_VERSION")).to_owned(),
        created: shown_time(began.seconds),
        run: format!("{:x}-{:x}", began.seconds, plan.seed),
        folder_made: is_new(location) || location.manifest().is_some_and(|earlier| earlier.folder_made),
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
    locations: &RunLocations,
    layout: &[GroupLayout],
    drives: &[GroupDrives],
) -> Result<(), Refusal> {
    for (index, location) in locations.all.iter().enumerate() {
        let manifest = location.manifest().expect("a run attaches where every place has a record");
        let is_same = manifest.databases == databases_in(layout, index)
            && manifest.log_series == logs_in(layout, index)
            && manifest.drives == drives_in(drives, index);
        if !is_same {
            return Err(Refusal::new(
                format!(
                    "{} holds other files of that run than this order of paths gives it",
                    location.given.display()
                ),
                "give the paths as in the run before, or ⟨fresh⟩ to replace those databases",
            ));
        }
    }
    Ok(())
}
