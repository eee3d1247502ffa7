//! Rates between two readings of a server.
//!
//! Invariants:
//!
//! 1. A rate is over the time between the pool's own counts, not between the requests: a pool counts once a second.
//! 2. A counter that has become smaller began again, because the pool was opened again: it counts from zero.

use super::reading::{IoReading, PoolReading, ServerReading};
use serde::Serialize;
use std::{cmp::Ordering, collections::BTreeMap};

/// Age of a pool's figures at most, in seconds; without I/O they stay as they were.
const FIGURES_AGE_MAX: f64 = 1.0;
/// Stages of a command in their order.
pub const STAGES: [&str; 4] = ["queue", "log", "device", "reply"];

/// I/O of a volume, a drive, or all volumes of a pool, in a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IoRates {
    pub reads_per_second: f64,
    pub writes_per_second: f64,
    /// Flushes, discards and zeroes.
    pub others_per_second: f64,
    pub read_bytes_per_second: f64,
    pub written_bytes_per_second: f64,
    /// Means; `None` without such an operation.
    pub read_milliseconds: Option<f64>,
    pub write_milliseconds: Option<f64>,
    pub errors_per_second: f64,
    /// Operations under way.
    pub in_flight: f64,
}

/// The rates of a volume or a drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeviceRates {
    pub pool: String,
    pub name: String,
    #[serde(flatten)]
    pub io: IoRates,
}

/// The rates of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PoolRates {
    pub name: String,
    pub is_up: bool,
    pub used_bytes: f64,
    pub usable_bytes: f64,
    pub nbd_clients: f64,
    pub iscsi_sessions: f64,
    /// Mean milliseconds of the stages queue, log, device and reply; `None` where no command was timed.
    pub stage_milliseconds: [Option<f64>; STAGES.len()],
    /// Of its volumes.
    #[serde(flatten)]
    pub io: IoRates,
}

/// The rates of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServerRates {
    pub pools: Vec<PoolRates>,
    pub volumes: Vec<DeviceRates>,
    pub drives: Vec<DeviceRates>,
}

/// Order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortKey {
    /// Operations in a second, most first.
    #[default]
    Operations,
    Bytes,
    /// The longer of both means, longest first.
    Latency,
    Name,
}

impl SortKey {
    pub fn word(self) -> &'static str {
        match self {
            Self::Operations => "operations",
            Self::Bytes => "bytes",
            Self::Latency => "latency",
            Self::Name => "name",
        }
    }
}

impl ServerRates {
    /// The rates from one reading to another, `seconds` later.
    pub fn between(before: &ServerReading, now: &ServerReading, seconds: f64) -> Self {
        let mut rates = Self::default();
        for (name, pool) in &now.pools {
            let unknown = PoolReading::default();
            let before = before.pools.get(name).unwrap_or(&unknown);
            let seconds = counted_seconds(before, pool, seconds);
            let volumes = Deltas::of(&before.volumes, &pool.volumes);
            let stage = |stage: &str| {
                let of = |reading: &PoolReading| reading.stages.get(stage).copied().unwrap_or_default();
                let ((sum, count), (sum_before, count_before)) = (of(pool), of(before));
                mean_milliseconds(grown(sum_before, sum), grown(count_before, count))
            };
            rates.pools.push(PoolRates {
                name: name.clone(),
                is_up: pool.is_up,
                used_bytes: pool.used_bytes,
                usable_bytes: pool.usable_bytes,
                nbd_clients: pool.nbd_clients,
                iscsi_sessions: pool.iscsi_sessions,
                stage_milliseconds: STAGES.map(stage),
                io: IoRates::of(&volumes.sum(), seconds),
            });
            rates.volumes.extend(volumes.rates(name, seconds));
            rates.drives.extend(Deltas::of(&before.drives, &pool.drives).rates(name, seconds));
        }
        rates
    }

    /// The same in another order; rows that are equal stay by pool and name.
    pub fn sort(&mut self, key: SortKey) {
        self.pools.sort_by(|one, other| one.io.order(key, &other.io));
        for rows in [&mut self.volumes, &mut self.drives] {
            rows.sort_by(|one, other| one.io.order(key, &other.io));
        }
    }
}

/// Time between the counts of two readings of a pool.
fn counted_seconds(before: &PoolReading, now: &PoolReading, seconds: f64) -> f64 {
    let counted = now.counted_at - before.counted_at;
    let is_known = before.counted_at > 0.0 && counted > 0.0;
    // Figures of a pool without I/O are old, and were right until a second before the reading.
    if is_known { counted.min(seconds + FIGURES_AGE_MAX) } else { seconds }
}

/// Work of each device between two readings.
struct Deltas<'n>(Vec<(&'n str, IoReading)>);

impl<'n> Deltas<'n> {
    fn of(before: &BTreeMap<String, IoReading>, now: &'n BTreeMap<String, IoReading>) -> Self {
        let delta = |(name, now): (&'n String, &IoReading)| {
            (name.as_str(), now.since(before.get(name).unwrap_or(&IoReading::default())))
        };
        Self(now.iter().map(delta).collect())
    }

    /// Of all; a device that is gone meanwhile did nothing.
    fn sum(&self) -> IoReading {
        self.0.iter().fold(IoReading::default(), |sum, (_, delta)| sum.with(delta, |one, other| one + other))
    }

    fn rates(&self, pool: &str, seconds: f64) -> impl Iterator<Item = DeviceRates> {
        let of = move |(name, delta): &(&str, IoReading)| DeviceRates {
            pool: pool.to_owned(),
            name: (*name).to_owned(),
            io: IoRates::of(delta, seconds),
        };
        self.0.iter().map(of)
    }
}

