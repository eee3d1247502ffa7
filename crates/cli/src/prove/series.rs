//! A sweep: several runs one after the other on the same places, and their comparison.
//!
//! All runs are planned before the first byte is written: if one would be refused, the sweep is. The
//! limits of a single run (space, memory, bytes written) hold for all of them together; bytes
//! written are counted over the whole process.

use super::{
    PlannedRun, StartState, perform,
    performance::StopSwitch,
    plan_run,
    sizing::show_decimal,
    survey::StorageSurvey,
    sweep::{SweepSpec, SweptSetting},
    warn,
};
use crate::{
    answer::deliver_whole,
    arguments::ProveArguments,
    compare::{compared, comparison_document},
    console::Console,
    exit_status::ExitStatus,
    outputs::Outputs,
};
use report::{
    Outcome, Refusal, Verdict,
    duration::{show_duration, show_estimate},
    prose::counted,
};
use std::{path::Path, time::Duration};
use workload::database::{
    comparison::{ComparedRun, Comparison, document::knee, saturation},
    profile::Profile,
    setup::Setup,
    span::Span,
    verdict::Answer,
};
use world::{ByteCount, World, real::RealOptions};

/// Input of a sweep.
pub struct SweepRequest<'a> {
    /// Everything but the value.
    pub arguments: &'a ProveArguments,
    pub sweep: &'a SweepSpec,
    pub profile: Profile,
    /// The published test it goes by.
    pub setup: Option<Setup>,
}

/// Runs a sweep to its end.
pub async fn run(
    world: &World,
    request: SweepRequest<'_>,
    survey: StorageSurvey,
    console: &Console,
    options: RealOptions,
) -> Result<ExitStatus, Refusal> {
    let SweepRequest { arguments, sweep, .. } = request;
    let outputs = Outputs::choose_report(arguments.report.as_deref(), world.wall(), &survey.locations.all)?;
    let (each, planned) = plan_all(world, &request, &survey, &outputs.prefix())?;
    for line in screen(console, sweep, &planned, &survey) {
        console.say(&line);
    }
    warn(console, &planned[0], &survey);
    if arguments.dry_run {
        console.say("Nothing was written: this was a dry run.");
        return Ok(ExitStatus::Pass);
    }
    let stop_switch = StopSwitch::listen(world, console);
    let mut survey = Some(survey);
    let mut runs: Vec<ComparedRun> = Vec::new();
    let mut refused = None;
    for (index, own) in each.iter().enumerate() {
        console.say(&format!(
            "\nRun {} of {}: {} {}",
            index + 1,
            each.len(),
            sweep.setting.name(),
            sweep.value(index)
        ));
        let survey = match survey.take() {
            Some(first) => first,
            None => StorageSurvey::for_proving(world, own).await?,
        };
        match one(world, &request, own, &survey, options, &stop_switch, console).await {
            Ok(run) => runs.push(run),
            Err(refusal) => {
                refused = Some(refusal);
                break;
            }
        }
        if stop_switch.is_set() {
            break;
        }
    }
    let ended_early = runs.len() < each.len() || stop_switch.is_set();
    if !runs.is_empty() {
        let status = conclude(world, runs, ended_early, &outputs, arguments.json, console)?;
        if refused.is_none() {
            return Ok(status);
        }
    }
    Err(refused.unwrap_or_else(|| Refusal::new("the sweep ended before its first run did", "")))
}

/// Refuses combinations that make no sense for any value.
fn check(arguments: &ProveArguments, sweep: &SweepSpec, survey: &StorageSurvey) -> Result<(), Refusal> {
    let name = sweep.setting.name();
    let also = match sweep.setting {
        SweptSetting::Threads => arguments.threads.map(|_| "--threads"),
        SweptSetting::Layouts => arguments.layout.map(|_| "--layout"),
        _ => None,
    };
    if let Some(also) = also {
        return Err(Refusal::new(
            format!("--sweep {name}= and {also} are both given"),
            "leave one of them out",
        ));
    }
    let held = match (arguments.mailboxes, arguments.max) {
        (Some(_), _) => Some("--mailboxes"),
        (None, true) => Some("--max"),
        (None, false) => None,
    };
    if let Some(held) = held.filter(|_| sweep.setting == SweptSetting::Threads) {
        return Err(Refusal::new(
            format!(
                "--sweep threads= does not go with {held}, whose rate is held by as many threads as it takes"
            ),
            format!("sweep something else, or leave out {held}"),
        ));
    }
    if sweep.setting.keeps_databases() {
        return Ok(());
    }
    if arguments.attach {
        return Err(Refusal::new(
            format!("--sweep {name}= makes new databases for each value, and --attach keeps them"),
            "leave out --attach",
        ));
    }
    match survey.locations.all.iter().find(|location| location.manifest().is_some()) {
        Some(location) if !arguments.fresh => Err(Refusal::new(
            format!(
                "{} holds databases of an earlier run, and --sweep {name}= makes new ones for each value",
                location.given.display()
            ),
            "say --fresh to replace them",
        )),
        _ => Ok(()),
    }
}

