//! The link of a server to other sites, if its file says where it listens for them.

use control::{
    dr::{LINK_PORT, LinkProtection, LinkThread, LinkThreadSetting},
    journal::DaemonJournal,
    notice::NoticeSender,
    site::SiteServer,
};
use plan::site::Site;
use report::Refusal;
use std::{rc::Rc, sync::Arc};
use world::{
    Address, Network, World,
    real::{RealOptions, RealThreads, Sockets},
};

/// Starts the link; `None` if the file has no `[replication] listen`.
pub(super) async fn start(
    (world, server): (&World, &SiteServer),
    (site, journal): (&Site, &Arc<DaemonJournal>),
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
    };
    let threads = RealThreads { seed: 0, options };
    LinkThread::start(world, &threads, setting, notices.of("link")).await.map(Some)
}
