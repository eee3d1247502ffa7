//! `spindle failover GROUP --rehearse`: clones at the secondary, recovered and checked by this process over NBD, then dropped.
//!
//! The server deletes the clones some seconds after their last client has gone, so a rehearsal that is killed leaves nothing.

mod drill_report;
mod own_databases;

use super::{GROUPS_PATH, arguments::FailoverArguments, find};
use crate::{
    check_command::{self, CommandCheck},
    console::Console,
    exit_status::ExitStatus,
    server::connection::ServerConnection,
};
use control::web::client::{ApiReply, DrGroupRow, Method, NewRehearsalBody, RehearsalOutcome, RehearsalRow};
use drill_report::{DrillReport, DrillStep, PublishedStep};
use nbd::NbdUri;
use report::{Refusal, html, json, text};
use runs::{crash_copies::DeviceCopy, outputs::check_new_file};
use serving::remote::{Remote, RemoteSettings};
use std::{path::Path, time::Duration};
use world::{
    Address, Moment, World,
    real::{self, RealOptions, host_files, signals::interrupted},
    with_deadline,
};

/// The server deletes the clones when this process has not used them for so long. It holds a connection to each.
const IDLE: Duration = Duration::from_secs(10);
/// Time of the clones beyond that of a command.
const AFTER_COMMAND: Duration = Duration::from_secs(60);

/// Status of an answer about a rehearsal that is not there.
const NOT_FOUND: u16 = 404;

/// The answer of a check.
struct Judgement {
    /// One sentence for each; none if it passed.
    problems: Vec<String>,
    /// The answer in a sentence.
    headline: String,
    files: Vec<workload::database::measure::verify::VerifiedFile>,
    command_output: Option<String>,
}

/// The steps of a rehearsal that are done.
struct Stopwatch<'w> {
    world: &'w World,
    console: &'w Console,
    began: Moment,
    last: Moment,
    steps: Vec<DrillStep>,
}

impl<'w> Stopwatch<'w> {
    fn begin(world: &'w World, console: &'w Console) -> Self {
        let now = world.now();
        Self { world, console, began: now, last: now, steps: Vec::new() }
    }

    /// Notes the end of a step, which began with the end of the last one.
    fn step(&mut self, name: &'static str, published: Option<PublishedStep>) {
        let now = self.world.now();
        let seconds = now.since(self.last).as_secs_f64();
        self.console.say_progress(&format!("{name}: {seconds:.2} s"));
        self.steps.push(DrillStep { step: name, seconds, published });
        self.last = now;
    }

    fn seconds(&self) -> f64 {
        self.last.since(self.began).as_secs_f64()
    }
}

/// Runs the rehearsal to its end.
pub fn rehearse(arguments: &FailoverArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.common.json, false);
    if let Some(page) = &arguments.report {
        check_new_file("--report", page)?;
    }
    real::run(0, RealOptions::default(), async |world: World| {
        let server = arguments.common.place.connection(&world)?;
        let group = find(&server, arguments.group.as_deref().unwrap_or_default()).await?;
        let report = rehearsed(&world, (&server, &group), arguments, &console).await?;
        deliver(&report, arguments.report.as_deref(), &world, &console)
    })
}

/// Clones the group, checks the clones and drops them, whatever the check says.
async fn rehearsed(
    world: &World,
    (server, group): (&ServerConnection, &DrGroupRow),
    arguments: &FailoverArguments,
    console: &Console,
) -> Result<DrillReport, Refusal> {
    let stop = interrupted();
    let mut watch = Stopwatch::begin(world, console);
    let path = format!("{GROUPS_PATH}/{}/rehearsals", group.group);
    // A command is ended first.
    let at_most_s = (arguments.within + AFTER_COMMAND).as_secs();
    let body = NewRehearsalBody { idle_s: IDLE.as_secs(), at_most_s, at: arguments.at.clone() };
    let begun = server.change_to_its_end(Method::POST, &path, Some(&body)).await?;
    let rehearsal: RehearsalRow = begun.parsed()?;
    watch.step("Clone the newest cut and serve the clones", Some(PublishedStep::STORAGE));
    let checked = {
        let judging = judged(world, (server, &rehearsal), arguments, &mut watch);
        let interrupted = || Err(Refusal::new("interrupted: the rehearsal has no answer", ""));
        let stopped = async {
            let _ = stop.await;
        };
        with_deadline(stopped, judging).await.unwrap_or_else(interrupted)
    };
    // The time of the answer, without the clearing up.
    let seconds = watch.seconds();
    let end = match &checked {
        Ok(judgement) => {
            let outcome = outcome_of(judgement);
            let word = if outcome == RehearsalOutcome::Passed { "passed" } else { "failed" };
            format!("{path}/{}?outcome={word}&seconds={seconds:.3}", rehearsal.rehearsal)
        }
        Err(_) => format!("{path}/{}", rehearsal.rehearsal),
    };
    let dropped = server.change_to_its_end(Method::DELETE, &end, None::<&()>).await;
    let is_gone = dropped.as_ref().is_ok_and(|reply| reply.status == NOT_FOUND);
    if let Err(refusal) = dropped.and_then(ApiReply::checked)
        && !is_gone
    {
        let within = IDLE.as_secs();
        console
            .warn(&format!("{refusal}; the server drops the clones {within} s after this command has ended"));
    }
    let judgement = checked?;
    if is_gone && judgement.problems.is_empty() {
        return Err(Refusal::new(
            "the server dropped the clones before the check had ended: the rehearsal has no answer",
            "see the server's messages, and rehearse again",
        ));
    }
    watch.step("Drop the clones", None);
    Ok(DrillReport {
        group: group.name.clone(),
        peer: group.peer.clone(),
        volumes: rehearsal.clones.iter().map(|clone| format!("{}/{}", clone.pool, clone.volume)).collect(),
        began: rehearsal.began,
        is_merging: rehearsal.is_merging,
        complete_until: rehearsal.complete_until,
        outcome: outcome_of(&judgement),
        headline: judgement.headline,
        problems: judgement.problems,
        steps: watch.steps,
        seconds,
        files: judgement.files,
        command: arguments.check.clone(),
        command_output: judgement.command_output,
    })
}

