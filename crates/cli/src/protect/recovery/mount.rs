//! `spindle protect mount`: the volumes of a backup as files, read from its snapshots.

use super::{
    arguments::ImageMountArguments,
    images::{ImageNames, files_of, reach},
    keeper::{EndSignal, OpeningEnd, OpeningKeeper},
    on_server,
    place::{absolute, opening_folder, refused, server_words, who},
    taking_away::clean_up,
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    protect::{
        backup_points::{SetPoints, set_and_backup},
        restore::points_to_restore,
    },
    server::place::ServerPlace,
};
use recovery::{
    opening::{OpenPart, Opening, OpeningKind},
    shown_files::ShownFiles,
};
use report::{Refusal, calendar::utc_time};
use serde::Serialize;
use std::path::Path;
use world::{
    World,
    real::host_files::{self, PathKind},
};

/// The answer as JSON, once it is mounted.
#[derive(Serialize)]
struct MountedBackup<'a> {
    set: &'a str,
    backup: &'a str,
    folder: String,
    until: String,
    parts: &'a [OpenPart],
}

/// Runs the verb to its end.
pub async fn mount(
    world: &World,
    arguments: &ImageMountArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let folder = absolute(&arguments.folder)?;
    let openings = opening_folder()?;
    clean_up(world, &openings, console).await?;
    check_empty(&folder)?;
    let server = place.connection(world)?;
    let (set, backup) = set_and_backup(&arguments.backup);
    let known = SetPoints::ask(&server, set).await?;
    let backup = known.meant(backup)?;
    let until = world.wall().seconds.saturating_add_unsigned(arguments.span.as_secs());
    let names = on_server::names(points_to_restore(&known, backup)?, backup.note.sequence, until, false);
    let exports = names.iter().map(|one| one.export.clone()).collect();
    let opening = Opening::new(
        OpeningKind::Images,
        (set, &backup.name, backup.note.sequence),
        (folder.clone(), folder.clone()),
        false,
        until,
        who(),
        server_words(place)?,
        (exports, Vec::new()),
    );
    let mut keeper = OpeningKeeper::begin(world, openings, opening, (&EndSignal::listen(world), console))?;
    let steps = async {
        let (mut files, mut parts, mut image_names) = (Vec::new(), Vec::new(), ImageNames::new());
        for names in &names {
            let uri = on_server::export_snapshot(world, &server, names, place).await?;
            let volume = reach(world, &uri, &names.point).await?;
            let (of_volume, shown) =
                files_of(&volume, &mut image_names, (world.wall().seconds, false)).await?;
            files.extend(of_volume);
            for (part, shown) in volume.parts.iter().zip(shown) {
                let content = part.content.text();
                let place = Some(folder.join(shown));
                parts.push(OpenPart {
                    volume: volume.path.clone(),
                    partition: part.partition,
                    place,
                    content,
                });
            }
        }
        let label = format!("{set}@{}", backup.note.sequence);
        let mounted = ShownFiles::mount(world, &folder, &label, files).map_err(|error| {
            Refusal::new(
                error.to_string(),
                "FUSE is needed: /dev/fuse, and for users other than root fusermount3",
            )
        })?;
        Ok((mounted, parts))
    };
    let (mounted, parts) = match keeper.unless_ended(steps).await {
        Ok(done) => done,
        Err(refusal) => {
            keeper.close().await;
            return Err(refusal);
        }
    };
    keeper.opening.parts = parts;
    let shown = keeper.show_open();
    let until = utc_time(until);
    console.say(&format!("{} is at {} until {until}; Ctrl-C ends it", backup.name, folder.display()));
    for part in &keeper.opening.parts {
        if let Some(place) = &part.place {
            console.say(&format!("  {}: {}", place.display(), part.content));
        }
    }
    if console.is_for_programs() {
        let (backup, folder) = (backup.name.as_str(), folder.display().to_string());
        console.json_of(&MountedBackup { set, backup, folder, until, parts: &keeper.opening.parts })?;
    }
    if shown.is_ok() {
        let why = match keeper.serve(&mounted).await {
            OpeningEnd::Time => "its time is over",
            OpeningEnd::Signal => "ending",
            OpeningEnd::Unmounted => "it was unmounted",
        };
        console.say_progress(&format!("{}: {why}", backup.name));
    }
    keeper.close().await;
    shown?;
    console.finish(ExitStatus::Pass)
}

/// Refuses a folder that is not there, or has something in it.
pub(super) fn check_empty(folder: &Path) -> Result<(), Refusal> {
    let shown = folder.display();
    match host_files::kind(folder).map_err(refused)? {
        PathKind::Missing => {
            Err(Refusal::new(format!("there is no folder {shown}"), "make it first: mkdir -p"))
        }
        PathKind::Folder => match host_files::list(folder).map_err(refused)?.is_empty() {
            true => Ok(()),
            false => Err(Refusal::new(format!("{shown} is not empty"), "choose another folder")),
        },
        _ => Err(Refusal::new(format!("{shown} is no folder"), "choose another one")),
    }
}
