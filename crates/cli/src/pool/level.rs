//! `spindle pool level`.

use super::reporter::open as open_pool;
use crate::{console::Console, exit_status::ExitStatus, progress::ProgressView};
use report::Refusal;
use runs::observer::{ProgressDisplay, ProgressStatus};
use serving::pool::levelling;
use std::path::Path;
use world::{ByteCount, JobProgress, World};

/// Moves data until all drives are about equally full.
pub async fn level(world: &World, folder: &Path, json: bool) -> Result<ExitStatus, Refusal> {
    let console = Console::new(json, false);
    let open = open_pool(world, folder, &console).await?;
    let begun = world.now();
    let mut view = ProgressView::new(&console);
    let mut show = |progress: &JobProgress| {
        let left = progress.total.saturating_sub(progress.done);
        let status = ProgressStatus {
            phase: "level".to_owned(),
            fraction: progress.fraction(),
            figures: vec![
                format!("{} left", ByteCount(left)),
                format!("{}/s", ByteCount(progress.per_second as u64)),
            ],
            left: progress.time_left,
        };
        view.tell(world.now().since(begun), Some(&status), &[]);
    };
    let levelled = levelling::level(world, &open, &mut show).await;
    drop(view);
    let closed = open.close().await;
    let answer = levelled?;
    closed?;
    if json {
        console.json_of(&answer)?;
    }
    console.say(&format!("{}: {}", folder.display(), answer.text()));
    console.finish(ExitStatus::Pass)
}
