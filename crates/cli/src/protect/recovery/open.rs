//! `spindle protect open`: the filesystems of a backup, mounted from clones.

use super::{
    arguments::OpeningArguments,
    images::{ImageNames, ReachedVolume, files_of, reach},
    keeper::{EndSignal, OpeningKeeper},
    mount::check_empty,
    on_server::{self, VolumeNames},
    place::{absolute, opening_folder, refused, server_words, who},
    taking_away::{clean_up, host_mounts},
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    protect::{
        backup_points::{SetPoints, set_and_backup},
        restore::points_to_restore,
        temporary_clones,
    },
    server::{connection::ServerConnection, place::ServerPlace},
};
use recovery::{
    opening::{OpenPart, Opening, OpeningFolder, OpeningKind, OpeningPhase},
    shown_files::ShownFiles,
    volume_parts::ImageContent,
};
use report::{Refusal, calendar::utc_time};
use serde::Serialize;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};
use world::{
    World,
    real::{
        companions::{Companion, leave_session},
        host_files,
    },
};

/// Between looks whether the keeper is done.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Bytes of the keeper's last words that are read.
const WORDS_BYTES_MAX: u64 = 64 << 10;

/// An open backup as JSON.
#[derive(Serialize)]
pub(super) struct OpenBackupRow {
    set: String,
    backup: String,
    number: u64,
    kind: OpeningKind,
    folder: PathBuf,
    read_write: bool,
    until: String,
    by: String,
    /// `opening`, `open`, `closing`, or `left` by a killed process.
    state: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    parts: Vec<OpenPart>,
}

/// Runs the verb to its end; in the foreground, to the end of the opening.
pub async fn open(
    world: &World,
    arguments: &OpeningArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let openings = opening_folder()?;
    if arguments.list {
        return list(&openings, console);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Refusal::new(
            "mounting filesystems needs root",
            "say sudo, or use 'spindle protect mount'",
        ));
    }
    let server = place.connection(world)?;
    if !arguments.kept {
        clean_up(world, &openings, console).await?;
        if let Err(refusal) = temporary_clones::delete_overdue(&server, world.wall().seconds, console).await {
            console.warn(&format!("overdue clones were not looked for: {refusal}"));
        }
    }
    let meant = arguments.backup.as_deref().unwrap_or_default();
    let (set, backup) = set_and_backup(meant);
    let known = SetPoints::ask(&server, set).await?;
    let backup = known.meant(backup)?;
    let number = backup.note.sequence;
    let (usual, images, log) = openings.places_of(set, number);
    let folder = match &arguments.at {
        Some(given) => absolute(given)?,
        None => usual,
    };
    let until = world.wall().seconds.saturating_add_unsigned(arguments.span.as_secs());
    let names = on_server::names(points_to_restore(&known, backup)?, number, until, true);
    let mut exports: Vec<String> = names.iter().map(|one| one.export.clone()).collect();
    exports.extend(names.iter().filter_map(|one| Some(one.clone.as_ref()?.1.clone())));
    let clones = names.iter().filter_map(|one| Some(one.clone.as_ref()?.0.clone())).collect();
    let mut opening = Opening::new(
        OpeningKind::Filesystems,
        (set, &backup.name, number),
        (folder.clone(), images),
        arguments.read_write,
        until,
        who(),
        server_words(place)?,
        (exports, clones),
    );
    check_free(&openings, &opening)?;
    if !arguments.foreground && !arguments.kept {
        return in_background(world, (arguments, &opening, &log), &openings, console).await;
    }
    if arguments.kept {
        leave_session();
    }
    opening.owns_folder = make_folder(&folder)?;
    host_files::create_private_dir_all(&opening.images).map_err(refused)?;
    let mut keeper = OpeningKeeper::begin(world, openings, opening, (&EndSignal::listen(world), console))?;
    keeper.leaves_words = arguments.kept;
    let opening = keeper.opening.clone();
    let steps = async {
        let (mounted, parts) = open_all(world, (&server, place), &names, &opening).await?;
        match parts.iter().any(|part| part.place.is_some()) {
            true => Ok((mounted, parts)),
            false => Err(nothing_mounted(&opening, &parts)),
        }
    };
    let (mounted, parts) = match keeper.unless_ended(steps).await {
        Ok(done) => done,
        Err(refusal) => {
            keeper.close().await;
            return Err(refusal);
        }
    };
    keeper.opening.parts = parts;
    keeper.leaves_words = false;
    let shown = keeper.show_open();
    if !arguments.kept {
        say_open(&keeper.opening, console)?;
    }
    if shown.is_ok() {
        keeper.serve(&mounted).await;
    }
    keeper.close().await;
    shown?;
    console.finish(ExitStatus::Pass)
}

fn nothing_mounted(opening: &Opening, parts: &[OpenPart]) -> Refusal {
    let reasons: Vec<String> =
        parts.iter().map(|part| format!("{}: {}", part.volume, part.content)).collect();
    let problem = format!("nothing in {} can be mounted: {}", opening.backup, reasons.join("; "));
    Refusal::new(problem, "'spindle protect mount' shows the volumes as files")
}

