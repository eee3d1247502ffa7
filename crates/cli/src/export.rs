//! `spindle export`: files, devices and volumes of pools, served over the network until somebody ends it.

mod access_file;
mod identity;
mod over_iscsi;
mod over_nbd;
mod shared;
mod thin_volume;
mod write_cache;

use crate::{arguments::ExportArguments, console::Console, exit_status::ExitStatus};
use identity::{IdentityLookup, identify};
use iscsi::scsi::identity::Identity;
use report::Refusal;
use serde::Serialize;
use shared::{OpenExports, SharedDevice};
use std::{collections::BTreeSet, path::PathBuf, rc::Rc, time::Duration};
use world::{
    Address, IoErrorKind, Listener, Network, World,
    real::{self, RealOptions, Sockets, signals::interrupted},
    with_deadline,
};
use write_cache::EffectiveWriteCache;

/// One export as JSON.
#[derive(Serialize)]
struct ServedExport {
    uri: String,
    path: PathBuf,
    bytes: u64,
    read_only: bool,
    write_cache: bool,
    /// Identity that initiators see; iSCSI only.
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
}

/// A way to serve: where it listens, what is found there, and who does it.
struct ExportEndpoint {
    address: Address,
    /// One for each path, in their order, or none.
    offers: Vec<Offer>,
    /// Of each offer, over iSCSI.
    identities: Option<Vec<UnitIdentity>>,
    serving: world::LocalFuture<()>,
    /// Not everybody who reaches it may use it.
    is_restricted: bool,
}

/// An export at one endpoint, as clients see it.
struct Offer {
    uri: String,
    is_read_only: bool,
    write_cache: EffectiveWriteCache,
}

/// Time initiators have to log out at the end.
const LOG_OUT_MAX: Duration = Duration::from_secs(2);

/// Runs the verb to its end.
pub fn export(arguments: &ExportArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, arguments.quiet);
    if arguments.chap_make {
        return make_secret(&console);
    }
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
    let tls = over_nbd::tls(arguments)?;
    let names = names(arguments)?;
    let plan = over_iscsi::plan(arguments, &names)?;
    let options =
        RealOptions { force_plain: arguments.plain_io, look: Duration::from_micros(arguments.poll) };
    real::run(0, options, async |world: World| {
        // Before anything is made: what is refused leaves all as it was.
        let nbd = listen(nbd, "--nbd").await?;
        let iscsi = listen(iscsi, "--iscsi").await?;
        let mut portals_open = Vec::new();
        for portal in portals {
            portals_open.extend(listen(Some(portal), "--portal").await?);
        }
        let mut exports = OpenExports::default();
        for (name, path) in names.into_iter().zip(&arguments.paths) {
            if let Err(refusal) = exports.add(&world, name, path, arguments, &console).await {
                // The first failure is the news.
                let _ = exports.close().await;
                return Err(refusal);
            }
        }
        let identities = match iscsi {
            Some(_) => identities(&world, &exports.shared, arguments, &console),
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
        let nbd =
            nbd.map(|listener| over_nbd::endpoint(&world, (listener, tls), shared, arguments, &console));
        let iscsi = iscsi.map(|listener| over_iscsi::IscsiEndpoints::new(plan, listener, portals_open));
        let iscsi = iscsi.map(|endpoints| endpoints.open(&world, (shared, &identities), arguments, &console));
        let (iscsi, targets) = iscsi.unzip();
        let endpoints: Vec<ExportEndpoint> = nbd.into_iter().chain(iscsi.into_iter().flatten()).collect();
        exports.warnings.iter().for_each(|warning| console.warn(warning));
        // Who hears that it serves may end it at once.
        let ended = interrupted();
        tell(&endpoints, shared, arguments, &console)?;
        for endpoint in endpoints {
            world.spawn("export", endpoint.serving);
        }
        ended.await;
        if let Some(targets) = targets {
            // Who does not log out when asked loses nothing either.
            with_deadline(world.sleep(LOG_OUT_MAX), targets.log_out_all()).await;
        }
        exports.close().await?;
        console.say("ended; all acknowledged writes are stable");
        console.finish(ExitStatus::Pass)
    })
}

/// A secret for CHAP, on standard output: once, and nowhere else.
fn make_secret(console: &Console) -> Result<ExitStatus, Refusal> {
    // 96 bits (RFC 7143, 9.2.1) in 16 characters: some initiators take no more.
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bytes = [0; 16];
    real::run(0, RealOptions::default(), async |world: World| world.fill_secret(&mut bytes));
    let secret: String = bytes.iter().map(|byte| char::from(DIGITS[usize::from(byte % 64)])).collect();
    console.say_always(&secret);
    console.finish(ExitStatus::Pass)
}

