//! `spindle prove`: real mailbox databases on real storage, and the answer.
//!
//! Everything is looked at and settled before the first byte is written ([`survey`](mod@survey),
//! [`place`], [`layout`], [`manifest`], [`sizing`]), said on one [`screen`], then made, run and
//! reported ([`stage`], [`performance`], [`record`]). What is refused is refused in the first part, so
//! that everything stays as it was.

pub mod acceptance;
pub mod allowance;
pub mod clean;
pub mod copies;
pub mod ground;
pub mod layout;
pub mod machine;
pub mod manifest;
pub mod next_step;
pub mod performance;
pub mod place;
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
pub mod survey;
pub mod sweep;

use crate::{
    answer::deliver,
    arguments::{ProveArguments, Threads},
    console::Console,
    ending::Ending,
    outputs::Outputs,
    refusal::Refusal,
    text_file,
};
use allowance::Allowance;
use layout::{GroupLayout, LayoutKind, Places, Spot, Spreading};
use manifest::{Asked, Beginning, Wish};
use performance::Finished;
use pools::{layout::GroupDrives, make::Pools};
use pristine::Task;
use record::RunRecord;
use screen::Intent;
use sizing::{BARE_DURATION, Needs, Volume, Wanted};
use std::time::Duration;
use survey::Survey;
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
/// What drives are taken to do, for estimates: a spinning disk, and anything else. Flash is taken to
/// be fast, so that a run's writes are rather over- than underestimated: a virtual machine's NVMe
/// volume was measured at 9,000 to 20,000 IOPS.
const SPINNING: SpeedGuess = SpeedGuess { sequential_bytes_per_second: 100_000_000, random_iops: 200 };
const FLASH: SpeedGuess = SpeedGuess { sequential_bytes_per_second: 60_000_000, random_iops: 20_000 };

/// Everything settled before the first byte.
struct Settled {
    plan: RunPlan,
    needs: Needs,
    layout: Vec<GroupLayout>,
    /// The pools of `--pool`.
    pools: Option<Pools>,
    beginning: Beginning,
    copies: Task,
    outputs: Outputs,
}

impl Settled {
    /// Drives of pools; none if there are to be none.
    fn drives(&self) -> &[GroupDrives] {
        self.pools.as_ref().map_or(&[], |pools| &pools.layout)
    }
}

/// What a run finds at its places, as far as settling it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// What is there.
    AsFound,
    /// The databases that the run before it will have left, which it uses.
    SameDatabases,
    /// Places from which the databases of the run before it will be removed.
    Anew,
}

/// Runs the verb to its end.
pub fn prove(arguments: &ProveArguments) -> Result<Ending, Refusal> {
    let console = Console::new(arguments.json, arguments.quiet);
    let options = RealOptions::plain(arguments.plain_io);
    let ending = real::run(0, options, async |world| prove_in(&world, arguments, &console, options).await)?;
    console.told(ending)
}

