//! A pass of a periodic group beside `btrfs send -p` of a snapshot into another subvolume: the same changes, what is sent, how
//! long it takes, and processor time.

use super::sites::{Site, Sites, SitesPlan, until};
use crate::{
    bench::{
        Setting,
        btrfs::Btrfs,
        fio::Jobs,
        our_programs::OurPrograms,
        record::Record,
        row::{Goal, Measurement, Row},
    },
    step,
};
use anyhow::{Context, Result};
use serde_json::Value;
use std::{fs, time::Instant};

const VOLUME_MIB: u32 = 128;
/// Size of the changes before a pass, in blocks of 4 KiB at random places.
const CHANGED_MIB: u32 = 32;
const MIB: f64 = (1 << 20) as f64;

/// Of one pass.
struct PassFigures {
    sent_mib: f64,
    seconds: f64,
    processor_seconds: f64,
}

pub(super) fn run(
    (setting, ours): (&Setting, &OurPrograms),
    record: &mut Record,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let pairs = if setting.quick { 3 } else { 10 };
    let groups = vec![("periodic", "--mode periodic --every 7d --keep 2".to_owned())];
    let sites = Sites::begin(setting, ours, &SitesPlan { has_relay: false, groups, volume_mib: VOLUME_MIB })?;
    let peer = match Btrfs::obstacle(setting)? {
        None => Some(SentSnapshots::begin(setting)?),
        Some(obstacle) => {
            record.method(format!("periodic: no btrfs: {obstacle}"));
            None
        }
    };
    let note = "periodic: 32 MiB of 4 KiB writes at random places of 128 MiB, then one pass to the other site over loopback with TLS; \
                the peer is 'btrfs send -p' into 'btrfs receive' and a sync, on RAID 10 over eight loop devices; processor time of \
                both servers, and of both btrfs processes without the kernel's threads";
    let row = |what: &str, unit, note| {
        Row::new(format!("periodic pass, 4 KiB changes: {what}"), unit, Goal::AtMostOfPeer(1.0), note)
    };
    let mut all = [row("sent", "MiB", note), row("duration", "s", ""), row("processor time", "s", "")];
    let pass = || -> Result<PassFigures> { pass(setting, &sites) };
    for pair in 0..pairs {
        let (ours, theirs) = match (&peer, pair % 2) {
            (None, _) => (pass()?, None),
            (Some(peer), 0) => (pass()?, Some(peer.pass(setting, pair)?)),
            (Some(peer), _) => {
                let theirs = peer.pass(setting, pair)?;
                (pass()?, Some(theirs))
            }
        };
        let values = |of: &PassFigures| [of.sent_mib, of.seconds, of.processor_seconds];
        let measured = |value| Measurement { value, raw: Value::Null };
        for (row, value) in all.iter_mut().zip(values(&ours)) {
            row.ours.push(measured(value));
        }
        for theirs in theirs.iter() {
            for (row, value) in all.iter_mut().zip(values(theirs)) {
                row.peer.push(measured(value));
            }
        }
    }
    rows.extend(all);
    Ok(())
}

fn changes() -> String {
    format!("rw=randwrite bs=4k iodepth=32 size={VOLUME_MIB}m io_size={CHANGED_MIB}m")
}

