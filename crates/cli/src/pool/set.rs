//! `spindle pool set`.

use super::reporter::open as open_pool;
use crate::{console::Console, exit_status::ExitStatus};
use array::format::SparingLevel;
use report::Refusal;
use serde::Serialize;
use serving::pool::{
    sparing::{self, SparingStatus, level_text},
    status::PoolStatus,
};
use std::path::Path;
use world::{ByteCount, World};

#[derive(Serialize)]
struct SetAnswer<'a> {
    path: &'a Path,
    sparing: &'a SparingStatus,
    usable_bytes: u64,
}

/// Changes the level of sparing.
pub async fn set(
    world: &World,
    folder: &Path,
    level: SparingLevel,
    json: bool,
) -> Result<ExitStatus, Refusal> {
    let console = Console::new(json, false);
    let open = open_pool(world, folder, &console).await?;
    let done = sparing::set_level(&open, level).await;
    let PoolStatus { sparing, usable_bytes, .. } = PoolStatus::of_open(&open);
    let closed = open.close().await;
    done?;
    closed?;
    if json {
        console.json_of(&SetAnswer { path: folder, sparing: &sparing, usable_bytes })?;
    }
    console.say(&format!("{}: {}; {} usable", folder.display(), level_text(level), ByteCount(usable_bytes)));
    console.finish(ExitStatus::Pass)
}
