//! Planning: from the settings of a run and the survey of its storage to everything that will be done, before the first
//! byte is written.

use crate::{
    control_sockets::ControlSockets,
    layout::{self, FileSlot, GroupLayout, LayoutKind, LayoutRequest, RunLocations},
    location::RunLocation,
    manifest::{self, DatabaseAction, DatabaseIntent, RequestedShape},
    outputs::Outputs,
    pools::{self, layout::GroupDrives, make::PoolPlan},
    pristine::{self, CopyIntent, CopyTask},
    request::{RunRequest, Threads},
    setup,
    sizing::{self, BARE_DURATION, ResourceNeeds, RunVolume, SizingRequest},
    stage, summary,
    survey::StorageSurvey,
    text_file,
};
use report::Refusal;
use std::time::Duration;
use workload::{
    database::plan::{
        LoadPlan, ProbePlan, RunPlan, VolumeFacts,
        estimate::SpeedGuess,
        profile::{ServerProfile, ServerProfileError},
        setup::Setup,
    },
    verdict::limits::{LimitSet, LimitsError},
};
use world::{ByteCount, World, real::Engine};

/// The cache may fill for this share of the measured time before measuring begins anyway, but
/// within these bounds, and never longer than the measured time.
const FILL_SHARE: u32 = 4;
const FILL_MIN: Duration = Duration::from_secs(5);
const FILL_MAX: Duration = Duration::from_secs(1_800);
/// The default profile.
const PROFILE: &str = "exchange-2010";
/// Assumed speed of drives, for estimates: a spinning disk, and anything else. Flash is assumed to
/// be fast, so that a run's writes are over- rather than underestimated: a virtual machine's NVMe
/// volume was measured at 9,000 to 20,000 IOPS.
const SPINNING: SpeedGuess = SpeedGuess { sequential_bytes_per_second: 100_000_000, random_iops: 200 };
const FLASH: SpeedGuess = SpeedGuess { sequential_bytes_per_second: 60_000_000, random_iops: 20_000 };

/// Everything planned before the first byte.
pub struct PlannedRun {
    pub plan: RunPlan,
    pub needs: ResourceNeeds,
    pub layout: Vec<GroupLayout>,
    /// The pools of `--pool`.
    pub pools: Option<PoolPlan>,
    pub action: DatabaseAction,
    pub copies: CopyTask,
    pub outputs: Outputs,
    pub control: ControlSockets,
}

impl PlannedRun {
    /// Drives of the pools; empty without `--pool`.
    pub(crate) fn drives(&self) -> &[GroupDrives] {
        self.pools.as_ref().map_or(&[], |pools| &pools.layout)
    }
}

/// State in which a run finds its locations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartState {
    AsFound,
    /// With the databases of the run before it, which it uses.
    SameDatabases,
    /// Without databases: those of the run before it will be removed.
    Emptied,
}

