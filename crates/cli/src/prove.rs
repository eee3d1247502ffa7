//! `spindle prove`: real mailbox databases on real storage, and the answer.
//!
//! Everything is looked at and settled before the first byte is written ([`survey`](mod@survey),
//! [`place`], [`layout`], [`manifest`], [`sizing`]), said on one [`screen`], then made, run and
//! reported ([`stage`], [`performance`], [`outputs`]). What is refused is refused in the first part, so
//! that everything stays as it was.

pub mod allowance;
pub mod clean;
pub mod ground;
pub mod layout;
pub mod machine;
pub mod manifest;
pub mod outputs;
pub mod performance;
pub mod place;
pub mod progress;
pub mod screen;
pub mod sizing;
pub mod stage;
pub mod survey;

use crate::{arguments::ProveArguments, console::Console, ending::Ending, refusal::Refusal};
use allowance::Allowance;
use layout::{GroupLayout, Places};
use manifest::{Asked, Beginning, Wish};
use outputs::Outputs;
use report::{Document, Severity, json, text};
use screen::Intent;
use sizing::{BARE_DURATION, Needs, Volume, Wanted};
use std::{path::Path, time::Duration};
use survey::Survey;
use workload::database::{
    plan::{Load, RunPlan, SpeedGuess, VolumeFacts},
    profile::{Profile, ProfileError},
};
use world::{
    ByteCount, World,
    real::{self, RealOptions, host_files},
};

/// The cache may fill for this share of the measured time before measuring begins all the same, but
/// within these bounds.
const FILL_SHARE: u32 = 4;
const FILL_MIN: Duration = Duration::from_secs(5);
const FILL_MAX: Duration = Duration::from_secs(1_800);
/// What drives are taken to do, for estimates: a spinning disk, and anything else. Flash is taken to
/// be fast, so that a run's writes are rather over- than underestimated: a virtual machine's NVMe
/// volume was measured at 9,000 to 20,000 I/O a second.
const SPINNING: SpeedGuess = SpeedGuess { sequential_bytes_per_second: 100_000_000, random_iops: 200 };
const FLASH: SpeedGuess = SpeedGuess { sequential_bytes_per_second: 60_000_000, random_iops: 20_000 };

/// Everything settled before the first byte.
struct Settled {
    plan: RunPlan,
    needs: Needs,
    layout: Vec<GroupLayout>,
    beginning: Beginning,
    outputs: Outputs,
}

/// Runs the verb to its end.
pub fn prove(arguments: &ProveArguments) -> Result<Ending, Refusal> {
    let console = Console::new(arguments.json, arguments.quiet);
    let options = RealOptions { force_plain: arguments.plain_io };
    let ending = real::run(0, options, async |world| prove_in(&world, arguments, &console, options).await)?;
    match console.lost() {
        Some(error) => Err(Refusal::new(format!("the answer could not be told: {error}"), "")),
        None => Ok(ending),
    }
}

async fn prove_in(
    world: &World,
    arguments: &ProveArguments,
    console: &Console,
    options: RealOptions,
) -> Result<Ending, Refusal> {
    if arguments.clean {
        let survey = Survey::for_cleaning(world, arguments).await?;
        return match arguments.dry_run {
            true => Ok(clean::show_all(&survey, console)),
            false => clean::clean_all(&survey, console).await,
        };
    }
    let profile = profile(arguments)?;
    let survey = Survey::for_proving(world, arguments).await?;
    let settled = settle(world, arguments, profile, &survey)?;
    for line in screen_lines(console, &settled, &survey) {
        console.say(&line);
    }
    for warning in survey.places.all.iter().flat_map(place::Place::warnings).chain(io_warnings(&settled)) {
        console.warn(&warning);
    }
    if arguments.dry_run {
        console.say("Nothing was written: this was a dry run.");
        return Ok(Ending::Pass);
    }
    console.say("");
    let _held = stage::set(world, &survey, &settled.plan, &settled.layout, settled.beginning).await?;
    let allowance = Allowance::new(settled.needs.writes_max);
    let run = performance::Run { plan: settled.plan, layout: &settled.layout, survey: &survey, options };
    let document = performance::run(world, run, allowance, console).await?;
    deliver(&document, &settled.outputs, arguments, console)
}

