//! The I/O of hosts on some volumes over time, from a server's history.

use control::{
    history::{DirectionSample, IoSample},
    web::history::{HistoryRow, HistorySeriesList, HistorySeriesRow},
};
use report::{
    Refusal,
    calendar::{parse_time, utc_time},
};
use std::collections::BTreeMap;

use crate::server::connection::ServerConnection;

/// A question is for so long at most.
const ASKED_SECONDS: i64 = 31 * 86_400;
pub const SLOT_SECONDS: i64 = 300;
/// Slots of an hour.
pub const HOUR_SLOTS: usize = 12;

/// Hosts' I/O on volumes in a period.
pub struct HostLoad {
    pub from_unix_s: i64,
    /// By pool and name.
    pub volumes: Vec<VolumeLoad>,
    /// Days that could not be read, and more that is missing.
    pub problems: Vec<String>,
}

/// A volume's part.
pub struct VolumeLoad {
    /// `POOL/VOLUME`.
    pub name: String,
    pub size_bytes: u64,
    /// Each five minutes; `None` where nothing was recorded.
    pub samples: Vec<Option<IoSample>>,
}

impl HostLoad {
    /// Asks a server for the volumes of these names, or for all if there is none.
    ///
    /// # Errors
    ///
    /// The server refused, nothing was recorded, or a volume had no I/O.
    pub async fn ask(
        server: &ServerConnection,
        (from_unix_s, to_unix_s): (i64, i64),
        wanted: &[String],
    ) -> Result<Self, Refusal> {
        let mut known: BTreeMap<(String, String), HistorySeriesRow> = BTreeMap::new();
        let mut problems = Vec::new();
        for (from, to) in parts(from_unix_s, to_unix_s) {
            let path = format!("/v1/history/series?from={}&to={}", utc_time(from), utc_time(to));
            let list: HistorySeriesList = server.get(&path).await?;
            problems.extend(list.problems);
            let volumes = list.series.into_iter().filter_map(|row| Some((row.volume_id.clone()?, row)));
            known.extend(volumes.map(|(volume, row)| ((row.pool_id.clone(), volume), row)));
        }
        let name =
            |row: &HistorySeriesRow| format!("{}/{}", row.pool, row.volume.as_deref().unwrap_or_default());
        if let Some(missing) = wanted.iter().find(|wanted| !known.values().any(|row| name(row) == **wanted)) {
            let names: Vec<String> = known.values().map(name).collect();
            let next = if names.is_empty() {
                "no volume had any: ask for another time".to_owned()
            } else {
                format!("these had some: {}", names.join(", "))
            };
            return Err(Refusal::new(format!("{missing} had no I/O in this time"), next));
        }
        let chosen = known.values().filter(|row| wanted.is_empty() || wanted.contains(&name(row)));
        let mut volumes = Vec::new();
        for row in chosen {
            let mut samples = Vec::new();
            for (from, to) in parts(from_unix_s, to_unix_s) {
                let ids =
                    format!("pool={}&volume={}", row.pool_id, row.volume_id.as_deref().unwrap_or_default());
                let period = format!("from={}&to={}", utc_time(from), utc_time(to));
                let path = format!("/v1/history?{ids}&{period}&step_seconds={SLOT_SECONDS}");
                samples.extend(server.get::<HistoryRow>(&path).await?.samples());
            }
            volumes.push(VolumeLoad { name: name(row), size_bytes: row.size_bytes, samples });
        }
        if volumes.is_empty() {
            return Err(Refusal::new(
                format!("no volume had I/O from {} to {}", utc_time(from_unix_s), utc_time(to_unix_s)),
                "ask for another time: a server keeps 400 days, in steps of five minutes that have ended",
            ));
        }
        volumes.sort_by(|one, other| one.name.cmp(&other.name));
        problems.sort();
        problems.dedup();
        Ok(Self { from_unix_s, volumes, problems })
    }

    /// All volumes together.
    pub fn sum(&self) -> Vec<Option<IoSample>> {
        let slots = self.volumes.iter().map(|volume| volume.samples.len()).max().unwrap_or_default();
        let of_slot = |slot: usize| {
            let all: Vec<IoSample> = self
                .volumes
                .iter()
                .filter_map(|volume| volume.samples.get(slot).copied().flatten())
                .collect();
            (!all.is_empty()).then(|| sum(&all))
        };
        (0..slots).map(of_slot).collect()
    }
}

/// The whole slots that begin in a period: its begin and end.
///
/// # Errors
///
/// A time is none, or the period is empty.
pub fn period(from: &str, to: Option<&str>, now_unix_s: i64) -> Result<(i64, i64), Refusal> {
    let time = |option: &str, text: &str| {
        parse_time(text).ok_or_else(|| {
            Refusal::new(
                format!("{option} {text:?} is no time"),
                "give one such as 2026-11-16 or 2026-11-16T08:00, UTC",
            )
        })
    };
    let from = time("⟨from⟩", from)?.div_euclid(SLOT_SECONDS) * SLOT_SECONDS;
    let to = match to {
        Some(to) => time("⟨to⟩", to)?,
        // The present slot has not ended.
        None => now_unix_s.div_euclid(SLOT_SECONDS) * SLOT_SECONDS,
    };
    let to = -(-to).div_euclid(SLOT_SECONDS) * SLOT_SECONDS;
    if from >= to {
        return Err(Refusal::new(
            "the time ends before it begins",
            "give a later ⟨to⟩, or an earlier ⟨from⟩",
        ));
    }
    Ok((from, to))
}