/// The requested profile, with the figures set on the command line.
pub fn profile(request: &RunRequest) -> Result<ServerProfile, Refusal> {
    let name = request.profile.as_deref().unwrap_or(PROFILE);
    let is_file = name.contains('/') || name.ends_with(".toml");
    let refuse = |error: ServerProfileError| match &error {
        ServerProfileError::Unknown { name, nearest: Some(nearest) } => {
            Refusal::new(format!("no profile is called {name:?}"), format!("did you mean {nearest:?}?"))
        }
        _ => Refusal::new(error.to_string(), ""),
    };
    let mut profile = if is_file {
        let text = text_file::read("⟨server⟩", name, &ServerProfile::names())?;
        ServerProfile::parse(&text).map_err(|error| Refusal::new(format!("{name}: {error}"), ""))?
    } else {
        ServerProfile::load(name).map_err(refuse)?
    };
    if let Some(limits) = &request.limits {
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
    for (key, value) in &request.set {
        profile.set(key, value).map_err(refuse)?;
    }
    profile.check().map_err(refuse)?;
    Ok(profile)
}

/// Plans the run, or refuses it. Writes nothing.
pub fn plan_run(
    world: &World,
    request: &RunRequest,
    profile: ServerProfile,
    setup: Option<Setup>,
    survey: &StorageSurvey,
    start: StartState,
) -> Result<PlannedRun, Refusal> {
    let locations = &survey.locations;
    let (groups, databases) = (request.groups.unwrap_or(1), request.databases.unwrap_or(1));
    let outputs = Outputs::choose(request.report.as_deref(), world.wall(), &locations.all)?;
    let spreading = LayoutRequest { groups, databases, kind: request.layout, volumes: request.volumes };
    let layout = layout::spread(locations, spreading)?;
    let drives = if request.pool { pools::layout::spread(locations, groups) } else { Vec::new() };
    let requested = RequestedShape {
        profile: profile.name.clone(),
        page_size: profile.page_size().bytes() as u32,
        record_size: profile.record_bytes() as u32,
        groups,
        databases,
        size: request.size.map(|size| size.0),
        seed: request.seed,
        pools: request.pool,
    };
    let intent = match (request.attach, request.fresh) {
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
    if request.restore && locations.all.iter().all(|location| location.manifest().is_none()) {
        pristine::task(copy_intent(request), None, DatabaseAction::Create, &records[0].0)?;
    }
    let action = match start {
        StartState::AsFound => manifest::database_action(intent, &records, &requested)?,
        StartState::SameDatabases => DatabaseAction::Attach,
        StartState::Emptied => DatabaseAction::Replace,
    };
    let copies = pristine::task(copy_intent(request), state, action, &records[0].0)?;
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
            request.size.map(|size| vec![ByteCount(size.0 / count); count as usize])
        }
        (DatabaseAction::Create | DatabaseAction::Replace, _) => None,
    };
    let duration = request.duration.unwrap_or(BARE_DURATION);
    let load = load(request, &profile, duration)?;
    let seed = earlier.as_ref().map(|shape| shape.seed).or(request.seed).unwrap_or_else(|| fresh_seed(world));
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
            judged: setup::judged(request),
            fill_s_max: (duration / FILL_SHARE).clamp(FILL_MIN.min(duration), FILL_MAX).as_secs(),
            seed,
            volumes: volume_facts(survey, &layout),
            storage_cache_bytes: request.storage_cache.map(|cache| cache.0),
            setup: setup.map(Box::new),
            notes: request.note.clone(),
            layout: request.layout.map(|kind| LayoutKind::name(kind).to_owned()),
            protection: request.protect,
        },
        size: request.size.or(earlier.as_ref().map(|shape| ByteCount(shape.size))),
        cache: request.cache,
        allow_writes: request.allow_writes,
        there,
        room_for_copies: match copies {
            CopyTask::Keep | CopyTask::Restore => true,
            CopyTask::Leave => action == DatabaseAction::Attach && state.is_some(),
            CopyTask::Forget => false,
        },
        copying: matches!(copies, CopyTask::Keep | CopyTask::Restore),
        pools: request.pool,
        guess: speed_guess(survey),
    };
    let (plan, needs) = sizing::size_run(&sizing_request, &volumes(survey, &layout, &drives), survey.memory)?;
    let (database_drive, log_drive) = sizing::pool_drives(&sizing_request, ByteCount(plan.database_bytes));
    let pools = request.pool.then_some(PoolPlan {
        layout: drives,
        database_drive,
        log_drive,
        database_volume: sizing::volume_bytes(&sizing_request, ByteCount(plan.database_bytes)),
        log_volume: sizing::log_room(&sizing_request),
    });
    let control = ControlSockets::of(request, groups)?;
    Ok(PlannedRun { plan, needs, layout, pools, action, copies, outputs, control })
}

fn copy_intent(request: &RunRequest) -> CopyIntent {
    CopyIntent { keep: request.keep_pristine, restore: request.restore }
}

fn load(request: &RunRequest, profile: &ServerProfile, duration: Duration) -> Result<LoadPlan, Refusal> {
    let probe = ProbePlan::fitting(duration, request.probe);
    let load = match (request.mailboxes, request.iops) {
        (Some(count), Some(iops_each)) => LoadPlan::Mailboxes { count: count.into(), iops_each },
        _ if request.max => LoadPlan::Maximum { probe },
        _ => match request.threads {
            Some(Threads::Auto) => LoadPlan::TunedThreads { probe },
            Some(Threads::Count(per_group)) => LoadPlan::Threads { per_group },
            None => LoadPlan::Threads { per_group: profile.threads_per_group() },
        },
    };
    if request.probe.is_some() && load.probe().is_none() {
        return Err(Refusal::new(
            "⟨probe⟩ without a search: nothing would be probed",
            "add ⟨max⟩ or ⟨threads⟩ auto, or leave it out",
        ));
    }
    if request.protect.is_some() && load.probe().is_some() {
        return Err(Refusal::new(
            "⟨protect⟩ with a search: backups would disturb what is searched for",
            "give the load: ⟨mailboxes⟩ or a number of ⟨threads⟩",
        ));
    }
    Ok(load)
}

/// A seed from the clock, short enough to be typed again.
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

/// The speed of the slowest drive.
fn speed_guess(survey: &StorageSurvey) -> SpeedGuess {
    let spins = survey.locations.all.iter().any(|location| location.drive().rotational == Some(true));
    if spins { SPINNING } else { FLASH }
}

/// The filesystems and devices of the run, each once, with its files.
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
            (Some(remote), _) => remote.transport().to_owned(),
            (None, Some(kind)) => Engine::current().describe(kind),
            (None, None) => "not known before the run".to_owned(),
        },
        direct: survey.io[index].is_none_or(|kind| kind.is_direct()),
        description: format!("{}{}", summary::description(location), cache_words(location)),
    });
    facts.collect()
}

/// State of the drive's write cache according to the kernel, behind a comma; empty if unknown.
fn cache_words(location: &RunLocation) -> &'static str {
    match location.drive().write_cache.as_deref() {
        Some("write back") => ", volatile write cache on",
        Some("write through") => ", no volatile write cache",
        _ => "",
    }
}
