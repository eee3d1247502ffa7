//! `spindle pool grow`.

use super::{pool_place::PoolPlace, reporter::open as open_pool, volume_access::VerbOptions};
use crate::{
    console::{Console, StderrNotices},
    exit_status::ExitStatus,
};
use report::Refusal;
use serde::Serialize;
use serving::pool::{
    levelling::advice,
    pool_change::{PoolChange, PoolDone, perform},
    status::PoolStatus,
};
use std::path::Path;
use world::{ByteCount, World};

#[derive(Serialize)]
struct GrowAnswer<'a> {
    /// Name of the drive.
    drive: &'a str,
    uuid: String,
    gained_bytes: u64,
    /// None if the server did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    usable_bytes: Option<u64>,
    /// The drives are not equally full: an export levels them, or `pool level`.
    is_uneven: bool,
}

/// Uses all of a drive that has become larger.
pub async fn grow(
    world: &World,
    pool: &Path,
    drive: &str,
    options: VerbOptions<'_>,
) -> Result<ExitStatus, Refusal> {
    let console = Console::new(options.json, false);
    let (named, gained_bytes, usable_bytes, advice) =
        match PoolPlace::of_pool(world, pool, options.server).await? {
            PoolPlace::Served(served) => {
                let (named, gained_bytes) = served.grow(drive).await?;
                let (row, advice) = served.row_and_advice().await;
                (named, gained_bytes, row.map(|row| row.usable_bytes), advice)
            }
            PoolPlace::Folder => {
                let mut open = open_pool(world, pool, &console).await?;
                let change = PoolChange::Grow { drive: drive.to_owned() };
                let done = perform(&change, (world, &mut open), &*StderrNotices::shared()).await;
                let PoolStatus { usable_bytes, .. } = PoolStatus::of_open(&open);
                let advice = advice(&open);
                let closed = open.close().await;
                let PoolDone::Grown { drive: named, gained_bytes } = done? else {
                    unreachable!("a drive has grown")
                };
                closed?;
                (named, gained_bytes, Some(usable_bytes), advice)
            }
        };
    if options.json {
        let (uuid, is_uneven) = (named.drive.to_string(), advice.is_some());
        let answer = GrowAnswer { drive: &named.name, uuid, gained_bytes, usable_bytes, is_uneven };
        console.json_of(&answer)?;
    }
    console.say(&format!(
        "{}: {} has {} more{}",
        pool.display(),
        named.name,
        ByteCount(gained_bytes),
        usable_bytes.map_or(String::new(), |bytes| format!("; {} usable", ByteCount(bytes)))
    ));
    advice.iter().for_each(|line| console.say(&format!("  {line}")));
    console.finish(ExitStatus::Pass)
}
