//! Messages and progress of a run, for the program that shows them.

use report::prose::number;
use std::time::Duration;
use workload::database::{
    results::{search::describe_level, test_log::Phase},
    run::progress::{LiveFigures, RunProgress},
};
use world::ByteCount;

/// Shows the messages of a run. Nothing in this crate prints.
pub trait RunObserver {
    /// A line about the run, which a quiet program leaves out.
    fn say(&self, line: &str);

    /// A line that a quiet program shows as well.
    fn say_always(&self, line: &str);

    fn warn(&self, line: &str);

    /// A display of progress, which ends when it is dropped.
    fn progress(&self) -> Box<dyn ProgressDisplay>;
}

/// Shows the progress of one activity.
pub trait ProgressDisplay {
    /// Shows the status (`None` at the end) and the `lines` that came since the last call; `elapsed` is the time since
    /// the activity began.
    fn tell(&mut self, elapsed: Duration, status: Option<&ProgressStatus>, lines: &[&str]);

    /// A line between two statuses.
    fn say(&self, line: &str);
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProgressStatus {
    /// `create`, `fill`, `measure` or `verify`.
    pub phase: String,
    /// Done of the phase, 0 to 1.
    pub fraction: f64,
    /// Current figures, each short: `812 reads/s`, `read 3.1 ms`.
    pub figures: Vec<String>,
    /// Until the end of the phase.
    pub left: Option<Duration>,
}

impl ProgressStatus {
    /// The progress of a run.
    pub fn of(progress: &RunProgress) -> Self {
        let mut figures = Vec::new();
        if let Some(search) = &progress.search {
            figures.push(format!(
                "searching: {}, probe {}",
                describe_level(search.axis, search.level),
                search.probe
            ));
        }
        if let Some((done, all)) = progress.bytes {
            figures.push(format!("{} of {}", ByteCount(done), ByteCount(all)));
            if progress.elapsed_s > 1.0 {
                figures.push(format!("{}/s", ByteCount((done as f64 / progress.elapsed_s) as u64)));
            }
        }
        // The last figures of the load are no progress of the verification that follows it.
        if let Some(live) = progress.live.as_ref().filter(|_| progress.phase < Phase::Verify) {
            figures.extend(live_figures(live));
        }
        Self {
            phase: progress.phase.title().to_owned(),
            fraction: progress.fraction,
            figures,
            left: progress.left_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        }
    }

    /// The progress of an activity that has done so many bytes of `all` after `elapsed`.
    pub fn of_bytes(phase: &str, done: u64, all: u64, elapsed: Duration) -> Self {
        let fraction = if all == 0 { 1.0 } else { done as f64 / all as f64 };
        let mut figures = vec![format!("{} of {}", ByteCount(done), ByteCount(all))];
        let mut left = None;
        let seconds = elapsed.as_secs_f64();
        if seconds > 1.0 && done > 0 {
            let rate = done as f64 / seconds;
            figures.push(format!("{}/s", ByteCount(rate as u64)));
            left = Duration::try_from_secs_f64(all.saturating_sub(done) as f64 / rate).ok();
        }
        Self { phase: phase.to_owned(), fraction, figures, left }
    }
}

fn live_figures(live: &LiveFigures) -> Vec<String> {
    let mut figures = vec![format!("{} IOPS", number(live.database_iops, 0))];
    let latencies =
        [("read", live.database_read_ms), ("write", live.database_write_ms), ("log", live.log_write_ms)];
    for (name, latency_ms) in latencies {
        if let Some(latency_ms) = latency_ms {
            figures.push(format!("{name} {latency_ms:.1} ms"));
        }
    }
    if live.backlog > 0 {
        figures.push(format!("{} waiting", number(live.backlog as f64, 0)));
    }
    figures
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Shows nothing.
    pub struct Silent;

    impl RunObserver for Silent {
        fn say(&self, _line: &str) {}

        fn say_always(&self, _line: &str) {}

        fn warn(&self, _line: &str) {}

        fn progress(&self) -> Box<dyn ProgressDisplay> {
            Box::new(Self)
        }
    }

    impl ProgressDisplay for Silent {
        fn tell(&mut self, _elapsed: Duration, _status: Option<&ProgressStatus>, _lines: &[&str]) {}

        fn say(&self, _line: &str) {}
    }

    #[test]
    fn a_run_tells_its_rate_and_latencies() {
        let live = LiveFigures {
            database_iops: 812.4,
            database_read_ms: Some(3.06),
            log_write_ms: Some(0.5),
            backlog: 3,
            ..LiveFigures::default()
        };
        let progress = RunProgress {
            live: Some(live),
            bytes: Some((1 << 20, 4 << 20)),
            elapsed_s: 2.0,
            ..RunProgress::default()
        };
        assert_eq!(
            ProgressStatus::of(&progress).figures,
            ["1.00 MiB of 4.00 MiB", "512 KiB/s", "812 IOPS", "read 3.1 ms", "log 0.5 ms", "3 waiting"]
        );
    }
}
