//! HP Continuous Access on two of our servers: 5,000 users' databases, scaled down, in DR groups in sync, while the line
//! gets longer; then the line is cut, and what the other site lacks is merged under load.

mod load;
mod merges;
mod sites;
mod sweep;

use crate::bench::our_programs::OurPrograms;
use anyhow::Result;
use serde_json::json;
use std::{fs, path::Path, time::Duration};

/// The figures that are scaled.
pub(super) struct Scale {
    /// Mailboxes, of 0.5 IOPS each as in the paper, which had 5,000.
    mailboxes: u32,
    /// Databases together, of the paper's 500 GB.
    databases_mib: u32,
    /// Measured time of a run; the paper measured eight hours, and judged the middle four.
    measured: Duration,
    /// Time for which the line is cut; the paper's was two hours.
    cut: Duration,
}

const QUICK: Scale = Scale {
    mailboxes: 500,
    databases_mib: 256,
    measured: Duration::from_secs(10),
    cut: Duration::from_secs(10),
};
const WHOLE: Scale = Scale {
    mailboxes: 1_000,
    databases_mib: 512,
    measured: Duration::from_secs(60),
    cut: Duration::from_secs(120),
};

/// Storage groups of phases 1 and 2, each a DR group, with the round trips at which the paper's logs passed 20 ms.
const PHASES: [(usize, f64); 2] = [(8, 8.0), (4, 7.0)];

pub(super) fn run((ours, folder): (&OurPrograms, &Path), is_quick: bool) -> Result<()> {
    let scale = if is_quick { QUICK } else { WHOLE };
    println!(
        "scaled: {} mailboxes of 0.5 IOPS (paper: 5,000), databases of {} MiB together (500 GB), {} s a run (8 h), two servers on \
         this machine over loopback and a relay that delays (two EVA5000 and FCIP at 1 Gb/s)",
        scale.mailboxes,
        scale.databases_mib,
        scale.measured.as_secs()
    );
    let mut series = Vec::new();
    for (groups, paper_ms) in PHASES {
        let points = sweep::run((ours, folder), &scale, groups)?;
        sweep::print(groups, paper_ms, &points);
        series.push(json!({ "groups": groups, "points": points }));
    }
    let merges = merges::run((ours, folder), &scale)?;
    let all = json!({ "latency_by_round_trip": series, "merges": merges });
    let file = folder.join("continuous-access.json");
    fs::write(&file, serde_json::to_string_pretty(&all)?)?;
    println!("all figures: {}", file.display());
    Ok(())
}