fn address(text: &str, port: u16) -> Result<Address, Refusal> {
    Address::parse(text, port).map_err(|error| Refusal::new(error.to_string(), "see 'spindle export --help'"))
}

/// One name for each path: as given, or the file's own.
fn names(arguments: &ExportArguments) -> Result<Vec<String>, Refusal> {
    let (said, wanted) = (arguments.name.len(), arguments.paths.len());
    if said > 0 && said != wanted {
        let problem = format!("there are {wanted} paths and {said} names");
        return Err(Refusal::new(problem, "say --name once for each path, in their order, or not at all"));
    }
    let of_file =
        |path: &PathBuf| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let names: Vec<String> = match said {
        0 => arguments.paths.iter().map(of_file).collect(),
        _ => arguments.name.clone(),
    };
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        None => Ok(names),
        Some(twice) => {
            let problem = format!("two exports would be called {twice:?}");
            Err(Refusal::new(problem, "give each a name with --name"))
        }
    }
}

/// The identity of each export. Two exports with one identity are refused.
fn identities(
    world: &World,
    shared: &[SharedDevice],
    arguments: &ExportArguments,
    console: &Console,
) -> Result<Vec<UnitIdentity>, Refusal> {
    let state = arguments.state.clone().unwrap_or_else(identity::state_folder);
    let mut identities: Vec<Identity> = Vec::new();
    for SharedDevice { path, origin, .. } in shared {
        let IdentityLookup { identity, caveat } = identify(world, path, origin, &state)?;
        if let Some(twin) = identities.iter().position(|known| *known == identity) {
            let problem = format!(
                "{} and {} have one identity, {identity}: initiators would take them for two paths to one disk",
                shared[twin].path.display(),
                path.display()
            );
            let remedy =
                "export each disk once; if one file is a copy of the other, remove the copy's .spindle-id";
            return Err(Refusal::new(problem, remedy));
        }
        if let Some(caveat) = caveat {
            console.warn(&caveat);
        }
        identities.push(identity);
    }
    Ok(identities)
}

async fn listen(address: Option<Address>, flag: &str) -> Result<Option<Rc<dyn Listener>>, Refusal> {
    let Some(address) = address else { return Ok(None) };
    match Sockets.listen(&address).await {
        Ok(listener) => Ok(Some(listener.into())),
        Err(error) => {
            let remedy = match error.kind() {
                IoErrorKind::Busy => {
                    format!("end the program that listens there, or choose another address with {flag}")
                }
                IoErrorKind::PermissionDenied => {
                    format!("ports below 1024 are for root; choose another one with {flag}")
                }
                _ => format!("choose another address with {flag} HOST:PORT"),
            };
            Err(Refusal::new(error.to_string(), remedy))
        }
    }
}

/// Prints what is served, and at which addresses.
fn tell(
    endpoints: &[ExportEndpoint],
    shared: &[SharedDevice],
    arguments: &ExportArguments,
    console: &Console,
) -> Result<(), Refusal> {
    let served = endpoints.iter().flat_map(|endpoint| {
        let identity = |index: usize| Some(endpoint.identities.as_ref()?.get(index)?.to_string());
        endpoint.offers.iter().zip(shared).enumerate().map(move |(index, offer)| (offer, identity(index)))
    });
    let served = served.collect::<Vec<_>>();
    if arguments.json {
        let served = served.iter().map(|((offer, shared), identity)| ServedExport {
            uri: offer.uri.clone(),
            identity: identity.clone(),
            path: shared.path.clone(),
            bytes: shared.device.geometry().size.0,
            read_only: offer.is_read_only,
            write_cache: offer.write_cache.is_on,
        });
        let text = serde_json::to_string(&served.collect::<Vec<_>>()).expect("plain fields");
        console.json(&text).map_err(|error| Refusal::new(format!("standard output: {error}"), ""))?;
    }
    for ((Offer { uri, is_read_only, write_cache }, shared), _) in &served {
        let writes = if *is_read_only { "read-only".to_owned() } else { write_cache.to_string() };
        console.say(&format!(
            "{uri}  {}  {}, {writes}",
            shared.path.display(),
            shared.device.geometry().size
        ));
    }
    if let Some(endpoint) =
        endpoints.iter().find(|endpoint| !endpoint.address.is_local() && !endpoint.is_restricted)
    {
        console.warn(&format!(
            "anyone who reaches {} can read and write: there is no access control",
            endpoint.address
        ));
    }
    console.say("serving; Ctrl-C ends it");
    Ok(())
}
