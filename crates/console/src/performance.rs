//! The I/O of hosts on a volume or a pool over time.

use crate::{
    line_chart::{Line, line_chart},
    page::{Frame, PageResult, shown},
    visit::{Visit, escaped},
};
use askama::Template;
use axum::extract::Path;
use control::{
    history::{DirectionSample, IoSample},
    web::{
        ApiProblem,
        history::HistoryRow,
        rows::{PoolRow, VolumeEntry},
    },
};
use report::{calendar::utc_time, prose::number};
use world::ByteCount;

/// Periods: the name in the query, words, seconds.
const SPANS: [(&str, &str, i64); 5] = [
    ("minutes", "Last 5 minutes", 300),
    ("hour", "Last hour", 3_600),
    ("day", "Last day", 86_400),
    ("week", "Last 7 days", 7 * 86_400),
    ("month", "Last 31 days", 31 * 86_400),
];

/// The period if none is asked for.
const USUAL_SPAN: &str = "hour";

#[derive(Template)]
#[template(path = "performance.html")]
struct PerformancePage<'a> {
    frame: &'a Frame,
    /// Page of the volume or pool.
    of: String,
    of_name: String,
    span: &'static str,
    history: Result<ShownHistory, ApiProblem>,
}

/// Samples as pictures and figures.
struct ShownHistory {
    step: String,
    figures: Vec<ShownFigure>,
    problems: Vec<String>,
    /// No sample is known.
    is_empty: bool,
}

/// A figure of reads and of writes.
struct ShownFigure {
    title: &'static str,
    picture: String,
    reads: FigureWords,
    writes: FigureWords,
}

/// A figure in words: its last value, its mean and its highest one.
struct FigureWords {
    last: String,
    mean: String,
    highest: String,
}

/// The kind of a figure: its title, its value in a sample, and its words.
type FigureKind = (&'static str, fn(&DirectionSample) -> f32, fn(f64) -> String);

const FIGURES: [FigureKind; 4] = [
    ("Operations", |side| side.per_s, rate_words),
    ("Throughput", |side| side.bytes_per_s, |bytes| format!("{}/s", ByteCount(bytes as u64))),
    ("Mean latency", |side| side.mean_s, latency_words),
    ("Latency of 99 %", |side| side.p99_s, latency_words),
];

fn rate_words(rate: f64) -> String {
    format!("{}/s", number(rate, if rate > 0.0 && rate < 10.0 { 1 } else { 0 }))
}

fn latency_words(seconds: f64) -> String {
    format!("{} ms", number(seconds * 1e3, if seconds > 0.0 && seconds < 0.01 { 2 } else { 0 }))
}

impl PerformancePage<'_> {
    fn spans(&self) -> &'static [(&'static str, &'static str, i64)] {
        &SPANS
    }

    fn is_shown(&self, span: &str) -> bool {
        self.span == span
    }
}

pub(crate) async fn of_volume(visit: Visit, Path(id): Path<String>) -> PageResult {
    let volume: VolumeEntry = visit.get(&format!("/v1/volumes/{}", escaped(&id))).await?;
    let name = format!("{}/{}", volume.pool, volume.name);
    let series = format!("pool={}&volume={}", volume.pool_id, volume.id);
    page(&visit, (format!("/volumes/{}", volume.id), format!("Volume {name}"), "Volumes"), &series).await
}

pub(crate) async fn of_pool(visit: Visit, Path(id): Path<String>) -> PageResult {
    let id = escaped(&id);
    let pool: PoolRow = visit.get(&format!("/v1/pools/{id}")).await?;
    let of = (format!("/pools/{id}"), format!("Pool {}", pool.name), "Pools");
    page(&visit, of, &format!("pool={id}")).await
}

async fn page(
    visit: &Visit,
    (of, of_name, place): (String, String, &'static str),
    series: &str,
) -> PageResult {
    let asked = visit.asked("span").unwrap_or(USUAL_SPAN);
    let (span, _, seconds) = SPANS.into_iter().find(|(name, ..)| *name == asked).unwrap_or(SPANS[0]);
    let frame = Frame::new(visit, format!("Performance: {of_name}"), place).await?;
    let to = visit.unix_s();
    let period = format!("from={}&to={}", utc_time(to - seconds), utc_time(to));
    let row = visit.get::<HistoryRow>(&format!("/v1/history?{series}&{period}")).await;
    let history = row.map(|row| ShownHistory::of(&row, (to - seconds, to)));
    shown(&PerformancePage { frame: &frame, of, of_name, span, history }, &frame)
}

impl ShownHistory {
    fn of(row: &HistoryRow, period: (i64, i64)) -> Self {
        let samples = row.samples();
        let line = |side: fn(&IoSample) -> &DirectionSample, of: fn(&DirectionSample) -> f32| -> Line {
            samples.iter().map(|sample| sample.as_ref().map(|sample| f64::from(of(side(sample))))).collect()
        };
        let figure = |(title, of, words): FigureKind| {
            let (reads, writes) = (line(|sample| &sample.reads, of), line(|sample| &sample.writes, of));
            ShownFigure {
                title,
                picture: line_chart(title, [("reads", &reads), ("writes", &writes)], period, words),
                reads: FigureWords::of(&reads, words),
                writes: FigureWords::of(&writes, words),
            }
        };
        let step = match row.step_seconds {
            1 => "second".to_owned(),
            60 => "minute".to_owned(),
            seconds => format!("{} minutes", seconds / 60),
        };
        Self {
            step,
            figures: FIGURES.map(figure).into(),
            problems: row.problems.clone(),
            is_empty: samples.iter().all(Option::is_none),
        }
    }
}

impl FigureWords {
    fn of(line: &Line, words: fn(f64) -> String) -> Self {
        let known: Vec<f64> = line.iter().flatten().copied().collect();
        let or_none = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), words);
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        Self {
            last: or_none(known.last().copied()),
            mean: or_none((!known.is_empty()).then_some(mean)),
            highest: or_none(known.iter().copied().reduce(f64::max)),
        }
    }
}