async fn prove_in(
    world: &World,
    arguments: &ProveArguments,
    console: &Console,
    options: RealOptions,
) -> Result<Ending, Refusal> {
    let (arguments, left_out) = site::filled_in(arguments)?;
    let arguments = &arguments;
    if arguments.clean {
        let survey = Survey::for_cleaning(world, arguments).await?;
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
    let survey = Survey::for_proving(world, arguments).await?;
    if let Some(sweep) = &arguments.sweep {
        let asked = series::Asked { arguments, sweep, profile, setup };
        return series::run(world, asked, survey, console, options).await;
    }
    if arguments.pool {
        return pools::run::run(world, arguments, (profile, setup), &survey, console, options).await;
    }
    let settled = settle(world, arguments, profile, setup, &survey, Start::AsFound)?;
    for line in screen_lines(console, &settled, &survey) {
        console.say(&line);
    }
    warn(console, &settled, &survey);
    if arguments.dry_run {
        console.say("Nothing was written: this was a dry run.");
        return Ok(Ending::Pass);
    }
    console.say("");
    let interruption = performance::Interruption::listen(world, console);
    let finished = perform(world, &settled, &survey, options, &interruption, console).await?;
    let ending = deliver(&finished.document, &settled.outputs, arguments.json, console)?;
    next_step::say(console, arguments, &finished.results);
    Ok(ending)
}

/// The part that writes: makes the places ready, takes care of pristine copies, and runs.
async fn perform(
    world: &World,
    settled: &Settled,
    survey: &Survey,
    options: RealOptions,
    interruption: &performance::Interruption,
    console: &Console,
) -> Result<Finished, Refusal> {
    let Settled { plan, needs, layout, outputs, .. } = settled;
    // First of all, so that a run that cannot be recorded leaves everything as it was.
    let record = performance::begin_record(world, plan, survey, &outputs.record)?;
    let mut allowance = Allowance::new(needs.writes_max);
    let run = performance::Run { plan, layout, pools: None, survey, options, interruption };
    match make_ready(world, settled, &run, &record, &mut allowance, console).await {
        Ok(_held) => performance::run(world, &run, record, allowance, console).await,
        Err(refusal) => {
            record.abandon().await;
            Err(refusal)
        }
    }
}

/// Makes the places ready and takes care of pristine copies. What this returns is held while the run goes on.
async fn make_ready(
    world: &World,
    settled: &Settled,
    run: &performance::Run<'_>,
    record: &RunRecord,
    allowance: &mut Allowance,
    console: &Console,
) -> Result<Vec<FolderLock>, Refusal> {
    let Settled { plan, layout, beginning, copies, .. } = settled;
    let (survey, stop) = (run.survey, &run.interruption.stop);
    let held = stage::set(world, survey, plan, layout, settled.drives(), *beginning, *copies).await?;
    match copies {
        Task::Leave => {}
        Task::Forget => copies::forget(world, survey).await?,
        Task::Restore => copies::restore(world, survey, console, stop).await?,
        Task::Keep => {
            performance::prepare(world, run, record, allowance, console).await?;
            copies::keep(world, survey, console, stop).await?;
        }
    }
    Ok(held)
}

fn warn(console: &Console, settled: &Settled, survey: &Survey) {
    for warning in survey.places.all.iter().flat_map(place::Place::warnings).chain(io_warnings(settled)) {
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

/// Settles the run, or says what speaks against it. Nothing is written.
fn settle(
    world: &World,
    arguments: &ProveArguments,
    profile: Profile,
    setup: Option<Setup>,
    survey: &Survey,
    start: Start,
) -> Result<Settled, Refusal> {
    let places = &survey.places;
    let (groups, databases) = (arguments.groups.unwrap_or(1), arguments.databases.unwrap_or(1));
    let outputs = Outputs::settle(arguments.report.as_deref(), world.wall(), &places.all)?;
    let spreading = Spreading { groups, databases, kind: arguments.layout, volumes: arguments.volumes };
    let layout = layout::spread(places, spreading)?;
    let drives = if arguments.pool { pools::layout::spread(places, groups) } else { Vec::new() };
    let asked = Asked {
        profile: profile.name.clone(),
        page_size: profile.page_size().bytes() as u32,
        record_size: profile.record_bytes() as u32,
        groups,
        databases,
        size: arguments.size.map(|size| size.0),
        seed: arguments.seed,
        pools: arguments.pool,
    };
    let wish = match (arguments.attach, arguments.fresh) {
        (true, _) => Wish::Attach,
        (_, true) => Wish::Fresh,
        _ => Wish::Unsaid,
    };
    let records: Vec<_> =
        places.all.iter().map(|place| (place.given.display().to_string(), place.manifest())).collect();
    let stand = pristine::stand(&places.all);
    if arguments.restore && places.all.iter().all(|place| place.manifest().is_none()) {
        pristine::task(copy_wish(arguments), None, Beginning::Create, &records[0].0)?;
    }
    let beginning = match start {
        Start::AsFound => manifest::beginning(wish, &records, &asked)?,
        Start::SameDatabases => Beginning::Attach,
        Start::Anew => Beginning::Replace,
    };
    let copies = pristine::task(copy_wish(arguments), stand, beginning, &records[0].0)?;
    let earlier = match beginning {
        Beginning::Attach => places.all[0].manifest().map(|manifest| manifest.shape.clone()),
        Beginning::Create | Beginning::Replace => None,
    };
    if beginning == Beginning::Attach && start == Start::AsFound {
        stage::check_same_layout(places, &layout, &drives)?;
    }
    let there = match (beginning, start) {
        (Beginning::Attach, Start::AsFound) => Some(sizes_there(places, &layout, copies)),
        (Beginning::Attach, _) => {
            let count = u64::from(groups) * u64::from(databases);
            arguments.size.map(|size| vec![ByteCount(size.0 / count); count as usize])
        }
        (Beginning::Create | Beginning::Replace, _) => None,
    };
    let duration = arguments.duration.unwrap_or(BARE_DURATION);
    let load = load(arguments, &profile, duration)?;
    let seed =
        earlier.as_ref().map(|shape| shape.seed).or(arguments.seed).unwrap_or_else(|| fresh_seed(world));
    let wanted = Wanted {
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
            Task::Keep | Task::Restore => true,
            Task::Leave => beginning == Beginning::Attach && stand.is_some(),
            Task::Forget => false,
        },
        copying: matches!(copies, Task::Keep | Task::Restore),
        pools: arguments.pool,
        guess: speed_guess(survey),
    };
    let (plan, needs) = sizing::settle(&wanted, &volumes(survey, &layout, &drives), survey.memory)?;
    let (database_drive, log_drive) = sizing::pool_drives(&wanted, ByteCount(plan.database_bytes));
    let pools = arguments.pool.then_some(Pools {
        layout: drives,
        database_drive,
        log_drive,
        database_volume: sizing::volume_bytes(&wanted, ByteCount(plan.database_bytes)),
        log_volume: sizing::log_room(&wanted),
    });
    Ok(Settled { plan, needs, layout, pools, beginning, copies, outputs })
}

fn copy_wish(arguments: &ProveArguments) -> pristine::Wish {
    pristine::Wish { keep: arguments.keep_pristine, restore: arguments.restore }
}

/// What drives the storage.
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
fn sizes_there(places: &Places, layout: &[GroupLayout], copies: Task) -> Vec<ByteCount> {
    let spots = layout.iter().flat_map(|group| &group.databases);
    let size = |spot: &Spot| {
        let name = if copies == Task::Restore { pristine::copy_of(&spot.name) } else { spot.name.clone() };
        places.all[spot.place].made().get(&name).copied().unwrap_or_default()
    };
    spots.map(size).collect()
}

/// As slow as the slowest drive of the run.
fn speed_guess(survey: &Survey) -> SpeedGuess {
    let spins = survey.places.all.iter().any(|place| place.drive().rotational == Some(true));
    if spins { SPINNING } else { FLASH }
}

/// The filesystems and devices of the run, each once, with what lies on each.
fn volumes(survey: &Survey, layout: &[GroupLayout], drives: &[GroupDrives]) -> Vec<Volume> {
    let mut volumes: Vec<Volume> = Vec::new();
    for (index, place) in survey.places.all.iter().enumerate() {
        let mut volume = place.volume();
        volume.databases = layout::databases_in(layout, index).len() as u32;
        volume.log_series = layout::logs_in(layout, index).len() as u32;
        volume.drives = pools::layout::counts_in(drives, index);
        match volumes.iter_mut().find(|other| place.is_on(other)) {
            Some(same) => {
                same.databases += volume.databases;
                same.log_series += volume.log_series;
                same.drives.0 += volume.drives.0;
                same.drives.1 += volume.drives.1;
                // The files of each place were counted as free in its own reading only.
                same.free += place.ours();
            }
            None => volumes.push(volume),
        }
    }
    volumes
}

/// What the report says of each place.
fn volume_facts(survey: &Survey, layout: &[GroupLayout]) -> Vec<VolumeFacts> {
    let places = &survey.places;
    let facts = places.all.iter().enumerate().map(|(index, place)| VolumeFacts {
        name: place.given.display().to_string(),
        databases: !layout::databases_in(layout, index).is_empty(),
        logs: !layout::logs_in(layout, index).is_empty(),
        io: match (place.remote(), survey.io[index]) {
            (Some(remote), _) => remote.reach().to_owned(),
            (None, Some(kind)) => kind.to_string(),
            (None, None) => "not known before the run".to_owned(),
        },
        direct: survey.io[index].is_none_or(|kind| kind.is_direct()),
        description: format!("{}{}", screen::description(place), cache_words(place)),
    });
    facts.collect()
}

/// What the kernel takes the drive's write cache for, behind a comma, where it says.
fn cache_words(place: &place::Place) -> &'static str {
    match place.drive().write_cache.as_deref() {
        Some("write back") => ", volatile write cache on",
        Some("write through") => ", no volatile write cache",
        _ => "",
    }
}

/// A way of I/O that the page cache may answer for is named before it flatters anybody.
fn io_warnings(settled: &Settled) -> Vec<String> {
    let indirect = settled.plan.volumes.iter().filter(|volume| !volume.direct);
    indirect.map(|volume| format!("{} is reached by {}", volume.name, volume.io)).collect()
}

fn screen_lines(console: &Console, settled: &Settled, survey: &Survey) -> Vec<String> {
    let places = &survey.places;
    let of = |indices: &[usize]| indices.iter().map(|&index| &places.all[index]).collect::<Vec<_>>();
    let beginning = match settled.beginning {
        Beginning::Attach if settled.copies == Task::Restore => {
            "by putting back the pristine copies of an earlier run".to_owned()
        }
        Beginning::Create => "with new databases".to_owned(),
        Beginning::Attach if settled.needs.missing > ByteCount(0) => format!(
            "with the databases that are there; {} of them are still to be made",
            settled.needs.missing
        ),
        Beginning::Attach => "with the databases that are there".to_owned(),
        Beginning::Replace => "by removing what an earlier run made, then with new databases".to_owned(),
    };
    let beginning = match settled.copies {
        Task::Keep => format!("{beginning}, of which pristine copies are kept"),
        Task::Forget => format!("{beginning}; pristine copies that were never finished are removed"),
        Task::Leave | Task::Restore => beginning,
    };
    let array = settled.pools.as_ref().map(|pools| pools.in_words(places));
    let intent =
        Intent { plan: &settled.plan, array: array.as_deref(), beginning: &beginning, needs: &settled.needs };
    screen::lines(console, &intent, &of(&places.databases), &of(&places.logs))
}

#[cfg(test)]
mod tests;
