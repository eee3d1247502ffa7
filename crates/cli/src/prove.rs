//! `spindle prove`: real mailbox databases on real storage, and the answer.
//!
//! Everything is surveyed and planned before the first byte is written ([`survey`](mod@survey),
//! [`location`], [`layout`], [`manifest`], [`sizing`]) and shown on one [`screen`], then made, run and
//! reported ([`stage`], [`performance`], [`record`]). Refusals come from the first part, so a refused run
//! changes nothing.

pub mod acceptance;
pub mod allowance;
pub mod clean;
pub mod copies;
pub mod layout;
pub mod location;
pub mod machine;
pub mod manifest;
pub mod next_step;
pub mod performance;
pub mod pools;
pub mod pristine;
pub mod progress;
pub mod record;
pub mod screen;
pub mod series;
pub mod setup;
pub mod site;
pub mod sizing;
pub mod stage;
pub mod storage_endpoint;
pub mod survey;
pub mod sweep;

use crate::{
    answer::deliver,
    arguments::{ProveArguments, Threads},
    console::Console,
    exit_status::ExitStatus,
    outputs::Outputs,
    text_file,
};
use allowance::Allowance;
use layout::{FileSlot, GroupLayout, LayoutKind, LayoutRequest, RunLocations};
use manifest::{DatabaseAction, DatabaseIntent, RequestedShape};
use performance::RunOutcome;
use pools::{layout::GroupDrives, make::PoolPlan};
use pristine::{CopyIntent, CopyTask};
use record::RunRecord;
use report::Refusal;
use screen::RunSummary;
use sizing::{BARE_DURATION, ResourceNeeds, RunVolume, SizingRequest};
use std::time::Duration;
use survey::StorageSurvey;
use workload::database::{
    estimate::SpeedGuess,
    limits::{LimitSet, LimitsError},
    plan::{Load, ProbePlan, RunPlan, VolumeFacts},
    profile::{Profile, ProfileError},
    setup::Setup,
};
use world::{
    ByteCount, World,
    real::{self, RealOptions, host_files::FolderLock},
};

/// The cache may fill for this share of the measured time before measuring begins all the same, but
/// within these bounds; and never longer than is measured.
const FILL_SHARE: u32 = 4;
const FILL_MIN: Duration = Duration::from_secs(5);
const FILL_MAX: Duration = Duration::from_secs(1_800);
/// The profile of a run that names none.
const PROFILE: &str = "exchange-2010";
/// Assumed speed of drives, for estimates: a spinning disk, and anything else. Flash is assumed to
/// be fast, so that a run's writes are over- rather than underestimated: a virtual machine's NVMe
/// volume was measured at 9,000 to 20,000 IOPS.
const SPINNING: SpeedGuess = SpeedGuess { sequential_bytes_per_second: 100_000_000, random_iops: 200 };
const FLASH: SpeedGuess = SpeedGuess { sequential_bytes_per_second: 60_000_000, random_iops: 20_000 };

/// Everything planned before the first byte.
struct PlannedRun {
    plan: RunPlan,
    needs: ResourceNeeds,
    layout: Vec<GroupLayout>,
    /// The pools of `--pool`.
    pools: Option<PoolPlan>,
    action: DatabaseAction,
    copies: CopyTask,
    outputs: Outputs,
}

impl PlannedRun {
    /// Drives of the pools; empty without `--pool`.
    fn drives(&self) -> &[GroupDrives] {
        self.pools.as_ref().map_or(&[], |pools| &pools.layout)
    }
}

/// State in which a run finds its locations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartState {
    AsFound,
    /// The databases that the run before it will have left, which it uses.
    SameDatabases,
    /// Places from which the databases of the run before it will be removed.
    Anew,
}

/// Runs the verb to its end.
pub fn prove(arguments: &ProveArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, arguments.quiet);
    let options = RealOptions::plain(arguments.plain_io);
    let status = real::run(0, options, async |world| prove_in(&world, arguments, &console, options).await)?;
    console.finish(status)
}

