//! Performance over time.

use super::{ApiState, caller::Caller, problem::ApiProblem};
use crate::{
    history::{DirectionSample, HistoryAnswer, HistoryPeriod, HistoryStep, IoSample, KnownSeries, SeriesKey},
    journal::tokens::CallerRole,
};
use array::format::{PoolId, VolumeId};
use axum::{
    Json,
    extract::{Query, State},
};
use report::calendar::{parse_time, utc_time};
use serde::{Deserialize, Serialize};
use serving::uuid::parse_uuid;
use utoipa::{IntoParams, ToSchema};

/// The period if none is said.
const USUAL_SECONDS: i64 = 3600;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct SeriesPeriod {
    /// Begin of the period [default: an hour before its end]
    from: Option<String>,
    /// End of the period [default: now]
    to: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryFilter {
    /// UUID
    pool: String,
    /// UUID; left out for the sum of the pool, with its snapshots that are served.
    volume: Option<String>,
    /// Begin of the period, as 2026-11-22 or 2026-11-22T08:00Z [default: an hour before its end]
    from: Option<String>,
    /// End of the period [default: now]
    to: Option<String>,
    /// Time between samples: 1, 60 or 300 [default: the least that has the period]
    step_seconds: Option<i64>,
}

/// Samples of a volume or a pool, at equal times. Nothing was recorded where they have `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistoryRow {
    /// Time of the first samples: each stands for the time to the next.
    pub first_at: String,
    pub step_seconds: i64,
    pub reads: DirectionColumns,
    pub writes: DirectionColumns,
    /// Days that cannot be read, with the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// Samples of reads or of writes by hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DirectionColumns {
    pub per_second: Vec<Option<f32>>,
    pub bytes_per_second: Vec<Option<f32>>,
    /// 0 without operations.
    pub mean_latency_seconds: Vec<Option<f32>>,
    /// Latency that 99 % do not exceed, up to 25 % too long.
    pub p99_latency_seconds: Vec<Option<f32>>,
}

/// Volumes and pools that had I/O.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistorySeriesList {
    pub from: String,
    pub to: String,
    pub series: Vec<HistorySeriesRow>,
    /// Days that cannot be read, and volumes without samples of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A volume, or the sum of a pool, by the names that it had last in the period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistorySeriesRow {
    pub pool: String,
    pub pool_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<String>,
    /// Of the volume, or of all volumes of the pool.
    pub size_bytes: u64,
}

impl DirectionColumns {
    fn push(&mut self, sample: Option<DirectionSample>) {
        self.per_second.push(sample.map(|side| side.per_s));
        self.bytes_per_second.push(sample.map(|side| side.bytes_per_s));
        self.mean_latency_seconds.push(sample.map(|side| side.mean_s));
        self.p99_latency_seconds.push(sample.map(|side| side.p99_s));
    }

    fn sample(&self, index: usize) -> Option<DirectionSample> {
        let of = |column: &[Option<f32>]| column.get(index).copied().flatten();
        Some(DirectionSample {
            per_s: of(&self.per_second)?,
            bytes_per_s: of(&self.bytes_per_second)?,
            mean_s: of(&self.mean_latency_seconds)?,
            p99_s: of(&self.p99_latency_seconds)?,
        })
    }
}

impl HistoryRow {
    fn of(HistoryAnswer { step, first_unix_s, samples }: HistoryAnswer, problems: Vec<String>) -> Self {
        let (mut reads, mut writes) = (DirectionColumns::default(), DirectionColumns::default());
        for sample in samples {
            reads.push(sample.map(|sample| sample.reads));
            writes.push(sample.map(|sample| sample.writes));
        }
        Self { first_at: utc_time(first_unix_s), step_seconds: step.seconds(), reads, writes, problems }
    }

    /// The samples again; `None` where nothing was recorded.
    pub fn samples(&self) -> Vec<Option<IoSample>> {
        let sample =
            |index| Some(IoSample { reads: self.reads.sample(index)?, writes: self.writes.sample(index)? });
        (0..self.reads.per_second.len()).map(sample).collect()
    }
}

