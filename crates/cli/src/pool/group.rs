//! `spindle group`: volumes whose snapshots, clones and rollbacks are one.

use super::{
    confirmation::{Destruction, NameConfirmation},
    filling::{going_on, wait_until_filled},
    group_arguments::{GroupArguments, GroupVerb},
    online_group::MadeByServer,
    online_pool::OnlinePool,
    pool_place::{PoolPlace, VerbPools},
    reporter::{close_all, open, open_all},
    rollback::{uses_text, withheld_text},
    volume_access::VerbOptions,
};
use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serde::Serialize;
use serving::{
    export::WithheldClients,
    pool::{
        cut::PoolVolumes,
        folder::{OpenPool, VolumePath},
        group::{self, GroupStatus, NewClones},
        record::is_pool,
        shared_group,
    },
};
use std::path::{Path, PathBuf};
use world::{
    World,
    real::{self, RealOptions},
};

/// The answer as JSON.
#[derive(Serialize)]
struct GroupAnswer<'a> {
    path: &'a Path,
    done: &'static str,
    /// Clones, or the volumes that a rollback left, by the volume of the group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    made: Vec<MadeVolume<'a>>,
}

/// A volume of the group, and the one that an operation made of it.
#[derive(Serialize)]
struct MadeVolume<'a> {
    volume: &'a Path,
    made: &'a Path,
    /// Initiators that a forced rollback took the volume from.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    withheld_from: &'a [String],
    /// A forced rollback took the volume from all NBD clients.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    withheld_from_nbd: bool,
}

#[derive(Serialize)]
struct GroupsAnswer<'a> {
    groups: &'a [GroupStatus],
}

/// An answer for people, and for programs.
struct VerbOutcome {
    word: &'static str,
    /// In lines.
    text: String,
    /// Volumes of the group, and what was made of each.
    made: Vec<MadeByServer>,
}

/// Runs the verb to its end.
pub fn group(arguments: &GroupArguments) -> Result<ExitStatus, Refusal> {
    let options = VerbOptions { json: arguments.json, server: &arguments.server };
    match &arguments.verb {
        GroupVerb::Create { name, volumes } => create(options, name, volumes),
        GroupVerb::Show { group } => show(options, group),
        GroupVerb::Delete { group, yes } => {
            // A group that is deleted leaves its volumes and snapshots.
            let Some(VolumePath { snapshot: Some(name), .. }) = VolumePath::of(group) else {
                return change(arguments, group);
            };
            let line = format!(
                "{}: the snapshots of all its volumes → deleted; nothing brings them back",
                group.display()
            );
            let (destruction, console) = (Destruction { line, name }, Console::new(options.json, false));
            destruction.confirm(&console, yes.as_deref())?;
            let status = change(arguments, group)?;
            destruction.tell_done(&console, yes.as_deref());
            Ok(status)
        }
        GroupVerb::Snapshot { snapshot, .. }
        | GroupVerb::Clone { snapshot, .. }
        | GroupVerb::Rollback { snapshot, .. } => change(arguments, snapshot),
    }
}

fn create(options: VerbOptions<'_>, name: &str, volumes: &[PathBuf]) -> Result<ExitStatus, Refusal> {
    let requests = requests_of(volumes)?;
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(options.json, false);
        let folders: Vec<&Path> = requests.iter().map(|(folder, _)| folder.as_path()).collect();
        match VerbPools::of(&world, &folders, options.server).await? {
            VerbPools::Served(pools) => {
                let mut ids = Vec::new();
                for (pool, (_, names)) in pools.iter().zip(&requests) {
                    ids.extend(pool.volume_ids(names, "see 'spindle group --help'").await?);
                }
                pools[0].create_group(name, ids).await?;
            }
            VerbPools::Folders => create_stopped(&world, &requests, name, &console).await?,
        }
        let paths: Vec<String> =
            folders.iter().map(|folder| folder.join(name).display().to_string()).collect();
        let text = format!("{}: a group of {}", paths.join(", "), volumes_text(volumes.len()));
        let done = VerbOutcome { word: "created", text, made: Vec::new() };
        answer(&console, &folders[0].join(name), done)
    })
}

