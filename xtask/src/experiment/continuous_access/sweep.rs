//! Latency by the round trip of the line: the paper's figures 12 and 14, for one number of storage groups.

use super::{Scale, load::Load, sites::Sites};
use crate::bench::our_programs::OurPrograms;
use anyhow::Result;
use serde::Serialize;
use std::{path::Path, time::Duration};

/// Round trips that the line adds, in milliseconds: the paper's 0 to 10, and twice that.
const ROUND_TRIPS_MS: [f64; 10] = [0.0, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 13.0, 16.0, 20.0];
/// The paper's limit of an average log write.
const LIMIT_MS: f64 = 20.0;

/// Averages of a run at one round trip.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    round_trip_ms: f64,
    log_write_ms: f64,
    database_read_ms: f64,
    database_write_ms: Option<f64>,
    database_iops: f64,
}

pub(super) fn run(place: (&OurPrograms, &Path), scale: &Scale, groups: usize) -> Result<Vec<Point>> {
    let sites = Sites::begin(place, scale, groups)?;
    // The databases are made, and the caches filled, before anything counts.
    Load::begin(place, (&sites, scale), (Duration::from_secs(5), true))?.finish()?;
    let mut points = Vec::new();
    for round_trip_ms in ROUND_TRIPS_MS {
        sites.relay.set_round_trip(Duration::from_secs_f64(round_trip_ms / 1e3));
        sites.wait_until_in_sync()?;
        let report = Load::begin(place, (&sites, scale), (scale.measured, false))?.finish()?;
        let point = Point {
            round_trip_ms,
            log_write_ms: report.weighted("Log I/O", "writes", "Average")?,
            database_read_ms: report.weighted("Transactional I/O", "reads", "Average")?,
            database_write_ms: report.weighted("Transactional I/O", "writes", "Average").ok(),
            database_iops: report.value("Database sizing and throughput", "Achieved database I/O")?,
        };
        println!("{groups} groups, {round_trip_ms} ms: {point:?}");
        points.push(point);
    }
    Ok(points)
}

pub(super) fn print(groups: usize, paper_ms: f64, points: &[Point]) {
    println!("\n{groups} storage groups, each a DR group in sync: averages");
    println!(
        "{:>10}  {:>9}  {:>13}  {:>14}  {:>13}",
        "RTT, ms", "log, ms", "db reads, ms", "db writes, ms", "database I/O"
    );
    for point in points {
        let writes = point.database_write_ms.map_or_else(|| "none".to_owned(), |ms| format!("{ms:.1}"));
        println!(
            "{:>10.1}  {:>9.1}  {:>13.1}  {writes:>14}  {:>11.0}/s",
            point.round_trip_ms, point.log_write_ms, point.database_read_ms, point.database_iops
        );
    }
    match crossing(points) {
        Some(ms) => println!(
            "log writes pass {LIMIT_MS} ms at a round trip of {ms:.1} ms; the paper's at {paper_ms} ms\n"
        ),
        None => println!(
            "log writes stay below {LIMIT_MS} ms up to 20 ms; the paper's passed it at {paper_ms} ms\n"
        ),
    }
}

/// The round trip at which log writes pass the limit, on the straight line between two points.
fn crossing(points: &[Point]) -> Option<f64> {
    points.windows(2).find_map(|pair| {
        let (one, other) = (&pair[0], &pair[1]);
        let is_between = one.log_write_ms <= LIMIT_MS && other.log_write_ms > LIMIT_MS;
        let share = (LIMIT_MS - one.log_write_ms) / (other.log_write_ms - one.log_write_ms);
        is_between.then_some(one.round_trip_ms + share * (other.round_trip_ms - one.round_trip_ms))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_passed_between_two_points() {
        let point = |round_trip_ms, log_write_ms| Point {
            round_trip_ms,
            log_write_ms,
            database_read_ms: 1.0,
            database_write_ms: None,
            database_iops: 1.0,
        };
        assert_eq!(crossing(&[point(0.0, 2.0), point(10.0, 12.0)]), None);
        assert_eq!(crossing(&[point(0.0, 2.0), point(10.0, 12.0), point(20.0, 28.0)]), Some(15.0));
    }
}
