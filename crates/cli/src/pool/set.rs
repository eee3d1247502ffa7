//! `spindle pool set`.

use super::reporter::open as open_pool;
use crate::{console::Console, exit_status::ExitStatus};
use array::format::SparingLevel;
use report::Refusal;
use serde::Serialize;
use serving::pool::{
    domains::{DomainReport, NamedDomain, advice, domain_changes, set_domains},
    failure_sets::{FailureSetsReport, set_failure_sets},
    folder::OpenPool,
    sparing::{self, SparingStatus, level_text},
    status::PoolStatus,
};
use std::path::Path;
use world::{ByteCount, World};

/// What a pool gets.
pub struct PoolChange<'a> {
    pub sparing: Option<SparingLevel>,
    pub domains: &'a [NamedDomain],
    /// Drives that fail alone from then on.
    pub without_domain: &'a [String],
    pub failure_sets: Option<bool>,
}

#[derive(Serialize)]
struct SetAnswer<'a> {
    path: &'a Path,
    sparing: &'a SparingStatus,
    domains: &'a [DomainReport],
    failure_sets: &'a FailureSetsReport,
    usable_bytes: u64,
}

impl PoolChange<'_> {
    fn has_domains(&self) -> bool {
        !self.domains.is_empty() || !self.without_domain.is_empty()
    }

    /// Changes all of it, or nothing.
    async fn apply(&self, open: &OpenPool) -> Result<(), Refusal> {
        let changes = domain_changes(open, self.domains, self.without_domain)?;
        if let Some(level) = self.sparing {
            sparing::set_level(open, level).await?;
        }
        set_domains(open, &changes).await?;
        // After the domains: the drives of a set are to be in different ones.
        match self.failure_sets {
            Some(is_wanted) => set_failure_sets(open, is_wanted).await,
            None => Ok(()),
        }
    }
}

/// Changes the level of sparing, the domains of drives, and whether they are in failure sets.
pub async fn set(
    world: &World,
    folder: &Path,
    change: PoolChange<'_>,
    json: bool,
) -> Result<ExitStatus, Refusal> {
    let console = Console::new(json, false);
    let open = open_pool(world, folder, &console).await?;
    let done = change.apply(&open).await;
    let status = PoolStatus::of_open(&open);
    let PoolStatus { sparing, domains, failure_sets, drives, usable_bytes, .. } = status;
    let advice = advice(&open);
    let closed = open.close().await;
    done?;
    closed?;
    if json {
        console.json_of(&SetAnswer {
            path: folder,
            sparing: &sparing,
            domains: &domains,
            failure_sets: &failure_sets,
            usable_bytes,
        })?;
    }
    let level = change.sparing.map_or(String::new(), |level| format!("{}; ", level_text(level)));
    console.say(&format!("{}: {level}{} usable", folder.display(), ByteCount(usable_bytes)));
    if change.has_domains() {
        domains.iter().for_each(|domain| console.say(&format!("  {}", domain.text(&drives))));
        advice.iter().for_each(|line| console.say(&format!("  {line}")));
    }
    if change.failure_sets.is_some() {
        let lines = failure_sets.text(&drives);
        lines.iter().for_each(|line| console.say(&format!("  {line}")));
    }
    console.finish(ExitStatus::Pass)
}