async fn prove_in(
    world: &World,
    arguments: &ProveArguments,
    console: &Console,
    options: RealOptions,
) -> Result<ExitStatus, Refusal> {
    let (arguments, left_out) = site::filled_in(arguments)?;
    let arguments = &arguments;
    if arguments.clean {
        let survey = StorageSurvey::for_cleaning(world, arguments).await?;
        return match arguments.dry_run {
            true => Ok(clean::show_all(&survey, console)),
            false => clean::clean_all(world, &survey, console).await,
        };
    }
    for part in left_out {
        console.warn(&part);
    }
    let (arguments, setup) = setup::filled_in(arguments)?;
    let arguments = &arguments;
    let profile = profile(arguments)?;
    let survey = StorageSurvey::for_proving(world, arguments).await?;
    if let Some(sweep) = &arguments.sweep {
        let request = series::SweepRequest { arguments, sweep, profile, setup };
        return series::run(world, request, survey, console, options).await;
    }
    if arguments.pool {
        return pools::run::run(world, arguments, (profile, setup), &survey, console, options).await;
    }
    let planned = plan_run(world, arguments, profile, setup, &survey, StartState::AsFound)?;
    for line in screen_lines(console, &planned, &survey) {
        console.say(&line);
    }
    warn(console, &planned, &survey);
    if arguments.dry_run {
        console.say("Nothing was written: this was a dry run.");
        return Ok(ExitStatus::Pass);
    }
    console.say("");
    let stop_switch = performance::StopSwitch::listen(world, console);
    let finished = perform(world, &planned, &survey, options, &stop_switch, console).await?;
    let status = deliver(&finished.document, &planned.outputs, arguments.json, console)?;
    next_step::say(console, arguments, &finished.results);
    Ok(status)
}

/// The part that writes: prepares the locations, handles pristine copies, and runs.
async fn perform(
    world: &World,
    planned: &PlannedRun,
    survey: &StorageSurvey,
    options: RealOptions,
    stop_switch: &performance::StopSwitch,
    console: &Console,
) -> Result<RunOutcome, Refusal> {
    let PlannedRun { plan, needs, layout, outputs, .. } = planned;
    // First of all, so that a run that cannot be recorded leaves everything as it was.
    let record = performance::begin_record(world, plan, survey, &outputs.record)?;
    let mut allowance = Allowance::new(needs.writes_max);
    let run = performance::Run { plan, layout, pools: None, survey, options, stop_switch };
    match make_ready(world, planned, &run, &record, &mut allowance, console).await {
        Ok(_held) => performance::run(world, &run, record, allowance, console).await,
        Err(refusal) => {
            record.abandon().await;
            Err(refusal)
        }
    }
}

/// Prepares the locations and handles pristine copies. The caller holds the returned locks during the run.
async fn make_ready(
    world: &World,
    planned: &PlannedRun,
    run: &performance::Run<'_>,
    record: &RunRecord,
    allowance: &mut Allowance,
    console: &Console,
) -> Result<Vec<FolderLock>, Refusal> {
    let PlannedRun { plan, layout, action, copies, .. } = planned;
    let (survey, stop) = (run.survey, &run.stop_switch.stop);
    let held = stage::set(world, survey, plan, layout, planned.drives(), *action, *copies).await?;
    match copies {
        CopyTask::Leave => {}
        CopyTask::Forget => copies::forget(world, survey).await?,
        CopyTask::Restore => copies::restore(world, survey, console, stop).await?,
        CopyTask::Keep => {
            performance::prepare(world, run, record, allowance, console).await?;
            copies::keep(world, survey, console, stop).await?;
        }
    }
    Ok(held)
}

fn warn(console: &Console, planned: &PlannedRun, survey: &StorageSurvey) {
    for warning in
        survey.locations.all.iter().flat_map(location::RunLocation::warnings).chain(io_warnings(planned))
    {
        console.warn(&warning);
    }
}