async fn create_stopped(
    world: &World,
    requests: &[(PathBuf, Vec<String>)],
    name: &str,
    console: &Console,
) -> Result<(), Refusal> {
    let folders: Vec<&Path> = requests.iter().map(|(folder, _)| folder.as_path()).collect();
    let opened = open_all(world, &folders, console).await?;
    let created = match (&opened[..], requests) {
        ([open], [(_, names)]) => group::create(world, open, name, names).await,
        _ => {
            let parts = opened.iter().zip(requests);
            let parts = parts.map(|(open, (_, names))| PoolVolumes { open, volumes: names.clone() });
            shared_group::create(world, &parts.collect::<Vec<_>>(), name).await
        }
    };
    let closed = close_all(opened).await;
    created?;
    closed
}

/// The names of volumes by their pools, in the order of the first of each.
fn requests_of(volumes: &[PathBuf]) -> Result<Vec<(PathBuf, Vec<String>)>, Refusal> {
    let mut requests: Vec<(PathBuf, Vec<String>)> = Vec::new();
    for path in volumes {
        let Some(VolumePath { folder, volume, snapshot: None }) = VolumePath::of(path) else {
            return Err(Refusal::new(
                format!("{} names no volume of a pool", path.display()),
                "say POOL/VOLUME",
            ));
        };
        match requests.iter_mut().find(|(known, _)| *known == folder) {
            Some((_, names)) => names.push(volume),
            None => requests.push((folder, vec![volume])),
        }
    }
    Ok(requests)
}

fn change(arguments: &GroupArguments, path: &Path) -> Result<ExitStatus, Refusal> {
    let (json, verb) = (arguments.json, &arguments.verb);
    let wanted = VolumePath::of(path).ok_or_else(|| {
        Refusal::new(format!("{} names no group of a pool", path.display()), "say POOL/GROUP")
    })?;
    if wanted.snapshot.is_none() && !matches!(verb, GroupVerb::Delete { .. }) {
        let problem = format!("{} names no snapshot", path.display());
        return Err(Refusal::new(problem, "say POOL/GROUP@SNAPSHOT"));
    }
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(json, false);
        let place = PoolPlace::of(&world, &wanted.folder, &arguments.server).await?;
        let mut used = Vec::new();
        if let GroupVerb::Rollback { yes, force, .. } = verb {
            if let PoolPlace::Served(served) = &place {
                let snapshot = wanted.snapshot.as_deref().unwrap_or_default();
                for (volume, uses) in served.group_uses(&wanted.volume, snapshot).await? {
                    console.say_progress(&uses_text(&volume, &uses, *force));
                    used.push(volume);
                }
            }
            confirm(&console, path, yes.as_deref())?;
        }
        if let PoolPlace::Served(served) = place {
            let done = perform_online(&served, (path, &wanted), (verb, &used)).await?;
            return answer(&console, path, done);
        }
        let mut opened = open_all(&world, &[&wanted.folder], &console).await?;
        let done = async {
            let others = shared_group::partners(&opened[0], &wanted.volume, &arguments.with)?;
            let others: Vec<&Path> = others.iter().map(PathBuf::as_path).collect();
            opened.extend(open_all(&world, &others, &console).await?);
            perform(&world, &opened, (path, &wanted), verb, &console).await
        };
        let done = done.await;
        let closed = close_all(opened).await;
        let done = done?;
        closed?;
        answer(&console, path, done)
    })
}

