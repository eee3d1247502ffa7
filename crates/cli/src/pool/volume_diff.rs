//! `spindle volume diff`.

use super::{pool_place::refuse_served, reporter::open, volume_access::VerbOptions};
use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serving::pool::difference::{DifferencePoints, JsonSink};
use std::path::Path;
use world::{
    World,
    real::{self, RealOptions},
};

/// Prints what changed from one point of a volume to another, or to now.
pub fn diff(from: &Path, to: Option<&Path>, options: VerbOptions<'_>) -> Result<ExitStatus, Refusal> {
    let points = DifferencePoints::of(from, to)?;
    real::run(0, RealOptions::default(), async |world: World| {
        let json = options.json;
        let console = Console::new(json, false);
        refuse_served(&world, &[points.folder()], (options.server, "'spindle volume diff'")).await?;
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
