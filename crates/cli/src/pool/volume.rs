//! `spindle volume`: volumes and snapshots, made, changed and deleted.

use super::{
    arguments::{VolumeArguments, VolumeVerb, WriteCacheState},
    branching,
    confirmation::Destruction,
    copying,
    cut::{self, WantedSnapshot},
    filling, presentations,
    rollback::{self, VolumeGoal},
    volume_access::{VerbOptions, VolumeAccess},
    volume_diff,
    volume_import::{self, VolumeImportArguments},
    volume_readmission::{ReadmitArguments, readmit_clients},
    volume_space,
};
use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serde::Serialize;
use serving::pool::{
    folder::VolumePath,
    limits::LimitStatus,
    volume_change::{SnapshotRef, VolumeChange, VolumeRef},
};
use std::path::Path;
use world::{
    World,
    real::{self, RealOptions},
};

/// The answer as JSON.
#[derive(Serialize)]
pub(super) struct VolumeAnswer<'a> {
    pub path: &'a Path,
    pub done: &'static str,
    /// Of a volume that was made, or has another size now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Of one that has another name now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
    /// The volume that a rollback left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<&'a Path>,
    /// Initiators that a forced rollback took the volume from.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub withheld_from: &'a [String],
    /// A forced rollback took the volume from all NBD clients.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub withheld_from_nbd: bool,
    /// The snapshot of a filled clone that still reads its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<&'a str>,
    /// Of one that was made, or set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitStatus>,
}

impl<'a> VolumeAnswer<'a> {
    /// Without figures.
    pub fn of(path: &'a Path, done: &'static str) -> Self {
        Self {
            path,
            done,
            size_bytes: None,
            name: None,
            left: None,
            withheld_from: &[],
            withheld_from_nbd: false,
            waits_for: None,
            limits: None,
        }
    }
}

/// Runs the verb to its end.
pub fn volume(arguments: &VolumeArguments) -> Result<ExitStatus, Refusal> {
    let options = VerbOptions { json: arguments.json, server: &arguments.server };
    let (VolumeVerb::Create { volume: path, .. }
    | VolumeVerb::Clone { volume: path, .. }
    | VolumeVerb::Fill { volume: path, .. }
    | VolumeVerb::Refresh { volume: path, .. }
    | VolumeVerb::Move { volume: path, .. }
    | VolumeVerb::Import(VolumeImportArguments { volume: path, .. })
    | VolumeVerb::Rollback { goal: path, .. }
    | VolumeVerb::Readmit(ReadmitArguments { volume: path, .. })
    | VolumeVerb::Set { volume: path, .. }
    | VolumeVerb::Resize { volume: path, .. }
    | VolumeVerb::Rename { volume: path, .. }
    | VolumeVerb::Space { volume: path }
    | VolumeVerb::Delete { volume: path, .. }) = &arguments.verb
    else {
        return match &arguments.verb {
            VolumeVerb::Diff { from, to } => volume_diff::diff(from, to.as_deref(), options),
            VolumeVerb::Present(present) => presentations::present(options, present),
            VolumeVerb::Presentations(of_pool) => presentations::list(options, of_pool),
            VolumeVerb::Withdraw(withdraw) => presentations::withdraw(options, withdraw),
            VolumeVerb::Snapshot { volumes, name, note } => {
                let note = note.as_deref().unwrap_or_default();
                cut::snapshot(options, &WantedSnapshot { volumes, name: name.as_deref(), note })
            }
            _ => unreachable!("all others change a volume"),
        };
    };
    let wanted = VolumePath::of(path).ok_or_else(|| {
        Refusal::new(format!("{} names no volume of a pool", path.display()), "say POOL/VOLUME")
    })?;
    check_form(&arguments.verb, path, &wanted)?;
    match &arguments.verb {
        VolumeVerb::Clone { source, independent, .. } => {
            return branching::clone((options, *independent), source, (path, &wanted));
        }
        VolumeVerb::Fill { cancel, .. } => return filling::fill(options, (path, &wanted), *cancel),
        VolumeVerb::Refresh { source, .. } => {
            return copying::refresh(options, (path, &wanted), source);
        }
        VolumeVerb::Import(import) => return volume_import::import(options, (path, &wanted), import),
        VolumeVerb::Move { source, .. } => return copying::relocate(options, source, (path, &wanted)),
        VolumeVerb::Rollback { to_volume, yes, force, .. } => {
            let goal = VolumeGoal { path, named: &wanted, to_volume: to_volume.as_deref() };
            return rollback::roll_back(options, goal, (yes.as_deref(), *force));
        }
        VolumeVerb::Readmit(readmit) => return readmit_clients(options, readmit, &wanted),
        VolumeVerb::Space { .. } => return volume_space::show(options, (path, &wanted)),
        _ => {}
    }
    let change = change_of(&arguments.verb, &wanted);
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(options.json, false);
        let access = VolumeAccess::open(&world, &wanted.folder, options.server, &console).await?;
        let is_served = matches!(access, VolumeAccess::Served(_));
        let destruction = Destruction::by_verb(&arguments.verb, (path, &wanted), &access).await;
        let yes = yes_of(&arguments.verb);
        let confirmed = destruction.and_then(|destruction| {
            destruction.iter().try_for_each(|known| known.confirm(&console, yes))?;
            Ok(destruction)
        });
        let destruction = match confirmed {
            Ok(destruction) => destruction,
            Err(refusal) => {
                access.close().await?;
                return Err(refusal);
            }
        };
        let done = access.perform_and_close(&change).await?;
        destruction.iter().for_each(|known| known.tell_done(&console, yes));
        let is_set = matches!(change, VolumeChange::Create { .. } | VolumeChange::Set { .. });
        let limits = is_set.then_some(done.limits);
        let limits_text = limits.map_or(String::new(), |limits| limits.text());
        let size = done.size;
        let (word, size, name, what) = match &arguments.verb {
            VolumeVerb::Create { .. } => {
                ("created", Some(size), None, format!("a volume of {size}{limits_text}"))
            }
            VolumeVerb::Set { write_cache, .. } => {
                ("set", None, None, format!("set{}{limits_text}", cache_text(*write_cache)))
            }
            VolumeVerb::Resize { .. } => ("resized", Some(size), None, format!("{size} from now on")),
            VolumeVerb::Rename { name, .. } => {
                ("renamed", None, Some(name.as_str()), format!("{name} from now on"))
            }
            VolumeVerb::Delete { .. } => ("deleted", None, None, "deleted".to_owned()),
            _ => unreachable!("done by modules of their own"),
        };
        if options.json {
            let size_bytes = size.map(|size| size.0);
            console.json_of(&VolumeAnswer { size_bytes, name, limits, ..VolumeAnswer::of(path, word) })?;
        }
        console.say(&format!("{}: {what}", path.display()));
        if is_served {
            site_note(&change).iter().for_each(|note| console.say_progress(note));
        }
        console.finish(ExitStatus::Pass)
    })
}