/// Refuses a backup that is open already, and a folder that something else is in.
fn check_free(openings: &OpeningFolder, opening: &Opening) -> Result<(), Refusal> {
    let file = openings.file_of(opening);
    if let Some(known) = openings.read(&file).map_err(refused)? {
        let name = format!("{}@{}", known.set, known.number);
        let state = match known.keeper().is_alive() {
            true => format!("open already, at {}", known.folder.display()),
            false => {
                format!("left by a killed process at {}, and not taken away yet", known.folder.display())
            }
        };
        return Err(Refusal::new(
            format!("{name} is {state}"),
            format!("'spindle protect close {name}' first"),
        ));
    }
    match host_files::kind(&opening.folder).map_err(refused)? {
        host_files::PathKind::Missing => Ok(()),
        _ => check_empty(&opening.folder),
    }
}

/// Makes the folder; true if it was not there.
pub(super) fn make_folder(folder: &Path) -> Result<bool, Refusal> {
    let is_new = host_files::kind(folder).map_err(refused)? == host_files::PathKind::Missing;
    if is_new {
        // The filesystems have the permissions that they had.
        host_files::create_dir_all(folder).map_err(refused)?;
    }
    Ok(is_new)
}

/// Starts the keeper, and waits until it is done with the mounts.
async fn in_background(
    world: &World,
    (arguments, opening, log): (&OpeningArguments, &Opening, &Path),
    openings: &OpeningFolder,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let backup = format!("{}@{}", opening.set, opening.backup);
    let mut words: Vec<String> = ["protect", "open", &backup, "--kept", "--for"].map(str::to_owned).to_vec();
    words.push(format!("{}s", arguments.span.as_secs()));
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    add("--at", opening.folder.display().to_string());
    let server = opening.server.clone();
    if let Some(state) = server.state {
        add("--state", state.display().to_string());
    }
    if let Some(address) = server.address {
        add("--server", address);
    }
    if let Some(file) = server.token_file {
        add("--token-file", file.display().to_string());
    }
    if let Some(folder) = server.tls_folder {
        add("--server-tls", folder.display().to_string());
    }
    words.extend(opening.is_writable.then(|| "--read-write".to_owned()));
    let _ = host_files::remove_file(log);
    let mut keeper = Companion::start(&words, log).map_err(refused)?;
    let (file, signal) = (openings.file_of(opening), EndSignal::listen(world));
    let mut is_asked_to_end = false;
    loop {
        if signal.has_come() && !is_asked_to_end {
            // It ends in order, and says so. A second signal would kill it.
            is_asked_to_end = true;
            if let Some(identity) = keeper.identity() {
                identity.ask_to_end().map_err(refused)?;
            }
        }
        let known =
            openings.read(&file).map_err(refused)?.filter(|known| known.phase != OpeningPhase::Opening);
        if let Some(known) = known.filter(|known| !known.parts.is_empty()) {
            say_open(&known, console)?;
            keeper.let_go();
            return console.finish(ExitStatus::Pass);
        }
        if !keeper.is_alive() {
            return Err(last_words(log));
        }
        world.sleep(LOOK_EVERY).await;
    }
}

/// The refusal of a keeper that ended before the backup was open.
fn last_words(log: &Path) -> Refusal {
    let said = host_files::read_at_most(log, WORDS_BYTES_MAX).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    let _ = host_files::remove_file(log);
    let last = said.lines().rev().find_map(|line| line.strip_prefix("spindle: "));
    match last.or_else(|| said.lines().last()) {
        Some(words) => Refusal::new(words, ""),
        None => Refusal::new("the process that serves the backup was killed", "try again"),
    }
}

/// Clones, exports, reaches and mounts the volumes; the images, and the places of all parts.
pub(super) async fn open_all(
    world: &World,
    (server, place): (&ServerConnection, &ServerPlace),
    names: &[VolumeNames],
    opening: &Opening,
) -> Result<(ShownFiles, Vec<OpenPart>), Refusal> {
    let (mut files, mut volumes, mut image_names) = (Vec::new(), Vec::new(), ImageNames::new());
    for names in names {
        // By it the backup is in use.
        on_server::export_snapshot(world, server, names, place).await?;
    }
    for names in names {
        let (clone, export) = names.clone.as_ref().expect("names with clones were chosen");
        let uri = on_server::export_clone(world, server, (&names.point, clone, export), place).await?;
        let volume = reach(world, &uri, &names.point).await?;
        let (of_volume, shown) = files_of(&volume, &mut image_names, (world.wall().seconds, true)).await?;
        files.extend(of_volume);
        volumes.push((volume, shown));
    }
    let label = format!("{}@{}", opening.set, opening.number);
    let mounted = ShownFiles::mount(world, &opening.images, &label, files)
        .map_err(|error| Refusal::new(error.to_string(), "FUSE is needed: /dev/fuse, by 'modprobe fuse'"))?;
    let (mut parts, mut taken) = (Vec::new(), BTreeSet::new());
    for (volume, shown) in &volumes {
        mount_parts(world, opening, (volume, shown), &mut taken, &mut parts).await;
    }
    Ok((mounted, parts))
}

