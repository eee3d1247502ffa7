//! `spindle prove`: real mailbox databases on real storage, and the answer.
//!
//! The crate `runs` surveys, plans and runs; this file asks it, prints the plan, and delivers the answer.

mod next_step;
mod pool_events;
pub mod protection;
mod request;

use crate::{
    answer::{deliver, deliver_whole},
    arguments::ProveArguments,
    command_line::own_command,
    console::Console,
    exit_status::ExitStatus,
};
use pool_events::PoolEventPrinter;
use report::{Refusal, VerdictOutcome};
use request::request_of;
use runs::{
    cleaning,
    execution::perform,
    outputs::Outputs,
    performance::RunContext,
    planning::{self, PlannedRun, StartState, plan_run},
    pools,
    request::RunRequest,
    series::{self, SweepRequest},
    setup, site,
    stop_switch::StopSwitch,
    summary::{self, SummaryStyle},
    survey::StorageSurvey,
    sweep::SweepSpec,
};
use std::sync::Arc;
use workload::database::plan::{profile::ServerProfile, setup::Setup};
use world::{
    World,
    real::{self, RealOptions, signals::interrupted},
};

/// Runs the verb to its end.
pub fn prove(arguments: &ProveArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, arguments.quiet);
    let options = RealOptions::plain(arguments.plain_io);
    let status = real::run(0, options, async |world| prove_in(&world, arguments, &console).await)?;
    console.finish(status)
}

async fn prove_in(
    world: &World,
    arguments: &ProveArguments,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let (request, left_out) = site::filled_in(&request_of(arguments))?;
    if arguments.clean {
        return clean(world, &request, arguments.dry_run, console).await;
    }
    for part in left_out {
        console.warn(&part);
    }
    let (request, setup) = setup::filled_in(&request)?;
    let profile = planning::profile(&request)?;
    let survey = StorageSurvey::for_proving(world, &request).await?;
    let proving = Proving { world, arguments, request: &request, console };
    match &request.sweep {
        Some(sweep) => proving.sweep(sweep, (&profile, setup.as_ref()), survey).await,
        None if request.pool => proving.on_pools((profile, setup), &survey).await,
        None => proving.once((profile, setup), &survey).await,
    }
}

async fn clean(
    world: &World,
    request: &RunRequest,
    dry_run: bool,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let survey = StorageSurvey::for_cleaning(world, request).await?;
    if dry_run {
        cleaning::show_all(&survey, console);
        console.say("Nothing was removed: this was a dry run.");
    } else {
        cleaning::clean_all(world, &survey, console).await?;
    }
    Ok(ExitStatus::Pass)
}

/// The verb after its settings are complete.
struct Proving<'a> {
    world: &'a World,
    arguments: &'a ProveArguments,
    request: &'a RunRequest,
    console: &'a Console,
}

impl Proving<'_> {
    /// One run on the plain path.
    async fn once(
        &self,
        (profile, setup): (ServerProfile, Option<Setup>),
        survey: &StorageSurvey,
    ) -> Result<ExitStatus, Refusal> {
        let Self { world, arguments, request, console } = *self;
        let planned = plan_run(world, request, profile, setup, survey, StartState::AsFound)?;
        if self.is_dry(&summary::summary_lines(style(console), &planned, survey), &planned, survey) {
            return Ok(ExitStatus::Pass);
        }
        console.say("");
        let (stop, command) = (listen(world, console), own_command());
        let finished = perform(world, &planned, survey, self.context(&stop, &command)).await?;
        let status = deliver(&finished.document, &planned.outputs, arguments.json, console)?;
        next_step::say(console, request, &finished.results);
        Ok(status)
    }

    /// The plain path and then the array, whose answer counts.
    async fn on_pools(
        &self,
        (profile, setup): (ServerProfile, Option<Setup>),
        survey: &StorageSurvey,
    ) -> Result<ExitStatus, Refusal> {
        let Self { world, arguments, request, console } = *self;
        let run = pools::run::plan(world, request, (profile, setup), survey).await?;
        let planned = &run.planned;
        if self.is_dry(&summary::summary_lines(style(console), planned, survey), planned, survey) {
            return Ok(ExitStatus::Pass);
        }
        console.say("");
        let (stop, command) = (listen(world, console), own_command());
        let events = PoolEventPrinter { as_json: arguments.json, is_quiet: console.is_quiet() };
        let context = self.context(&stop, &command);
        let Some(finished) = pools::run::run(world, &run, survey, context, Arc::new(events)).await? else {
            return Ok(ExitStatus::of(Some(VerdictOutcome::Incomplete)));
        };
        let status = deliver(&finished.document, &planned.outputs, arguments.json, console)?;
        next_step::say(console, request, &finished.results);
        Ok(status)
    }

    /// One run for each value of a sweep, and their comparison.
    async fn sweep(
        &self,
        sweep: &SweepSpec,
        (profile, setup): (&ServerProfile, Option<&Setup>),
        survey: StorageSurvey,
    ) -> Result<ExitStatus, Refusal> {
        let Self { world, arguments, request, console } = *self;
        let prefix = request.report.as_deref();
        let outputs = Outputs::choose_report(prefix, world.wall(), &survey.locations.all)?;
        let request = SweepRequest { request, sweep, profile, setup };
        let planned = series::plan_all(world, request, &survey, &outputs.prefix())?;
        let lines = series::summary_lines(style(console), sweep, &planned, &survey);
        if self.is_dry(&lines, planned.first(), &survey) {
            return Ok(ExitStatus::Pass);
        }
        let (stop, command) = (listen(world, console), own_command());
        let made = series::run(world, request, &planned, survey, self.context(&stop, &command)).await?;
        if made.runs.is_empty() {
            let ended = || Refusal::new("the sweep ended before its first run did", "");
            return Err(made.refusal.unwrap_or_else(ended));
        }
        let answer = series::conclude(made.runs, made.ended_early, world.wall(), &command);
        console.say("");
        deliver_whole(&answer.document, &answer.line, Some(&outputs), arguments.json, console)?;
        match made.refusal {
            Some(refusal) => Err(refusal),
            None => Ok(ExitStatus::of(Some(answer.outcome))),
        }
    }

    /// Prints the plan; true if that is all to do.
    fn is_dry(&self, lines: &[String], planned: &PlannedRun, survey: &StorageSurvey) -> bool {
        lines.iter().for_each(|line| self.console.say(line));
        summary::warnings(planned, survey).iter().for_each(|warning| self.console.warn(warning));
        if self.arguments.dry_run {
            self.console.say("Nothing was written: this was a dry run.");
        }
        self.arguments.dry_run
    }

    fn context<'c>(&'c self, stop: &'c StopSwitch, command: &'c str) -> RunContext<'c> {
        let options = RealOptions::plain(self.arguments.plain_io);
        RunContext { options, stop, observer: self.console, command }
    }
}

fn style(console: &Console) -> SummaryStyle {
    SummaryStyle { width: console.wraps.then_some(console.width), bold: console.colour }
}

/// A switch that the first Ctrl-C sets; the second one ends the process at once. To be called once.
fn listen(world: &World, console: &Console) -> StopSwitch {
    let stop = StopSwitch::default();
    let (pressed, console) = (stop.clone(), console.clone());
    world.spawn("interruption", async move {
        interrupted().await;
        pressed.set();
        let with = if pressed.leaves_report() { ", with a partial report" } else { "" };
        console.say_progress(&format!("\nEnding{with}. Ctrl-C again ends it at once."));
    });
    stop
}

#[cfg(test)]
mod tests;
