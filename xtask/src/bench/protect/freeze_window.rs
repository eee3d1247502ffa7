//! The freeze window: from the last commit answered before a freeze to the first one after it, as the sessions of
//! `spindle prove --pool --protect` see it; beside the commands of Linux under a load of the same mix.

use super::{
    super::{
        Setting,
        mixed::Mix,
        our_programs::OurPrograms,
        prove_report::ProveReport,
        record::Record,
        row::{Goal, Measurement, Row},
    },
    answer_gaps::percentile,
    frozen_peers::{Peer, PeerScene},
};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::{fs, time::Duration};

const BESIDE_FREEZE: &str = "freeze window, p99";
const MEDIAN: &str = "freeze window, median";
const LONGEST: &str = "freeze window, longest";
const BESIDE_SNAPSHOT: &str = "freeze window, p99, beside a btrfs snapshot without a freeze";
/// Interval of the backups.
const EVERY: Duration = Duration::from_secs(1);
const KEPT: u32 = 4;
/// Goal of the p99, in milliseconds.
const WINDOW_MS: f64 = 100.0;

struct Scale {
    database_mib: u64,
    rounds: usize,
    /// Backups of a round, on each side.
    backups: usize,
}

const FULL: Scale = Scale { database_mib: 512, rounds: 5, backups: 20 };
const QUICK: Scale = Scale { database_mib: 128, rounds: 2, backups: 10 };

/// Windows of all rounds, by side.
#[derive(Default)]
struct Windows {
    ours: Vec<Measurement>,
    frozen: Vec<Measurement>,
    snapshot: Vec<Measurement>,
}

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    if ![BESIDE_FREEZE, MEDIAN, LONGEST, BESIDE_SNAPSHOT].iter().any(|what| setting.wants(what)) {
        return Ok(Vec::new());
    }
    let scale = if setting.quick { QUICK } else { FULL };
    let obstacle = PeerScene::obstacle(setting)?;
    let mut windows = Windows::default();
    for round in 0..scale.rounds {
        println!("   freeze window, round {}: {} backups a side", round + 1, scale.backups);
        let mix = own_windows(setting, ours, &scale, round, &mut windows.ours)?;
        if obstacle.is_none() {
            let sides =
                [(Peer::FrozenXfs, &mut windows.frozen), (Peer::BtrfsSnapshot, &mut windows.snapshot)];
            for (peer, found) in sides {
                let mut scene = PeerScene::make(peer, setting, scale.database_mib << 20)?;
                found.extend(scene.cut_under_load(setting, &mix, scale.backups, EVERY)?);
            }
        }
    }
    record.method(format!(
        "freeze window: prove --pool --protect takes a backup each second and keeps {KEPT}; the window is from the last commit \
         that was answered before the freeze to the first one after it. Databases and their log are frozen, cut over two \
         pools at one moment, thawed"
    ));
    record.method(
        "its peer: 'btrfs subvolume snapshot' waits forever on a btrfs that is frozen, so the load's files lie on an XFS, \
         a file on btrfs RAID 10 over eight loop devices: sync -f (before, not counted), then fsfreeze -f of the XFS, btrfs \
         subvolume snapshot -r of the btrfs below it, fsfreeze -u. The second peer has the files on the btrfs: sync -f, then the \
         snapshot alone, whose content is that of a power failure. The load is fio at the rates that ours was measured to have in \
         the same round; a window is the longest gap between answers to its log writes (dsync, one under way) that overlaps \
         the commands, in whole milliseconds (write_lat_log)",
    );
    Ok(rows(setting, &windows, obstacle))
}

/// One run of ours; returns its mix of I/O.
fn own_windows(
    setting: &Setting,
    ours: &OurPrograms,
    scale: &Scale,
    round: usize,
    windows: &mut Vec<Measurement>,
) -> Result<Mix> {
    let folder = setting.folder.join("freezes");
    fs::create_dir(&folder)?;
    let size = format!("{}MiB", scale.database_mib);
    // The last backup of a run may not see its end.
    let duration = format!("{}s", (scale.backups as u64 + 1) * EVERY.as_secs());
    let protect = format!("every={}s,keep={KEPT}", EVERY.as_secs());
    let seed = (round + 1).to_string();
    let report = setting.folder.join(format!("freezes-report-{seed}")).display().to_string();
    let arguments = ["--fresh", "--pool", "--size", &size, "--duration", &duration, "--protect", &protect];
    let ran = ours.prove(&[&arguments[..], &["--seed", &seed, "--report", &report]].concat(), &folder)?;
    fs::remove_dir_all(&folder)?;
    let report = ProveReport::parse(&ran.printed)?;
    println!("     {}", report.headline());
    let mix = Mix::of(&report)?;
    let labels = report.texts("Backups", "Label")?;
    let taken = report.column("Backups", "Freeze window")?;
    let whole = labels.iter().zip(taken).filter(|(label, _)| **label == "application");
    let found: Vec<f64> = whole.filter_map(|(_, window)| window).collect();
    ensure!(found.len() >= scale.backups, "{} of {} backups have a window", found.len(), scale.backups);
    let mut raw = json!({ "command": ran.command, "mix": mix.to_json() });
    windows.extend(found.iter().take(scale.backups).map(|&value| Measurement { value, raw: raw.take() }));
    Ok(mix)
}

fn rows(setting: &Setting, windows: &Windows, obstacle: Option<String>) -> Vec<Row> {
    let count = windows.ours.len();
    let peer_note = match obstacle {
        None => "the peer freezes an XFS and makes a snapshot of the btrfs below it".to_owned(),
        Some(why) => format!("the peers are not measured: {why}"),
    };
    let note = format!("freeze window: of {count} backups each; {peer_note}");
    let of = |runs: &[Measurement], percent: usize| -> Vec<Measurement> {
        let values: Vec<f64> = runs.iter().map(|run| run.value).collect();
        let value = percentile(&values, percent);
        let raw = || runs.iter().map(|run| json!([run.value, run.raw])).collect::<Value>();
        value.map(|value| Measurement { value, raw: raw() }).into_iter().collect()
    };
    let row = |what: &str, goal: Goal, percent: usize, peer: &[Measurement], note: &str| Row {
        ours: of(&windows.ours, percent),
        peer: of(peer, percent),
        ..Row::new(what, "ms", goal, note)
    };
    let mut rows = vec![
        row(BESIDE_FREEZE, Goal::AtMost(WINDOW_MS), 99, &windows.frozen, &note),
        row(MEDIAN, Goal::None, 50, &windows.frozen, &note),
        row(LONGEST, Goal::None, 100, &windows.frozen, &note),
        row(
            BESIDE_SNAPSHOT,
            Goal::None,
            99,
            &windows.snapshot,
            "without a freeze: the peer is the snapshot of a btrfs, which holds what a power failure would leave",
        ),
    ];
    rows.retain(|row| setting.wants(&row.what));
    rows
}
