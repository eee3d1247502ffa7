//! `spindle pool level`.

use super::{
    online_drives::OnlineVerb, pool_place::PoolPlace, reporter::open as open_pool, volume_access::VerbOptions,
};
use crate::{console::Console, exit_status::ExitStatus, progress::ProgressView};
use report::Refusal;
use runs::observer::{ProgressDisplay, ProgressStatus};
use serving::pool::levelling::{self, LevelAnswer};
use std::path::Path;
use world::{ByteCount, JobProgress, World};

/// Moves data until all drives are about equally full.
pub async fn level(world: &World, pool: &Path, options: VerbOptions<'_>) -> Result<ExitStatus, Refusal> {
    let console = Console::new(options.json, false);
    let answer = match PoolPlace::of_pool(world, pool, options.server).await? {
        PoolPlace::Served(served) => OnlineVerb { world, pool: &served, console: &console }.level().await?,
        PoolPlace::Folder => level_stopped(world, pool, &console).await?,
    };
    if options.json {
        console.json_of(&answer)?;
    }
    console.say(&format!("{}: {}", pool.display(), answer.text()));
    console.finish(ExitStatus::Pass)
}

async fn level_stopped(world: &World, folder: &Path, console: &Console) -> Result<LevelAnswer, Refusal> {
    let open = open_pool(world, folder, console).await?;
    let begun = world.now();
    let mut view = ProgressView::new(console);
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
    Ok(answer)
}
