//! Jobs in words.

use control::{
    job_request::JobOutcome,
    web::health_rows::{JobRow, JobState, JobUnit},
};
use report::duration::show_duration;
use std::time::Duration;
use world::ByteCount;

/// A job in a line: `scrub: running, 42 %, 1.20 GiB/s, 3 min left`.
pub fn job_text(job: &JobRow) -> String {
    let mut parts = vec![match job.state {
        JobState::Running => "running".to_owned(),
        JobState::Waiting => "waits for other work".to_owned(),
        JobState::Idle => "idle".to_owned(),
    }];
    if job.state == JobState::Running && job.total > 0 {
        parts.push(format!("{} %", 100 * job.done.min(job.total) / job.total));
        if job.unit == JobUnit::Bytes && job.per_second > 0 {
            parts.push(format!("{}/s", ByteCount(job.per_second)));
        }
        if let Some(left) = job.time_left_s {
            parts.push(format!("{} left", show_duration(Duration::from_secs(left.max(1)))));
        }
    }
    if let Some(problem) = &job.problem {
        parts.push(format!("stopped at present: {problem}"));
    }
    // The end of an earlier request says nothing of what runs now.
    if let Some(request) = job.request.as_ref().filter(|request| request.outcome.is_none() || !job.is_open())
    {
        parts.push(match (request.outcome, &request.ended_at, &request.problem) {
            (None, ..) => format!("asked for at {}", request.asked_at),
            (Some(JobOutcome::Done), Some(at), _) => format!("done at {at}"),
            (Some(JobOutcome::Cancelled), Some(at), _) => format!("cancelled at {at}"),
            (Some(_), _, Some(problem)) => format!("failed: {problem}"),
            (Some(_), ..) => "ended".to_owned(),
        });
    }
    format!("{}: {}", job.kind.name(), parts.join(", "))
}
