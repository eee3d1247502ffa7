//! `spindle volume diff`.

use super::{online_pool::OnlinePool, pool_place::PoolPlace, reporter::open, volume_access::VerbOptions};
use crate::{console::Console, exit_status::ExitStatus};
use control::web::{
    client::in_uri,
    differences::{DifferenceEnd, DifferenceSizes},
};
use report::Refusal;
use serde::de::DeserializeOwned;
use serving::pool::difference::{DifferencePoints, DifferenceSummary, JsonSink, RangeLine, RangeWriter};
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
        let mut print = |text: &str| console.json_part(text);
        let json = json.then_some(&mut print as JsonSink<'_>);
        let summary = match PoolPlace::of(&world, points.folder(), options.server).await? {
            PoolPlace::Served(served) => compare_online(&served, points, json).await?,
            PoolPlace::Folder => {
                let open = open(&world, points.folder(), &console).await?;
                let compared = points.compare(&open, json).await;
                let closed = open.close().await;
                let summary = compared?;
                closed?;
                summary
            }
        };
        summary.lines().iter().for_each(|line| console.say(line));
        console.finish(ExitStatus::Pass)
    })
}

/// The lines of a server, written as they come.
async fn compare_online(
    served: &OnlinePool,
    points: DifferencePoints,
    mut json: Option<JsonSink<'_>>,
) -> Result<DifferenceSummary, Refusal> {
    let remedy = format!("see 'spindle pool show {}'", served.place().display());
    let ((volume, from), (other, to)) = (points.from(), points.to());
    let names = [volume.to_owned(), other.to_owned()];
    let ids = served.volume_ids(&names, &remedy).await?;
    let mut path = format!("/v1/volumes/{}/difference?from={}&to_volume={}", ids[0], in_uri(from), ids[1]);
    if let Some(to) = to {
        path += &format!("&to={}", in_uri(to));
    }
    if json.is_none() {
        path += "&summary=true";
    }
    let (mut writer, mut end) = (None, None);
    let lines = served.server().get_lines(&path, |line| {
        match &mut writer {
            None => {
                let DifferenceSizes { from_bytes, to_bytes } = parsed(line)?;
                let mut new = RangeWriter::new(points.clone(), [from_bytes, to_bytes]);
                new.begin(&mut json)?;
                writer = Some(new);
            }
            Some(writer) => match serde_json::from_str::<RangeLine>(line) {
                Ok(range) => writer.add(&range, &mut json)?,
                Err(_) => end = Some(parsed::<DifferenceEnd>(line)?),
            },
        }
        Ok(())
    });
    lines.await?;
    match (writer, end) {
        (Some(writer), Some(DifferenceEnd { totals })) => writer.end_with(totals, &mut json),
        _ => Err(Refusal::new("the server's answer broke off", "repeat it")),
    }
}

fn parsed<T: DeserializeOwned>(line: &str) -> Result<T, Refusal> {
    serde_json::from_str(line).map_err(|error| {
        let problem = format!("the server's answer cannot be read: {error}");
        Refusal::new(problem, "use the same version of Spindle for both")
    })
}
