//! `spindle export`: files, devices and volumes of pools, served over the network until the program is ended.

mod pool_threads;
mod shown;

use crate::{
    console::{Console, StderrNotices},
    exit_status::ExitStatus,
    pool::{arguments::WriteCacheState, reporter::report_events_of},
    service::export_rows,
    state_folder::state_folder,
    verb_arguments::ExportArguments,
};
use nbd::TlsMode;
use report::Refusal;
use serving::{
    certificates,
    export::{
        ExportEndpoint, ExportSettings, IscsiEndpoints, OpenExports, TargetPlan, identities, listen, names,
        nbd_endpoint, target_plan,
    },
    pool::folder::OpenPool,
    step_times_file::StepTimesFile,
};
use shown::{ShownEndpoint, tell};
use std::{path::PathBuf, rc::Rc, time::Duration};
use world::{
    Address, World,
    real::{self, Engine, RealOptions, signals::interrupted},
    with_deadline,
};

/// Time initiators have to log out at the end.
const LOG_OUT_MAX: Duration = Duration::from_secs(2);

/// The arguments, checked and complete.
struct ExportRequest {
    paths: Vec<PathBuf>,
    /// Of the exports, in the order of the paths.
    names: Vec<String>,
    nbd: Option<Address>,
    tls: TlsMode,
    iscsi: Option<Address>,
    /// Addresses to which logins are redirected.
    portals: Vec<Address>,
    plan: TargetPlan,
    settings: ExportSettings,
    /// Folder for identities.
    state: PathBuf,
    step_times: Option<PathBuf>,
    options: RealOptions,
    as_json: bool,
}

/// Runs the verb to its end.
pub fn export(arguments: &ExportArguments) -> Result<ExitStatus, Refusal> {
    if let Some(verb) = &arguments.verb {
        return export_rows(verb);
    }
    if arguments.chap_make {
        return make_secret(&Console::new(arguments.json, arguments.quiet));
    }
    let request = request(arguments)?;
    let console = Console::of_server(arguments.json, arguments.quiet)?;
    match pool_threads::parts(&request) {
        Some(parts) => pool_threads::run(parts, request, console),
        None => run_on_one_thread(request, &console),
    }
}

fn request(arguments: &ExportArguments) -> Result<ExportRequest, Refusal> {
    let nbd = arguments.nbd.as_deref().or(arguments.iscsi.is_none().then_some("127.0.0.1"));
    let nbd = nbd.map(|text| address(text, nbd::PORT)).transpose()?;
    let iscsi = arguments.iscsi.as_deref().map(|text| address(text, iscsi::PORT)).transpose()?;
    let portals =
        arguments.portal.iter().map(|text| address(text, iscsi::PORT)).collect::<Result<Vec<_>, _>>()?;
    if let Some(any) = portals.iter().find(|portal| portal.is_any()) {
        let problem =
            format!("--portal {any} is every address of this host: initiators cannot be redirected to it");
        return Err(Refusal::new(problem, "say the address that initiators reach this host by"));
    }
    let tls = tls(arguments)?;
    let names = names(&arguments.paths, &arguments.name)?;
    let plan = target_plan(arguments.access.as_deref(), &names)?;
    let options = RealOptions {
        force_plain: arguments.plain_io,
        busy_poll: Duration::from_micros(arguments.poll),
        step_times: arguments.step_times.is_some(),
        panics_end: false,
    };
    Ok(ExportRequest {
        paths: arguments.paths.clone(),
        names,
        nbd,
        tls,
        iscsi,
        portals,
        plan,
        settings: settings(arguments),
        state: arguments.state.clone().unwrap_or_else(state_folder),
        step_times: arguments.step_times.clone(),
        options,
        as_json: arguments.json,
    })
}

