//! The flow of `prove --pool`: makes the pools, runs on the plain path, then runs on the pools. The answer is
//! the array's.

use super::{
    inspect::{check_all, path_of},
    layout::{GroupDrives, pool_name, shared},
    make::{PoolPlan, make_all},
    open::{GroupPools, PoolEvents, PoolSpec},
    size::{COPIES, DRIVES},
};
use crate::{
    allowance::Allowance,
    layout::GroupLayout,
    location::RunLocation,
    manifest::DatabaseAction,
    observer::RunObserver,
    outputs::Outputs,
    performance::{self, PoolRun, ReadyRun, RunContext, RunOutcome},
    planning::{PlannedRun, StartState, plan_run},
    request::RunRequest,
    stage,
    survey::StorageSurvey,
};
use report::Refusal;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use workload::{
    database::{
        plan::{RunPlan, VolumeFacts, profile::ServerProfile, setup::Setup},
        results::baseline::PathFigures,
    },
    meter::VolumeRole,
    verdict::RunVerdict,
};
use world::{
    ByteCount, World,
    real::{Engine, host_files::FolderLock},
};

/// Thin volumes may grow to this many times their planned size: the pool bounds them.
const THIN: u64 = 4;

/// Both runs, planned.
pub struct PlannedPoolRun {
    pub planned: PlannedRun,
    plain_outputs: Outputs,
    /// Complete pools of an earlier run exist.
    are_there: bool,
}

/// Plans both runs, or refuses them. Writes nothing.
pub async fn plan(
    world: &World,
    request: &RunRequest,
    (profile, setup): (ServerProfile, Option<Setup>),
    survey: &StorageSurvey,
) -> Result<PlannedPoolRun, Refusal> {
    check(survey)?;
    let planned = plan_run(world, request, profile, setup, survey, StartState::AsFound)?;
    let plain_outputs = plain_outputs(world, &planned.outputs, survey)?;
    let are_there = are_made(&planned, survey);
    if are_there {
        check_all(&pools_of(&planned).layout, &survey.locations.all).await?;
    }
    Ok(PlannedPoolRun { planned, plain_outputs, are_there })
}

/// Runs on the plain path, then on the array, whose outcome is returned; `None` if the run was ended before that.
pub async fn run(
    world: &World,
    run: &PlannedPoolRun,
    survey: &StorageSurvey,
    context: RunContext<'_>,
    events: Arc<dyn PoolEvents>,
) -> Result<Option<RunOutcome>, Refusal> {
    let PlannedPoolRun { planned, plain_outputs, .. } = run;
    let PlannedRun { plan, layout, needs, control, .. } = planned;
    let pools = pools_of(planned);
    let (observer, command) = (context.observer, context.command);
    let plain = ReadyRun { plan, layout, pools: None, survey, control, context };
    let record = performance::begin_record(world, plan, survey, &plain_outputs.record, command)?;
    let ready = make_ready(world, run, survey, context).await;
    let _held = match ready {
        Ok(held) => held,
        Err(refusal) => {
            record.abandon().await;
            return Err(refusal);
        }
    };
    observer.say("Run 1 of 2: the plain path.");
    let allowance = || Allowance::new(needs.writes_max);
    let finished = performance::run(world, &plain, record, allowance()).await?;
    let verdict = deliver_plain(&finished, plain_outputs, observer)?;
    if context.stop.is_set() {
        observer.say_always("The array was not run: the run was ended early.");
        return Ok(None);
    }
    let on_pools = PoolRun {
        groups: (0..pools.layout.len()).map(|group| group_pools(pools, layout, group, survey)).collect(),
        plain: PathFigures::of(&finished.results, verdict.answer),
        events,
    };
    drop(finished);
    observer.say("\nRun 2 of 2: the array.");
    let plan = &RunPlan { volumes: volume_facts(pools, survey), ..plan.clone() };
    let array = ReadyRun { plan, layout, pools: Some(&on_pools), survey, control, context };
    let record = performance::begin_record(world, plan, survey, &planned.outputs.record, command)?;
    performance::run(world, &array, record, allowance()).await.map(Some)
}