/// Plans every run as it will find its locations, all with databases of one size and one seed; refuses if
/// one run, or all of them together, would be refused.
pub(super) fn plan_all(
    world: &World,
    request: &SweepRequest<'_>,
    survey: &StorageSurvey,
    prefix: &Path,
) -> Result<(Vec<ProveArguments>, Vec<PlannedRun>), Refusal> {
    let SweepRequest { arguments, sweep, profile, setup } = request;
    check(arguments, sweep, survey)?;
    let plan_run =
        |own: &ProveArguments, start| plan_run(world, own, profile.clone(), setup.clone(), survey, start);
    let mut each: Vec<ProveArguments> =
        (0..sweep.run_count()).map(|index| sweep.arguments(arguments, prefix, index)).collect();
    let later = if sweep.setting.keeps_databases() { StartState::SameDatabases } else { StartState::Anew };
    let start = |index: usize| if index == 0 { StartState::AsFound } else { later };
    let first = plan_run(&each[0], StartState::AsFound)?;
    let mut size = first.needs.size;
    for (index, own) in each.iter_mut().enumerate() {
        own.seed = Some(first.plan.seed);
        if index > 0 && arguments.size.is_none() && !sweep.setting.keeps_databases() {
            size = size.min(plan_run(own, StartState::Anew)?.needs.size);
        }
    }
    let mut planned = Vec::new();
    for (index, own) in each.iter_mut().enumerate() {
        own.size = Some(arguments.size.unwrap_or(size));
        planned.push(plan_run(own, start(index))?);
        if index > 0 {
            (own.attach, own.fresh) = (sweep.setting.keeps_databases(), !sweep.setting.keeps_databases());
        }
    }
    check_files_move(sweep, &planned)?;
    check_writes(&planned)?;
    Ok((each, planned))
}

/// Refuses values of a sweep over volumes or layouts that put every file in the same location.
fn check_files_move(sweep: &SweepSpec, planned: &[PlannedRun]) -> Result<(), Refusal> {
    let (SweptSetting::Volumes | SweptSetting::Layouts) = sweep.setting else { return Ok(()) };
    let same = (1..planned.len()).find_map(|index| {
        let before = planned[..index].iter().position(|other| other.layout == planned[index].layout);
        before.map(|before| (before, index))
    });
    let Some((one, other)) = same else { return Ok(()) };
    let plan = &planned[other].plan;
    let databases = counted(plan.database_count(), "database");
    let (one, other, name) = (sweep.value(one), sweep.value(other), sweep.setting.name());
    Err(Refusal::new(
        format!(
            "--sweep {name}={one},{other} compares nothing: {databases} and logs lie in the same places with both"
        ),
        match sweep.setting {
            SweptSetting::Volumes => {
                "add databases with --databases or --groups, at least one for each volume".to_owned()
            }
            _ => format!("add paths, databases or groups, or leave out {other}"),
        },
    ))
}

/// All runs together write no more than one may.
fn check_writes(planned: &[PlannedRun]) -> Result<(), Refusal> {
    let writes = writes(planned);
    let most = planned[0].needs.writes_max;
    if writes <= most {
        return Ok(());
    }
    let shown = show_decimal(writes);
    Err(Refusal::new(
        format!("about {shown} would be written by the {} together", counted(planned.len() as u64, "run")),
        format!("if the storage may wear by that much, say --allow-writes {}", shown.replace(' ', "")),
    ))
}

fn writes(planned: &[PlannedRun]) -> ByteCount {
    ByteCount(planned.iter().fold(0, |sum, planned| planned.needs.writes.0.saturating_add(sum)))
}