fn pass(setting: &Setting, sites: &Sites) -> Result<PassFigures> {
    sites.boston.verb(&["dr", "suspend", "periodic"])?;
    Jobs::nbd_once(&sites.boston.uri("periodic"))
        .job_without_file("changes", &changes())
        .run(&setting.folder)?;
    let used = || -> Result<f64> {
        Ok(sites.boston.server.processor_seconds()? + sites.denver.server.processor_seconds()?)
    };
    let (line_before, sent_before, used_before) = (sites.boston.line_bytes()?, sent(&sites.boston)?, used()?);
    let begun = Instant::now();
    sites.boston.verb(&["dr", "resume", "periodic", "--merge", "at-once"])?;
    until("the pass is over", || {
        let row = sites.boston.group("periodic")?;
        Ok(row["state"] == "waiting" && row["sent_bytes"].as_f64() > Some(sent_before))
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(PassFigures {
        sent_mib: (sites.boston.line_bytes()? - line_before) / MIB,
        seconds,
        processor_seconds: used()? - used_before,
    })
}

fn sent(site: &Site) -> Result<f64> {
    site.group("periodic")?["sent_bytes"].as_f64().context("the bytes that were sent")
}

/// A subvolume with a file, and its snapshots, sent to another folder of the same filesystem.
struct SentSnapshots {
    btrfs: Btrfs,
}

impl SentSnapshots {
    fn begin(setting: &Setting) -> Result<Self> {
        let bytes = u64::from(VOLUME_MIB) << 20;
        // Both sides, and what is kept of them.
        let btrfs = Btrfs::make(&setting.folder.join("btrfs"), bytes * 8)?;
        let mount = btrfs.mount().display().to_string();
        let script =
            |text: &str| step::output(btrfs.command("sh").args(["-ec", text, "sh", &mount])).map(drop);
        script("btrfs -q subvolume create \"$1/live\"; mkdir \"$1/far\"")?;
        btrfs.lay_out(&btrfs.mount().join("live/file"), bytes, &setting.folder)?;
        script(
            "btrfs -q subvolume snapshot -r \"$1/live\" \"$1/before\"; btrfs -q send \"$1/before\" | btrfs -q receive \"$1/far\"; sync",
        )?;
        Ok(Self { btrfs })
    }

    fn pass(&self, setting: &Setting, number: usize) -> Result<PassFigures> {
        let mount = self.btrfs.mount();
        let file = mount.join("live/file");
        Jobs::new(None)
            .job("changes", &file, &changes())
            .run_by(self.btrfs.command("fio"), &setting.folder)?;
        let (shown, stream) = (mount.display().to_string(), setting.folder.join("stream"));
        let stream_shown = stream.display().to_string();
        let script = |text: &str| {
            step::output(self.btrfs.command("sh").args([
                "-ec",
                text,
                "sh",
                &shown,
                &number.to_string(),
                &stream_shown,
            ]))
        };
        script("btrfs -q subvolume snapshot -r \"$1/live\" \"$1/after$2\"; sync")?;
        script("btrfs -q send -p \"$1/before\" \"$1/after$2\" > \"$3\"")?;
        let sent = fs::metadata(&stream)?.len() as f64;
        fs::remove_file(&stream)?;
        let begun = Instant::now();
        let times = script(
            "btrfs -q send -p \"$1/before\" \"$1/after$2\" | btrfs -q receive \"$1/far\"; sync -f \"$1\"; times",
        )?;
        let seconds = begun.elapsed().as_secs_f64();
        script(
            "btrfs -q subvolume delete \"$1/before\" \"$1/far/before\"; mv \"$1/after$2\" \"$1/before\"; mv \"$1/far/after$2\" \
             \"$1/far/before\"; sync",
        )?;
        let processor_seconds = processor_seconds(&times).context("the times of btrfs")?;
        Ok(PassFigures { sent_mib: sent / MIB, seconds, processor_seconds })
    }
}

/// User and kernel time of the children of a shell, of what its `times` prints.
fn processor_seconds(times: &str) -> Option<f64> {
    let of_children = times.lines().last()?;
    let seconds = |time: &str| {
        let (minutes, seconds) = time.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    of_children.split_whitespace().map(seconds).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_a_shell_are_those_of_its_children() {
        let seconds = processor_seconds("0m0.01s 0m0.02s\n1m2.25s 0m0.50s\n").unwrap();
        assert!((seconds - 62.75).abs() < 1e-9, "{seconds}");
        assert_eq!(processor_seconds("no times"), None);
    }
}
