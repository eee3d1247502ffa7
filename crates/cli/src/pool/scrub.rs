//! `spindle pool scrub`.

use super::{online_drives::OnlineVerb, pool_place::PoolPlace, reporter::open, volume_access::VerbOptions};
use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serving::pool::scrub::ScrubAnswer;
use std::path::Path;
use world::World;

/// Scrubs, fixes wrong copies, and fails if a block has no right copy.
pub async fn scrub(world: &World, pool: &Path, options: VerbOptions<'_>) -> Result<ExitStatus, Refusal> {
    let console = Console::new(options.json, false);
    let answer = match PoolPlace::of_pool(world, pool, options.server).await? {
        PoolPlace::Served(served) => OnlineVerb { world, pool: &served, console: &console }.scrub().await?,
        PoolPlace::Folder => {
            let open = open(world, pool, &console).await?;
            let found = open.pool.scrub().await;
            let found = found.map_err(|error| open.refusal(&error, "nothing was changed for the worse"));
            let closed = open.close().await;
            let found = found?;
            closed?;
            ScrubAnswer::from(found)
        }
    };
    tell(&console, pool, &answer)
}

/// Prints the answer. Data without a right copy is a failure.
pub fn tell(console: &Console, pool: &Path, answer: &ScrubAnswer) -> Result<ExitStatus, Refusal> {
    if console.is_for_programs() {
        console.json_of(answer)?;
    }
    answer.text(&pool.display().to_string()).iter().for_each(|line| console.say(line));
    console.finish(if answer.lost_places == 0 { ExitStatus::Pass } else { ExitStatus::Fail })
}
