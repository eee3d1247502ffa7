//! `spindle protect vault check`.

use super::{arguments::VaultCheckArguments, opening::OpenVault, watch::VaultWatch};
use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serde::Serialize;
use vault::{
    checking::{self, VaultCheck},
    locks::{LockKind, VaultLock},
};
use world::{ByteCount, World};

/// Findings shown to people; programs get all.
const FINDINGS_SHOWN: usize = 50;

/// The answer as JSON.
#[derive(Serialize)]
struct CheckAnswer<'a> {
    vault: String,
    /// `whole` or `damaged`.
    result: &'static str,
    snapshots: usize,
    packs: usize,
    blobs: usize,
    read_bytes: u64,
    unindexed_packs: usize,
    findings: &'a [String],
}

/// Runs the verb to its end.
pub async fn run(
    world: &World,
    arguments: &VaultCheckArguments,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let vault = OpenVault::open(world, &arguments.vault, &arguments.password).await?;
    // A vault that cannot be written cannot change, either.
    let lock = VaultLock::take_if_writable(&vault.repository, LockKind::Shared).await;
    let lock = lock.map_err(|error| vault.refused(&error))?;
    let watch = VaultWatch::begin(world, console, "check");
    let checked = checking::check(&vault.repository, arguments.read_data, lock.as_ref(), &watch.job).await;
    watch.end();
    if let Some(lock) = lock {
        lock.release().await.map_err(|error| vault.refused(&error))?;
    }
    let VaultCheck { snapshots, packs, blobs, read_bytes, unindexed_packs, findings } =
        checked.map_err(|error| vault.refused(&error))?;
    let (result, status) = match findings.is_empty() {
        true => ("whole", ExitStatus::Pass),
        false => ("damaged", ExitStatus::Fail),
    };
    let depth = match arguments.read_data {
        true => format!("{} read", ByteCount(read_bytes)),
        false => "data not read".to_owned(),
    };
    console.say(&format!("{}: {result}: {snapshots} snapshots, {packs} packs, {depth}", vault.place()));
    findings.iter().take(FINDINGS_SHOWN).for_each(|finding| console.say(&format!("  {finding}")));
    if findings.len() > FINDINGS_SHOWN {
        console.say(&format!("  and {} more: --json shows all", findings.len() - FINDINGS_SHOWN));
    }
    if unindexed_packs > 0 {
        let text = format!(
            "  {unindexed_packs} packs are in no index: of a copy that ended early; the next one uses them"
        );
        console.say(&text);
    }
    if console.is_for_programs() {
        let (vault, findings) = (vault.place(), findings.as_slice());
        let answer =
            CheckAnswer { vault, result, snapshots, packs, blobs, read_bytes, unindexed_packs, findings };
        console.json_of(&answer)?;
    }
    console.finish(status)
}
