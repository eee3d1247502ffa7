//! The API of a server: where it is, and its first token.

use crate::console::Console;
use control::{
    dr::LinkHandle,
    events::DaemonEventLog,
    history::FolderHistory,
    journal::DaemonJournal,
    notice::NoticeSender,
    report_folder::ReportFolder,
    site::SiteServer,
    web::{CallerRole, NewToken, WebSetting, WebThread, make_token, token_text},
};
use report::Refusal;
use std::{
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};
use world::{
    Address, Network, World,
    real::{RealOptions, RealThreads, Sockets, host_files},
};

/// Most bytes of the path of a Unix socket on Linux, without the byte that ends it.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Name of the first token, and of its file.
const FIRST_TOKEN: &str = "admin";
const FIRST_TOKEN_FILE: &str = "admin-token";

/// The socket of the server with a state folder.
pub fn socket_of(state: &Path) -> PathBuf {
    state.join("spindle.sock")
}

/// Serves the API on the socket, and at the address that the site file says.
pub(super) async fn start(
    (world, server): (&World, &SiteServer),
    (state, journal): (&Path, &Arc<DaemonJournal>),
    options: RealOptions,
    (notices, events, link): (&NoticeSender, &DaemonEventLog, Option<LinkHandle>),
) -> Result<WebThread, Refusal> {
    let state = host_files::canonical(state).map_err(|error| Refusal::new(error.to_string(), ""))?;
    let socket = socket_of(&state);
    if socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(Refusal::new(
            format!("{}: a socket's path has at most {SOCKET_PATH_BYTES_MAX} bytes", socket.display()),
            "name a folder with a shorter path with ⟨state⟩ FOLDER",
        ));
    }
    if server.api_address().is_some_and(|address| !address.is_local()) && server.api_certificates().is_none()
    {
        notices.warn(
            "the API answers other machines without TLS: tokens pass the network in the clear (api_insecure)",
        );
    }
    let mut addresses = vec![(Address::Unix(socket), "⟨state⟩")];
    if let Some(address) = server.api_address() {
        first_token(world, &state, journal, notices)?;
        addresses.push((address.clone(), "[serve] api"));
    }
    let setting = WebSetting {
        network: Box::new(|| Rc::new(Sockets) as Rc<dyn Network>),
        addresses,
        tls: server.api_certificates().cloned(),
        own_user: rustix::process::geteuid().as_raw(),
        site: server.handle(),
        journal: Arc::clone(journal),
        events: events.clone(),
        history: Box::new(FolderHistory::new(&state)),
        reports: Some(ReportFolder::new(&state)),
        link,
        pages: Some(console::pages),
    };
    WebThread::start(world, &RealThreads { seed: 0, options }, setting, notices.of("api")).await
}

/// Makes a token for the person who set the server up, in a file that only the server's user can read.
fn first_token(
    world: &World,
    state: &Path,
    journal: &DaemonJournal,
    notices: &NoticeSender,
) -> Result<(), Refusal> {
    if !journal.tokens().map_err(|error| error.refusal())?.is_empty() {
        return Ok(());
    }
    let mut secret = [0; 32];
    world.fill_secret(&mut secret);
    let new =
        NewToken { name: FIRST_TOKEN.to_owned(), role: CallerRole::Admin, pools: Vec::new(), days: None };
    let file = state.join(FIRST_TOKEN_FILE);
    let refused =
        |error: world::IoError| Refusal::new(error.to_string(), "name another folder with ⟨state⟩ FOLDER");
    // Before it is recorded: one that is recorded and nowhere else could not be used.
    host_files::write_secret(&file, token_text(secret).as_bytes()).map_err(refused)?;
    make_token(journal, &new, (world.wall().seconds, secret)).map_err(|error| error.refusal())?;
    notices.note(format!("the first token of the API, for everything, is in {}", file.display()));
    Ok(())
}

/// Prints the addresses of the API.
pub(super) fn show((api, server): (&WebThread, &SiteServer), console: &Console) {
    let is_encrypted = server.api_certificates().is_some();
    let scheme = if is_encrypted { "https" } else { "http" };
    for address in &api.addresses {
        match address {
            Address::Unix(path) => {
                console.say(&format!("API: curl --unix-socket {} http://spindle/v1/pools", path.display()));
            }
            Address::Tcp { .. } => {
                console.say(&format!("API: {scheme}://{address}/v1/openapi.json"));
                console.say(&format!("console, for browsers: {scheme}://{address}/"));
            }
        }
    }
}