/// A line for those who change what a site file may say otherwise: the file is applied again at the server's next start.
fn site_note(change: &VolumeChange) -> Option<String> {
    let key = match change {
        VolumeChange::Rename { volume, name } => {
            let before = volume.key().to_string();
            format!("name = {name:?} and was = {before:?}, or it makes a new volume {before:?}")
        }
        VolumeChange::Resize { .. } | VolumeChange::Set { .. } => "the same".to_owned(),
        _ => return None,
    };
    Some(format!(
        "if the server's site file has this volume, write {key}; 'spindle site' prints the site as it is"
    ))
}

/// The change that a verb of this module asks for.
fn change_of(verb: &VolumeVerb, wanted: &VolumePath) -> VolumeChange {
    let volume = VolumeRef::from(wanted.volume.as_str());
    match verb {
        VolumeVerb::Create { size, write_cache, raid0, limits, .. } => VolumeChange::Create {
            name: wanted.volume.clone(),
            size_bytes: size.0,
            write_cache: write_cache.is_some_and(WriteCacheState::is_on),
            raid0: *raid0,
            limits: limits.change(),
        },
        VolumeVerb::Set { limits, write_cache, .. } => VolumeChange::Set {
            volume,
            limits: limits.change(),
            write_cache: write_cache.map(WriteCacheState::is_on),
        },
        VolumeVerb::Resize { size, shrink, .. } => {
            VolumeChange::Resize { volume, size_bytes: size.0, may_shrink: *shrink }
        }
        VolumeVerb::Rename { name, .. } => VolumeChange::Rename { volume, name: name.clone() },
        VolumeVerb::Delete { .. } => match &wanted.snapshot {
            Some(snapshot) => {
                VolumeChange::DeleteSnapshot { volume, snapshot: SnapshotRef::from(snapshot.as_str()) }
            }
            None => VolumeChange::Delete { volume },
        },
        VolumeVerb::Diff { .. }
        | VolumeVerb::Snapshot { .. }
        | VolumeVerb::Clone { .. }
        | VolumeVerb::Fill { .. }
        | VolumeVerb::Refresh { .. }
        | VolumeVerb::Move { .. }
        | VolumeVerb::Import(_)
        | VolumeVerb::Present(_)
        | VolumeVerb::Presentations(_)
        | VolumeVerb::Withdraw(_)
        | VolumeVerb::Rollback { .. }
        | VolumeVerb::Space { .. }
        | VolumeVerb::Readmit(_) => unreachable!("done by modules of their own"),
    }
}

/// The name by which a destruction is confirmed.
fn yes_of(verb: &VolumeVerb) -> Option<&str> {
    match verb {
        VolumeVerb::Delete { yes, .. } | VolumeVerb::Resize { yes, .. } => yes.as_deref(),
        _ => None,
    }
}

/// The write cache as it was set, behind a comma.
fn cache_text(write_cache: Option<WriteCacheState>) -> &'static str {
    match write_cache {
        Some(WriteCacheState::On) => ", write cache on",
        Some(WriteCacheState::Off) => ", write cache off",
        None => "",
    }
}

fn check_form(verb: &VolumeVerb, path: &Path, wanted: &VolumePath) -> Result<(), Refusal> {
    let shown = path.display();
    match (verb, &wanted.snapshot) {
        (
            VolumeVerb::Create { .. }
            | VolumeVerb::Clone { .. }
            | VolumeVerb::Import(_)
            | VolumeVerb::Move { .. },
            Some(_),
        ) => Err(Refusal::new(format!("{shown} would be a snapshot"), "use 'spindle volume snapshot'")),
        (
            VolumeVerb::Set { .. }
            | VolumeVerb::Resize { .. }
            | VolumeVerb::Rename { .. }
            | VolumeVerb::Refresh { .. }
            | VolumeVerb::Readmit(_)
            | VolumeVerb::Space { .. }
            | VolumeVerb::Fill { .. },
            Some(_),
        ) => Err(Refusal::new(format!("{shown} is a snapshot, which stays as it is"), "say POOL/VOLUME")),
        (VolumeVerb::Rename { name, .. }, None) if name.contains(['/', '@']) => {
            let problem = format!("{name:?} is no name of a volume: it has a / or an @");
            Err(Refusal::new(problem, "say the new name alone, without the pool"))
        }
        _ => Ok(()),
    }
}