/// The profile asked for, with the figures set on the command line.
fn profile(arguments: &ProveArguments) -> Result<Profile, Refusal> {
    let name = &arguments.profile;
    let is_file = name.contains('/') || name.ends_with(".toml");
    let refuse = |error: ProfileError| match &error {
        ProfileError::Unknown { name, nearest: Some(nearest) } => {
            Refusal::new(format!("no profile is called {name:?}"), format!("did you mean {nearest:?}?"))
        }
        _ => Refusal::new(error.to_string(), ""),
    };
    let mut profile = if is_file {
        let text = host_files::read_to_string(Path::new(name)).map_err(|error| {
            let known = Profile::names().join(", ");
            Refusal::new(format!("--profile: {error}"), format!("give a file, or one of {known}"))
        })?;
        Profile::parse(&text).map_err(|error| Refusal::new(format!("{name}: {error}"), ""))?
    } else {
        Profile::load(name).map_err(refuse)?
    };
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
    survey: &Survey,
) -> Result<Settled, Refusal> {
    let places = &survey.places;
    let outputs = Outputs::settle(arguments.report.as_deref(), world.wall(), &places.all)?;
    let layout = layout::spread(places, arguments.groups, arguments.databases)?;
    let asked = Asked {
        profile: profile.name.clone(),
        page_size: profile.page_size().bytes() as u32,
        record_size: profile.record_bytes() as u32,
        groups: arguments.groups,
        databases: arguments.databases,
        size: arguments.size.map(|size| size.0),
        seed: arguments.seed,
    };
    let wish = match (arguments.attach, arguments.fresh) {
        (true, _) => Wish::Attach,
        (_, true) => Wish::Fresh,
        _ => Wish::Unsaid,
    };
    let records: Vec<_> =
        places.all.iter().map(|place| (place.given.display().to_string(), place.manifest())).collect();
    let beginning = manifest::beginning(wish, &records, &asked)?;
    let earlier = match beginning {
        Beginning::Attach => places.all[0].manifest().map(|manifest| manifest.shape.clone()),
        Beginning::Create | Beginning::Replace => None,
    };
    if beginning == Beginning::Attach {
        stage::check_same_layout(places, &layout)?;
    }
    let duration = arguments.duration.unwrap_or(BARE_DURATION);
    let load = match (arguments.mailboxes, arguments.iops) {
        (Some(count), Some(iops_each)) => Load::Mailboxes { count: count.into(), iops_each },
        _ => Load::Threads { per_group: arguments.threads.unwrap_or(profile.threads_per_group()) },
    };
    let seed =
        earlier.as_ref().map(|shape| shape.seed).or(arguments.seed).unwrap_or_else(|| fresh_seed(world));
    let wanted = Wanted {
        plan: RunPlan {
            profile,
            groups: arguments.groups,
            databases_per_group: arguments.databases,
            database_bytes: 0,
            database_bytes_max: 0,
            cache_bytes_per_group: 0,
            load,
            duration_s: duration.as_secs().max(1),
            fill_s_max: (duration / FILL_SHARE).clamp(FILL_MIN, FILL_MAX).as_secs(),
            seed,
            volumes: volume_facts(survey),
            storage_cache_bytes: None,
        },
        size: arguments.size.or(earlier.as_ref().map(|shape| ByteCount(shape.size))),
        cache: arguments.cache,
        allow_writes: arguments.allow_writes,
        there: (beginning == Beginning::Attach).then(|| sizes_there(places, &layout)),
        guess: speed_guess(survey),
    };
    let (plan, needs) = sizing::settle(&wanted, &volumes(survey, &layout), survey.memory)?;
    Ok(Settled { plan, needs, layout, beginning, outputs })
}

