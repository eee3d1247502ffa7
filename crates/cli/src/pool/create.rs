//! `spindle pool create`.

use crate::{
    console::{Console, StderrNotices},
    exit_status::ExitStatus,
};
use array::{format::SparingLevel, pool::failure_set_count};
use report::Refusal;
use serde::Serialize;
use serving::pool::{
    create::{CreatedPool, NewPoolDrives, NewPoolSetting, create as create_pool},
    sparing::{level_name, level_text},
};
use std::path::Path;
use world::World;

#[derive(Serialize)]
struct CreateAnswer<'a> {
    path: &'a Path,
    drives: usize,
    /// Of all drives together.
    bytes: u64,
    copies: usize,
    /// `none`, `single` or `double`.
    sparing: &'static str,
    /// Number of failure sets.
    failure_sets: usize,
}

/// Makes a pool in `folder`.
pub async fn create(
    world: &World,
    folder: &Path,
    drives: NewPoolDrives<'_>,
    setting: NewPoolSetting<'_>,
    json: bool,
) -> Result<ExitStatus, Refusal> {
    let console = Console::new(json, false);
    let made = create_pool(world, folder, drives, setting, &StderrNotices::default()).await?;
    let CreatedPool { sparing, drive_count: count, bytes, copies } = made;
    let often = match copies {
        1 => "everything once: what one drive loses is lost",
        2 => "everything twice",
        _ => "everything three times",
    };
    let failure_sets = failure_set_count(count);
    if json {
        let sparing = level_name(sparing);
        console.json_of(&CreateAnswer {
            path: folder,
            drives: count,
            bytes: bytes.0,
            copies,
            sparing,
            failure_sets,
        })?;
    }
    console.say(&format!("{}: a pool of {count} drives, {bytes} together, {often}", folder.display()));
    if sparing != SparingLevel::None {
        console.say(&format!("  {}; change it with 'spindle pool set'", level_text(sparing)));
    }
    if failure_sets > 0 {
        console.say(&format!(
            "  {failure_sets} failure sets: all copies of a segment lie in one; change it with 'spindle pool set'"
        ));
    }
    console.finish(ExitStatus::Pass)
}
