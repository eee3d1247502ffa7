//! A sweep: several runs one after the other on the same locations, and their comparison.
//!
//! All runs are planned before the first byte is written: if one would be refused, the sweep is. The
//! limits of a single run (space, memory, bytes written) hold for all of them together; bytes
//! written are counted over the whole process.

use crate::{
    document::{compared, comparison_document},
    execution::perform,
    performance::RunContext,
    planning::{PlannedRun, StartState, plan_run},
    request::RunRequest,
    sizing::show_decimal,
    summary::{self, SummaryStyle},
    survey::StorageSurvey,
    sweep::{SweepSpec, SweptSetting},
};
use report::{
    Document, Refusal, Verdict, VerdictOutcome,
    duration::{show_duration, show_estimate},
    prose::counted,
};
use std::{path::Path, time::Duration};
use workload::{
    database::{
        comparison::{ComparedRun, RunComparison, document::knee, saturation},
        plan::{profile::ServerProfile, setup::Setup},
    },
    time_span::TimeSpan,
};
use world::{ByteCount, WallTime, World};

/// Input of a sweep.
#[derive(Clone, Copy)]
pub struct SweepRequest<'a> {
    /// Everything but the value.
    pub request: &'a RunRequest,
    pub sweep: &'a SweepSpec,
    pub profile: &'a ServerProfile,
    /// The published test it goes by.
    pub setup: Option<&'a Setup>,
}

/// The runs of a sweep, planned.
pub struct PlannedSweep {
    /// The settings of each run.
    requests: Vec<RunRequest>,
    planned: Vec<PlannedRun>,
}

/// The runs of a sweep that came to their end.
pub struct SweepOutcome {
    pub runs: Vec<ComparedRun>,
    /// Not all runs were made to their end.
    pub ended_early: bool,
    /// The run that was refused, which ended the sweep.
    pub refusal: Option<Refusal>,
}

/// The comparison of a sweep's runs.
pub struct SweepAnswer {
    pub document: Document,
    /// The verdict in a line.
    pub line: String,
    pub outcome: VerdictOutcome,
}

impl PlannedSweep {
    /// The first run, whose warnings hold for all.
    pub fn first(&self) -> &PlannedRun {
        &self.planned[0]
    }
}

/// Makes the runs of a sweep one after the other, the first on `survey`.
pub async fn run(
    world: &World,
    request: SweepRequest<'_>,
    planned: &PlannedSweep,
    survey: StorageSurvey,
    context: RunContext<'_>,
) -> Result<SweepOutcome, Refusal> {
    let sweep = request.sweep;
    let mut survey = Some(survey);
    let mut runs: Vec<ComparedRun> = Vec::new();
    let mut refusal = None;
    let count = planned.requests.len();
    for (index, own) in planned.requests.iter().enumerate() {
        let (setting, value) = (sweep.setting.name(), sweep.value(index));
        context.observer.say(&format!("\nRun {} of {count}: {setting} {value}", index + 1));
        let survey = match survey.take() {
            Some(first) => first,
            None => StorageSurvey::for_proving(world, own).await?,
        };
        match one(world, request, own, &survey, context).await {
            Ok(run) => runs.push(run),
            Err(refused) => {
                refusal = Some(refused);
                break;
            }
        }
        if context.stop.is_set() {
            break;
        }
    }
    let ended_early = runs.len() < count || context.stop.is_set();
    Ok(SweepOutcome { runs, ended_early, refusal })
}

/// Refuses combinations that make no sense for any value.
fn check(request: &RunRequest, sweep: &SweepSpec, survey: &StorageSurvey) -> Result<(), Refusal> {
    let name = sweep.setting.name();
    let also = match sweep.setting {
        SweptSetting::Threads => request.threads.map(|_| "⟨threads⟩"),
        SweptSetting::Layouts => request.layout.map(|_| "⟨layout⟩"),
        _ => None,
    };
    if let Some(also) = also {
        return Err(Refusal::new(
            format!("⟨sweep⟩ {name}= and {also} are both given"),
            "leave one of them out",
        ));
    }
    let held = match (request.mailboxes, request.max) {
        (Some(_), _) => Some("⟨mailboxes⟩"),
        (None, true) => Some("⟨max⟩"),
        (None, false) => None,
    };
    if let Some(held) = held.filter(|_| sweep.setting == SweptSetting::Threads) {
        return Err(Refusal::new(
            format!(
                "⟨sweep⟩ threads= does not go with {held}, whose rate is held by as many threads as it takes"
            ),
            format!("sweep something else, or leave out {held}"),
        ));
    }
    if sweep.setting.keeps_databases() {
        return Ok(());
    }
    if request.attach {
        return Err(Refusal::new(
            format!("⟨sweep⟩ {name}= makes new databases for each value, and ⟨attach⟩ keeps them"),
            "leave out ⟨attach⟩",
        ));
    }
    match survey.locations.all.iter().find(|location| location.manifest().is_some()) {
        Some(location) if !request.fresh => Err(Refusal::new(
            format!(
                "{} holds databases of an earlier run, and ⟨sweep⟩ {name}= makes new ones for each value",
                location.given.display()
            ),
            "say ⟨fresh⟩ to replace them",
        )),
        _ => Ok(()),
    }
}

