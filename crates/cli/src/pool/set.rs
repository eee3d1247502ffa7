//! `spindle pool set`.

use super::{pool_place::PoolPlace, reporter::open as open_pool, volume_access::VerbOptions};
use crate::{
    console::{Console, StderrNotices},
    exit_status::ExitStatus,
};
use report::Refusal;
use serde::Serialize;
use serving::pool::{
    domains::{DomainReport, advice, advice_of},
    failure_sets::FailureSetsReport,
    pool_change::{PoolChange, PoolSettingChange, perform},
    sparing::{SparingStatus, level_text},
    status::PoolStatus,
};
use std::path::Path;
use world::{ByteCount, World};

#[derive(Serialize)]
struct SetAnswer<'a> {
    path: &'a Path,
    sparing: &'a SparingStatus,
    domains: &'a [DomainReport],
    failure_sets: &'a FailureSetsReport,
    usable_bytes: u64,
}

/// Changes the level of sparing, the domains of drives, and whether they are in failure sets.
pub async fn set(
    world: &World,
    pool: &Path,
    change: PoolSettingChange,
    options: VerbOptions<'_>,
) -> Result<ExitStatus, Refusal> {
    let console = Console::new(options.json, false);
    let has_domains = !change.domains.is_empty() || !change.without_domain.is_empty();
    let (level, has_sets) = (change.sparing, change.failure_sets.is_some());
    let (status, advice) = match PoolPlace::of_pool(world, pool, options.server).await? {
        PoolPlace::Served(served) => {
            served.set(&change).await?;
            let status = served.status().await?;
            let advice = advice_of(&status, &served.word_and_server());
            (status, advice)
        }
        PoolPlace::Folder => {
            let mut open = open_pool(world, pool, &console).await?;
            let change = PoolChange::Set(change);
            let done = perform(&change, (world, &mut open), &*StderrNotices::shared()).await;
            let (status, advice) = (PoolStatus::of_open(&open), advice(&open));
            let closed = open.close().await;
            done?;
            closed?;
            (status, advice)
        }
    };
    let PoolStatus { sparing, domains, failure_sets, drives, usable_bytes, .. } = status;
    if options.json {
        console.json_of(&SetAnswer {
            path: pool,
            sparing: &sparing,
            domains: &domains,
            failure_sets: &failure_sets,
            usable_bytes,
        })?;
    }
    let level = level.map_or(String::new(), |level| format!("{}; ", level_text(level)));
    console.say(&format!("{}: {level}{} usable", pool.display(), ByteCount(usable_bytes)));
    if has_domains {
        domains.iter().for_each(|domain| console.say(&format!("  {}", domain.text(&drives))));
        advice.iter().for_each(|line| console.say(&format!("  {line}")));
    }
    if has_sets {
        let lines = failure_sets.text(&drives);
        lines.iter().for_each(|line| console.say(&format!("  {line}")));
    }
    console.finish(ExitStatus::Pass)
}
