//! The flow of `prove --pool`: pools made, the plain path run, then the same run on the pools, one report beside the
//! other. The answer is the array's.

use super::{
    inspect::{check_all, path_of},
    layout::{GroupDrives, pool_name, shared},
    make::{PoolPlan, make_all},
    open::{EventFormat, GroupPools, PoolSpec},
    size::{COPIES, DRIVES},
};
use crate::{
    answer::deliver,
    arguments::ProveArguments,
    console::Console,
    exit_status::ExitStatus,
    outputs::Outputs,
    prove::{
        PlannedRun, StartState,
        allowance::Allowance,
        layout::GroupLayout,
        manifest::DatabaseAction,
        next_step,
        performance::{self, PoolRun, RunOutcome, StopSwitch},
        plan_run, screen_lines, stage,
        survey::StorageSurvey,
        warn,
    },
};
use report::{Outcome, Refusal};
use std::path::{Path, PathBuf};
use workload::database::{
    beside::PathFigures,
    meter::Role,
    plan::{RunPlan, VolumeFacts},
    profile::Profile,
    setup::Setup,
    verdict::Verdict,
};
use world::{ByteCount, World, real::RealOptions};

/// Thin volumes may grow to this many times their planned size: the pool bounds them.
const THIN: u64 = 4;

/// Runs on the plain path, then on the array.
pub async fn run(
    world: &World,
    arguments: &ProveArguments,
    (profile, setup): (Profile, Option<Setup>),
    survey: &StorageSurvey,
    console: &Console,
    options: RealOptions,
) -> Result<ExitStatus, Refusal> {
    check(survey)?;
    let planned = plan_run(world, arguments, profile, setup, survey, StartState::AsFound)?;
    let pools = planned.pools.as_ref().expect("asked for");
    let plain_outputs = plain_outputs(world, &planned.outputs, survey)?;
    let are_there = are_made(&planned, survey);
    if are_there {
        check_all(&pools.layout, &survey.locations.all).await?;
    }
    for line in screen_lines(console, &planned, survey) {
        console.say(&line);
    }
    warn(console, &planned, survey);
    if arguments.dry_run {
        console.say("Nothing was written: this was a dry run.");
        return Ok(ExitStatus::Pass);
    }
    console.say("");
    let stop_switch = StopSwitch::listen(world, console);
    let PlannedRun { plan, layout, needs, .. } = &planned;
    let plain = performance::Run { plan, layout, pools: None, survey, options, stop_switch: &stop_switch };
    let record = performance::begin_record(world, plan, survey, &plain_outputs.record)?;
    let ready = make_ready(world, &planned, survey, are_there, &stop_switch, console).await;
    let _held = match ready {
        Ok(held) => held,
        Err(refusal) => {
            record.abandon().await;
            return Err(refusal);
        }
    };
    console.say("Run 1 of 2: the plain path.");
    let allowance = || Allowance::new(needs.writes_max);
    let finished = performance::run(world, &plain, record, allowance(), console).await?;
    let answer = said(&finished, &plain_outputs, console)?;
    if stop_switch.is_set() {
        console.say_always("The array was not run: the run was ended early.");
        return Ok(ExitStatus::of(Some(Outcome::Incomplete)));
    }
    let on_pools = PoolRun {
        groups: (0..pools.layout.len()).map(|group| group_pools(pools, layout, group, survey)).collect(),
        plain: PathFigures::of(&finished.results, answer.answer),
        format: EventFormat { as_json: arguments.json, is_quiet: console.is_quiet() },
    };
    drop(finished);
    console.say("\nRun 2 of 2: the array.");
    let plan = &RunPlan { volumes: volume_facts(pools, survey), ..plan.clone() };
    let array =
        performance::Run { plan, layout, pools: Some(&on_pools), survey, options, stop_switch: &stop_switch };
    let record = performance::begin_record(world, plan, survey, &planned.outputs.record)?;
    let finished = performance::run(world, &array, record, allowance(), console).await?;
    let status = deliver(&finished.document, &planned.outputs, arguments.json, console)?;
    next_step::say(console, arguments, &finished.results);
    Ok(status)
}

/// Refuses raw devices: drives of pools are files.
fn check(survey: &StorageSurvey) -> Result<(), Refusal> {
    match survey.locations.all.iter().find(|location| location.is_device()) {
        Some(device) => Err(Refusal::new(
            format!("--pool makes drives as files, and {} is a raw device", device.given.display()),
            "give folders, such as one on each device",
        )),
        None => Ok(()),
    }
}