/// The profile asked for, with the figures set on the command line.
fn profile(arguments: &ProveArguments) -> Result<Profile, Refusal> {
    let name = arguments.profile.as_deref().unwrap_or(PROFILE);
    let is_file = name.contains('/') || name.ends_with(".toml");
    let refuse = |error: ProfileError| match &error {
        ProfileError::Unknown { name, nearest: Some(nearest) } => {
            Refusal::new(format!("no profile is called {name:?}"), format!("did you mean {nearest:?}?"))
        }
        _ => Refusal::new(error.to_string(), ""),
    };
    let mut profile = if is_file {
        let text = text_file::read("--server", name, &Profile::names())?;
        Profile::parse(&text).map_err(|error| Refusal::new(format!("{name}: {error}"), ""))?
    } else {
        Profile::load(name).map_err(refuse)?
    };
    if let Some(limits) = &arguments.limits {
        LimitSet::load(limits).map_err(|error| match error {
            LimitsError::Unknown { name, nearest } => {
                let remedy = match nearest {
                    Some(nearest) => format!("did you mean {nearest:?}?"),
                    None => format!("there are {}", LimitSet::names().join(", ")),
                };
                Refusal::new(format!("no limit set is called {name:?}"), remedy)
            }
        })?;
        profile.limits.clone_from(limits);
    }
    for (key, value) in &arguments.set {
        profile.set(key, value).map_err(refuse)?;
    }
    profile.check().map_err(refuse)?;
    Ok(profile)
}

/// Plans the run, or refuses it. Writes nothing.
fn plan_run(
    world: &World,
    arguments: &ProveArguments,
    profile: Profile,
    setup: Option<Setup>,
    survey: &StorageSurvey,
    start: StartState,
) -> Result<PlannedRun, Refusal> {
    let locations = &survey.locations;
    let (groups, databases) = (arguments.groups.unwrap_or(1), arguments.databases.unwrap_or(1));
    let outputs = Outputs::choose(arguments.report.as_deref(), world.wall(), &locations.all)?;
    let request = LayoutRequest { groups, databases, kind: arguments.layout, volumes: arguments.volumes };
    let layout = layout::spread(locations, request)?;
    let drives = if arguments.pool { pools::layout::spread(locations, groups) } else { Vec::new() };
    let requested = RequestedShape {
        profile: profile.name.clone(),
        page_size: profile.page_size().bytes() as u32,
        record_size: profile.record_bytes() as u32,
        groups,
        databases,
        size: arguments.size.map(|size| size.0),
        seed: arguments.seed,
        pools: arguments.pool,
    };
    let intent = match (arguments.attach, arguments.fresh) {
        (true, _) => DatabaseIntent::Attach,
        (_, true) => DatabaseIntent::Fresh,
        _ => DatabaseIntent::Unsaid,
    };
    let records: Vec<_> = locations
        .all
        .iter()
        .map(|location| (location.given.display().to_string(), location.manifest()))
        .collect();
    let state = pristine::state(&locations.all);
    if arguments.restore && locations.all.iter().all(|location| location.manifest().is_none()) {
        pristine::task(copy_intent(arguments), None, DatabaseAction::Create, &records[0].0)?;
    }
    let action = match start {
        StartState::AsFound => manifest::database_action(intent, &records, &requested)?,
        StartState::SameDatabases => DatabaseAction::Attach,
        StartState::Anew => DatabaseAction::Replace,
    };
    let copies = pristine::task(copy_intent(arguments), state, action, &records[0].0)?;
    let earlier = match action {
        DatabaseAction::Attach => locations.all[0].manifest().map(|manifest| manifest.shape.clone()),
        DatabaseAction::Create | DatabaseAction::Replace => None,
    };
    if action == DatabaseAction::Attach && start == StartState::AsFound {
        stage::check_same_layout(locations, &layout, &drives)?;
    }
    let there = match (action, start) {
        (DatabaseAction::Attach, StartState::AsFound) => Some(sizes_there(locations, &layout, copies)),
        (DatabaseAction::Attach, _) => {
            let count = u64::from(groups) * u64::from(databases);
            arguments.size.map(|size| vec![ByteCount(size.0 / count); count as usize])
        }
        (DatabaseAction::Create | DatabaseAction::Replace, _) => None,
    };
    let duration = arguments.duration.unwrap_or(BARE_DURATION);
    let load = load(arguments, &profile, duration)?;
    let seed =
        earlier.as_ref().map(|shape| shape.seed).or(arguments.seed).unwrap_or_else(|| fresh_seed(world));
    let sizing_request = SizingRequest {
        plan: RunPlan {
            profile,
            groups,
            databases_per_group: databases,
            database_bytes: 0,
            database_bytes_max: 0,
            cache_bytes_per_group: 0,
            load,
            duration_s: duration.as_secs().max(1),
            judged: setup::judged(arguments),
            fill_s_max: (duration / FILL_SHARE).clamp(FILL_MIN.min(duration), FILL_MAX).as_secs(),
            seed,
            volumes: volume_facts(survey, &layout),
            storage_cache_bytes: arguments.storage_cache.map(|cache| cache.0),
            setup: setup.map(Box::new),
            notes: arguments.note.clone(),
            layout: arguments.layout.map(|kind| LayoutKind::name(kind).to_owned()),
        },
        size: arguments.size.or(earlier.as_ref().map(|shape| ByteCount(shape.size))),
        cache: arguments.cache,
        allow_writes: arguments.allow_writes,
        there,
        room_for_copies: match copies {
            CopyTask::Keep | CopyTask::Restore => true,
            CopyTask::Leave => action == DatabaseAction::Attach && state.is_some(),
            CopyTask::Forget => false,
        },
        copying: matches!(copies, CopyTask::Keep | CopyTask::Restore),
        pools: arguments.pool,
        guess: speed_guess(survey),
    };
    let (plan, needs) = sizing::size_run(&sizing_request, &volumes(survey, &layout, &drives), survey.memory)?;
    let (database_drive, log_drive) = sizing::pool_drives(&sizing_request, ByteCount(plan.database_bytes));
    let pools = arguments.pool.then_some(PoolPlan {
        layout: drives,
        database_drive,
        log_drive,
        database_volume: sizing::volume_bytes(&sizing_request, ByteCount(plan.database_bytes)),
        log_volume: sizing::log_room(&sizing_request),
    });
    Ok(PlannedRun { plan, needs, layout, pools, action, copies, outputs })
}

