//! A sweep: several runs one after the other on the same places, and their comparison.
//!
//! All runs are settled before the first byte: what one of them would be refused for, the sweep is. The
//! limits of a single run (space, memory, what may be written) hold for all of them together; what is
//! written is counted over the whole process.

use super::{
    Settled, Start, perform,
    performance::Interruption,
    settle,
    sizing::show_decimal,
    survey::Survey,
    sweep::{Sweep, What},
    warn,
};
use crate::{
    answer::deliver_whole,
    arguments::ProveArguments,
    compare::{compared, comparison_document},
    console::Console,
    ending::Ending,
    outputs::Outputs,
    quantity::{show_duration, show_estimate},
    refusal::Refusal,
};
use report::{Outcome, Verdict, prose::counted};
use std::{path::Path, time::Duration};
use workload::database::{
    comparison::{ComparedRun, Comparison, document::knee, saturation},
    profile::Profile,
    setup::Setup,
    span::Span,
    verdict::Answer,
};
use world::{ByteCount, World, real::RealOptions};

/// What is asked of a sweep.
pub struct Asked<'a> {
    /// Everything but the value.
    pub arguments: &'a ProveArguments,
    /// The values.
    pub sweep: &'a Sweep,
    /// What one session does.
    pub profile: Profile,
    /// The published test it goes by.
    pub setup: Option<Setup>,
}

/// Runs a sweep to its end.
pub async fn run(
    world: &World,
    asked: Asked<'_>,
    survey: Survey,
    console: &Console,
    options: RealOptions,
) -> Result<Ending, Refusal> {
    let Asked { arguments, sweep, .. } = asked;
    let outputs = Outputs::settle_report(arguments.report.as_deref(), world.wall(), &survey.places.all)?;
    let (each, settled) = settle_all(world, &asked, &survey, &outputs.prefix())?;
    for line in screen(console, sweep, &settled, &survey) {
        console.say(&line);
    }
    warn(console, &settled[0], &survey);
    if arguments.dry_run {
        console.say("Nothing was written: this was a dry run.");
        return Ok(Ending::Pass);
    }
    let interruption = Interruption::listen(world, console);
    let mut survey = Some(survey);
    let mut runs: Vec<ComparedRun> = Vec::new();
    let mut refused = None;
    for (index, own) in each.iter().enumerate() {
        console.say(&format!(
            "\nRun {} of {}: {} {}",
            index + 1,
            each.len(),
            sweep.what.name(),
            sweep.value(index)
        ));
        let survey = match survey.take() {
            Some(first) => first,
            None => Survey::for_proving(world, own).await?,
        };
        match one(world, &asked, own, &survey, options, &interruption, console).await {
            Ok(run) => runs.push(run),
            Err(refusal) => {
                refused = Some(refusal);
                break;
            }
        }
        if interruption.is_set() {
            break;
        }
    }
    let ended_early = runs.len() < each.len() || interruption.is_set();
    if !runs.is_empty() {
        let ending = conclude(world, runs, ended_early, &outputs, arguments.json, console)?;
        if refused.is_none() {
            return Ok(ending);
        }
    }
    Err(refused.unwrap_or_else(|| Refusal::new("the sweep ended before its first run did", "")))
}

