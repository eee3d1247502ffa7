//! `spindle volume diff`.

use super::reporter::open;
use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serving::pool::difference::{DifferencePoints, JsonSink};
use std::path::Path;
use world::{
    World,
    real::{self, RealOptions},
};

/// Prints what changed from one point of a volume to another, or to now.
pub fn diff(from: &Path, to: Option<&Path>, json: bool) -> Result<ExitStatus, Refusal> {
    let points = DifferencePoints::of(from, to)?;
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(json, false);
        let open = open(&world, points.folder(), &console).await?;
        let mut print = |text: &str| console.json_part(text);
        let compared = points.compare(&open, json.then_some(&mut print as JsonSink<'_>)).await;
        let closed = open.close().await;
        let summary = compared?;
        closed?;
        summary.lines().iter().for_each(|line| console.say(line));
        console.finish(ExitStatus::Pass)
    })
}
