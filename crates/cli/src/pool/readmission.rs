//! `spindle pool readmit`.

use super::reporter::report_events_of;
use crate::{
    console::{Console, StderrNotices},
    exit_status::ExitStatus,
};
use report::Refusal;
use serving::pool::{
    add_drive::{DriveSource, add_drive},
    departure::drive_named,
    folder::OpenPool,
    levelling,
};
use std::path::Path;
use world::{ByteCount, World};

/// Takes back a drive that fell behind.
pub async fn readmit(world: &World, folder: &Path, given: &str, json: bool) -> Result<ExitStatus, Refusal> {
    let console = Console::new(json, false);
    let notices = StderrNotices::shared();
    let mut open = OpenPool::open(world, folder, &notices).await?;
    report_events_of(&mut open, world, &console, false);
    let answer = match drive_named(&open, given) {
        Ok(drive) => add_drive(world, &mut open, DriveSource::Returned(&drive), &*notices).await,
        Err(refusal) => Err(refusal),
    };
    let advice = levelling::advice(&open);
    let closed = open.close().await;
    let answer = answer?;
    closed?;
    if json {
        console.json_of(&answer)?;
    }
    console.say(&format!(
        "{}: {} is in use again; {} of copies compared or made, {} of them written; {} segments still lack a copy",
        folder.display(),
        answer.path.display(),
        ByteCount(answer.rebuilt_bytes),
        ByteCount(answer.rebuilt_bytes.saturating_sub(answer.matched_bytes)),
        answer.degraded_segments
    ));
    if answer.lost_segments > 0 {
        let lost = answer.lost_segments;
        console.say(&format!("  {lost} segments have no copy on a drive in use: see 'spindle pool show'"));
    }
    for drive in &answer.forgotten {
        console.say(&format!("  {drive} was removed from the pool: it held no last copy"));
    }
    answer.sparing.text().iter().chain(&advice).for_each(|line| console.say(&format!("  {line}")));
    console.finish(ExitStatus::Pass)
}