/// A period in parts that a server answers.
fn parts(from: i64, to: i64) -> impl Iterator<Item = (i64, i64)> {
    (from..to).step_by(ASKED_SECONDS as usize).map(move |part| (part, to.min(part + ASKED_SECONDS)))
}

/// Several samples of the same time as one: rates are added, means are of all operations, and the 99th percentile is the longest.
fn sum(samples: &[IoSample]) -> IoSample {
    let side = |of: fn(&IoSample) -> &DirectionSample| {
        let sides = || samples.iter().map(of);
        let per_s: f32 = sides().map(|side| side.per_s).sum();
        let weighted: f32 = sides().map(|side| side.mean_s * side.per_s).sum();
        DirectionSample {
            per_s,
            bytes_per_s: sides().map(|side| side.bytes_per_s).sum(),
            mean_s: if per_s > 0.0 { weighted / per_s } else { 0.0 },
            p99_s: sides().map(|side| side.p99_s).fold(0.0, f32::max),
        }
    };
    IoSample { reads: side(|sample| &sample.reads), writes: side(|sample| &sample.writes) }
}

/// Several samples that follow each other as one: rates are averaged.
pub fn average(samples: &[IoSample]) -> IoSample {
    let mut all = sum(samples);
    for side in [&mut all.reads, &mut all.writes] {
        side.per_s /= samples.len().max(1) as f32;
        side.bytes_per_s /= samples.len().max(1) as f32;
    }
    all
}

/// The hour with most operations, of those that were recorded in whole: the slot with which it begins, and its average. Less than
/// an hour in all counts as one; `None` if nothing was recorded.
pub fn busiest_hour(samples: &[Option<IoSample>]) -> Option<(usize, IoSample)> {
    let whole = |hour: &[Option<IoSample>]| hour.iter().copied().collect::<Option<Vec<IoSample>>>();
    let hours = samples.windows(HOUR_SLOTS).enumerate();
    let hours = hours.filter_map(|(begin, hour)| Some((begin, average(&whole(hour)?))));
    let busiest = hours.max_by(|(_, one), (_, other)| rate(one).total_cmp(&rate(other)));
    busiest.or_else(|| {
        let recorded: Vec<IoSample> = samples.iter().copied().flatten().collect();
        let begin = samples.iter().position(Option::is_some)?;
        Some((begin, average(&recorded)))
    })
}

/// Operations a second.
pub fn rate(sample: &IoSample) -> f32 {
    sample.reads.per_s + sample.writes.per_s
}

/// Reads of all operations, 0 to 1; `None` without any.
pub fn read_share(sample: &IoSample) -> Option<f64> {
    let all = f64::from(rate(sample));
    (all > 0.0).then(|| f64::from(sample.reads.per_s) / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(reads: f32, writes: f32) -> IoSample {
        IoSample::of_figures([reads, reads * 8192.0, 0.004, 0.02, writes, writes * 4096.0, 0.001, 0.005])
    }

    #[test]
    fn volumes_are_added_and_times_are_averaged() {
        let both = sum(&[of(10.0, 0.0), of(30.0, 5.0)]);
        assert_eq!((both.reads.per_s, both.writes.per_s), (40.0, 5.0));
        assert!((both.reads.mean_s - 0.004).abs() < 1e-6 && (both.writes.mean_s - 0.001).abs() < 1e-6);
        let hour = average(&[of(10.0, 0.0), of(30.0, 5.0)]);
        assert_eq!((hour.reads.per_s, hour.reads.bytes_per_s, hour.writes.per_s), (20.0, 20.0 * 8192.0, 2.5));
        assert_eq!(read_share(&of(30.0, 10.0)), Some(0.75));
        assert_eq!(read_share(&of(0.0, 0.0)), None);
    }

    #[test]
    fn the_busiest_hour_is_recorded_in_whole() {
        let mut samples = vec![Some(of(10.0, 0.0)); 40];
        for slot in &mut samples[20..32] {
            *slot = Some(of(50.0, 0.0));
        }
        let (begin, hour) = busiest_hour(&samples).unwrap();
        assert_eq!((begin, rate(&hour)), (20, 50.0));
        // A burst before a time that nobody recorded is no hour.
        samples[32] = Some(of(900.0, 0.0));
        samples[21] = None;
        samples[33] = None;
        assert_eq!(busiest_hour(&samples).map(|(begin, _)| begin), Some(9));
        // All there is.
        let (begin, all) = busiest_hour(&[None, Some(of(1.0, 0.0)), Some(of(3.0, 0.0))]).unwrap();
        assert_eq!((begin, rate(&all)), (1, 2.0));
        assert_eq!(busiest_hour(&[None; 40]), None);
        assert_eq!(busiest_hour(&[]), None);
    }

    #[test]
    fn a_period_is_of_whole_slots() {
        let now = 1_795_298_701;
        let (from, to) = period("2026-11-21T22:02", None, now).unwrap();
        assert_eq!(
            (utc_time(from), utc_time(to)),
            ("2026-11-21T22:00:00Z".to_owned(), "2026-11-21T22:05:00Z".to_owned())
        );
        let refused = |from, to| period(from, to, now).unwrap_err().problem().to_owned();
        assert!(refused("2026-11-21T22:05", None).contains("ends before it begins"));
        assert!(refused("tomorrow", None).contains("is no time"));
        assert_eq!(
            parts(0, 3 * ASKED_SECONDS / 2).collect::<Vec<_>>(),
            [(0, ASKED_SECONDS), (ASKED_SECONDS, 3 * ASKED_SECONDS / 2)]
        );
    }
}
