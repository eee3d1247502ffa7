//! Processor time of a server without requests.

use super::{
    Point, Scale, Setting,
    servers::{Server, Writes},
    unit_load,
};
use crate::bench::{
    our_programs::OurPrograms,
    row::{Goal, Measurement, Row},
};
use anyhow::Result;
use serde_json::json;
use std::{path::Path, thread, time::Duration};

/// Measures it, after it had something to do. Both protocols listen.
pub fn rows(setting: &Setting, ours: &OurPrograms, file: &Path, scale: &Scale) -> Result<Vec<Row>> {
    let what = "idle server";
    if !setting.wants(what) {
        return Ok(Vec::new());
    }
    println!("   {what}");
    let own = Server::ours(&ours.program(), file, Writes::Cached)?;
    unit_load(ours, &own, 0, scale, Point { read_percent: 100, kib: 4, depth: 1 }, 1)?;
    let note = "processor time of the server's process, user and kernel, without any request";
    let mut row = Row::new(what, "cores", Goal::AtMost(0.01), note);
    // The kernel counts in hundredths of a second: over less time one of them would be too much.
    let seconds = 5.0_f64.max(scale.seconds);
    for _ in 0..scale.rounds {
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
