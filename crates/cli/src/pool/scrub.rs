//! Every copy of everything in a pool looked at once.

use super::folder::OpenPool;
use crate::{console::Console, ending::Ending, refusal::Refusal};
use serde::Serialize;
use std::path::Path;
use world::World;

#[derive(Serialize)]
struct Told {
    blocks: u64,
    nodes: u64,
    superblocks: u64,
    mended: u64,
    lost_places: u64,
    lost: Vec<String>,
}

/// Looks, mends what can be, and says what cannot: then it is a failure.
pub async fn scrub(world: &World, folder: &Path, json: bool) -> Result<Ending, Refusal> {
    let console = Console::new(json, false);
    let mut open = OpenPool::open(world, folder).await?;
    open.report_events(&console, false);
    let found = open.pool.scrub().await;
    let found = found.map_err(|error| open.refusal(&error, "nothing was changed for the worse"));
    let closed = open.close().await;
    let found = found?;
    closed?;
    let told = Told {
        blocks: found.blocks,
        nodes: found.nodes,
        superblocks: found.superblocks,
        mended: found.repaired,
        lost_places: found.lost_places,
        lost: found.lost,
    };
    if json {
        console.json_of(&told)?;
    }
    let Told { blocks, nodes, superblocks, mended, lost_places, lost } = &told;
    console.say(&format!(
        "{}: {blocks} blocks, {nodes} nodes and {superblocks} superblocks looked at, each copy of them",
        folder.display()
    ));
    console.say(&format!("  {mended} copies were wrong and are right now, {lost_places} places are lost"));
    for place in lost {
        console.say(&format!("  lost: {place}"));
    }
    console.told(if *lost_places == 0 { Ending::Pass } else { Ending::Fail })
}
