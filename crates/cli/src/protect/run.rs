//! `spindle protect run`: the agent on a mail host.

use super::{
    agent_work::AgentWork, application::HostFreeze, arguments::ProtectRunArguments, outlook::print_outlook,
    server_pools::ServerPools,
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    server::{connection::ServerConnection, place::ServerPlace},
    state_folder::state_folder,
};
use control::sets::{WantedSet, wanted_sets};
use plan::site::{Site, SiteIndex};
use protect::set_keeper::{KeeperLook, SetFreezing, SetKeeper, SetNotice, SetOpening};
use report::{Refusal, Severity, calendar::utc_time};
use serde::Serialize;
use std::{
    cell::Cell,
    path::{Path, PathBuf},
    process,
    rc::Rc,
    time::Duration,
};
use world::{
    IoErrorKind, JoinHandle, World,
    real::{
        HostStateFile,
        freeze::WritablePlace,
        host::machine,
        host_files::{self, PathKind},
        signals::interrupted,
    },
    with_deadline,
};

/// Time after an error of a catalogue's file.
const REOPEN_AFTER: Duration = Duration::from_secs(60);

/// One set, and all that its keeper needs.
pub(super) struct KeptSet {
    pub wanted: WantedSet,
    pub pools: Rc<ServerPools>,
    pub freezing: Rc<dyn SetFreezing>,
    pub catalogue: PathBuf,
}

/// A line for a program.
#[derive(Serialize)]
struct AgentEvent<'e> {
    at: String,
    set: &'e str,
    severity: &'static str,
    /// Of a problem that lasts: its word; with `ended` when it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ended: bool,
    text: String,
}

pub async fn run(
    world: &World,
    arguments: &ProtectRunArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let (site, wanted) = read_sets(arguments)?;
    let server = Rc::new(place.connection(world)?);
    let folder = arguments.catalogues.clone().unwrap_or_else(|| state_folder().join("sets"));
    let places = writable_places(&site, &folder);
    let mut sets = Vec::new();
    for wanted in wanted {
        let name = wanted.settings.name.clone();
        let freezing = Rc::new(HostFreeze::new(world, &name, &wanted.freeze, &places)?);
        let pools = Rc::new(ServerPools::new(world, &server, &name, &wanted.settings.volumes));
        let catalogue = folder.join(format!("{name}.catalogue"));
        sets.push(KeptSet { wanted, pools, freezing, catalogue });
    }
    if arguments.dry_run {
        return print_outlook(world, &sets, &server, console).await;
    }
    host_files::create_private_dir_all(&folder)
        .map_err(|error| Refusal::new(error.to_string(), "say ⟨catalogues⟩ FOLDER"))?;
    match arguments.once {
        true => make_once(world, &sets, place, console).await,
        false => keep(world, sets, (&server, place), console).await,
    }
}

/// The sets of the site file that this host freezes, or those that are named.
fn read_sets(arguments: &ProtectRunArguments) -> Result<(Site, Vec<WantedSet>), Refusal> {
    let path = &arguments.site;
    let refused = |problem: String| Refusal::new(format!("{}: {problem}", path.display()), "");
    let text = host_files::read_to_string(path).map_err(|error| Refusal::new(error.to_string(), ""))?;
    let site = Site::from_toml(&text).map_err(|error| refused(error.to_string()))?;
    let wanted = wanted_sets(&SiteIndex::of(&site))?;
    if let Some(unknown) =
        arguments.sets.iter().find(|name| wanted.iter().all(|set| set.settings.name != **name))
    {
        let names: Vec<&str> = wanted.iter().map(|set| set.settings.name.as_str()).collect();
        let remedy = if names.is_empty() { "it has no [[protect]]".to_owned() } else { names.join(", ") };
        return Err(refused(format!("there is no set {unknown:?}; there is: {remedy}")));
    }
    let (here, kept): (Vec<_>, Vec<_>) = wanted
        .into_iter()
        .filter(|set| arguments.sets.is_empty() || arguments.sets.contains(&set.settings.name))
        .partition(|set| !set.freeze.is_by_server());
    if let Some(set) = kept.first().filter(|_| !arguments.sets.is_empty() || here.is_empty()) {
        let name = &set.settings.name;
        return Err(refused(format!(
            "set {name:?} needs no agent: the server of its pools keeps it, and a second runner would make each backup twice"
        )));
    }
    if here.is_empty() {
        return Err(refused("it has no [[protect]]; docs/protect.md says how a set is described".to_owned()));
    }
    Ok((site, here))
}

/// Everything that must take writes while filesystems are frozen, as far as it lies on this host.
fn writable_places(site: &Site, catalogues: &Path) -> Vec<WritablePlace> {
    let place = |what: &str, path: PathBuf| WritablePlace { what: what.to_owned(), path };
    let mut places = vec![place("the folder of the catalogues", catalogues.to_owned())];
    places.push(place("the folder of a server's state", state_folder()));
    for (what, link) in [("standard output", "/proc/self/fd/1"), ("standard error", "/proc/self/fd/2")] {
        // Pipes and terminals have no path.
        let target = host_files::canonical(Path::new(link)).ok();
        let file = target.filter(|path| matches!(host_files::kind(path), Ok(PathKind::File)));
        places.extend(file.map(|path| place(what, path)));
    }
    for group in &site.groups {
        let what = format!("a drive of the pool {}", group.name);
        let paths = group.devices.iter().chain([&group.folder]).filter(|path| path.starts_with('/'));
        let here = paths.map(PathBuf::from).filter(|path| {
            // One that cannot be asked about may be there.
            !matches!(host_files::kind(path), Ok(PathKind::Missing))
        });
        places.extend(here.map(|path| place(&what, path)));
    }
    places
}