/// Serves all exports on this thread.
fn run_on_one_thread(request: ExportRequest, console: &Console) -> Result<ExitStatus, Refusal> {
    let ExportRequest { paths, names, nbd, tls, iscsi, portals, plan, settings, state, .. } = request;
    real::run(0, request.options, async |world: World| {
        // Before anything is made: what is refused leaves all as it was.
        let nbd = listen(nbd, "--nbd").await?;
        let iscsi = listen(iscsi, "--iscsi").await?;
        let mut portals_open = Vec::new();
        for portal in portals {
            portals_open.extend(listen(Some(portal), "--portal").await?);
        }
        let notices = StderrNotices::through(console);
        let step_times = request.step_times.as_ref();
        let step_times = step_times.map(|path| StepTimesFile::create(path, &world, &notices)).transpose()?;
        let report = |open: &mut OpenPool| report_events_of(open, &world, console, console.is_for_programs());
        let mut exports = OpenExports::default();
        for (name, path) in names.into_iter().zip(&paths) {
            if let Err(refusal) = exports.add(&world, name, path, &settings, &notices, &report).await {
                // The first failure is the news.
                let _ = exports.close().await;
                return Err(refusal);
            }
        }
        let identities = match iscsi {
            Some(_) => identities(&world, &exports.shared, &state, &*notices),
            None => Ok(Vec::new()),
        };
        let identities = match identities {
            Ok(identities) => identities,
            Err(refusal) => {
                let _ = exports.close().await;
                return Err(refusal);
            }
        };
        let shared = &exports.shared;
        let said = console.clone();
        let say_nbd = Rc::new(move |event| say_nbd_event(&said, &event));
        let nbd = nbd.map(|listener| nbd_endpoint(&world, (listener, tls), shared, &settings, say_nbd));
        let said = console.clone();
        let say_iscsi: Rc<dyn Fn(_)> = Rc::new(move |event| say_iscsi_event(&said, &event));
        let iscsi = iscsi.map(|listener| IscsiEndpoints::new(plan, listener, portals_open));
        let iscsi =
            iscsi.map(|endpoints| endpoints.open(&world, (shared, &identities), &settings, &say_iscsi));
        let (iscsi, targets) = iscsi.unzip();
        let endpoints: Vec<ExportEndpoint> = nbd.into_iter().chain(iscsi.into_iter().flatten()).collect();
        exports.warnings.iter().for_each(|warning| console.warn(warning));
        Engine::current().fallback_notice().iter().for_each(|notice| console.warn(notice));
        // A reader of this line may end the server at once.
        let ended = interrupted();
        let shown: Vec<_> = endpoints.iter().map(|endpoint| ShownEndpoint::of(endpoint, shared)).collect();
        tell(&shown, request.as_json, console)?;
        for endpoint in endpoints {
            world.spawn("export", endpoint.serving);
        }
        step_times.iter().for_each(StepTimesFile::begin);
        ended.await;
        if let Some(step_times) = step_times {
            step_times.write_line().await;
        }
        if let Some(targets) = targets {
            // An initiator that does not log out when asked loses nothing either.
            with_deadline(world.sleep(LOG_OUT_MAX), targets.log_out_all()).await;
        }
        exports.close().await?;
        console.say("ended; all acknowledged writes are stable");
        console.finish(ExitStatus::Pass)
    })
}

fn settings(arguments: &ExportArguments) -> ExportSettings {
    ExportSettings {
        read_only: arguments.read_only,
        create: arguments.create,
        write_cache: arguments.write_cache.map(|state| state == WriteCacheState::On),
        block_bytes: arguments.blocks.bytes(),
        is_removable: arguments.removable,
        // It takes no orders.
        is_movable: false,
    }
}

/// The TLS mode that the arguments select.
fn tls(arguments: &ExportArguments) -> Result<TlsMode, Refusal> {
    let Some(folder) = &arguments.nbd_tls else { return Ok(TlsMode::Off) };
    if arguments.nbd.is_none() && arguments.iscsi.is_some() {
        return Err(Refusal::new("--nbd-tls without NBD", "say where NBD is served, too: --nbd ADDRESS"));
    }
    let tls = certificates::of_server(folder)?.tls;
    Ok(if arguments.nbd_tls_optional { TlsMode::Allowed(tls) } else { TlsMode::Required(tls) })
}

/// A secret for CHAP, on standard output: once, and nowhere else.
fn make_secret(console: &Console) -> Result<ExitStatus, Refusal> {
    let secret = real::run(0, RealOptions::default(), async |world: World| new_secret(&world));
    console.say_always(&secret);
    console.finish(ExitStatus::Pass)
}

/// A new secret for CHAP.
pub fn new_secret(world: &World) -> String {
    // 96 bits (RFC 7143, 9.2.1) in 16 characters: some initiators take no more.
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bytes = [0; 16];
    world.fill_secret(&mut bytes);
    bytes.iter().map(|byte| char::from(DIGITS[usize::from(byte % 64)])).collect()
}

fn address(text: &str, port: u16) -> Result<Address, Refusal> {
    Address::parse(text, port).map_err(|error| Refusal::new(error.to_string(), "see 'spindle export --help'"))
}

fn say_nbd_event(console: &Console, event: &nbd::server::ServerEvent) {
    use nbd::server::ServerEvent;
    match event {
        ServerEvent::Connected { peer, export, is_encrypted } => {
            let how = if *is_encrypted { " over TLS" } else { "" };
            console.say_progress(&format!("{peer} uses {export:?}{how}"));
        }
        ServerEvent::Disconnected { peer, why: None } => console.say_progress(&format!("{peer} is done")),
        ServerEvent::Disconnected { peer, why: Some(why) } => console.say_progress(&format!("{peer}: {why}")),
        ServerEvent::NotAccepted(error) => console.warn(&error.to_string()),
    }
}

fn say_iscsi_event(console: &Console, event: &iscsi::target::TargetEvent) {
    use iscsi::target::{SessionFailure, TargetEvent};
    match event {
        TargetEvent::LoggedIn { peer, initiator, target: Some(target) } => {
            console.say_progress(&format!("{peer} {initiator} uses {target}"));
        }
        TargetEvent::LoggedIn { peer, initiator, target: None } => {
            console.say_progress(&format!("{peer} {initiator} asks for targets"));
        }
        TargetEvent::Ended { peer, why: None } => console.say_progress(&format!("{peer} is done")),
        TargetEvent::Ended { peer, why: Some(SessionFailure::LoginsThrottled(throttled)) } => {
            // Once a minute.
            if throttled.is_news {
                console.warn(&format!("{peer}: {throttled}"));
            }
        }
        TargetEvent::Ended { peer, why: Some(why) } => console.say_progress(&format!("{peer}: {why}")),
        TargetEvent::NotAccepted(error) => console.warn(&error.to_string()),
    }
}