fn copy_intent(arguments: &ProveArguments) -> CopyIntent {
    CopyIntent { keep: arguments.keep_pristine, restore: arguments.restore }
}

fn load(arguments: &ProveArguments, profile: &Profile, duration: Duration) -> Result<Load, Refusal> {
    let probe = ProbePlan::fitting(duration, arguments.probe);
    let load = match (arguments.mailboxes, arguments.iops) {
        (Some(count), Some(iops_each)) => Load::Mailboxes { count: count.into(), iops_each },
        _ if arguments.max => Load::Maximum { probe },
        _ => match arguments.threads {
            Some(Threads::Auto) => Load::TunedThreads { probe },
            Some(Threads::Count(per_group)) => Load::Threads { per_group },
            None => Load::Threads { per_group: profile.threads_per_group() },
        },
    };
    if arguments.probe.is_some() && load.probe().is_none() {
        return Err(Refusal::new(
            "--probe without a search: nothing would be probed",
            "add --max or --threads auto, or leave it out",
        ));
    }
    Ok(load)
}

/// A seed of the moment, short enough to be typed again.
fn fresh_seed(world: &World) -> u64 {
    let wall = world.wall();
    (wall.seconds.unsigned_abs().wrapping_mul(1_000_003) ^ u64::from(wall.nanos)) % 1_000_000_000
}

/// Sizes of the databases the run begins with, in the order of the layout; zero for one not yet begun.
fn sizes_there(locations: &RunLocations, layout: &[GroupLayout], copies: CopyTask) -> Vec<ByteCount> {
    let slots = layout.iter().flat_map(|group| &group.databases);
    let size = |slot: &FileSlot| {
        let name =
            if copies == CopyTask::Restore { pristine::copy_of(&slot.name) } else { slot.name.clone() };
        locations.all[slot.location].made().get(&name).copied().unwrap_or_default()
    };
    slots.map(size).collect()
}

/// As slow as the slowest drive of the run.
fn speed_guess(survey: &StorageSurvey) -> SpeedGuess {
    let spins = survey.locations.all.iter().any(|location| location.drive().rotational == Some(true));
    if spins { SPINNING } else { FLASH }
}

