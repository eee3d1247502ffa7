//! `spindle pool create`.

use crate::{
    console::{Console, StderrNotices},
    exit_status::ExitStatus,
};
use report::Refusal;
use serde::Serialize;
use serving::pool::create::{CreatedPool, NewPoolDrives, create as create_pool};
use std::path::Path;
use world::World;

#[derive(Serialize)]
struct CreateAnswer<'a> {
    path: &'a Path,
    drives: usize,
    /// Of all drives together.
    bytes: u64,
    copies: usize,
}

/// Makes a pool in `folder` with `copies` of everything; two if `None`.
pub async fn create(
    world: &World,
    folder: &Path,
    drives: NewPoolDrives<'_>,
    copies: Option<usize>,
    json: bool,
) -> Result<ExitStatus, Refusal> {
    let console = Console::new(json, false);
    let made = create_pool(world, folder, drives, copies, &StderrNotices::default()).await?;
    let CreatedPool { drive_count: count, bytes, copies } = made;
    let often = match copies {
        1 => "everything once: what one drive loses is lost",
        2 => "everything twice",
        _ => "everything three times",
    };
    if json {
        console.json_of(&CreateAnswer { path: folder, drives: count, bytes: bytes.0, copies })?;
    }
    console.say(&format!("{}: a pool of {count} drives, {bytes} together, {often}", folder.display()));
    console.finish(ExitStatus::Pass)
}
