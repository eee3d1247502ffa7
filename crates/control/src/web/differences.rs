//! Differences of two points of a volume, as a stream of lines.
//!
//! Invariants:
//!
//! 1. An order begins the walk and does not wait for it; after each small step of the walk hosts go first.
//! 2. The walk waits for a client that reads slowly, and ends with its connection: lines that wait are bounded.

use super::{
    ApiState,
    caller::Caller,
    orders::{order, volume_of},
    problem::ApiProblem,
};
use crate::{journal::tokens::CallerRole, pool_thread::ServedPool};
use array::{
    format::VolumeId,
    pool::{SnapshotKey, VolumeKey},
};
use axum::{
    body::Body,
    extract::{Path, Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use report::Refusal;
use serde::{Deserialize, Serialize};
use serving::pool::difference::{ChangeTotals, RangeLine, remedy_of};
use std::{fmt::Write, io, path::PathBuf, rc::Rc, sync::Arc};
use tokio::sync::mpsc;
use utoipa::{IntoParams, ToSchema};

/// Texts that wait for their client; a text has the ranges of one step.
const TEXTS_MAX: usize = 4;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct DifferencePeriod {
    /// Name of the snapshot to begin with.
    from: String,
    /// Name of the later snapshot; now if left out.
    to: Option<String>,
    /// UUID of the volume of the later point, in the same pool; this one if left out.
    to_volume: Option<String>,
    /// Leave out the ranges.
    summary: Option<bool>,
}

/// The first line of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DifferenceSizes {
    /// Size of the volume at the first point.
    pub from_bytes: u64,
    /// Size at the second point.
    pub to_bytes: u64,
}

/// The last line of a difference: without it, the rest is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferenceEnd {
    pub totals: ChangeTotals,
}

/// A text of lines, or the reason for which there are no more.
type DifferenceText = Result<String, Refusal>;

struct WantedDifference {
    volume: VolumeId,
    from: String,
    to_volume: VolumeId,
    to: Option<String>,
    is_summary: bool,
}

/// Streams what changed from a snapshot to a later one, or to now. The lines are JSON: the sizes (`from_bytes`, `to_bytes`), then
/// ranges (`at`, `length`, `change`: data, zeroes, discarded or beyond_size) in their order, and at the end `totals`.
#[utoipa::path(get, path = "/v1/volumes/{volume}/difference", tag = "snapshots",
    params(("volume" = String, Path, description = "UUID"), DifferencePeriod),
    responses((status = 200, description = "Lines of JSON; one that broke off lacks the last, with totals", content_type = "application/x-ndjson", body = String),
    (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(volume): Path<String>,
    Query(DifferencePeriod { from, to, to_volume, summary }): Query<DifferencePeriod>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let meant = volume_of(&api, &caller, &volume)?;
    let other = match &to_volume {
        Some(other) => volume_of(&api, &caller, other)?,
        None => volume_of(&api, &caller, &volume)?,
    };
    if other.pool.id != meant.pool.id {
        let problem = format!("volume {} is in another pool", other.id());
        return Err(ApiProblem::bad_request(problem, "compare points of one pool: only these share blocks"));
    }
    let place = Arc::clone(&api.streams).try_acquire_owned().map_err(|_| {
        let refusal = Refusal::new("too many streams are open already", "close one, or try again later");
        ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", &refusal)
    })?;
    let is_summary = summary.unwrap_or(false);
    let (volume, to_volume) = (meant.id(), other.id());
    let wanted = WantedDifference { volume, from, to_volume, to, is_summary };
    let mut lines = order(&meant.pool, "begin difference", move |served| {
        Box::pin(async move {
            let (give, lines) = mpsc::channel(TEXTS_MAX);
            let own = Rc::clone(&served);
            served.world.spawn("difference", async move {
                if let Err(refusal) = walk(&own, &wanted, &give).await {
                    // The client may be gone.
                    let _ = give.send(Err(refusal)).await;
                }
            });
            Ok(lines)
        })
    })
    .await?;
    let first = match lines.recv().await {
        Some(Ok(first)) => first,
        Some(Err(refusal)) => return Err(refusal.into()),
        None => return Err(crate::order::OrderRefusal::Stopped.into()),
    };
    let rest = stream::unfold((Some(first), lines, place), async |(first, mut lines, place)| {
        let text = match first {
            Some(first) => Ok(first),
            // An error ends the connection in the middle of its body.
            None => lines.recv().await?.map_err(|refusal| io::Error::other(refusal.to_string())),
        };
        Some((text, (None, lines, place)))
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(rest)).into_response())
}

/// Walks over a difference, until its end or that of the client.
async fn walk(
    served: &ServedPool,
    wanted: &WantedDifference,
    give: &mpsc::Sender<DifferenceText>,
) -> Result<(), Refusal> {
    let place = PathBuf::from(served.exports.changeable().place());
    let refused = |error| served.exports.changeable().refusal(&error, &remedy_of(&error, &place));
    // Messages have the names.
    let volumes = served.pool.volumes();
    let key_of = |id: VolumeId| {
        let known = volumes.iter().find(|known| known.volume == id);
        known.map_or(VolumeKey::Id(id), |known| VolumeKey::Name(&known.name))
    };
    let from = (key_of(wanted.volume), SnapshotKey::Name(&wanted.from));
    let to = (key_of(wanted.to_volume), wanted.to.as_deref().map(SnapshotKey::Name));
    let mut walk = served.pool.difference_between(from, to).await.map_err(refused)?.in_small_steps();
    let [from_bytes, to_bytes] = walk.sizes_bytes();
    let mut totals = ChangeTotals::default();
    let mut text = line(&DifferenceSizes { from_bytes, to_bytes });
    let ended = loop {
        if !text.is_empty() && give.send(Ok(std::mem::take(&mut text))).await.is_err() {
            break Ok(());
        }
        served.world.yield_now().await;
        match walk.next().await {
            Ok(Some(ranges)) => {
                for range in &ranges {
                    let range = RangeLine::from(range);
                    totals.add(&range);
                    if !wanted.is_summary {
                        text += &line(&range);
                    }
                }
            }
            Ok(None) => {
                text = line(&DifferenceEnd { totals });
                // The client may be gone.
                let _ = give.send(Ok(text)).await;
                break Ok(());
            }
            Err(error) => break Err(refused(error)),
        }
        if give.is_closed() {
            break Ok(());
        }
    };
    let released = walk.end().await.map_err(refused);
    ended.and(released)
}

fn line(row: &impl Serialize) -> String {
    let mut text = serde_json::to_string(row).expect("plain fields");
    writeln!(text).expect("strings take all");
    text
}
