//! `spindle pool readmit`.

use super::add_drive::take_in;
use crate::exit_status::ExitStatus;
use report::Refusal;
use serving::pool::{add_drive::AddDriveAnswer, pool_change::PoolChange};
use std::path::Path;
use world::{ByteCount, World};

/// Takes back a drive that fell behind.
pub async fn readmit(world: &World, folder: &Path, given: &str, json: bool) -> Result<ExitStatus, Refusal> {
    let change = PoolChange::Readmit { drive: given.to_owned() };
    let told = |answer: &AddDriveAnswer| {
        let mut lines = vec![format!(
            "{}: {} is in use again; {} of copies compared or made, {} of them written; {} segments still lack a copy",
            folder.display(),
            answer.path.display(),
            ByteCount(answer.rebuilt_bytes),
            ByteCount(answer.rebuilt_bytes.saturating_sub(answer.matched_bytes)),
            answer.degraded_segments
        )];
        if answer.lost_segments > 0 {
            let lost = answer.lost_segments;
            lines.push(format!("  {lost} segments have no copy on a drive in use: see 'spindle pool show'"));
        }
        lines
    };
    take_in(world, folder, json, &change, told).await
}
