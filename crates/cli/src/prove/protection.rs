//! `--protect every=10s,keep=24` and `--protect every=10s,keep=24,logs=kept`.

use crate::quantity::parse_duration;
use workload::database::plan::protection::{EVERY_S_MAX, KEEP_MAX, ProtectionPlan};

/// Reads how often backups are taken, and how many are kept.
pub fn parse_protection(text: &str) -> Result<ProtectionPlan, String> {
    let example = "write every=TIME,keep=N, such as every=10s,keep=24";
    let (mut every_s, mut keep, mut keeps_logs) = (None, None, false);
    for part in text.split(',') {
        let (name, value) =
            part.split_once('=').ok_or_else(|| format!("{part:?} has no value; {example}"))?;
        match name.trim() {
            "every" => every_s = Some(seconds(value)?),
            "keep" => keep = Some(count(value)?),
            "logs" => keeps_logs = are_logs_kept(value)?,
            other => return Err(format!("{other:?} is not known here; {example}")),
        }
    }
    match (every_s, keep) {
        (Some(every_s), Some(keep)) => Ok(ProtectionPlan { every_s, keep, keeps_logs }),
        (None, _) => Err(format!("it lacks every=; {example}")),
        (_, None) => Err(format!("it lacks keep=; {example}")),
    }
}

fn seconds(text: &str) -> Result<u64, String> {
    let every = parse_duration(text)?;
    let is_whole = every.subsec_nanos() == 0 && (1..=EVERY_S_MAX).contains(&every.as_secs());
    is_whole
        .then_some(every.as_secs())
        .ok_or_else(|| format!("every={text}: whole seconds from 1s to 24h are possible"))
}

fn are_logs_kept(text: &str) -> Result<bool, String> {
    match text.trim() {
        "kept" => Ok(true),
        "circular" => Ok(false),
        _ => Err(format!("logs={text}: logs are kept or circular")),
    }
}

fn count(text: &str) -> Result<u32, String> {
    let keep = text.trim().parse().ok().filter(|keep| (1..=KEEP_MAX).contains(keep));
    keep.ok_or_else(|| format!("keep={text}: 1 to {KEEP_MAX} backups can be kept"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_and_counts_are_read_and_bad_ones_refused_in_a_line() {
        let plan = ProtectionPlan { every_s: 10, keep: 24, keeps_logs: false };
        assert_eq!(parse_protection("every=10s,keep=24"), Ok(plan));
        assert_eq!(parse_protection("keep=24, every=10"), Ok(plan));
        assert_eq!(parse_protection("keep=24,every=10,logs=circular"), Ok(plan));
        let kept = ProtectionPlan { keeps_logs: true, ..plan };
        assert_eq!(parse_protection("every=10s,keep=24,logs=kept"), Ok(kept));
        for (text, problem) in [
            ("10s", "\"10s\" has no value; write every=TIME,keep=N, such as every=10s,keep=24"),
            ("every=10s", "it lacks keep=; write every=TIME,keep=N, such as every=10s,keep=24"),
            ("every=1.5s,keep=2", "every=1.5s: whole seconds from 1s to 24h are possible"),
            ("every=2d,keep=2", "every=2d: whole seconds from 1s to 24h are possible"),
            ("every=1s,keep=2,logs=all", "logs=all: logs are kept or circular"),
            ("every=1s,keep=0", "keep=0: 1 to 1000 backups can be kept"),
            (
                "every=1s,hold=2",
                "\"hold\" is not known here; write every=TIME,keep=N, such as every=10s,keep=24",
            ),
        ] {
            assert_eq!(parse_protection(text), Err(problem.to_owned()));
        }
    }
}
