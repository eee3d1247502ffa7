//! `spindle pool upgrade`.

use super::{pool_place::PoolPlace, reporter::open as open_pool, volume_access::VerbOptions};
use crate::{
    console::{Console, StderrNotices},
    exit_status::ExitStatus,
};
use clap::Args;
use report::Refusal;
use serde::Serialize;
use serving::pool::{
    format_level::FormatStatus,
    pool_change::{PoolChange, perform},
};
use std::path::{Path, PathBuf};
use world::World;

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  spindle pool upgrade mail                           new features may use what older programs cannot read
  spindle pool show mail                              says so if a pool can be upgraded

A pool keeps its format when a newer program opens it, so that the program of before can open it again; what needs a
newer format is refused until then. No way leads back from an upgrade. It takes a moment, and hosts notice nothing.
--json prints {\"path\", \"from\", \"level\", \"brought\"}. Ends with 0 also if there was nothing to do.")]
pub struct UpgradeArguments {
    /// Folder of the pool
    #[arg(value_name = "POOL")]
    pub pool: PathBuf,
}

#[derive(Serialize)]
struct UpgradeAnswer<'a> {
    path: &'a Path,
    /// Format level before.
    from: u8,
    level: u8,
    /// Features of the levels between.
    brought: &'a [String],
}

/// Raises the format level of a pool to that of new pools.
pub async fn upgrade(world: &World, pool: &Path, options: VerbOptions<'_>) -> Result<ExitStatus, Refusal> {
    let console = Console::new(options.json, false);
    let (before, after) = match PoolPlace::of_pool(world, pool, options.server).await? {
        PoolPlace::Served(served) => {
            let before = served.status().await?.format;
            if before.is_old() {
                served.upgrade(before.newest).await?;
            }
            (before, served.status().await?.format)
        }
        PoolPlace::Folder => {
            let mut open = open_pool(world, pool, &console).await?;
            let before = FormatStatus::of(&open.pool);
            let done = perform(&PoolChange::Upgrade, (world, &mut open), &*StderrNotices::shared()).await;
            let after = FormatStatus::of(&open.pool);
            let closed = open.close().await;
            done?;
            closed?;
            (before, after)
        }
    };
    let (from, level, path) = (before.level, after.level, pool.display());
    if options.json {
        let brought = if level == from { &[] } else { before.brings.as_slice() };
        console.json_of(&UpgradeAnswer { path: pool, from, level, brought })?;
    }
    if level == from {
        console.say(&format!("{path}: format level {level}; there is nothing to upgrade"));
    } else {
        console.say(&format!("{path}: format level {from} → {level}"));
        before.brings.iter().for_each(|line| console.say(&format!("  new: {line}")));
        console.say("  programs from before cannot open the pool once it uses what is new");
    }
    console.finish(ExitStatus::Pass)
}
