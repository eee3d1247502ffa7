//! Many sessions: as much together as few, and none starved.

use super::{
    super::{
        our_programs::number,
        row::{Goal, Measurement, Row},
    },
    load::{Bench, Point, in_turn},
    servers::Writes,
};
use anyhow::Result;
use serde_json::json;

pub fn rows(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let what = "iSCSI, 64 sessions beside 8";
    if !bench.setting.wants(what) {
        return Ok(Vec::new());
    }
    println!("   {what}");
    let own = bench.own(bench.file, Writes::Cached)?;
    let point = Point { read_percent: 70, kib: 4, depth: 4 };
    let note =
        "64 sessions (ours) beside 8 (peer) of our own server, mixed 4 KiB, each with 4 commands under way";
    let mut row = Row::new(what, "IOPS", Goal::OfPeer(1.0), note);
    let mut fair = Row::new("iSCSI, 64 sessions: least to most", "share", Goal::AtLeast(0.5), note);
    for round in 0..bench.scale.rounds {
        let run = |sessions| bench.iscsi_run(&own, 0, point, sessions);
        let (many, few) = in_turn(round, || run(64), || run(8))?;
        let share = number(&many.rate.raw, "fewest")? / number(&many.rate.raw, "most")?.max(1.0);
        fair.ours.push(Measurement { value: share, raw: json!({}) });
        row.ours.push(many.rate);
        row.peer.push(few.rate);
    }
    Ok(vec![row, fair])
}
