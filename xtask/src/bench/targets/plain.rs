//! One plain file over both protocols, beside tgt and qemu-storage-daemon on the same file.

use super::{
    super::row::{Goal, Row, median},
    load::{Bench, LoadRows, Point, Protocol, in_turn},
    servers::Writes,
};
use anyhow::{Context, Result};
use serde_json::json;

pub const POINTS: [Point; 7] = [
    Point { read_percent: 100, kib: 4, depth: 32 },
    Point { read_percent: 70, kib: 4, depth: 32 },
    Point { read_percent: 100, kib: 8, depth: 32 },
    Point { read_percent: 70, kib: 8, depth: 32 },
    Point { read_percent: 100, kib: 32, depth: 32 },
    Point { read_percent: 70, kib: 32, depth: 32 },
    Point { read_percent: 100, kib: 4, depth: 1 },
];

/// Goals of IOPS under many commands: so many times the peer's, or this share of fio's on the raw file, whichever is
/// lower. No server is faster than the file.
const PEER_TIMES: f64 = 2.0;
const RAW_SHARE: f64 = 0.85;
/// Goal of processor time under many commands over iSCSI, as a share of tgt's.
const TGT_CPU_SHARE: f64 = 0.5;
/// The same over NBD, in microseconds, for commands of 4 KiB.
const NBD_CPU_US: f64 = 18.0;

/// Rows of one load over one protocol.
pub fn rows(bench: &Bench<'_>, protocol: Protocol, point: Point) -> Result<Vec<Row>> {
    let what = format!("{protocol}, {}", point.name());
    if !bench.setting.wants(&what) {
        return Ok(Vec::new());
    }
    println!("   {what}");
    let (own, peer) = (bench.own(bench.file, Writes::Cached)?, bench.peer(protocol, Writes::Cached)?);
    let note = match protocol {
        Protocol::Iscsi => {
            "iSCSI: one session, our initiator as client of both; goal at depth 32: the lower of 2 × tgt and 85 % of fio on \
             the raw file in the same rounds; tgt: the better of rdwr and aio"
        }
        Protocol::Nbd => {
            "NBD: one connection, fio's nbd engine as client of both; goal at depth 32: the lower of 2 × the peer and 85 % of \
             fio on the raw file in the same rounds; peer: qemu-storage-daemon, raw, io_uring, O_DIRECT"
        }
    };
    let mut rows = LoadRows::new(&what, Goal::None, cpu_goal(protocol, point), note);
    let mut raw_to_peer = Vec::new();
    for round in 0..bench.scale.rounds {
        let raw = bench.raw_iops(point)?;
        let own = || bench.run_own(&own, protocol, point);
        let (own, mut peer) = in_turn(round, own, || bench.run_peer(&peer, protocol, point))?;
        raw_to_peer.push(raw / peer.rate.value);
        peer.rate.raw["raw_file_iops"] = json!(raw);
        rows.add(own, peer);
    }
    let raw_to_peer = median(raw_to_peer.into_iter()).context("a round")?;
    rows.rate.goal = rate_goal(protocol, point, raw_to_peer);
    Ok(rows.into_rows())
}

/// `raw_to_peer`: IOPS of fio on the raw file, as a multiple of the peer's.
fn rate_goal(protocol: Protocol, point: Point, raw_to_peer: f64) -> Goal {
    Goal::OfPeer(match (point.depth, protocol) {
        (1, Protocol::Iscsi) => 1.3,
        (1, Protocol::Nbd) => 1.5,
        _ => (RAW_SHARE * raw_to_peer).min(PEER_TIMES),
    })
}

fn cpu_goal(protocol: Protocol, point: Point) -> Goal {
    match (point.depth, protocol) {
        (1, _) => Goal::AtMostOfPeer(1.0),
        (_, Protocol::Iscsi) => Goal::AtMostOfPeer(TGT_CPU_SHARE),
        (_, Protocol::Nbd) if point.kib == 4 => Goal::AtMost(NBD_CPU_US),
        (_, Protocol::Nbd) => Goal::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_raw_file_limits_the_goal_under_many_commands() {
        let point = Point { read_percent: 70, kib: 8, depth: 32 };
        assert_eq!(rate_goal(Protocol::Iscsi, point, 4.0), Goal::OfPeer(2.0));
        assert_eq!(rate_goal(Protocol::Nbd, point, 2.0), Goal::OfPeer(1.7));
        let single = Point { depth: 1, ..point };
        assert_eq!(rate_goal(Protocol::Iscsi, single, 1.0), Goal::OfPeer(1.3));
        assert_eq!(rate_goal(Protocol::Nbd, single, 1.0), Goal::OfPeer(1.5));
        assert_eq!(cpu_goal(Protocol::Nbd, single), Goal::AtMostOfPeer(1.0));
        assert_eq!(cpu_goal(Protocol::Iscsi, point), Goal::AtMostOfPeer(0.5));
        assert_eq!(cpu_goal(Protocol::Nbd, point), Goal::None);
    }
}