/// The screen before the first byte: the first run as any, and what all of them take.
fn screen(
    console: &Console,
    sweep: &SweepSpec,
    planned: &[PlannedRun],
    survey: &StorageSurvey,
) -> Vec<String> {
    let mut lines = super::screen_lines(console, &planned[0], survey);
    let databases = match sweep.setting.keeps_databases() {
        true => "on the same databases",
        false => "each with new databases; those of the run before are removed",
    };
    let most = |of: fn(&PlannedRun) -> ByteCount| planned.iter().map(of).max().unwrap_or_default();
    let time: Duration = planned.iter().map(|planned| planned.needs.time).sum();
    let row = |name: &str, text: String| format!("  {name:<10} {text}");
    lines.extend([
        String::new(),
        format!("This is the first of {}:", counted(planned.len() as u64, "run")),
        String::new(),
        row("sweep", format!("{} {}, {databases}", sweep.setting.name(), sweep.values())),
        row("space", format!("at most {}", most(|planned| planned.needs.space))),
        row("memory", format!("about {}", most(|planned| planned.needs.memory))),
        row(
            "writes",
            format!(
                "about {}; at {} the sweep ends, with a partial comparison",
                show_decimal(writes(planned)),
                show_decimal(planned[0].needs.writes_max)
            ),
        ),
        row(
            "time",
            format!(
                "{}, of it {} measured",
                show_estimate(time),
                show_duration(planned.iter().map(|planned| planned.plan.duration()).sum())
            ),
        ),
    ]);
    lines
}

/// One run of the sweep: planned again for the current state, prepared, run, reported.
async fn one(
    world: &World,
    request: &SweepRequest<'_>,
    own: &ProveArguments,
    survey: &StorageSurvey,
    options: RealOptions,
    stop_switch: &StopSwitch,
    console: &Console,
) -> Result<ComparedRun, Refusal> {
    let (profile, setup) = (request.profile.clone(), request.setup.clone());
    let planned = plan_run(world, own, profile, setup, survey, StartState::AsFound)?;
    let finished = perform(world, &planned, survey, options, stop_switch, console).await?;
    planned.outputs.write(&finished.document)?;
    if let Some(verdict) = &finished.document.verdict {
        console.say(&format!(
            "{}: {}\nReport: {} (and .json)",
            verdict.outcome.word(),
            verdict.headline,
            planned.outputs.html.display()
        ));
    }
    compared(&planned.outputs.record, finished.results)
}

/// Compares what there is, and turns it into an exit code.
fn conclude(
    world: &World,
    runs: Vec<ComparedRun>,
    ended_early: bool,
    outputs: &Outputs,
    json: bool,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let comparison = Comparison::of(runs);
    let mut document = comparison_document(&comparison, world.wall());
    let outcome = outcome(&comparison.runs, ended_early);
    let saturated = saturation::in_words(&comparison, &saturation::signs(&comparison));
    let measured_s: f64 = comparison.runs.iter().map(|run| run.results.measured_s).sum();
    let class = format!("Sweep, {} measured", Span(measured_s.round() as u64));
    let early = if ended_early { "The sweep was ended early. " } else { "" };
    let headline = format!("{early}{} {saturated}", knee(&comparison));
    let answer = format!("{}: {headline}", outcome.word());
    document.verdict = Some(Verdict { outcome, class, headline });
    console.say("");
    deliver_whole(&document, &answer, Some(outputs), json, console)?;
    Ok(ExitStatus::of(Some(outcome)))
}

/// Pass if a value passed, fail if none did; what is damaged anywhere fails the sweep, and what did not
/// come to its end gives no answer.
fn outcome(runs: &[ComparedRun], ended_early: bool) -> Outcome {
    let is_damaged = |run: &ComparedRun| {
        let counts = run.results.failure_counts;
        let io = run.results.volumes.iter().any(|volume| volume.tallies.errors > 0);
        io || counts.io + counts.checksum + counts.content + counts.engine > 0
    };
    let any = |answer: Answer| runs.iter().any(|run| run.verdict.answer == answer);
    if runs.iter().any(is_damaged) {
        Outcome::Fail
    } else if ended_early {
        Outcome::Incomplete
    } else if any(Answer::Pass) {
        Outcome::Pass
    } else if any(Answer::Fail) {
        Outcome::Fail
    } else {
        Outcome::Incomplete
    }
}
