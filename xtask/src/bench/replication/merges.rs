//! Merges over lines of three rates: what changed while a group was suspended is sent while hosts go on writing. The peer is
//! what `spindle link test` finds of the same line.

use super::sites::{Site, Sites, SitesPlan, until};
use crate::bench::{
    Setting,
    fio::Jobs,
    our_programs::OurPrograms,
    row::{Goal, Measurement, Row},
};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::{
    thread,
    time::{Duration, Instant},
};

/// The lines, by their rates in Mb/s.
const LINES: [(&str, f64); 3] = [("T3", 44.736), ("OC3", 155.52), ("1 Gb/s", 1000.0)];
/// The ways of a merge: what the log kept for the other site has, and blocks that the map names, with a rate beyond all lines.
const MERGES: [(&str, &[&str]); 2] =
    [("by the log", &["--merge", "at-once"]), ("by a pass", &["--merge", "at-once", "--rate", "2GB/s"])];
const ROUND_TRIP: Duration = Duration::from_millis(10);
/// Writes of hosts meanwhile, a second: few, so that they prolong no merge.
const HOST_WRITES: u32 = 100;
/// Share of the time that the line needs for what is sent: hosts are watched in it, and the merge lasts longer.
const WATCHED: f64 = 0.8;
const MIB: f64 = (1 << 20) as f64;

pub(super) fn run(setting: &Setting, ours: &OurPrograms, rows: &mut Vec<Row>) -> Result<()> {
    // A minute of OC3.
    let (rounds, seconds, volume_mib) = if setting.quick { (2, 6.0, 128) } else { (3, 60.0, 1120) };
    let groups = vec![("merged", "--mode sync --hold 2s".to_owned())];
    let sites = Sites::begin(setting, ours, &SitesPlan { has_relay: true, groups, volume_mib })?;
    let relay = sites.relay.as_ref().context("the plan has a relay")?;
    relay.set_round_trip(ROUND_TRIP);
    for ((name, mbit), way) in LINES.iter().flat_map(|line| MERGES.iter().map(move |way| (line, way))) {
        let (how, words) = way;
        let mut rate = Row::new(
            format!("merge {how} over {name}, RTT 10 ms: rate"),
            "MB/s",
            Goal::OfPeer(0.80),
            "merge: blocks that changed while the group was suspended, sent while a host writes 100 blocks of 4 KiB a second; a minute \
             of the line's rate, at most the volume; the peer is 'spindle link test' with two connections in the same direction",
        );
        let mut hosts = Row::new(
            format!("merge {how} over {name}, RTT 10 ms: hosts' writes, p99"),
            "ms",
            Goal::AtMost(20.0),
            "hosts: stable writes of 4 KiB while the merge is under way",
        );
        if ![&rate, &hosts].iter().any(|row| setting.wants(&row.what)) {
            continue;
        }
        relay.set_rate(Some(*mbit));
        for _ in 0..rounds {
            let line = tested_rate(&sites)?;
            let merge = Merge::run(setting, (&sites, words), (line.value, seconds, volume_mib))?;
            rate.ours.push(Measurement { value: merge.megabytes_per_second, raw: merge.raw.clone() });
            rate.peer.push(line);
            hosts.ours.push(Measurement { value: merge.host_p99_ms, raw: merge.raw });
        }
        rows.extend([rate, hosts]);
    }
    Ok(())
}

/// The rate from Boston to Denver that the program finds itself, in MB/s.
fn tested_rate(sites: &Sites) -> Result<Measurement> {
    // Denver has made the connection. It judges what it measured, and a line that is slow for something is measured as well.
    let answer = sites.denver.verb_of_any_end(&["link", "test", "boston", "--json"])?;
    let raw: Value = serde_json::from_str(&answer).context("link test --json")?;
    let mbit = raw["test"]["paths"][0]["figures"]["received"]["all_mbit"].as_f64();
    Ok(Measurement { value: mbit.context("a rate of link test")? / 8.0, raw })
}

/// A merge, as hosts and its administrator see it.
struct Merge {
    megabytes_per_second: f64,
    host_p99_ms: f64,
    raw: Value,
}

impl Merge {
    /// As much as the line of `rate` MB/s carries in so many seconds, at most a volume.
    fn run(
        setting: &Setting,
        (sites, words): (&Sites, &[&str]),
        (rate, seconds, volume_mib): (f64, f64, u32),
    ) -> Result<Self> {
        let mib = (rate * 1e6 * seconds / MIB).min(f64::from(volume_mib)).floor();
        let uri = sites.boston.uri("merged");
        sites.boston.wait_for("merged", ("primary", "streaming"), true)?;
        sites.boston.verb(&["dr", "suspend", "merged"])?;
        let options = format!("rw=write bs=256k iodepth=8 size={mib}m");
        Jobs::nbd_once(&uri).job_without_file("changes", &options).run(&setting.folder)?;
        let sent_before = sent(&sites.boston)?;
        sites.boston.verb(&[&["dr", "resume", "merged"], words].concat())?;
        let begun = Instant::now();
        let watched = (mib * MIB / (rate * 1e6) * WATCHED).max(1.0);
        let hosts = Jobs::nbd(watched, &uri).job_without_file(
            "hosts",
            &format!("rw=randwrite bs=4k iodepth=4 rate_iops={HOST_WRITES} fsync=1"),
        );
        let done = thread::scope(|scope| -> Result<_> {
            let hosts = scope.spawn(|| hosts.run(&setting.folder));
            let mut row = Value::Null;
            until("the merge is over", || {
                // Each look takes time of the processors that merge.
                thread::sleep(Duration::from_millis(200));
                row = sites.boston.group("merged")?;
                Ok(row["state"] == "streaming" && row["is_alone"] == false)
            })
            .with_context(|| format!("the group as its primary shows it: {row:#}"))?;
            let took = begun.elapsed().as_secs_f64();
            Ok((took, hosts.join().expect("it does not panic")?))
        });
        let (took, hosts) = done?;
        let latency = hosts.jobs[0].1.latency.context("a latency of fio")?;
        let raw = json!({
            "mib": mib, "seconds": took, "sent_bytes": sent(&sites.boston)? - sent_before, "hosts": hosts.raw,
        });
        let megabytes_per_second = mib * MIB / 1e6 / took;
        Ok(Self { megabytes_per_second, host_p99_ms: latency.p99_us / 1e3, raw })
    }
}

fn sent(site: &Site) -> Result<f64> {
    site.group("merged")?["sent_bytes"].as_f64().context("the bytes that were sent")
}
