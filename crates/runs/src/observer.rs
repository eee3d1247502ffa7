//! Messages and progress of a run, for the program that shows them.

use report::prose::number;
use std::time::Duration;
use workload::database::{
    results::{search::describe_level, test_log::Phase},
    run::progress::{LiveFigures, RunProgress},
};
use world::{ByteCount, JobProgress};

/// Rate and time left fluctuate in the first moments of a job, and are not shown before.
const ESTIMATE_AFTER: Duration = Duration::from_secs(2);

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
        let elapsed = Duration::try_from_secs_f64(progress.elapsed_s).unwrap_or_default();
        let status = Self::of_job(progress.phase.title(), &progress.work, elapsed);
        figures.extend(status.figures);
        // The last figures of the load are no progress of the verification that follows it.
        if let Some(live) = progress.live.as_ref().filter(|_| progress.phase < Phase::Verify) {
            figures.extend(live_figures(live));
        }
        Self { figures, ..status }
    }

    /// The progress of a job, `elapsed` after it began.
    pub fn of_job(phase: &str, job: &JobProgress, elapsed: Duration) -> Self {
        let can_estimate = elapsed >= ESTIMATE_AFTER;
        let mut figures = Vec::new();
        if let Some((done, all)) = job.bytes() {
            figures.push(format!("{} of {}", ByteCount(done), ByteCount(all)));
            if can_estimate {
                figures.push(format!("{}/s", ByteCount(job.per_second as u64)));
            }
        }
        let left = job.time_left.filter(|_| can_estimate);
        Self { phase: phase.to_owned(), fraction: job.fraction(), figures, left }
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
            work: JobProgress {
                total: 4 << 20,
                done: 1 << 20,
                per_second: 524_288.0,
                time_left: Some(Duration::from_secs(6)),
                ..JobProgress::default()
            },
            elapsed_s: 2.0,
            ..RunProgress::default()
        };
        let status = ProgressStatus::of(&progress);
        assert_eq!(
            status.figures,
            ["1.00 MiB of 4.00 MiB", "512 KiB/s", "812 IOPS", "read 3.1 ms", "log 0.5 ms", "3 waiting"]
        );
        assert_eq!((status.fraction, status.left), (0.25, Some(Duration::from_secs(6))));
        let early = ProgressStatus::of(&RunProgress { elapsed_s: 1.0, ..progress });
        assert_eq!((early.figures.len(), early.left), (5, None), "rate and time left are not known yet");
    }
}
