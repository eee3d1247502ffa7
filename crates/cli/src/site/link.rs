//! The link of a server to other sites, if its file says where it listens for them.

use control::{
    dr::{LINK_PORT, LinkProtection, LinkThread, LinkThreadSetting, access::WitnessAccess},
    journal::DaemonJournal,
    notice::NoticeSender,
    site::SiteServer,
};
use plan::site::Site;
use replication::witness::session::WitnessSecret;
use report::Refusal;
use serving::export::read_secret;
use std::{path::Path, rc::Rc, sync::Arc};
use world::{
    Address, Network, World,
    real::{RealOptions, RealThreads, Sockets},
};

/// Starts the link; `None` if the file has no `[replication] listen`.
pub(super) async fn start(
    (world, server): (&World, &SiteServer),
    (site, folder, journal): (&Site, &Path, &Arc<DaemonJournal>),
    options: RealOptions,
    notices: &NoticeSender,
) -> Result<Option<LinkThread>, Refusal> {
    let listen = site.replication.as_ref().map(|replication| replication.listen.as_str()).unwrap_or_default();
    if listen.is_empty() {
        return Ok(None);
    }
    let address = Address::parse(listen, LINK_PORT)
        .map_err(|error| Refusal::new(format!("[replication] listen: {error}"), "say HOST:PORT"))?;
    let setting = LinkThreadSetting {
        network: Box::new(|| Rc::new(Sockets) as Rc<dyn Network>),
        address,
        protection: LinkProtection::Tls,
        name: site.serve.site.clone(),
        site: server.handle(),
        journal: Arc::clone(journal),
        access: server.dr_access(),
    };
    server.dr_access().set_witness(WitnessAccess {
        network: Arc::new(|| Rc::new(Sockets) as Rc<dyn Network>),
        secret: witness_secret(site, folder)?,
    });
    let threads = RealThreads { seed: 0, options };
    LinkThread::start(world, &threads, setting, notices.of("link")).await.map(Some)
}

/// The secret that this site shares with its witness; `None` if the file names none. `folder` is that of the site file.
fn witness_secret(site: &Site, folder: &Path) -> Result<Option<WitnessSecret>, Refusal> {
    let file = site.replication.as_ref().map(|replication| replication.witness_secret_file.as_str());
    let Some(file) = file.filter(|file| !file.is_empty()) else { return Ok(None) };
    let path = folder.join(file);
    let remedy = "copy the witness's secret file here; only its owner may read it";
    let secret = WitnessSecret::new(&read_secret(&path, remedy)?);
    let short = || Refusal::new(format!("{}: it has fewer than 16 bytes", path.display()), remedy);
    secret.map(Some).ok_or_else(short)
}
