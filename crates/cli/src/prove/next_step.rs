//! Suggestions after a run, printed below its answer as commands that can be copied.

use crate::{command_line::command_line, console::Console};
use runs::request::RunRequest;
use std::time::Duration;
use workload::{
    database::{plan::LoadPlan, results::RunResults},
    verdict::{RunVerdict, VerdictOutcome},
};

/// A performance test takes as long (Jetstress' own rule; docs/seeds.md).
const PERFORMANCE_TEST: Duration = Duration::from_hours(2);
/// Column of the remarks, if the commands leave room.
const REMARK_COLUMN: usize = 48;

/// A command, and why.
type Step = (String, &'static str);

/// Prints suggestions after a run with `request` that ended with `results`.
pub fn say(console: &Console, request: &RunRequest, results: &RunResults) {
    let Ok(verdict) = RunVerdict::of(results) else { return };
    console.say("Next:");
    for (command, why) in steps(request, results, &verdict) {
        // A command that is longer than its column keeps two blanks before its remark.
        console.say(&format!("  {command:<REMARK_COLUMN$}  {why}"));
    }
}

fn steps(request: &RunRequest, results: &RunResults, verdict: &RunVerdict) -> Vec<Step> {
    let prove = |more: &[&str]| command(request, &[], more);
    let load = load(request);
    let is_damaged = results.failure_counts != Default::default()
        || results.volumes.iter().any(|volume| volume.tallies.errors > 0);
    let is_short = results.plan.duration() < PERFORMANCE_TEST;
    let is_bare = matches!(results.plan.load, LoadPlan::Threads { .. });
    let seeks = matches!(results.plan.load, LoadPlan::Maximum { .. } | LoadPlan::TunedThreads { .. });
    let broken = verdict.broken().next().is_some();
    let mut steps: Vec<Step> = Vec::new();
    match verdict.answer {
        VerdictOutcome::Fail if is_damaged => {
            steps.push(("dmesg --level=err,warn".to_owned(), "what the kernel says of the device"));
            steps.extend(verify(request).map(|command| (command, "which pages are damaged")));
            steps.push((prove(&["--attach"]), "the same databases once more: does it happen again?"));
        }
        VerdictOutcome::Fail => {
            steps.push((prove(&["--max"]), "the highest rate that it does carry"));
            steps.push((prove(&["--sweep", "threads=1,2,5,10,20"]), "from which load on it is too slow"));
        }
        VerdictOutcome::Incomplete if broken || results.interrupted || results.cut_off.is_some() => {
            steps.push((command(request, &load, &[]), "again, to its end"));
        }
        _ => {
            if is_short {
                steps.push((
                    command(request, &load, &["--duration", "2h"]),
                    "two hours make a performance test",
                ));
            }
            if is_bare {
                steps.push((
                    prove(&["--mailboxes", "5000", "--iops", "0.18"]),
                    "your own users, at the rate they need",
                ));
            }
            if !seeks {
                steps.push((prove(&["--max"]), "the most it carries within the limits"));
            }
        }
    }
    steps.push((prove(&["--clean"]), "removes what it made"));
    steps
}

/// `spindle prove` on the same locations, with `more`.
fn command(request: &RunRequest, load: &[String], more: &[&str]) -> String {
    let more = more.iter().map(|&word| word.to_owned());
    command_line(locations(request, "prove").into_iter().chain(load.iter().cloned()).chain(more))
}

/// The load as it was asked for.
fn load(request: &RunRequest) -> Vec<String> {
    let RunRequest { setup, site, profile, mailboxes, iops, max, .. } = request;
    let named = [("--setup", setup.clone()), ("--site", site.clone()), ("--server", profile.clone())];
    let counted =
        [("--mailboxes", mailboxes.map(|n| n.to_string())), ("--iops", iops.map(|rate| rate.to_string()))];
    let said = named.into_iter().chain(counted).filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
    said.flatten().chain(max.then(|| "--max".to_owned())).collect()
}

/// `spindle verify` on the same locations. `None` for remote devices, which it cannot open.
fn verify(request: &RunRequest) -> Option<String> {
    if request.paths.iter().any(|path| path.display().to_string().contains("://")) {
        return None;
    }
    let mut words = vec!["spindle".to_owned(), "verify".to_owned()];
    if request.paths.is_empty() {
        words.push("spindle-data".to_owned())
    } else {
        words.extend(request.paths.iter().map(|path| path.display().to_string()))
    }
    Some(command_line(words.into_iter()))
}

fn locations(request: &RunRequest, verb: &str) -> Vec<String> {
    let mut words = vec!["spindle".to_owned(), verb.to_owned()];
    words.extend(request.paths.iter().map(|path| path.display().to_string()));
    for path in &request.logs {
        words.extend(["--logs".to_owned(), path.display().to_string()]);
    }
    if request.pool {
        words.push("--pool".to_owned());
    }
    words
}