/// What speaks against a sweep whatever its values.
fn check(arguments: &ProveArguments, sweep: &Sweep, survey: &Survey) -> Result<(), Refusal> {
    let name = sweep.what.name();
    let also = match sweep.what {
        What::Threads => arguments.threads.map(|_| "--threads"),
        What::Layouts => arguments.layout.map(|_| "--layout"),
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
    if let Some(held) = held.filter(|_| sweep.what == What::Threads) {
        return Err(Refusal::new(
            format!(
                "--sweep threads= does not go with {held}, whose rate is held by as many threads as it takes"
            ),
            format!("sweep something else, or leave out {held}"),
        ));
    }
    if sweep.what.keeps_databases() {
        return Ok(());
    }
    if arguments.attach {
        return Err(Refusal::new(
            format!("--sweep {name}= makes databases anew for each value, and --attach keeps them"),
            "leave out --attach",
        ));
    }
    match survey.places.all.iter().find(|place| place.manifest().is_some()) {
        Some(place) if !arguments.fresh => Err(Refusal::new(
            format!(
                "{} holds databases of an earlier run, and --sweep {name}= makes new ones for each value",
                place.given.display()
            ),
            "say --fresh to replace them",
        )),
        _ => Ok(()),
    }
}

/// Settles every run, as it will find things, and all with databases of one size and one seed; or says
/// what speaks against one of them, or against all together.
pub(super) fn settle_all(
    world: &World,
    asked: &Asked<'_>,
    survey: &Survey,
    prefix: &Path,
) -> Result<(Vec<ProveArguments>, Vec<Settled>), Refusal> {
    let Asked { arguments, sweep, profile, setup } = asked;
    check(arguments, sweep, survey)?;
    let settle =
        |own: &ProveArguments, start| settle(world, own, profile.clone(), setup.clone(), survey, start);
    let mut each: Vec<ProveArguments> =
        (0..sweep.run_count()).map(|index| sweep.arguments(arguments, prefix, index)).collect();
    let later = if sweep.what.keeps_databases() { Start::SameDatabases } else { Start::Anew };
    let start = |index: usize| if index == 0 { Start::AsFound } else { later };
    let first = settle(&each[0], Start::AsFound)?;
    let mut size = first.needs.size;
    for (index, own) in each.iter_mut().enumerate() {
        own.seed = Some(first.plan.seed);
        if index > 0 && arguments.size.is_none() && !sweep.what.keeps_databases() {
            size = size.min(settle(own, Start::Anew)?.needs.size);
        }
    }
    let mut settled = Vec::new();
    for (index, own) in each.iter_mut().enumerate() {
        own.size = Some(arguments.size.unwrap_or(size));
        settled.push(settle(own, start(index))?);
        if index > 0 {
            (own.attach, own.fresh) = (sweep.what.keeps_databases(), !sweep.what.keeps_databases());
        }
    }
    check_files_move(sweep, &settled)?;
    check_writes(&settled)?;
    Ok((each, settled))
}

/// Values of a sweep over volumes or layouts that put every file in the same place compare nothing.
fn check_files_move(sweep: &Sweep, settled: &[Settled]) -> Result<(), Refusal> {
    let (What::Volumes | What::Layouts) = sweep.what else { return Ok(()) };
    let same = (1..settled.len()).find_map(|index| {
        let before = settled[..index].iter().position(|other| other.layout == settled[index].layout);
        before.map(|before| (before, index))
    });
    let Some((one, other)) = same else { return Ok(()) };
    let plan = &settled[other].plan;
    let databases = counted(plan.database_count(), "database");
    let (one, other, name) = (sweep.value(one), sweep.value(other), sweep.what.name());
    Err(Refusal::new(
        format!(
            "--sweep {name}={one},{other} compares nothing: {databases} and logs lie in the same places with both"
        ),
        match sweep.what {
            What::Volumes => {
                "add databases with --databases or --groups, at least one for each volume".to_owned()
            }
            _ => format!("add paths, databases or groups, or leave out {other}"),
        },
    ))
}

/// All runs together write no more than one may.
fn check_writes(settled: &[Settled]) -> Result<(), Refusal> {
    let writes = writes(settled);
    let most = settled[0].needs.writes_max;
    if writes <= most {
        return Ok(());
    }
    let shown = show_decimal(writes);
    Err(Refusal::new(
        format!("about {shown} would be written by the {} together", counted(settled.len() as u64, "run")),
        format!("if the storage may wear by that much, say --allow-writes {}", shown.replace(' ', "")),
    ))
}

fn writes(settled: &[Settled]) -> ByteCount {
    ByteCount(settled.iter().fold(0, |sum, settled| settled.needs.writes.0.saturating_add(sum)))
}

/// The screen before the first byte: the first run as any, and what all of them take.
fn screen(console: &Console, sweep: &Sweep, settled: &[Settled], survey: &Survey) -> Vec<String> {
    let mut lines = super::screen_lines(console, &settled[0], survey);
    let databases = match sweep.what.keeps_databases() {
        true => "on the same databases",
        false => "each with new databases; those of the run before are removed",
    };
    let most = |of: fn(&Settled) -> ByteCount| settled.iter().map(of).max().unwrap_or_default();
    let time: Duration = settled.iter().map(|settled| settled.needs.time).sum();
    let row = |name: &str, text: String| format!("  {name:<10} {text}");
    lines.extend([
        String::new(),
        format!("This is the first of {}:", counted(settled.len() as u64, "run")),
        String::new(),
        row("sweep", format!("{} {}, {databases}", sweep.what.name(), sweep.values())),
        row("space", format!("at most {}", most(|settled| settled.needs.space))),
        row("memory", format!("about {}", most(|settled| settled.needs.memory))),
        row(
            "writes",
            format!(
                "about {}; at {} the sweep ends, with a partial comparison",
                show_decimal(writes(settled)),
                show_decimal(settled[0].needs.writes_max)
            ),
        ),
        row(
            "time",
            format!(
                "{}, of it {} measured",
                show_estimate(time),
                show_duration(settled.iter().map(|settled| settled.plan.duration()).sum())
            ),
        ),
    ]);
    lines
}

/// One run of the sweep: settled again for what it finds now, made ready, run, reported.
async fn one(
    world: &World,
    asked: &Asked<'_>,
    own: &ProveArguments,
    survey: &Survey,
    options: RealOptions,
    interruption: &Interruption,
    console: &Console,
) -> Result<ComparedRun, Refusal> {
    let (profile, setup) = (asked.profile.clone(), asked.setup.clone());
    let settled = settle(world, own, profile, setup, survey, Start::AsFound)?;
    let finished = perform(world, &settled, survey, options, interruption, console).await?;
    settled.outputs.write(&finished.document)?;
    if let Some(verdict) = &finished.document.verdict {
        console.say(&format!(
            "{}: {}\nReport: {} (and .json)",
            verdict.outcome.word(),
            verdict.headline,
            settled.outputs.html.display()
        ));
    }
    compared(&settled.outputs.record, finished.results)
}

/// Compares what there is, and turns it into an exit code.
fn conclude(
    world: &World,
    runs: Vec<ComparedRun>,
    ended_early: bool,
    outputs: &Outputs,
    json: bool,
    console: &Console,
) -> Result<Ending, Refusal> {
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
    Ok(Ending::of(Some(outcome)))
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