async fn perform(
    world: &World,
    pools: &[OpenPool],
    (path, wanted): (&Path, &VolumePath),
    verb: &GroupVerb,
    console: &Console,
) -> Result<VerbOutcome, Refusal> {
    let (name, snapshot) = (&wanted.volume, wanted.snapshot.as_deref().unwrap_or_default());
    let plain = |word, text: &str| VerbOutcome {
        word,
        text: format!("{}: {text}", path.display()),
        made: Vec::new(),
    };
    let alone = if let [open] = pools { Some(open) } else { None };
    match verb {
        GroupVerb::Snapshot { note, .. } => {
            let note = note.as_deref().unwrap_or_default();
            let count = match alone {
                Some(open) => group::snapshot(world, open, (name, snapshot), note).await?,
                None => shared_group::snapshot(world, pools, (name, snapshot), note).await?.0,
            };
            Ok(plain("snapshot", &format!("a snapshot of {}", volumes_text(count))))
        }
        GroupVerb::Delete { .. } if wanted.snapshot.is_some() => {
            match alone {
                Some(open) => group::delete_snapshot(open, (name, snapshot)).await?,
                None => shared_group::delete_snapshot(pools, (name, snapshot)).await?,
            }
            Ok(plain("deleted", "deleted"))
        }
        GroupVerb::Delete { .. } => {
            match alone {
                Some(open) => group::delete(open, name).await?,
                None => shared_group::delete(pools, name).await?,
            }
            Ok(plain("deleted", "deleted; its volumes and their snapshots stay"))
        }
        GroupVerb::Clone { suffix, independent, .. } => {
            let new = NewClones { suffix, is_independent: *independent };
            let made = match alone {
                Some(open) => group::clone(world, open, (name, snapshot), &new).await?,
                None => shared_group::clone(world, pools, (name, snapshot), &new).await?,
            };
            let made = made_stopped(made);
            let mut lines = clone_lines(&made, snapshot);
            for MadeByServer { made: clone, .. } in &made {
                let clone_name = clone.file_name().map(|name| name.to_string_lossy().into_owned());
                let clone_name = clone_name.unwrap_or_default();
                let Some(open) = pools.iter().find(|open| clone.starts_with(open.folder())) else { continue };
                if let Some(end) = wait_until_filled(world, open, clone, &clone_name, console).await? {
                    lines.push(end.text(clone));
                }
            }
            Ok(VerbOutcome { word: "cloned", text: lines.join("\n"), made })
        }
        GroupVerb::Rollback { .. } => {
            let made = match alone {
                Some(open) => group::roll_back(world, open, (name, snapshot)).await?,
                None => shared_group::roll_back(world, pools, (name, snapshot)).await?,
            };
            let made = made_stopped(made);
            let text = rollback_lines(&made, snapshot, ("", &[])).join("\n");
            Ok(VerbOutcome { word: "rolled back", text, made })
        }
        GroupVerb::Create { .. } | GroupVerb::Show { .. } => unreachable!("done above"),
    }
}

/// The same by a server.
async fn perform_online(
    served: &OnlinePool,
    (path, wanted): (&Path, &VolumePath),
    (verb, used): (&GroupVerb, &[PathBuf]),
) -> Result<VerbOutcome, Refusal> {
    let (name, snapshot) = (&wanted.volume, wanted.snapshot.as_deref().unwrap_or_default());
    let plain = |word, text: &str| VerbOutcome {
        word,
        text: format!("{}: {text}", path.display()),
        made: Vec::new(),
    };
    Ok(match verb {
        GroupVerb::Snapshot { note, .. } => {
            let note = note.as_deref().unwrap_or_default();
            let count = served.snapshot_group(name, snapshot, note).await?;
            plain("snapshot", &format!("a snapshot of {}", volumes_text(count)))
        }
        GroupVerb::Delete { .. } => {
            served.delete_group(name, wanted.snapshot.as_deref()).await?;
            match wanted.snapshot {
                Some(_) => plain("deleted", "deleted"),
                None => plain("deleted", "deleted; its volumes and their snapshots stay"),
            }
        }
        GroupVerb::Clone { suffix, independent, .. } => {
            let made = served.clone_group(name, snapshot, (suffix, *independent)).await?;
            let mut lines = clone_lines(&made, snapshot);
            lines.extend(made.iter().filter(|_| *independent).map(|made| going_on(&made.made)));
            VerbOutcome { word: "cloned", text: lines.join("\n"), made }
        }
        GroupVerb::Rollback { force, .. } => {
            let made = served.roll_back_group(name, snapshot, *force).await?;
            let text = rollback_lines(&made, snapshot, (served.repeated(), used)).join("\n");
            VerbOutcome { word: "rolled back", text, made }
        }
        GroupVerb::Create { .. } | GroupVerb::Show { .. } => unreachable!("done above"),
    })
}

fn made_stopped(made: Vec<(PathBuf, PathBuf)>) -> Vec<MadeByServer> {
    let nobody = WithheldClients::default;
    made.into_iter().map(|(volume, made)| MadeByServer { volume, made, withheld: nobody() }).collect()
}

fn clone_lines(made: &[MadeByServer], snapshot: &str) -> Vec<String> {
    let line = |MadeByServer { volume, made, .. }: &MadeByServer| {
        format!("{}: a clone of {}@{snapshot}", made.display(), volume.display())
    };
    made.iter().map(line).collect()
}

