//! Volumes of several pools: each pool on a thread of its own, all behind one address for each protocol.

use super::{
    ExportRequest,
    shown::{ShownEndpoint, ShownExport, tell},
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    notice_lines::{say_end, with_notices},
    pool::reporter::report_events_of,
};
use control::{
    Daemon, DaemonSetting, FolderPool, notice,
    portal::{PortalAddresses, PortalSetting},
};
use nbd::{NbdUri, ServerOptions, TlsMode, UriTls};
use report::Refusal;
use serving::{
    export::{ExportOffers, TargetPlan},
    pool::{folder::VolumePath, record::is_pool},
};
use std::{collections::BTreeMap, path::PathBuf, rc::Rc, sync::mpsc};
use world::{
    Address, Network, World,
    real::{
        self, Engine, RealThreads, Sockets,
        host_files::{self, PathKind},
        signals::interrupted,
    },
};

/// The exports of one pool.
pub struct PoolPart {
    folder: PathBuf,
    /// Names of exports, and their `VOLUME` or `VOLUME@SNAPSHOT`.
    exports: Vec<(String, String)>,
    plan: TargetPlan,
}

/// Divides exports by their pools; `None` if one thread has to serve all: they are not all volumes, or of one pool, a
/// target has units of several, or a setting is of one thread.
pub fn parts(request: &ExportRequest) -> Option<Vec<PoolPart>> {
    let ExportRequest { paths, names, plan, settings, portals, step_times, .. } = request;
    if settings.read_only || !portals.is_empty() || step_times.is_some() {
        return None;
    }
    let mut by_folder: BTreeMap<PathBuf, (PathBuf, Vec<(String, String)>)> = BTreeMap::new();
    for (path, name) in paths.iter().zip(names) {
        let is_missing = matches!(host_files::kind(path), Ok(PathKind::Missing));
        let volume = VolumePath::of(path).filter(|volume| is_missing && is_pool(&volume.folder))?;
        // A folder has many spellings, and one lock.
        let canonical = host_files::canonical(&volume.folder).ok()?;
        let within = path.file_name()?.to_str()?.to_owned();
        let part = by_folder.entry(canonical).or_insert_with(|| (volume.folder, Vec::new()));
        part.1.push((name.clone(), within));
    }
    if by_folder.len() < 2 {
        return None;
    }
    let part = |(folder, exports): (PathBuf, Vec<(String, String)>)| {
        let names: Vec<String> = exports.iter().map(|(name, _)| name.clone()).collect();
        Some(PoolPart { folder, plan: plan.part(&names)?, exports })
    };
    by_folder.into_values().map(part).collect()
}

/// Serves the parts until the program is ended.
pub fn run(parts: Vec<PoolPart>, request: ExportRequest, console: Console) -> Result<ExitStatus, Refusal> {
    real::run(0, request.options, async |world: World| {
        let (notices, mut reader) = notice::channel("export");
        let (give_offers, offers) = mpsc::channel();
        let threads = Rc::new(RealThreads { seed: 0, options: request.options });
        let setting = setting(parts, &request, (give_offers, &console));
        let starting = Daemon::start(&world, threads, setting, &notices);
        let daemon = with_notices(&mut reader, &console, starting).await?;
        Engine::current().fallback_notice().iter().for_each(|notice| console.warn(notice));
        // A reader of the next lines may end the server at once.
        let ended = interrupted();
        let mut offers: Vec<ExportOffers> = offers.into_iter().flatten().collect();
        offers.sort_by_key(|offer| request.names.iter().position(|name| *name == offer.name));
        tell(&endpoints(daemon.addresses(), &offers, &request), request.as_json, &console)?;
        with_notices(&mut reader, &console, ended).await;
        say_end(&mut reader, &console, daemon.stop()).await
    })
}

/// Pools and portal. Each pool sends its offers when it is open.
fn setting(
    parts: Vec<PoolPart>,
    request: &ExportRequest,
    (give_offers, console): (mpsc::Sender<Vec<ExportOffers>>, &Console),
) -> DaemonSetting {
    let (as_json, is_quiet) = (console.is_for_programs(), console.is_quiet());
    let pool = |PoolPart { folder, exports, plan }: PoolPart| {
        let give_offers = give_offers.clone();
        let pool = FolderPool {
            name: folder.display().to_string(),
            folder,
            exports,
            settings: request.settings.clone(),
            targets: plan.targets,
            access: plan.access,
            state: request.state.clone(),
            // A console for each thread: they share only its outputs.
            on_open: Box::new(move |world, open| {
                report_events_of(open, world, &Console::new(as_json, is_quiet), as_json);
            }),
            on_served: Box::new(move |offers| drop(give_offers.send(offers))),
        };
        pool.into()
    };
    let nbd_options = ServerOptions { tls: request.tls.clone(), ..ServerOptions::default() };
    DaemonSetting {
        pools: parts.into_iter().map(pool).collect(),
        portal: PortalSetting {
            network: Box::new(|| Rc::new(Sockets) as Rc<dyn Network>),
            nbd: request.nbd.clone(),
            iscsi: request.iscsi.clone(),
            nbd_options,
        },
    }
}

fn endpoints(
    addresses: &PortalAddresses,
    offers: &[ExportOffers],
    request: &ExportRequest,
) -> Vec<ShownEndpoint> {
    let uri_tls = match &request.tls {
        TlsMode::Off => None,
        TlsMode::Allowed(_) | TlsMode::Required(_) => Some(UriTls::default()),
    };
    let by_nbd = |address: &Address| ShownEndpoint {
        address: address.clone(),
        is_restricted: matches!(&request.tls, TlsMode::Required(tls) if tls.asks_who()),
        exports: offers
            .iter()
            .map(|offer| ShownExport {
                uri: NbdUri {
                    address: address.clone(),
                    others: Vec::new(),
                    export: offer.name.clone(),
                    tls: uri_tls.clone(),
                }
                .to_string(),
                path: offer.path.clone(),
                size: offer.size,
                is_read_only: offer.is_read_only,
                write_cache: offer.write_cache.clone(),
                identity: None,
            })
            .collect(),
    };
    let by_iscsi = |address: &Address| ShownEndpoint {
        address: address.clone(),
        is_restricted: request.plan.is_restricted,
        exports: offers
            .iter()
            .map(|ExportOffers { path, size, unit, .. }| ShownExport {
                uri: format!("iscsi://{address}/{}/{}", unit.target, unit.number),
                path: path.clone(),
                size: *size,
                is_read_only: unit.is_read_only,
                write_cache: unit.write_cache.clone(),
                identity: Some(unit.identity.to_string()),
            })
            .collect(),
    };
    addresses.nbd.iter().map(by_nbd).chain(addresses.iscsi.iter().map(by_iscsi)).collect()
}