impl HistorySeriesRow {
    fn of(KnownSeries { key, pool, volume, size_bytes }: KnownSeries) -> Self {
        Self {
            pool,
            pool_id: key.pool.to_string(),
            volume: key.volume.map(|_| volume),
            volume_id: key.volume.map(|volume| volume.to_string()),
            size_bytes,
        }
    }
}

/// Lists the volumes and pools that had I/O in a period of at most 31 days, as samples of five minutes have it: the last slot is
/// there when it is over.
#[utoipa::path(get, path = "/v1/history/series", tag = "history", params(SeriesPeriod),
    responses((status = 200, description = "Volumes, and the sums of pools", body = HistorySeriesList), (status = "default", response = ApiProblem)))]
pub(super) async fn series(
    State(api): State<ApiState>,
    caller: Caller,
    Query(SeriesPeriod { from, to }): Query<SeriesPeriod>,
) -> Result<Json<HistorySeriesList>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let period = period_of(&api, from.as_deref(), to.as_deref(), None)?;
    let (mut known, problems) = api.history.series(&period).map_err(|refusal| refused(&refusal))?;
    known.retain(|series| caller.sees(&series.pool));
    known.sort_by(|one, other| (&one.pool, &one.volume).cmp(&(&other.pool, &other.volume)));
    Ok(Json(HistorySeriesList {
        from: utc_time(period.from_unix_s),
        to: utc_time(period.to_unix_s),
        series: known.into_iter().map(HistorySeriesRow::of).collect(),
        problems,
    }))
}

/// Shows the I/O of hosts on a volume or a pool over time: each second of the last hour, each minute of the last day, both since
/// the server's start, and each five minutes of 400 days. Samples of five minutes are off by 4.4 % at most.
#[utoipa::path(get, path = "/v1/history", tag = "history", params(HistoryFilter),
    responses((status = 200, description = "Its samples", body = HistoryRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Query(filter): Query<HistoryFilter>,
) -> Result<Json<HistoryRow>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let HistoryFilter { pool, volume, from, to, step_seconds } = filter;
    let uuid = |text: &str| {
        parse_uuid(text)
            .map_err(|_| ApiProblem::not_found(format!("{text:?} is no UUID of a pool or a volume")))
    };
    let key = SeriesKey {
        pool: PoolId(uuid(&pool)?),
        volume: volume.as_deref().map(uuid).transpose()?.map(VolumeId),
    };
    let known = api.site.look();
    let name = known.pools.values().find(|known| known.id == key.pool).map(|known| known.name.as_str());
    match name {
        Some(name) if !caller.sees(name) => {
            return Err(ApiProblem::not_found(format!("there is no pool {pool}")));
        }
        Some(_) => {}
        // Of a pool that is not here now, names say nothing.
        None => caller.need_all_pools()?,
    }
    let period = period_of(&api, from.as_deref(), to.as_deref(), step_seconds)?;
    let (answer, problems) = api.history.ask(&key, &period).map_err(|refusal| refused(&refusal))?;
    Ok(Json(HistoryRow::of(answer, problems)))
}

fn refused(refusal: &crate::history::PeriodRefusal) -> ApiProblem {
    ApiProblem::bad_request(refusal.to_string(), "ask for a shorter period, or one after the other")
}

/// The period that a request asks for.
fn period_of(
    api: &ApiState,
    from: Option<&str>,
    to: Option<&str>,
    step_seconds: Option<i64>,
) -> Result<HistoryPeriod, ApiProblem> {
    let time = |text: &str| {
        let problem = || format!("{text:?} is no time");
        parse_time(text).ok_or_else(|| {
            ApiProblem::bad_request(problem(), "give a time such as 2026-11-22 or 2026-11-22T08:00:00Z")
        })
    };
    let to_unix_s = to.map(time).transpose()?.unwrap_or_else(|| api.world.unix_s() + 1);
    let from_unix_s = from.map(time).transpose()?.unwrap_or(to_unix_s - USUAL_SECONDS);
    let step = |seconds: i64| {
        let known = HistoryStep::ALL.into_iter().find(|step| step.seconds() == seconds);
        known.ok_or_else(|| {
            ApiProblem::bad_request(format!("there are no samples each {seconds} s"), "give 1, 60 or 300")
        })
    };
    Ok(HistoryPeriod { from_unix_s, to_unix_s, step: step_seconds.map(step).transpose()? })
}
