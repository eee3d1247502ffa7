//! Databases brought up in memory, for those who read them: their files are only read.

use super::{TrialContext, engine_panic::caught, group_files::GroupFiles};
use crate::running::{
    places::{Candidate, FileDiscovery},
    rate_limiter::RateLimiter,
    resume::ResumeError,
    run::{Settings, run},
};
use maildb::{Database, Instance};
use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::{Path, PathBuf},
};
use world::{World, real::Workers};

/// A storage group as it is after a recovery.
pub struct BroughtUpGroup {
    /// Databases as they are shown, in their order.
    pub databases: Vec<(PathBuf, Database)>,
    /// Has them open. Dropped, everything that the recovery changed is gone.
    _instance: Instance,
}

/// Storage groups, and the reasons why others could not be brought up.
#[derive(Default)]
pub struct BroughtUp {
    pub groups: Vec<BroughtUpGroup>,
    pub problems: Vec<String>,
}

/// Brings up all databases of Spindle's own engine that were found.
///
/// # Errors
///
/// Nothing can be read there.
pub async fn bring_up(
    world: &World,
    settings: &Settings,
    found: FileDiscovery,
    limiter: &RateLimiter,
) -> Result<BroughtUp, ResumeError> {
    let candidates = found.candidates.clone();
    let looked = run(world, settings, found, limiter, None).await?;
    let workers = Workers::new(NonZeroUsize::MIN);
    let context = TrialContext { world, workers: &workers, limiter, memory: settings.scratch };
    let by_path: BTreeMap<&Path, &Candidate> = candidates.iter().map(|one| (one.path(), one)).collect();
    let mut all = BroughtUp { groups: Vec::new(), problems: looked.failures };
    for group in GroupFiles::all(&looked.files) {
        let named = |why: String| format!("{}: {why}", group.names().join(", "));
        let brought_up = match group.why_not(&looked.sets) {
            Some(why) => Err(why),
            None => match group.prepare(&context, &by_path).await {
                Ok(prepared) => match caught(prepared.open(&context)).await {
                    Ok(Ok(instance)) => Ok(prepared.brought_up(instance)),
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(assertion) => Err(format!("the engine met a contradiction: {assertion}")),
                },
                Err(why) => Err(why),
            },
        };
        match brought_up {
            Ok(databases) => all.groups.push(databases),
            Err(why) => all.problems.push(named(why)),
        }
    }
    Ok(all)
}

impl BroughtUpGroup {
    pub(super) fn new(databases: Vec<(PathBuf, Database)>, instance: Instance) -> Self {
        Self { databases, _instance: instance }
    }
}