fn outcome_of(judgement: &Judgement) -> RehearsalOutcome {
    match judgement.problems.is_empty() {
        true => RehearsalOutcome::Passed,
        false => RehearsalOutcome::Failed,
    }
}

/// Opens the clones and has them checked.
async fn judged(
    world: &World,
    (server, rehearsal): (&ServerConnection, &RehearsalRow),
    arguments: &FailoverArguments,
    watch: &mut Stopwatch<'_>,
) -> Result<Judgement, Refusal> {
    let (mut copies, mut uris) = (Vec::new(), Vec::new());
    let is_of_one_pool = rehearsal.clones.windows(2).all(|pair| pair[0].pool == pair[1].pool);
    for clone in &rehearsal.clones {
        let uri = reachable(&clone.uri, server.address(), arguments.nbd_tls.as_deref())?;
        let remote = Remote::of(Path::new(&uri), &RemoteSettings::default(), &|_| None)?;
        let remote = remote.ok_or_else(|| Refusal::new(format!("{uri} is no address of a device"), ""))?;
        let name = match is_of_one_pool {
            true => clone.volume.clone(),
            false => format!("{}/{}", clone.pool, clone.volume),
        };
        let open = remote.open(world, None).await.map_err(|error| {
            let next = "say it on the server's machine, or see ⟨nbd-tls⟩ if its NBD has TLS";
            Refusal::new(format!("the clone of {name}: {error}"), next)
        })?;
        copies.push(DeviceCopy { name, device: open.device });
        uris.push(uri);
    }
    watch.step("Open the clones", Some(PublishedStep::DISKS));
    match &arguments.check {
        // The connections stay: the server keeps the clones as long.
        Some(command) => {
            let named = ("SPINDLE_GROUP", &*rehearsal.name);
            let checked = check_command::run((command, arguments.within), named, &uris).await?;
            watch.step("Check by the command", Some(PublishedStep::DATABASES));
            drop(copies);
            let CommandCheck { headline, has_passed, output } = checked;
            let problems = if has_passed { Vec::new() } else { vec![headline.clone()] };
            Ok(Judgement { problems, headline, files: Vec::new(), command_output: output })
        }
        None => own_databases::judge(world, &copies, watch).await,
    }
}

/// The URI as this machine reaches it: a server that listens everywhere says no address of its own.
fn reachable(uri: &str, server: &Address, certificates: Option<&Path>) -> Result<String, Refusal> {
    let mut uri: NbdUri =
        uri.parse().map_err(|error: nbd::NbdUriError| Refusal::new(error.to_string(), ""))?;
    if let Address::Tcp { host, .. } = &mut uri.address
        && ["0.0.0.0", "::", "[::]"].contains(&host.as_str())
    {
        *host = match server {
            Address::Tcp { host, .. } => host.clone(),
            Address::Unix(_) => "localhost".to_owned(),
        };
    }
    if let (Some(tls), Some(folder)) = (&mut uri.tls, certificates) {
        tls.certificates = Some(folder.to_owned());
    }
    Ok(uri.to_string())
}

fn deliver(
    report: &DrillReport,
    page: Option<&Path>,
    world: &World,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let document = report.document(world);
    let options = text::TextOptions { width: console.width, colour: console.colour };
    console.say(text::render(&document, options).trim_end());
    if let Some(page) = page {
        let is_json = page.extension().is_some_and(|extension| extension == "json");
        let (rendered, name) = match is_json {
            true => (json::render(&document), "Report"),
            false => (html::render(&document), "Page"),
        };
        let written = host_files::write_atomically(page, rendered.as_bytes());
        written.map_err(|error| Refusal::new(format!("--report: {error}"), "the answer above stands"))?;
        console.say_always(&format!("{name}: {}", page.display()));
    }
    if console.is_for_programs() {
        console.json_of(report)?;
    }
    console.finish(ExitStatus::of(document.verdict.as_ref().map(|verdict| verdict.outcome)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_listens_everywhere_is_reached_where_it_was_asked() {
        let of = |uri: &str, server: &str| {
            reachable(uri, &Address::parse(server, 1).unwrap(), Some(Path::new("/tls"))).unwrap()
        };
        assert_eq!(of("nbd://0.0.0.0:10809/a", "192.0.2.7:7780"), "nbd://192.0.2.7:10809/a");
        assert_eq!(of("nbd://0.0.0.0:10809/a", "unix:/run/socket"), "nbd://localhost:10809/a");
        assert_eq!(of("nbd://192.0.2.9:10810/a", "192.0.2.7:7780"), "nbd://192.0.2.9:10810/a");
        let encrypted = of("nbds://192.0.2.9:10810/a", "192.0.2.7:7780");
        assert!(encrypted.contains("tls-certificates=/tls"), "{encrypted}");
    }
}