impl IoReading {
    /// Counts since; operations under way are those of now.
    fn since(&self, before: &Self) -> Self {
        Self { in_flight: self.in_flight, ..self.with(before, |now, before| grown(before, now)) }
    }

    fn with(&self, other: &Self, combined: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            reads: combined(self.reads, other.reads),
            writes: combined(self.writes, other.writes),
            others: combined(self.others, other.others),
            read_bytes: combined(self.read_bytes, other.read_bytes),
            written_bytes: combined(self.written_bytes, other.written_bytes),
            read_seconds: combined(self.read_seconds, other.read_seconds),
            write_seconds: combined(self.write_seconds, other.write_seconds),
            errors: combined(self.errors, other.errors),
            in_flight: combined(self.in_flight, other.in_flight),
        }
    }
}

impl IoRates {
    fn of(delta: &IoReading, seconds: f64) -> Self {
        Self {
            reads_per_second: delta.reads / seconds,
            writes_per_second: delta.writes / seconds,
            others_per_second: delta.others / seconds,
            read_bytes_per_second: delta.read_bytes / seconds,
            written_bytes_per_second: delta.written_bytes / seconds,
            read_milliseconds: mean_milliseconds(delta.read_seconds, delta.reads),
            write_milliseconds: mean_milliseconds(delta.write_seconds, delta.writes),
            errors_per_second: delta.errors / seconds,
            in_flight: delta.in_flight,
        }
    }

    pub fn operations_per_second(&self) -> f64 {
        self.reads_per_second + self.writes_per_second + self.others_per_second
    }

    fn order(&self, key: SortKey, other: &Self) -> Ordering {
        let figure = |io: &Self| match key {
            SortKey::Operations => io.operations_per_second(),
            SortKey::Bytes => io.read_bytes_per_second + io.written_bytes_per_second,
            SortKey::Latency => {
                io.read_milliseconds.unwrap_or_default().max(io.write_milliseconds.unwrap_or_default())
            }
            SortKey::Name => 0.0,
        };
        figure(other).total_cmp(&figure(self))
    }
}

fn grown(before: f64, now: f64) -> f64 {
    if now < before { now } else { now - before }
}

fn mean_milliseconds(seconds: f64, count: f64) -> Option<f64> {
    (count > 0.0).then(|| seconds / count * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(counted_at: f64, reads: f64, writes: f64) -> ServerReading {
        let store = IoReading {
            reads,
            writes,
            read_bytes: reads * 4096.0,
            written_bytes: writes * 8192.0,
            read_seconds: reads * 0.002,
            write_seconds: writes * 0.004,
            in_flight: 3.0,
            ..IoReading::default()
        };
        let other = IoReading { reads: 1.0, ..IoReading::default() };
        let mail = PoolReading {
            is_up: true,
            counted_at,
            stages: [("device".to_owned(), (reads * 0.001, reads))].into(),
            volumes: [("store".to_owned(), store), ("other".to_owned(), other)].into(),
            ..PoolReading::default()
        };
        ServerReading { pools: [("mail".to_owned(), mail)].into() }
    }

    #[test]
    fn rates_are_over_the_time_between_the_counts() {
        let mut rates = ServerRates::between(&reading(100.0, 100.0, 10.0), &reading(102.0, 300.0, 50.0), 2.9);
        rates.sort(SortKey::Operations);
        let store = &rates.volumes[0];
        assert_eq!(
            (store.name.as_str(), store.io.reads_per_second, store.io.writes_per_second),
            ("store", 100.0, 20.0)
        );
        assert_eq!(store.io.written_bytes_per_second, 20.0 * 8192.0);
        assert!((store.io.read_milliseconds.unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(rates.volumes[1].io.read_milliseconds, None, "it did nothing");
        let [mail] = &rates.pools[..] else { panic!("{rates:?}") };
        assert_eq!((mail.io.reads_per_second, mail.io.in_flight), (100.0, 3.0));
        assert!(
            (mail.stage_milliseconds[2].unwrap() - 1.0).abs() < 1e-9 && mail.stage_milliseconds[0].is_none()
        );
        // After a long time without I/O the old figures were still right a second before the reading.
        let rates = ServerRates::between(&reading(10.0, 100.0, 0.0), &reading(102.0, 400.0, 0.0), 2.0);
        assert_eq!(rates.pools[0].io.reads_per_second, 100.0);
        // The pool was opened again.
        let rates = ServerRates::between(&reading(100.0, 1000.0, 10.0), &reading(102.0, 20.0, 0.0), 2.0);
        assert_eq!((rates.pools[0].io.reads_per_second, rates.pools[0].io.writes_per_second), (10.0, 0.0));
    }

    #[test]
    fn rows_are_sorted_by_what_is_asked_for() {
        let device = |name: &str, reads, bytes, milliseconds| DeviceRates {
            name: name.to_owned(),
            io: IoRates {
                reads_per_second: reads,
                read_bytes_per_second: bytes,
                read_milliseconds: milliseconds,
                ..IoRates::default()
            },
            ..DeviceRates::default()
        };
        let rows = vec![
            device("a", 1.0, 3.0, Some(1.0)),
            device("b", 2.0, 1.0, None),
            device("c", 0.0, 2.0, Some(9.0)),
        ];
        let sorted = |key| {
            let mut rates = ServerRates { volumes: rows.clone(), ..ServerRates::default() };
            rates.sort(key);
            rates.volumes.into_iter().map(|row| row.name).collect::<String>()
        };
        let keys = [SortKey::Operations, SortKey::Bytes, SortKey::Latency, SortKey::Name];
        assert_eq!(keys.map(sorted), ["bac", "acb", "cab", "abc"]);
    }
}
