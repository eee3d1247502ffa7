//! `spindle protect vault prune`.

use super::{arguments::VaultPruneArguments, opening::OpenVault, watch::VaultWatch};
use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serde::Serialize;
use vault::pruning::{PruneOutcome, prune};
use world::{ByteCount, World};

/// The answer as JSON.
#[derive(Serialize)]
struct PruneAnswer {
    vault: String,
    snapshots: usize,
    packs_removed: usize,
    removed_bytes: u64,
    /// Written again, of packs that were needed in part.
    stored_bytes: u64,
    /// Left without use.
    unused_bytes: u64,
}

/// Runs the verb to its end.
pub async fn run(
    world: &World,
    arguments: &VaultPruneArguments,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let vault = OpenVault::open(world, &arguments.vault, &arguments.password).await?;
    let watch = VaultWatch::begin(world, console, "prune");
    let pruned = prune(&vault.repository, &watch.job).await;
    watch.end();
    let outcome = pruned.map_err(|error| vault.refused(&error))?;
    let PruneOutcome { snapshots, packs_removed, removed_bytes, stored_bytes, unused_bytes, .. } = outcome;
    console.say(&format!(
        "{}: {snapshots} snapshots; {} removed, {} of it written again, {} left without use",
        vault.place(),
        ByteCount(removed_bytes),
        ByteCount(stored_bytes),
        ByteCount(unused_bytes)
    ));
    if console.is_for_programs() {
        let vault = vault.place();
        console.json_of(&PruneAnswer {
            vault,
            snapshots,
            packs_removed,
            removed_bytes,
            stored_bytes,
            unused_bytes,
        })?;
    }
    console.finish(ExitStatus::Pass)
}
