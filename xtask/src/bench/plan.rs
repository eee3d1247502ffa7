//! Time of `spindle plan`: whole processes, from start to end, without a peer.
//!
//! Processor time is counted in ticks of 10 ms, so that of a batch of runs is taken and divided by their number.

use super::{
    Setting,
    our_programs::OurPrograms,
    record::Record,
    row::{Goal, Measurement, Row},
};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::{
    fs,
    process::{Command, Stdio},
    time::Instant,
};

/// Ticks of the kernel's processor times in a second: the same on every Linux that Spindle ships on.
const TICKS_PER_SECOND: f64 = 100.0;
/// Within which a plan is to be there.
const GOAL_MS: f64 = 50.0;

/// Profiles to plan: the Dell paper's example, and ten million mailboxes.
const ASKED: [(&str, &[&str]); 3] = [
    ("5,000 users, all of it", &["--users", "5000", "--quota", "2GB", "--messages", "150", "--copies", "2"]),
    (
        "5,000 users, one number",
        &["--users", "5000", "--quota", "2GB", "--messages", "150", "--explain", "DSU"],
    ),
    ("10,000,000 users", &["--users", "10000000", "--quota", "2GB", "--messages", "150", "--copies", "3"]),
];

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let (batches, runs) = if setting.quick { (3, 20) } else { (9, 50) };
    record
        .method(format!("each figure: {runs} processes of 'spindle plan', one after the other, per process"));
    let mut rows = Vec::new();
    for (what, arguments) in ASKED {
        let mut spent =
            Row::new(format!("{what}: processor time"), "ms", Goal::AtMost(GOAL_MS), "user and system");
        let mut waited =
            Row::new(format!("{what}: time"), "ms", Goal::None, "on this machine as busy as it was");
        if !setting.wants(&spent.what) && !setting.wants(&waited.what) {
            continue;
        }
        for _ in 0..batches {
            let (began, ticks) = (Instant::now(), ticks_of_children()?);
            for _ in 0..runs {
                let mut command = Command::new(ours.program());
                let status = command.arg("plan").args(arguments).stdout(Stdio::null()).status()?;
                ensure!(status.success(), "spindle plan {arguments:?} ended with {status}");
            }
            let each = |seconds: f64| Measurement {
                value: seconds * 1000.0 / f64::from(runs),
                raw: json!({ "command": format!("spindle plan {}", arguments.join(" ")), "runs": runs }),
            };
            spent.ours.push(each((ticks_of_children()? - ticks) / TICKS_PER_SECOND));
            waited.ours.push(each(began.elapsed().as_secs_f64()));
        }
        rows.extend([spent, waited].into_iter().filter(|row| setting.wants(&row.what)));
    }
    Ok(rows)
}

/// Ticks that ended children of this process have used.
fn ticks_of_children() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    children(&stat).with_context(|| format!("what /proc/self/stat says: {stat}"))
}

/// Fields 16 and 17 of a stat file; the name in the second may hold anything.
fn children(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::children;

    #[test]
    fn what_children_used_is_found_whatever_the_program_is_called() {
        let stat = "17 (a ) b) S 1 17 17 0 -1 4194304 100 0 0 0 250 50 7 3 20 0";
        assert_eq!(children(stat), Some(10.0));
        assert_eq!(children("17 (cut"), None);
    }
}