pub(super) fn open(world: &World, set: &KeptSet) -> Result<SetKeeper, Refusal> {
    let host = machine().hostname;
    let opening = SetOpening {
        settings: set.wanted.settings.clone(),
        pools: Rc::clone(&set.pools) as Rc<_>,
        freezing: Rc::clone(&set.freezing),
        generator: format!("spindle {}", env!("CARGO_PKG_VERSION")),
        runner: format!("spindle protect run, process {} on {host}", process::id()),
    };
    let refused = |problem: String| Refusal::new(problem, "");
    let file = HostStateFile::open(&set.catalogue).map_err(|error| {
        let is_taken = error.kind() == IoErrorKind::Busy;
        let remedy =
            if is_taken { "a set has one runner: end the other one, or leave it this set" } else { "" };
        Refusal::new(error.to_string(), remedy)
    })?;
    SetKeeper::open(world, Box::new(file), opening).map_err(|error| refused(error.to_string()))
}

/// Makes what is due now.
async fn make_once(
    world: &World,
    sets: &[KeptSet],
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let work = AgentWork::new(world, place);
    let mut has_failed = false;
    for set in sets {
        set.pools.check().await?;
        let mut keeper = open(world, set)?;
        let looked = keeper.look().await.map_err(|error| Refusal::new(error.to_string(), ""))?;
        say(world, &mut keeper, console)?;
        while work.do_due(&mut keeper).await? {
            say(world, &mut keeper, console)?;
        }
        let KeeperLook { made, .. } = looked;
        let is_held_up = keeper.view().problems.keys().next().is_some() && made.is_none();
        has_failed |= is_held_up || made.is_some_and(|made| made.label.is_none());
    }
    console.finish(if has_failed { ExitStatus::Fail } else { ExitStatus::Pass })
}

/// Keeps all sets until a signal comes; a round under way is taken to its end.
async fn keep(
    world: &World,
    sets: Vec<KeptSet>,
    (server, place): (&ServerConnection, &ServerPlace),
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let mut keepers = Vec::new();
    for set in sets {
        set.pools.check().await?;
        let keeper = open(world, &set)?;
        keepers.push((set, keeper));
    }
    let ended = interrupted();
    let names: Vec<&str> = keepers.iter().map(|(set, _)| set.wanted.settings.name.as_str()).collect();
    console.say(&format!("keeping {} with the pools of {}", names.join(", "), server.address()));
    let is_ending = Rc::new(Cell::new(false));
    let work = Rc::new(AgentWork::new(world, place));
    let running: Vec<JoinHandle<Result<(), Refusal>>> = keepers
        .into_iter()
        .map(|(set, keeper)| {
            let (world, console) = (world.clone(), console.clone());
            let (is_ending, work) = (Rc::clone(&is_ending), Rc::clone(&work));
            let on = world.clone();
            on.spawn(
                "set",
                async move { keep_one(&world, (&set, keeper), &work, &console, &is_ending).await },
            )
        })
        .collect();
    ended.await;
    is_ending.set(true);
    work.end();
    console.say("ending; rounds under way are taken to their ends");
    for set in running {
        set.await?;
    }
    console.finish(ExitStatus::Pass)
}

async fn keep_one(
    world: &World,
    (set, keeper): (&KeptSet, SetKeeper),
    work: &AgentWork,
    console: &Console,
    is_ending: &Cell<bool>,
) -> Result<(), Refusal> {
    let name = set.wanted.settings.name.clone();
    let mut open_keeper = Some(keeper);
    while !is_ending.get() {
        let Some(keeper) = &mut open_keeper else {
            rest(world, REOPEN_AFTER, || is_ending.get()).await;
            match open(world, set) {
                Ok(again) => open_keeper = Some(again),
                Err(refusal) => console.warn(&format!("{name}: no backup is made: {refusal}")),
            }
            continue;
        };
        let looked = keeper.look().await;
        if let Some(problem) = work.go_on(keeper).await {
            console.warn(&format!("{name}: {problem}"));
        }
        say(world, keeper, console)?;
        match looked {
            Ok(look) => rest(world, look.wait, || is_ending.get() || work.has_result_of(&name)).await,
            Err(error) => {
                let again_s = REOPEN_AFTER.as_secs();
                console.warn(&format!(
                    "{name}: {error}; no backup is made before it is opened again, in {again_s} s"
                ));
                open_keeper = None;
            }
        }
    }
    Ok(())
}

/// Sleeps, up to 200 ms more once it is to end.
async fn rest(world: &World, span: Duration, is_over: impl Fn() -> bool) {
    let ending = async {
        while !is_over() {
            world.sleep(Duration::from_millis(200)).await;
        }
    };
    with_deadline(world.sleep(span), ending).await;
}

/// Says what the keeper has to say.
fn say(world: &World, keeper: &mut SetKeeper, console: &Console) -> Result<(), Refusal> {
    let set = keeper.settings().name.clone();
    for notice in keeper.take_notices() {
        let (severity, problem, ended, text) = match notice {
            SetNotice::Note(text) => (Severity::Note, None, false, text),
            SetNotice::Warning(text) => (Severity::Warning, None, false, text),
            SetNotice::Began(problem, text) => (Severity::Warning, Some(problem.word()), false, text),
            SetNotice::Ended(problem) => {
                (Severity::Note, Some(problem.word()), true, problem.ended().to_owned())
            }
        };
        let at = utc_time(world.wall().seconds);
        if console.is_for_programs() {
            let severity = if severity == Severity::Note { "note" } else { "warning" };
            console.json_of(&AgentEvent { at, set: &set, severity, problem, ended, text })?;
        } else {
            console.event(severity, &at, &format!("{set}: {text}"));
        }
    }
    Ok(())
}