/// Mounts what can be mounted of a volume; for the rest, the reasons.
async fn mount_parts(
    world: &World,
    opening: &Opening,
    (volume, shown): (&ReachedVolume, &[String]),
    taken: &mut BTreeSet<String>,
    rows: &mut Vec<OpenPart>,
) {
    let host = host_mounts(world);
    let has_partitions = volume.parts.len() > 1;
    for (part, image) in volume.parts.iter().zip(shown) {
        let mut row = OpenPart {
            volume: volume.path.clone(),
            partition: part.partition,
            place: None,
            content: String::new(),
        };
        // A table of partitions is nothing that anyone wants to see beside them.
        if part.partition.is_none() && has_partitions {
            continue;
        }
        let names = [&volume.name, &volume.long_name].map(|name| match part.partition {
            None => name.clone(),
            Some(number) => format!("{name}-part{number}"),
        });
        let name = names.into_iter().find(|name| !taken.contains(name));
        let Some(name) = name else {
            row.content = format!("two volumes would be at {}: see its image", volume.long_name);
            rows.push(row);
            continue;
        };
        let (image, at) = (opening.images.join(image), opening.folder.join(&name));
        let mounting = async {
            if matches!(part.content, ImageContent::Other(_) | ImageContent::Empty) {
                return Ok(false);
            }
            host_files::create_dir_all(&at)?;
            match &part.content {
                ImageContent::Filesystem(kind) => {
                    let device = host.attach(&image, part.device.geometry().sector).await?;
                    host.mount(&device, &at, kind, opening.is_writable).await?;
                }
                ImageContent::Files(_) => host.show_at(&image, &at).await?,
                ImageContent::Other(_) | ImageContent::Empty => unreachable!("looked at above"),
            }
            Ok::<_, world::IoError>(true)
        };
        row.content = part.content.text();
        match mounting.await {
            Ok(true) => {
                taken.insert(name);
                row.place = Some(at);
            }
            Ok(false) => {}
            Err(error) => {
                row.content = format!("{}: {error}", row.content);
                let _ = host_files::remove_folder_if_empty(&at);
            }
        }
        rows.push(row);
    }
}

fn row_of(opening: Opening) -> OpenBackupRow {
    let state = match (opening.keeper().is_alive(), opening.phase) {
        (false, _) => "left",
        (true, OpeningPhase::Opening) => "opening",
        (true, OpeningPhase::Open) => "open",
        (true, OpeningPhase::Closing) => "closing",
    };
    OpenBackupRow {
        set: opening.set,
        backup: opening.backup,
        number: opening.number,
        kind: opening.kind,
        folder: opening.folder,
        read_write: opening.is_writable,
        until: utc_time(opening.until),
        by: opening.by,
        state,
        problems: opening.problems,
        parts: opening.parts,
    }
}

fn say_open(opening: &Opening, console: &Console) -> Result<(), Refusal> {
    let name = format!("{}@{}", opening.set, opening.number);
    let how = if opening.is_writable { "read-write on clones" } else { "read-only" };
    let until = utc_time(opening.until);
    console.say(&format!("{} is open until {until}, {how}:", opening.backup));
    say_parts(&opening.parts, console);
    console.say(&format!("close it with: spindle protect close {name}"));
    if console.is_for_programs() {
        console.json_of(&row_of(opening.clone()))?;
    }
    Ok(())
}

fn say_parts(parts: &[OpenPart], console: &Console) {
    for part in parts {
        let partition = part.partition.map(|number| format!(", partition {number}")).unwrap_or_default();
        match &part.place {
            Some(place) => {
                console.say(&format!("  {} ({}{partition}: {})", place.display(), part.volume, part.content));
            }
            None => console.say(&format!("  {}{partition} is not mounted: {}", part.volume, part.content)),
        }
    }
}

fn list(openings: &OpeningFolder, console: &Console) -> Result<ExitStatus, Refusal> {
    let rows: Vec<OpenBackupRow> = openings.all().map_err(refused)?.into_iter().map(row_of).collect();
    for row in &rows {
        let state = match row.state {
            "open" => format!("until {}", row.until),
            "left" => "left by a killed process: 'spindle protect close --all' takes it away".to_owned(),
            state => state.to_owned(),
        };
        console.say(&format!(
            "{}@{} at {}: {state}; by {}",
            row.set,
            row.number,
            row.folder.display(),
            row.by
        ));
        say_parts(&row.parts, console);
        row.problems.iter().for_each(|problem| console.say(&format!("  not closed: {problem}")));
    }
    if rows.is_empty() {
        console.say("no backup is open here");
    }
    if console.is_for_programs() {
        console.json_of(&rows)?;
    }
    console.finish(ExitStatus::Pass)
}