/// Old and new, from whom volumes are withheld, and the commands that undo it. Volumes that are `used` are rolled back by force.
fn rollback_lines(made: &[MadeByServer], snapshot: &str, (server, used): (&str, &[PathBuf])) -> Vec<String> {
    let now = made.iter().map(|MadeByServer { volume, made, .. }| {
        format!("{}: now → as of @{snapshot}; what it was is {}", volume.display(), made.display())
    });
    let withheld = made.iter().filter_map(|MadeByServer { volume, withheld, .. }| {
        let WithheldClients { initiators, nbd } = withheld;
        (!initiators.is_empty() || *nbd).then(|| withheld_text(volume, (initiators, *nbd), server))
    });
    let undo = made.iter().map(|MadeByServer { volume, made, .. }| {
        let force = if used.contains(volume) { " --force" } else { "" };
        format!("undo: spindle volume rollback {}{force}{server}", made.display())
    });
    now.chain(withheld).chain(undo).collect()
}

fn answer(console: &Console, path: &Path, done: VerbOutcome) -> Result<ExitStatus, Refusal> {
    let VerbOutcome { word, text, made } = done;
    if console.is_for_programs() {
        let made = made.iter().map(|MadeByServer { volume, made, withheld }| MadeVolume {
            volume,
            made,
            withheld_from: &withheld.initiators,
            withheld_from_nbd: withheld.nbd,
        });
        let made = made.collect();
        console.json_of(&GroupAnswer { path, done: word, made })?;
    }
    console.say(&text);
    console.finish(ExitStatus::Pass)
}

/// Fails unless `yes`, or the answer on the terminal, is the name of the group.
fn confirm(console: &Console, path: &Path, yes: Option<&str>) -> Result<(), Refusal> {
    let Some(goal) = VolumePath::of(path).filter(|goal| goal.snapshot.is_some()) else {
        let problem = format!("{} names no snapshot of a group", path.display());
        return Err(Refusal::new(problem, "say POOL/GROUP@SNAPSHOT"));
    };
    let confirmation = NameConfirmation {
        question: &format!(
            "All volumes of {} will be as of {}; their present state stays as other volumes.",
            goal.folder.join(&goal.volume).display(),
            path.display()
        ),
        name: &goal.volume,
        meant: &format!("the group of {}", path.display()),
        unnamed: "a rollback is confirmed with the group's name",
    };
    confirmation.ask(console, yes)
}

fn show(options: VerbOptions<'_>, path: &Path) -> Result<ExitStatus, Refusal> {
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(options.json, false);
        let (folder, wanted) = shown_group(path)?;
        let groups = match PoolPlace::of_pool(&world, &folder, options.server).await? {
            PoolPlace::Served(served) => served.group_statuses(wanted.as_deref()).await?,
            PoolPlace::Folder if wanted.is_none() && !is_pool(&folder) => return Err(no_group_path(path)),
            PoolPlace::Folder => {
                let open = open(&world, &folder, &console).await?;
                let groups = group::list(&open, wanted.as_deref());
                let closed = open.close().await;
                let groups = groups?;
                closed?;
                groups
            }
        };
        if options.json {
            console.json_of(&GroupsAnswer { groups: &groups })?;
        }
        groups.iter().for_each(|group| console.say(&group.text(&folder)));
        if groups.is_empty() {
            console.say(&format!("{}: no groups", folder.display()));
        }
        console.finish(ExitStatus::Pass)
    })
}

/// A pool, and the name of one of its groups if one is meant.
fn shown_group(path: &Path) -> Result<(PathBuf, Option<String>), Refusal> {
    match VolumePath::of(path) {
        _ if is_pool(path) => Ok((path.to_owned(), None)),
        Some(VolumePath { folder, volume, snapshot: None }) => Ok((folder, Some(volume))),
        // A pool's name at a server.
        None if path.components().count() == 1 => Ok((path.to_owned(), None)),
        _ => Err(no_group_path(path)),
    }
}

fn no_group_path(path: &Path) -> Refusal {
    Refusal::new(format!("{} names neither a pool nor a group", path.display()), "say POOL or POOL/GROUP")
}

fn volumes_text(count: usize) -> String {
    if count == 1 { "1 volume".to_owned() } else { format!("{count} volumes") }
}
