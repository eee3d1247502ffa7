//! Processor time of a server without requests.

use super::{
    super::row::{Goal, Measurement, Row},
    load::{Bench, Point},
    servers::Writes,
};
use anyhow::Result;
use serde_json::json;
use std::{thread, time::Duration};

/// Measures it, after it had something to do. Both protocols listen.
pub fn rows(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let what = "idle server";
    if !bench.setting.wants(what) {
        return Ok(Vec::new());
    }
    println!("   {what}");
    let own = bench.own(bench.file, Writes::Cached)?;
    bench.iscsi_run(&own, 0, Point { read_percent: 100, kib: 4, depth: 1 }, 1)?;
    let note = "processor time of the server's process, user and kernel, without any request";
    let mut row = Row::new(what, "cores", Goal::AtMost(0.01), note);
    // The kernel counts in hundredths of a second: over less time one of them would be too much.
    let seconds = 5.0_f64.max(bench.scale.seconds);
    for _ in 0..bench.scale.rounds {
        let before = own.cpu_seconds()?;
        thread::sleep(Duration::from_secs_f64(seconds));
        let used = own.cpu_seconds()? - before;
        row.ours.push(Measurement {
            value: used / seconds,
            raw: json!({ "cpu_seconds": used, "seconds": seconds }),
        });
    }
    Ok(vec![row])
}
