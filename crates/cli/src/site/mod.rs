//! `spindle serve`, `spindle apply` and `spindle site`: a site file made real, served, and printed.

mod api;
mod apply;
pub mod arguments;
mod demonstration;
mod link;
mod own_folder;
#[cfg(debug_assertions)]
mod planted_hang;
mod print;
mod recovery_key;
mod serve;
mod served_site;
mod shown_changes;
mod shown_services;
mod supervision;

pub use api::socket_of;
pub use apply::{apply, apply_on};
pub use own_folder::{JOURNAL, OwnFolder, served_socket};
pub use serve::OWN_FILE;
pub use serve::serve;

use crate::exit_status::ExitStatus;
use crate::state_folder::state_folder;
use arguments::{SiteArguments, SitePlace, SiteVerb};
use control::{
    journal::DaemonJournal,
    sets::FolderCatalogues,
    site::{
        FolderPlaces, SiteContext,
        server::{PortalUse, SiteServerSetting, parse},
    },
};
use own_folder::StateFolder;
use plan::site::Site;
use report::Refusal;
use std::{
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};
use world::{
    Network,
    real::{RealOptions, RealThreads, Sockets, host_files},
};

/// Bound on the size of a file kept by hand.
const SITE_BYTES_MAX: u64 = 16 << 20;

/// Runs `spindle site`.
pub fn site(arguments: &SiteArguments) -> Result<ExitStatus, Refusal> {
    match &arguments.verb {
        Some(SiteVerb::RecoveryKey(arguments)) => recovery_key::recovery_key(arguments),
        None => print::print(arguments),
    }
}

/// The site that the server of a state folder served last, if that does not run; `None` if it does, or if nothing is there.
pub fn last_served(state: &Path) -> Result<Option<Site>, Refusal> {
    if !OwnFolder::has_journal(state) {
        return Ok(None);
    }
    let journal = match StateFolder::open(state)? {
        StateFolder::Own(_, journal) => journal,
        StateFolder::Served(_) => return Ok(None),
    };
    let text = journal.served_site().map_err(|error| error.refusal())?;
    text.map(|text| parse(&text)).transpose()
}

fn state_of(place: &SitePlace) -> PathBuf {
    place.state.clone().unwrap_or_else(state_folder)
}

fn read_site(path: &Path) -> Result<String, Refusal> {
    let bytes = host_files::read_at_most(path, SITE_BYTES_MAX).map_err(|error| {
        Refusal::new(error.to_string(), "give a site file; 'spindle advise --template' prints one")
    })?;
    String::from_utf8(bytes)
        .map_err(|_| Refusal::new(format!("{}: it is not UTF-8 text", path.display()), ""))
}

/// The folder of a site file, from the root: paths in the file begin there.
pub fn folder_of(path: &Path) -> Result<PathBuf, Refusal> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    host_files::canonical(folder).map_err(|error| Refusal::new(error.to_string(), ""))
}

/// The server's surroundings; `portal` says whether it is a server for others.
fn setting(
    path: &Path,
    place: &SitePlace,
    options: RealOptions,
    (journal, portal): (&Arc<DaemonJournal>, PortalUse),
) -> Result<SiteServerSetting, Refusal> {
    // From the root: the journal keeps it.
    let state =
        host_files::canonical(&state_of(place)).map_err(|error| Refusal::new(error.to_string(), ""))?;
    let folder = folder_of(path)?;
    let socket = (portal == PortalUse::Listen).then(|| socket_of(&state));
    let context = SiteContext { folder, state: state.clone(), site: place.site.clone() };
    Ok(SiteServerSetting {
        context,
        places: Rc::new(FolderPlaces { socket }),
        threads: Rc::new(RealThreads { seed: 0, options }),
        network: Box::new(|| Rc::new(Sockets) as Rc<dyn Network>),
        journal: Arc::clone(journal),
        catalogues: Rc::new(FolderCatalogues::new(&state)),
    })
}
