//! `spindle pool readmit`.

use super::{
    add_drive::{take_in, tell},
    online_drives::OnlineVerb,
    pool_place::PoolPlace,
    volume_access::VerbOptions,
};
use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serving::pool::pool_change::PoolChange;
use std::path::Path;
use world::{ByteCount, World};

/// Takes back a drive that fell behind.
pub async fn readmit(
    world: &World,
    pool: &Path,
    given: &str,
    options: VerbOptions<'_>,
) -> Result<ExitStatus, Refusal> {
    let console = Console::new(options.json, false);
    let (answer, advice) = match PoolPlace::of_pool(world, pool, options.server).await? {
        PoolPlace::Served(served) => {
            let verb = OnlineVerb { world, pool: &served, console: &console };
            let answer = verb.readmit(given).await?;
            (answer, served.row_and_advice().await.1)
        }
        PoolPlace::Folder => {
            take_in((world, pool), &PoolChange::Readmit { drive: given.to_owned() }, &console).await?
        }
    };
    let copies = &answer.copies;
    let mut lines = vec![format!(
        "{}: {} is in use again; {} of copies compared or made, {} of them written; {} segments still lack a copy",
        pool.display(),
        answer.path.display(),
        ByteCount(copies.rebuilt_bytes),
        ByteCount(copies.rebuilt_bytes.saturating_sub(copies.matched_bytes)),
        copies.degraded_segments
    )];
    if copies.lost_segments > 0 {
        let lost = copies.lost_segments;
        lines.push(format!("  {lost} segments have no copy on a drive in use: see 'spindle pool show'"));
    }
    tell(&console, &answer, (&lines, advice))
}