/// Files of the plain path's report, beside the array's.
fn plain_outputs(world: &World, outputs: &Outputs, survey: &StorageSurvey) -> Result<Outputs, Refusal> {
    let mut prefix = outputs.prefix().into_os_string();
    prefix.push("-plain");
    Outputs::choose(Some(Path::new(&PathBuf::from(prefix))), world.wall(), &survey.locations.all)
}

/// True if complete pools of an earlier run exist.
fn are_made(planned: &PlannedRun, survey: &StorageSurvey) -> bool {
    let is_made = |location: &crate::prove::location::RunLocation| {
        location.manifest().is_some_and(|manifest| manifest.pools_made)
    };
    planned.action == DatabaseAction::Attach && survey.locations.all.iter().all(is_made)
}

/// Prepares the locations, and the pools if they do not exist. The caller holds the returned locks during the runs.
async fn make_ready(
    world: &World,
    planned: &PlannedRun,
    survey: &StorageSurvey,
    are_there: bool,
    stop_switch: &StopSwitch,
    console: &Console,
) -> Result<Vec<world::real::host_files::FolderLock>, Refusal> {
    let PlannedRun { plan, layout, action, copies, .. } = planned;
    let held = stage::set(world, survey, plan, layout, planned.drives(), *action, *copies).await?;
    let pools = planned.pools.as_ref().expect("asked for");
    if !are_there {
        make_all(world, pools, &survey.locations.all, &stop_switch.stop, console).await?;
    }
    Ok(held)
}

/// Writes the plain path's report and prints its answer in a line.
fn said(finished: &RunOutcome, outputs: &Outputs, console: &Console) -> Result<Verdict, Refusal> {
    outputs.write(&finished.document)?;
    if let Some(verdict) = &finished.document.verdict {
        console.say(&format!(
            "{}: {}\nReport: {} (and .json)",
            verdict.outcome.word(),
            verdict.headline,
            outputs.html.display()
        ));
    }
    Verdict::of(&finished.results).map_err(|error| Refusal::new(error.to_string(), ""))
}

fn group_pools(pools: &PoolPlan, layout: &[GroupLayout], group: usize, survey: &StorageSurvey) -> GroupPools {
    let locations = &survey.locations.all;
    let drives: &GroupDrives = &pools.layout[group];
    let endpoint = |role: Role, volumes: Vec<(String, ByteCount)>| PoolSpec {
        role,
        drives: drives.of(role).iter().map(|slot| path_of(slot, locations)).collect(),
        size: pools.drive(role),
        shared: shared(drives.of(role), locations),
        volumes,
    };
    let thin = |stored: ByteCount| ByteCount((stored.0 * THIN).next_multiple_of(1 << 20));
    let databases =
        layout[group].databases.iter().map(|slot| (slot.name.clone(), thin(pools.database_volume)));
    let log = (layout[group].log.name.clone(), thin(pools.log_volume));
    GroupPools {
        databases: endpoint(Role::Database, databases.collect()),
        logs: endpoint(Role::Log, vec![log]),
    }
}

/// Facts of the pools as volumes, for the report.
fn volume_facts(pools: &PoolPlan, survey: &StorageSurvey) -> Vec<VolumeFacts> {
    let locations = &survey.locations;
    let facts = |role: Role| {
        let on = if role == Role::Log && !locations.logs.is_empty() {
            &locations.logs
        } else {
            &locations.databases
        };
        let given: Vec<String> =
            on.iter().map(|&location| locations.all[location].given.display().to_string()).collect();
        let io =
            survey.io[on[0]].map_or_else(|| "not known before the run".to_owned(), |kind| kind.to_string());
        VolumeFacts {
            name: pool_name(role).to_owned(),
            databases: role == Role::Database,
            logs: role == Role::Log,
            io: format!("array, its drives by {io}"),
            direct: on.iter().all(|&location| survey.io[location].is_none_or(|kind| kind.is_direct())),
            description: format!(
                "{DRIVES} drives of {}, {COPIES} copies, in {}",
                pools.drive(role).bytes,
                given.join(", ")
            ),
        }
    };
    vec![facts(Role::Database), facts(Role::Log)]
}
