//! `spindle volume`: volumes and snapshots, made, changed and deleted.

use super::{
    arguments::{VolumeArguments, VolumeVerb, WriteCacheState},
    branching, copying,
    cut::{self, WantedSnapshot},
    filling,
    reporter::open,
    volume_diff,
    volume_limits::VolumeLimits,
    volume_readmission::{ReadmitArguments, readmit_clients},
};
use crate::{console::Console, exit_status::ExitStatus};
use array::{
    error::Error,
    format::{RedundancyClass, VolumeId, row::WriteCache},
    pool::{NewVolume, Pool, VolumeSetting},
    volume::{Bounds, Rates},
};
use report::Refusal;
use serde::Serialize;
use serving::{
    pool::{folder::VolumePath, limits::LimitStatus},
    uuid::random_uuid,
};
use std::{path::Path, rc::Rc};
use world::{
    ByteCount, World,
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
        Self { path, done, size_bytes: None, name: None, left: None, waits_for: None, limits: None }
    }
}

/// Runs the verb to its end.
pub fn volume(arguments: &VolumeArguments) -> Result<ExitStatus, Refusal> {
    let (VolumeVerb::Create { volume: path, .. }
    | VolumeVerb::Clone { volume: path, .. }
    | VolumeVerb::Fill { volume: path, .. }
    | VolumeVerb::Refresh { volume: path, .. }
    | VolumeVerb::Move { volume: path, .. }
    | VolumeVerb::Rollback { goal: path, .. }
    | VolumeVerb::Readmit(ReadmitArguments { volume: path, .. })
    | VolumeVerb::Set { volume: path, .. }
    | VolumeVerb::Resize { volume: path, .. }
    | VolumeVerb::Rename { volume: path, .. }
    | VolumeVerb::Delete { volume: path }) = &arguments.verb
    else {
        return match &arguments.verb {
            VolumeVerb::Diff { from, to } => volume_diff::diff(from, to.as_deref(), arguments.json),
            VolumeVerb::Snapshot { volumes, name, note } => {
                let note = note.as_deref().unwrap_or_default();
                cut::snapshot(arguments.json, &WantedSnapshot { volumes, name: name.as_deref(), note })
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
            return branching::clone((arguments.json, *independent), source, (path, &wanted));
        }
        VolumeVerb::Fill { cancel, .. } => return filling::fill(arguments.json, (path, &wanted), *cancel),
        VolumeVerb::Refresh { source, .. } => {
            return copying::refresh(arguments.json, (path, &wanted), source);
        }
        VolumeVerb::Move { source, .. } => return copying::relocate(arguments.json, source, (path, &wanted)),
        VolumeVerb::Rollback { yes, .. } => {
            return branching::roll_back(arguments.json, (path, &wanted), yes.as_deref());
        }
        VolumeVerb::Readmit(readmit) => return readmit_clients(arguments.json, readmit, &wanted),
        _ => {}
    }
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(arguments.json, false);
        let open = open(&world, &wanted.folder, &console).await?;
        let refused = |error| open.refusal(&error, "see 'spindle volume --help'");
        let done = match check_shrinking(&open.pool, &arguments.verb, path, &wanted) {
            Ok(()) => perform(&world, &open.pool, &arguments.verb, &wanted).await.map_err(refused),
            Err(refusal) => Err(refusal),
        };
        let known = open.pool.volumes().into_iter().find(|volume| volume.name == wanted.volume);
        let closed = open.close().await;
        done?;
        closed?;
        let is_set = matches!(arguments.verb, VolumeVerb::Create { .. } | VolumeVerb::Set { .. });
        let limits = known.filter(|_| is_set).map(|volume| LimitStatus::of(&volume.setting));
        let limits_text = limits.map_or(String::new(), |limits| limits.text());
        let (done, size, name, what) = match &arguments.verb {
            VolumeVerb::Create { size, .. } => {
                ("created", Some(size), None, format!("a volume of {size}{limits_text}"))
            }
            VolumeVerb::Set { write_cache, .. } => {
                ("set", None, None, format!("set{}{limits_text}", cache_text(*write_cache)))
            }
            VolumeVerb::Resize { size, .. } => ("resized", Some(size), None, format!("{size} from now on")),
            VolumeVerb::Rename { name, .. } => {
                ("renamed", None, Some(name.as_str()), format!("{name} from now on"))
            }
            VolumeVerb::Delete { .. } => ("deleted", None, None, "deleted".to_owned()),
            VolumeVerb::Diff { .. } | VolumeVerb::Snapshot { .. } => unreachable!("answered above"),
            VolumeVerb::Clone { .. }
            | VolumeVerb::Fill { .. }
            | VolumeVerb::Refresh { .. }
            | VolumeVerb::Move { .. }
            | VolumeVerb::Rollback { .. }
            | VolumeVerb::Readmit(_) => unreachable!("done by modules of their own"),
        };
        if arguments.json {
            let size_bytes = size.map(|size| size.0);
            console.json_of(&VolumeAnswer { size_bytes, name, limits, ..VolumeAnswer::of(path, done) })?;
        }
        console.say(&format!("{}: {what}", path.display()));
        console.finish(ExitStatus::Pass)
    })
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
        (VolumeVerb::Create { .. } | VolumeVerb::Clone { .. } | VolumeVerb::Move { .. }, Some(_)) => {
            Err(Refusal::new(format!("{shown} would be a snapshot"), "use 'spindle volume snapshot'"))
        }
        (
            VolumeVerb::Set { .. }
            | VolumeVerb::Resize { .. }
            | VolumeVerb::Rename { .. }
            | VolumeVerb::Refresh { .. }
            | VolumeVerb::Readmit(_)
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

/// Refuses to shrink a volume without `--shrink`.
fn check_shrinking(pool: &Pool, verb: &VolumeVerb, path: &Path, wanted: &VolumePath) -> Result<(), Refusal> {
    let VolumeVerb::Resize { size, shrink: false, .. } = verb else { return Ok(()) };
    let known = pool.volumes().into_iter().find(|volume| volume.name == wanted.volume);
    match known {
        Some(known) if size.0 < known.size_bytes => {
            let problem = format!(
                "{} has {}, and what lies behind {size} would be lost",
                path.display(),
                ByteCount(known.size_bytes)
            );
            Err(Refusal::new(problem, "say --shrink if that is meant"))
        }
        _ => Ok(()),
    }
}

async fn perform(
    world: &World,
    pool: &Rc<Pool>,
    verb: &VolumeVerb,
    wanted: &VolumePath,
) -> Result<(), Error> {
    let volume = wanted.volume.as_str();
    match (verb, &wanted.snapshot) {
        (VolumeVerb::Create { size, write_cache, raid0, limits, .. }, _) => {
            let write_cache = write_cache.map_or(WriteCache::Off, WriteCacheState::setting);
            let class = if *raid0 { RedundancyClass::Raid0 } else { RedundancyClass::Raid1 };
            let new = NewVolume {
                name: volume.to_owned(),
                volume: VolumeId(random_uuid(world)),
                size_bytes: size.0,
                setting: VolumeSetting {
                    write_cache,
                    class,
                    bounds: limits.bounds(Bounds::default()),
                    rates: limits.rates(Rates::default()),
                },
            };
            pool.create_volume(&new).await
        }
        (VolumeVerb::Set { limits, write_cache, .. }, _) => set(pool, volume, limits, *write_cache).await,
        (VolumeVerb::Resize { size, .. }, _) => pool.resize_volume(volume, size.0).await,
        (VolumeVerb::Rename { name, .. }, _) => pool.rename_volume(volume, name).await,
        (VolumeVerb::Delete { .. }, Some(name)) => pool.delete_snapshot(volume, name).await,
        (VolumeVerb::Diff { .. } | VolumeVerb::Snapshot { .. }, _) => unreachable!("answered above"),
        (
            VolumeVerb::Clone { .. }
            | VolumeVerb::Fill { .. }
            | VolumeVerb::Refresh { .. }
            | VolumeVerb::Move { .. }
            | VolumeVerb::Rollback { .. }
            | VolumeVerb::Readmit(_),
            _,
        ) => unreachable!("done by modules of their own"),
        (VolumeVerb::Delete { .. }, None) => pool.delete_volume(volume, false).await,
    }
}

/// Bounds come first: they alone may be refused, and then all is as it was.
async fn set(
    pool: &Rc<Pool>,
    name: &str,
    limits: &VolumeLimits,
    write_cache: Option<WriteCacheState>,
) -> Result<(), Error> {
    let known = pool.volumes().into_iter().find(|volume| volume.name == name);
    let before = known.ok_or_else(|| Error::NoVolume(name.to_owned()))?.setting;
    let (bounds, rates) = (limits.bounds(before.bounds), limits.rates(before.rates));
    if bounds != before.bounds {
        pool.set_bounds(name, bounds).await?;
    }
    if rates != before.rates {
        pool.set_rates(name, rates).await?;
    }
    match write_cache {
        Some(state) => pool.set_write_cache(name, state.setting()).await,
        None => Ok(()),
    }
}