/// The filesystems and devices of the run, each once, with what lies on each.
fn volumes(survey: &StorageSurvey, layout: &[GroupLayout], drives: &[GroupDrives]) -> Vec<RunVolume> {
    let mut volumes: Vec<RunVolume> = Vec::new();
    for (index, location) in survey.locations.all.iter().enumerate() {
        let mut volume = location.volume();
        volume.databases = layout::databases_in(layout, index).len() as u32;
        volume.log_series = layout::logs_in(layout, index).len() as u32;
        volume.drives = pools::layout::counts_in(drives, index);
        match volumes.iter_mut().find(|other| location.is_on(other)) {
            Some(same) => {
                same.databases += volume.databases;
                same.log_series += volume.log_series;
                same.drives.0 += volume.drives.0;
                same.drives.1 += volume.drives.1;
                // Each location's own reading counted only its own files as free.
                same.free += location.ours();
            }
            None => volumes.push(volume),
        }
    }
    volumes
}

/// Facts of each location, for the report.
fn volume_facts(survey: &StorageSurvey, layout: &[GroupLayout]) -> Vec<VolumeFacts> {
    let locations = &survey.locations;
    let facts = locations.all.iter().enumerate().map(|(index, location)| VolumeFacts {
        name: location.given.display().to_string(),
        databases: !layout::databases_in(layout, index).is_empty(),
        logs: !layout::logs_in(layout, index).is_empty(),
        io: match (location.remote(), survey.io[index]) {
            (Some(remote), _) => remote.reach().to_owned(),
            (None, Some(kind)) => kind.to_string(),
            (None, None) => "not known before the run".to_owned(),
        },
        direct: survey.io[index].is_none_or(|kind| kind.is_direct()),
        description: format!("{}{}", screen::description(location), cache_words(location)),
    });
    facts.collect()
}

/// State of the drive's write cache according to the kernel, behind a comma; empty if unknown.
fn cache_words(location: &location::RunLocation) -> &'static str {
    match location.drive().write_cache.as_deref() {
        Some("write back") => ", volatile write cache on",
        Some("write through") => ", no volatile write cache",
        _ => "",
    }
}

/// A way of I/O that the page cache may answer for is named before it flatters anybody.
fn io_warnings(planned: &PlannedRun) -> Vec<String> {
    let indirect = planned.plan.volumes.iter().filter(|volume| !volume.direct);
    indirect.map(|volume| format!("{} is reached by {}", volume.name, volume.io)).collect()
}

fn screen_lines(console: &Console, planned: &PlannedRun, survey: &StorageSurvey) -> Vec<String> {
    let locations = &survey.locations;
    let of = |indices: &[usize]| indices.iter().map(|&index| &locations.all[index]).collect::<Vec<_>>();
    let beginning = match planned.action {
        DatabaseAction::Attach if planned.copies == CopyTask::Restore => {
            "by putting back the pristine copies of an earlier run".to_owned()
        }
        DatabaseAction::Create => "with new databases".to_owned(),
        DatabaseAction::Attach if planned.needs.missing > ByteCount(0) => format!(
            "with the databases that are there; {} of them are still to be made",
            planned.needs.missing
        ),
        DatabaseAction::Attach => "with the databases that are there".to_owned(),
        DatabaseAction::Replace => "by removing what an earlier run made, then with new databases".to_owned(),
    };
    let beginning = match planned.copies {
        CopyTask::Keep => format!("{beginning}, of which pristine copies are kept"),
        CopyTask::Forget => format!("{beginning}; pristine copies that were never finished are removed"),
        CopyTask::Leave | CopyTask::Restore => beginning,
    };
    let array = planned.pools.as_ref().map(|pools| pools.in_words(locations));
    let summary = RunSummary {
        plan: &planned.plan,
        array: array.as_deref(),
        beginning: &beginning,
        needs: &planned.needs,
    };
    screen::lines(console, &summary, &of(&locations.databases), &of(&locations.logs))
}

#[cfg(test)]
mod tests;
