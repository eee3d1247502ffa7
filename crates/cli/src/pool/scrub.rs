//! Every copy of everything in a pool looked at once.

use super::reporter::open;
use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serde::Serialize;
use std::path::Path;
use world::World;

#[derive(Serialize)]
struct ScrubAnswer {
    blocks: u64,
    nodes: u64,
    superblocks: u64,
    mended: u64,
    lost_places: u64,
    lost: Vec<String>,
}

/// Scrubs, fixes wrong copies, and fails if a block has no right copy.
pub async fn scrub(world: &World, folder: &Path, json: bool) -> Result<ExitStatus, Refusal> {
    let console = Console::new(json, false);
    let open = open(world, folder, &console).await?;
    let found = open.pool.scrub().await;
    let found = found.map_err(|error| open.refusal(&error, "nothing was changed for the worse"));
    let closed = open.close().await;
    let found = found?;
    closed?;
    let answer = ScrubAnswer {
        blocks: found.blocks,
        nodes: found.nodes,
        superblocks: found.superblocks,
        mended: found.repaired,
        lost_places: found.lost_places,
        lost: found.lost,
    };
    if json {
        console.json_of(&answer)?;
    }
    let ScrubAnswer { blocks, nodes, superblocks, mended, lost_places, lost } = &answer;
    console.say(&format!(
        "{}: {blocks} blocks, {nodes} nodes and {superblocks} superblocks checked, every copy of them",
        folder.display()
    ));
    console.say(&format!("  {mended} wrong copies were fixed, {lost_places} places are lost"));
    for place in lost {
        console.say(&format!("  lost: {place}"));
    }
    console.finish(if *lost_places == 0 { ExitStatus::Pass } else { ExitStatus::Fail })
}
