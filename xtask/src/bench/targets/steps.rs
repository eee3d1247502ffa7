//! Steps of our server's thread during its runs: how many are long, the longest, the tasks they belong to.
//!
//! The server appends a line to a file each second (`spindle export --step-times`). A run is described by the
//! lines that were added while it ran; its first line may begin up to a second before it.

use super::super::row::{Goal, Measurement, Row, median};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Goal of the longest step, in milliseconds of processor time.
const LONGEST_MS: f64 = 1.0;

/// The file of a server.
pub(crate) struct StepLog {
    path: PathBuf,
    /// Lines that were read.
    seen: usize,
}

/// Rows about the steps of one load.
pub(crate) struct StepRows {
    long: Row,
    longest: Row,
    p999: Row,
}

/// Steps during one run.
#[derive(Debug, PartialEq)]
struct RunSteps {
    seconds: f64,
    long: f64,
    /// Longest by the clock, in milliseconds.
    longest_ms: f64,
    /// Longest by processor time, in milliseconds; at most by the clock if none was long.
    processor_longest_ms: f64,
    /// Median of the seconds.
    p999_us: f64,
    /// Long steps by task: all, those by processor time, and the longest of these in milliseconds.
    tasks: BTreeMap<String, (f64, f64, f64)>,
}

impl StepLog {
    pub fn new(path: PathBuf) -> Self {
        Self { path, seen: 0 }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lines since the last call.
    pub fn take(&mut self) -> Result<Vec<Value>> {
        let text =
            fs::read_to_string(&self.path).with_context(|| format!("reading {}", self.path.display()))?;
        // The server may be writing the last one.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines: Vec<&str> = whole.lines().skip(self.seen).collect();
        self.seen += lines.len();
        lines.into_iter().map(|line| serde_json::from_str(line).context("a line of step times")).collect()
    }
}

impl StepRows {
    pub fn new(load: &str) -> Self {
        const NOTE: &str = "steps: polls of tasks on the server's thread, by the clock; those over 1 ms a second of its runs";
        const LONGEST_NOTE: &str = "longest step: by the processor time of the thread, of each run; by the clock it may have waited for a processor";
        const P999_NOTE: &str = "step p99.9: of all steps of a second, the median of the seconds of each run";
        Self {
            long: Row::new(format!("{load}, steps > 1 ms"), "/s", Goal::None, NOTE),
            longest: Row::new(format!("{load}, longest step"), "ms", Goal::AtMost(LONGEST_MS), LONGEST_NOTE),
            p999: Row::new(format!("{load}, step p99.9"), "µs", Goal::None, P999_NOTE),
        }
    }

    /// Adds the lines of one run, and prints the tasks with long steps.
    pub fn add(&mut self, lines: &[Value]) -> Result<()> {
        let Some(steps) = RunSteps::of(lines)? else { return Ok(()) };
        for (task, (long, processor_long, longest_ms)) in &steps.tasks {
            println!(
                "     {task}: {long} steps > 1 ms, {processor_long} by processor time, the longest {longest_ms:.2} ms"
            );
        }
        let tasks = steps.tasks.iter().map(|(task, (long, processor_long, longest_ms))| {
            json!({"task": task, "long": long, "processor_long": processor_long, "processor_longest_ms": longest_ms})
        });
        let raw = json!({"seconds": steps.seconds, "longest_ms": steps.longest_ms, "tasks": tasks.collect::<Vec<_>>()});
        self.long.ours.push(Measurement { value: steps.long / steps.seconds, raw });
        let figure = |value| Measurement { value, raw: json!({}) };
        self.longest.ours.push(figure(steps.processor_longest_ms));
        self.p999.ours.push(figure(steps.p999_us));
        Ok(())
    }

    pub fn into_rows(self) -> Vec<Row> {
        vec![self.long, self.longest, self.p999]
    }
}

impl RunSteps {
    /// Adds up the lines of a run; `None` if there is no line.
    fn of(lines: &[Value]) -> Result<Option<Self>> {
        let number = |value: &Value, key: &str| {
            value[key].as_f64().with_context(|| format!("no figure {key} in {value}"))
        };
        let all = |key: &str| lines.iter().map(|line| number(line, key)).collect::<Result<Vec<f64>>>();
        let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let Some(p999_us) = median(all("p999_us")?.into_iter()) else { return Ok(None) };
        let mut tasks = BTreeMap::new();
        for task in lines.iter().filter_map(|line| line["tasks"].as_array()).flatten() {
            let name = task["task"].as_str().context("a task without a name")?;
            let sum: &mut (f64, f64, f64) = tasks.entry(name.to_owned()).or_default();
            sum.0 += number(task, "long")?;
            sum.1 += number(task, "processor_long")?;
            sum.2 = sum.2.max(number(task, "processor_longest_us")? / 1e3);
        }
        let longest_ms = most(&all("longest_us")?) / 1e3;
        let limit_ms = most(&all("limit_us")?) / 1e3;
        let of_tasks = tasks.values().map(|&(_, _, longest_ms)| longest_ms).collect::<Vec<_>>();
        // Steps that are not long have no processor time of their own, and took no more than the limit.
        let short_ms = longest_ms.min(limit_ms);
        Ok(Some(Self {
            seconds: all("seconds")?.iter().sum(),
            long: all("long")?.iter().sum(),
            longest_ms,
            processor_longest_ms: most(&of_tasks).max(if tasks.is_empty() { short_ms } else { 0.0 }),
            p999_us,
            tasks,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(p999_us: f64, tasks: &Value) -> Value {
        let long: f64 = tasks.as_array().unwrap().iter().map(|task| task["long"].as_f64().unwrap()).sum();
        let longest_us = if long > 0.0 { 4000.0 } else { 700.0 };
        json!({"at": 1.0, "seconds": 1.0, "steps": 9, "p999_us": p999_us, "longest_us": longest_us, "limit_us": 1000.0,
               "long": long, "tasks": tasks})
    }

    #[test]
    fn seconds_of_a_run_are_added_up_by_task() {
        let merge = |long: u32, longest_us: f64| {
            json!([{"task": "merge", "long": long, "longest_us": 4000.0, "processor_long": 1,
                    "processor_longest_us": longest_us}])
        };
        let lines = [line(50.0, &merge(2, 1500.0)), line(90.0, &json!([])), line(70.0, &merge(3, 2500.0))];
        let steps = RunSteps::of(&lines).unwrap().unwrap();
        assert_eq!((steps.seconds, steps.long, steps.p999_us), (3.0, 5.0, 70.0));
        assert_eq!((steps.longest_ms, steps.processor_longest_ms), (4.0, 2.5));
        assert_eq!(steps.tasks["merge"], (5.0, 2.0, 2.5));
        let short = RunSteps::of(&[line(50.0, &json!([]))]).unwrap().unwrap();
        assert_eq!((short.long, short.processor_longest_ms), (0.0, 0.7));
        assert_eq!(RunSteps::of(&[]).unwrap(), None);
    }

    #[test]
    fn a_line_is_taken_once_and_only_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = StepLog::new(folder.path().join("steps"));
        assert!(log.take().is_err(), "there is no file");
        fs::write(log.path(), "{\"a\":1}\n{\"a\":2").unwrap();
        assert_eq!(log.take().unwrap(), [json!({"a": 1})]);
        fs::write(log.path(), "{\"a\":1}\n{\"a\":2}\n").unwrap();
        assert_eq!(log.take().unwrap(), [json!({"a": 2})]);
        assert!(log.take().unwrap().is_empty());
    }
}