/// Plans every run as it will find its locations, all with databases of one size and one seed; refuses if
/// one run, or all of them together, would be refused. `prefix` is that of the reports.
pub fn plan_all(
    world: &World,
    request: SweepRequest<'_>,
    survey: &StorageSurvey,
    prefix: &Path,
) -> Result<PlannedSweep, Refusal> {
    let SweepRequest { request, sweep, profile, setup } = request;
    check(request, sweep, survey)?;
    let plan_run =
        |own: &RunRequest, start| plan_run(world, own, profile.clone(), setup.cloned(), survey, start);
    let mut requests: Vec<RunRequest> =
        (0..sweep.run_count()).map(|index| sweep.request(request, prefix, index)).collect();
    let later = if sweep.setting.keeps_databases() { StartState::SameDatabases } else { StartState::Emptied };
    let start = |index: usize| if index == 0 { StartState::AsFound } else { later };
    let first = plan_run(&requests[0], StartState::AsFound)?;
    let mut size = first.needs.size;
    for (index, own) in requests.iter_mut().enumerate() {
        own.seed = Some(first.plan.seed);
        if index > 0 && request.size.is_none() && !sweep.setting.keeps_databases() {
            size = size.min(plan_run(own, StartState::Emptied)?.needs.size);
        }
    }
    let mut planned = Vec::new();
    for (index, own) in requests.iter_mut().enumerate() {
        own.size = Some(request.size.unwrap_or(size));
        planned.push(plan_run(own, start(index))?);
        if index > 0 {
            let keeps = sweep.setting.keeps_databases();
            (own.attach, own.fresh) = (keeps, !keeps);
        }
    }
    check_files_move(sweep, &planned)?;
    check_writes(&planned)?;
    Ok(PlannedSweep { requests, planned })
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
            "⟨sweep⟩ {name}={one},{other} compares nothing: {databases} and logs lie in the same places with both"
        ),
        match sweep.setting {
            SweptSetting::Volumes => {
                "add databases with ⟨databases⟩ or ⟨groups⟩, at least one for each volume".to_owned()
            }
            _ => format!("add paths, databases or groups, or leave out {other}"),
        },
    ))
}

/// Refuses if all runs together would write more than one may.
fn check_writes(planned: &[PlannedRun]) -> Result<(), Refusal> {
    let writes = writes(planned);
    let most = planned[0].needs.writes_max;
    if writes <= most {
        return Ok(());
    }
    let shown = show_decimal(writes);
    Err(Refusal::new(
        format!("about {shown} would be written by the {} together", counted(planned.len() as u64, "run")),
        format!("if the storage may wear by that much, say ⟨allow-writes⟩ {}", shown.replace(' ', "")),
    ))
}

fn writes(planned: &[PlannedRun]) -> ByteCount {
    ByteCount(planned.iter().fold(0, |sum, planned| planned.needs.writes.0.saturating_add(sum)))
}

/// The summary of a sweep: its first run, and the resources of all of them.
pub fn summary_lines(
    style: SummaryStyle,
    sweep: &SweepSpec,
    planned: &PlannedSweep,
    survey: &StorageSurvey,
) -> Vec<String> {
    let mut lines = summary::summary_lines(style, planned.first(), survey);
    let planned = &planned.planned;
    let databases = if sweep.setting.keeps_databases() {
        "on the same databases"
    } else {
        "each with new databases; those of the run before are removed"
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
    request: SweepRequest<'_>,
    own: &RunRequest,
    survey: &StorageSurvey,
    context: RunContext<'_>,
) -> Result<ComparedRun, Refusal> {
    let (profile, setup) = (request.profile.clone(), request.setup.cloned());
    let planned = plan_run(world, own, profile, setup, survey, StartState::AsFound)?;
    let finished = perform(world, &planned, survey, context).await?;
    planned.outputs.write(&finished.document)?;
    if let Some(verdict) = &finished.document.verdict {
        context.observer.say(&format!(
            "{}: {}\nReport: {} (and .json)",
            verdict.outcome.word(),
            verdict.headline,
            planned.outputs.html.display()
        ));
    }
    compared(&planned.outputs.record, finished.results)
}

/// Compares the runs that were made; `command` and `now` stand in the document.
pub fn conclude(runs: Vec<ComparedRun>, ended_early: bool, now: WallTime, command: &str) -> SweepAnswer {
    let comparison = RunComparison::of(runs);
    let mut document = comparison_document(&comparison, now, command);
    let outcome = outcome(&comparison.runs, ended_early);
    let saturated = saturation::in_words(&comparison, &saturation::signs(&comparison));
    let measured_s: f64 = comparison.runs.iter().map(|run| run.results.measured_s).sum();
    let class = format!("Sweep, {} measured", TimeSpan(measured_s.round() as u64));
    let early = if ended_early { "The sweep was ended early. " } else { "" };
    let headline = format!("{early}{} {saturated}", knee(&comparison));
    let line = format!("{}: {headline}", outcome.word());
    document.verdict = Some(Verdict { outcome, class, headline });
    SweepAnswer { document, line, outcome }
}

/// Pass if a value passed, fail if none did. Damage in any run fails the sweep, and a run that did not
/// come to its end makes it incomplete.
fn outcome(runs: &[ComparedRun], ended_early: bool) -> VerdictOutcome {
    let is_damaged = |run: &ComparedRun| {
        let counts = run.results.failure_counts;
        let io = run.results.volumes.iter().any(|volume| volume.tallies.errors > 0);
        io || counts.io + counts.checksum + counts.content + counts.engine > 0
    };
    let any = |answer: VerdictOutcome| runs.iter().any(|run| run.verdict.answer == answer);
    if runs.iter().any(is_damaged) {
        VerdictOutcome::Fail
    } else if ended_early {
        VerdictOutcome::Incomplete
    } else if any(VerdictOutcome::Pass) {
        VerdictOutcome::Pass
    } else if any(VerdictOutcome::Fail) {
        VerdictOutcome::Fail
    } else {
        VerdictOutcome::Incomplete
    }
}