fn pools_of(planned: &PlannedRun) -> &PoolPlan {
    planned.pools.as_ref().expect("a run with ⟨pool⟩ plans its pools")
}

/// Refuses raw devices: drives of pools are files.
fn check(survey: &StorageSurvey) -> Result<(), Refusal> {
    match survey.locations.all.iter().find(|location| location.is_device()) {
        Some(device) => Err(Refusal::new(
            format!("⟨pool⟩ makes drives as files, and {} is a raw device", device.given.display()),
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
    let is_made = |location: &RunLocation| location.manifest().is_some_and(|manifest| manifest.pools_made);
    planned.action == DatabaseAction::Attach && survey.locations.all.iter().all(is_made)
}

/// Prepares the locations, and the pools if they do not exist. The caller holds the returned locks during the runs.
async fn make_ready(
    world: &World,
    run: &PlannedPoolRun,
    survey: &StorageSurvey,
    context: RunContext<'_>,
) -> Result<Vec<FolderLock>, Refusal> {
    let planned = &run.planned;
    let PlannedRun { plan, layout, action, copies, .. } = planned;
    let held = stage::set(world, survey, plan, layout, planned.drives(), *action, *copies).await?;
    if !run.are_there {
        let (stop, observer) = (context.stop.cancellation(), context.observer);
        make_all(world, pools_of(planned), &survey.locations.all, stop, observer).await?;
    }
    Ok(held)
}

/// Writes the plain path's report and prints its answer in a line.
fn deliver_plain(
    finished: &RunOutcome,
    outputs: &Outputs,
    observer: &dyn RunObserver,
) -> Result<RunVerdict, Refusal> {
    outputs.write(&finished.document)?;
    if let Some(verdict) = &finished.document.verdict {
        observer.say(&format!(
            "{}: {}\nReport: {} (and .json)",
            verdict.outcome.word(),
            verdict.headline,
            outputs.html.display()
        ));
    }
    RunVerdict::of(&finished.results).map_err(|error| Refusal::new(error.to_string(), ""))
}

fn group_pools(pools: &PoolPlan, layout: &[GroupLayout], group: usize, survey: &StorageSurvey) -> GroupPools {
    let locations = &survey.locations.all;
    let drives: &GroupDrives = &pools.layout[group];
    let endpoint = |role: VolumeRole, volumes: Vec<(String, ByteCount)>| PoolSpec {
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
        databases: endpoint(VolumeRole::Database, databases.collect()),
        logs: endpoint(VolumeRole::Log, vec![log]),
    }
}

/// Facts of the pools as volumes, for the report.
fn volume_facts(pools: &PoolPlan, survey: &StorageSurvey) -> Vec<VolumeFacts> {
    let locations = &survey.locations;
    let facts = |role: VolumeRole| {
        let on = if role == VolumeRole::Log && !locations.logs.is_empty() {
            &locations.logs
        } else {
            &locations.databases
        };
        let given: Vec<String> =
            on.iter().map(|&location| locations.all[location].given.display().to_string()).collect();
        let io = match survey.io[on[0]] {
            Some(kind) => Engine::current().describe(kind),
            None => "not known before the run".to_owned(),
        };
        VolumeFacts {
            name: pool_name(role).to_owned(),
            databases: role == VolumeRole::Database,
            logs: role == VolumeRole::Log,
            io: format!("array, its drives by {io}"),
            direct: on.iter().all(|&location| survey.io[location].is_none_or(|kind| kind.is_direct())),
            description: format!(
                "{DRIVES} drives of {}, {COPIES} copies, in {}",
                pools.drive(role).bytes,
                given.join(", ")
            ),
        }
    };
    vec![facts(VolumeRole::Database), facts(VolumeRole::Log)]
}
