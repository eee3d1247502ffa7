//! The flow of `prove --pool`: pools made, the plain path run, then the same run on the pools, one report beside the
//! other. The answer is the array's.

use super::{
    inspect::{check_all, path_of},
    layout::{GroupDrives, pool_name, shared},
    make::{Pools, make_all},
    open::{EventTelling, GroupPools, PoolDoor},
    size::{COPIES, DRIVES},
};
use crate::{
    answer::deliver,
    arguments::ProveArguments,
    console::Console,
    ending::Ending,
    outputs::Outputs,
    prove::{
        Settled, Start,
        allowance::Allowance,
        layout::GroupLayout,
        manifest::Beginning,
        next_step,
        performance::{self, Finished, Interruption, OnPools},
        screen_lines, settle, stage,
        survey::Survey,
        warn,
    },
    refusal::Refusal,
};
use report::Outcome;
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

/// Thin volumes may grow to so many times what they are planned to hold: the pool is what bounds them.
const THIN: u64 = 4;

/// Runs on the plain path, then on the array.
pub async fn run(
    world: &World,
    arguments: &ProveArguments,
    (profile, setup): (Profile, Option<Setup>),
    survey: &Survey,
    console: &Console,
    options: RealOptions,
) -> Result<Ending, Refusal> {
    check(survey)?;
    let settled = settle(world, arguments, profile, setup, survey, Start::AsFound)?;
    let pools = settled.pools.as_ref().expect("asked for");
    let plain_outputs = plain_outputs(world, &settled.outputs, survey)?;
    let are_there = are_made(&settled, survey);
    if are_there {
        check_all(&pools.layout, &survey.places.all).await?;
    }
    for line in screen_lines(console, &settled, survey) {
        console.say(&line);
    }
    warn(console, &settled, survey);
    if arguments.dry_run {
        console.say("Nothing was written: this was a dry run.");
        return Ok(Ending::Pass);
    }
    console.say("");
    let interruption = Interruption::listen(world, console);
    let Settled { plan, layout, needs, .. } = &settled;
    let plain = performance::Run { plan, layout, pools: None, survey, options, interruption: &interruption };
    let record = performance::begin_record(world, plan, survey, &plain_outputs.record)?;
    let ready = make_ready(world, &settled, survey, are_there, &interruption, console).await;
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
    if interruption.is_set() {
        console.say_always("The array was not run: the run was ended early.");
        return Ok(Ending::of(Some(Outcome::Incomplete)));
    }
    let on_pools = OnPools {
        groups: (0..pools.layout.len()).map(|group| group_pools(pools, layout, group, survey)).collect(),
        plain: PathFigures::of(&finished.results, answer.answer),
        telling: EventTelling { as_json: arguments.json, is_quiet: console.is_quiet() },
    };
    drop(finished);
    console.say("\nRun 2 of 2: the array.");
    let plan = &RunPlan { volumes: volume_facts(pools, survey), ..plan.clone() };
    let array = performance::Run {
        plan,
        layout,
        pools: Some(&on_pools),
        survey,
        options,
        interruption: &interruption,
    };
    let record = performance::begin_record(world, plan, survey, &settled.outputs.record)?;
    let finished = performance::run(world, &array, record, allowance(), console).await?;
    let ending = deliver(&finished.document, &settled.outputs, arguments.json, console)?;
    next_step::say(console, arguments, &finished.results);
    Ok(ending)
}

/// What speaks against pools at these paths.
fn check(survey: &Survey) -> Result<(), Refusal> {
    match survey.places.all.iter().find(|place| place.is_device()) {
        Some(device) => Err(Refusal::new(
            format!("--pool makes drives as files, and {} is a raw device", device.given.display()),
            "give folders, such as one on each device",
        )),
        None => Ok(()),
    }
}

/// Where the plain path's report goes: beside the array's.
fn plain_outputs(world: &World, outputs: &Outputs, survey: &Survey) -> Result<Outputs, Refusal> {
    let mut prefix = outputs.prefix().into_os_string();
    prefix.push("-plain");
    Outputs::settle(Some(Path::new(&PathBuf::from(prefix))), world.wall(), &survey.places.all)
}

/// Whether the pools of an earlier run are there, whole.
fn are_made(settled: &Settled, survey: &Survey) -> bool {
    let is_made =
        |place: &crate::prove::place::Place| place.manifest().is_some_and(|manifest| manifest.pools_made);
    settled.beginning == Beginning::Attach && survey.places.all.iter().all(is_made)
}

/// The places, and the pools if they are not there yet. What this returns is held while the runs go on.
async fn make_ready(
    world: &World,
    settled: &Settled,
    survey: &Survey,
    are_there: bool,
    interruption: &Interruption,
    console: &Console,
) -> Result<Vec<world::real::host_files::FolderLock>, Refusal> {
    let Settled { plan, layout, beginning, copies, .. } = settled;
    let held = stage::set(world, survey, plan, layout, settled.drives(), *beginning, *copies).await?;
    let pools = settled.pools.as_ref().expect("asked for");
    if !are_there {
        make_all(world, pools, &survey.places.all, &interruption.stop, console).await?;
    }
    Ok(held)
}

/// Writes the plain path's report and says its answer in a line.
fn said(finished: &Finished, outputs: &Outputs, console: &Console) -> Result<Verdict, Refusal> {
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

fn group_pools(pools: &Pools, layout: &[GroupLayout], group: usize, survey: &Survey) -> GroupPools {
    let places = &survey.places.all;
    let drives: &GroupDrives = &pools.layout[group];
    let door = |role: Role, volumes: Vec<(String, ByteCount)>| PoolDoor {
        role,
        drives: drives.of(role).iter().map(|spot| path_of(spot, places)).collect(),
        size: pools.drive(role),
        shared: shared(drives.of(role), places),
        volumes,
    };
    let thin = |stored: ByteCount| ByteCount((stored.0 * THIN).next_multiple_of(1 << 20));
    let databases =
        layout[group].databases.iter().map(|spot| (spot.name.clone(), thin(pools.database_volume)));
    let log = (layout[group].log.name.clone(), thin(pools.log_volume));
    GroupPools { databases: door(Role::Database, databases.collect()), logs: door(Role::Log, vec![log]) }
}

/// What the report says of the pools as volumes.
fn volume_facts(pools: &Pools, survey: &Survey) -> Vec<VolumeFacts> {
    let places = &survey.places;
    let facts = |role: Role| {
        let on = if role == Role::Log && !places.logs.is_empty() { &places.logs } else { &places.databases };
        let given: Vec<String> =
            on.iter().map(|&place| places.all[place].given.display().to_string()).collect();
        let io =
            survey.io[on[0]].map_or_else(|| "not known before the run".to_owned(), |kind| kind.to_string());
        VolumeFacts {
            name: pool_name(role).to_owned(),
            databases: role == Role::Database,
            logs: role == Role::Log,
            io: format!("array, its drives by {io}"),
            direct: on.iter().all(|&place| survey.io[place].is_none_or(|kind| kind.is_direct())),
            description: format!(
                "{DRIVES} drives of {}, {COPIES} copies, in {}",
                pools.drive(role).bytes,
                given.join(", ")
            ),
        }
    };
    vec![facts(Role::Database), facts(Role::Log)]
}