/// A seed of the moment, short enough to be typed again.
fn fresh_seed(world: &World) -> u64 {
    let wall = world.wall();
    (wall.seconds.unsigned_abs().wrapping_mul(1_000_003) ^ u64::from(wall.nanos)) % 1_000_000_000
}

/// Sizes of the databases that are there, in the order of the layout; zero for one not yet begun.
fn sizes_there(places: &Places, layout: &[GroupLayout]) -> Vec<ByteCount> {
    let spots = layout.iter().flat_map(|group| &group.databases);
    spots.map(|spot| places.all[spot.place].made().get(&spot.name).copied().unwrap_or_default()).collect()
}

/// As slow as the slowest drive of the run.
fn speed_guess(survey: &Survey) -> SpeedGuess {
    let spins = survey.places.all.iter().any(|place| place.drive().rotational == Some(true));
    if spins { SPINNING } else { FLASH }
}

/// The filesystems and devices of the run, each once, with what lies on each.
fn volumes(survey: &Survey, layout: &[GroupLayout]) -> Vec<Volume> {
    let mut volumes: Vec<Volume> = Vec::new();
    for (index, place) in survey.places.all.iter().enumerate() {
        let mut volume = place.volume();
        volume.databases = layout::databases_in(layout, index).len() as u32;
        volume.log_series = layout::logs_in(layout, index).len() as u32;
        match volumes.iter_mut().find(|other| place.is_on(other)) {
            Some(same) => {
                same.databases += volume.databases;
                same.log_series += volume.log_series;
                // The files of each place were counted as free in its own reading only.
                same.free += place.ours();
            }
            None => volumes.push(volume),
        }
    }
    volumes
}

/// What the report says of each place.
fn volume_facts(survey: &Survey) -> Vec<VolumeFacts> {
    let places = &survey.places;
    let facts = places.all.iter().enumerate().map(|(index, place)| VolumeFacts {
        name: place.given.display().to_string(),
        databases: places.databases.contains(&index),
        logs: places.logs.contains(&index) || (places.logs.is_empty() && places.databases.contains(&index)),
        io: survey.io[index].map_or_else(|| "not known before the run".to_owned(), |kind| kind.to_string()),
        direct: survey.io[index].is_none_or(|kind| kind.is_direct()),
        description: screen::description(place),
    });
    facts.collect()
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
        Beginning::Create => "with new databases".to_owned(),
        Beginning::Attach if settled.needs.missing > ByteCount(0) => format!(
            "with the databases that are there; {} of them are still to be made",
            settled.needs.missing
        ),
        Beginning::Attach => "with the databases that are there".to_owned(),
        Beginning::Replace => "by removing what an earlier run made, then with new databases".to_owned(),
    };
    let intent = Intent { plan: &settled.plan, beginning: &beginning, needs: &settled.needs };
    screen::lines(console, &intent, &of(&places.databases), &of(&places.logs))
}

/// The answer, the few figures wanted first, and what speaks against them; the rest is in the report.
fn in_short(document: &Document) -> Document {
    let mut answer = document.clone();
    answer.sections.clear();
    answer.findings.retain(|finding| finding.severity < Severity::Note);
    for finding in &mut answer.findings {
        finding.source.clear();
    }
    answer
}

/// Writes the report, says the answer, and turns it into an exit code.
fn deliver(
    document: &Document,
    outputs: &Outputs,
    arguments: &ProveArguments,
    console: &Console,
) -> Result<Ending, Refusal> {
    let answer = in_short(document);
    let options = text::TextOptions { width: console.width, colour: console.colour };
    if arguments.quiet {
        if let Some(verdict) = &document.verdict {
            console.say_always(&format!("{}: {}", verdict.outcome.word(), verdict.headline));
        }
    } else {
        console.say(text::render(&answer, options).trim_end());
    }
    outputs.write(document)?;
    console.say_always(&format!("Report: {} (and .json)", outputs.html.display()));
    if arguments.json {
        console
            .json(&json::render(document))
            .map_err(|error| Refusal::new(format!("standard output: {error}"), ""))?;
    }
    Ok(Ending::of(document.verdict.as_ref().map(|verdict| verdict.outcome)))
}
