//! `spindle volume clone` and `rollback`.

use super::{copying::copy_to_pool, filling::wait_until_filled, reporter::open, volume::VolumeAnswer};
use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serving::pool::{
    branching::RollbackAnswer,
    filling::FillEnd,
    folder::VolumePath,
    volume_change::{SnapshotRef, VolumeChange, VolumeOutcome, VolumeRef, perform},
};
use std::path::Path;
use world::{
    ByteCount, World,
    real::{self, RealOptions},
};

/// Makes a clone of what `source` names, and waits until it is independent if it is to be.
pub fn clone(
    (json, is_independent): (bool, bool),
    source: &Path,
    (path, new): (&Path, &VolumePath),
) -> Result<ExitStatus, Refusal> {
    let from = VolumePath::of(source).ok_or_else(|| {
        Refusal::new(format!("{} names no volume of a pool", source.display()), "say POOL/VOLUME[@SNAPSHOT]")
    })?;
    if from.folder != new.folder && is_independent {
        return copy_to_pool(json, (source, &from), (path, new));
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
        let console = Console::new(json, false);
        let open = open(&world, &new.folder, &console).await?;
        let cloned = perform(&change, &open.changeable()).await;
        let cloned = cloned.map(|done| ByteCount(done.volume.size_bytes));
        let filled = match &cloned {
            Ok(size) => {
                console.say(&format!("{}: a clone of {}, {size}", path.display(), source.display()));
                wait_until_filled(&world, &open, path, &new.volume, &console).await
            }
            Err(_) => Ok(None),
        };
        let closed = open.close().await;
        let size = cloned?;
        let filled = filled?;
        closed?;
        if json {
            let waits_for = filled.as_ref().and_then(FillEnd::waits_for);
            let answer =
                VolumeAnswer { size_bytes: Some(size.0), waits_for, ..VolumeAnswer::of(path, "cloned") };
            console.json_of(&answer)?;
        }
        if let Some(filled) = filled {
            console.say(&filled.text(path));
        }
        console.finish(ExitStatus::Pass)
    })
}

/// Rolls back to what `path` names, if `yes`, or the answer on the terminal, is the name of the volume in it.
pub fn roll_back(
    json: bool,
    (path, goal): (&Path, &VolumePath),
    yes: Option<&str>,
) -> Result<ExitStatus, Refusal> {
    let console = Console::new(json, false);
    let question = format!(
        "{} will be as of {}; its present state stays as another volume.\nType {} to go on: ",
        goal.folder.join(goal.volume.split('~').next().unwrap_or_default()).display(),
        path.display(),
        goal.volume
    );
    let typed = yes.map(str::to_owned).or_else(|| console.ask(&question));
    let remedy = format!("say --yes {}", goal.volume);
    match typed.as_deref() {
        Some(name) if name == goal.volume => {}
        Some(name) => {
            let problem = format!("{name:?} is not the volume of {}", path.display());
            return Err(Refusal::new(problem, &remedy));
        }
        None => return Err(Refusal::new("a rollback is confirmed with the volume's name", &remedy)),
    }
    let change = VolumeChange::RollBack {
        volume: VolumeRef::from(goal.volume.as_str()),
        snapshot: goal.snapshot.as_deref().map(SnapshotRef::from),
        is_forced: false,
    };
    real::run(0, RealOptions::default(), async |world: World| {
        let open = open(&world, &goal.folder, &console).await?;
        let done = perform(&change, &open.changeable()).await;
        let closed = open.close().await;
        let done = done?;
        closed?;
        let VolumeOutcome::RolledBack(rolled_back) = &done.outcome else {
            unreachable!("a volume was rolled back")
        };
        let done = RollbackAnswer::of(&goal.folder, &done.volume, rolled_back);
        if json {
            let answer = VolumeAnswer {
                size_bytes: Some(done.size.0),
                left: Some(&done.left),
                ..VolumeAnswer::of(&done.volume, "rolled back")
            };
            console.json_of(&answer)?;
        }
        console.say(&done.text(path));
        console.finish(ExitStatus::Pass)
    })
}
