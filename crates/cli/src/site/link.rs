//! The link of a server to other sites, if its file says where it listens for them.

use control::{
    dr::{
        LINK_PORT, LinkProtection, LinkThread, LinkThreadSetting,
        access::{EtcdUser, WitnessAccess},
    },
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
    let (secret, user) = witness_secret(site, folder)?;
    server.dr_access().set_witness(WitnessAccess {
        network: Arc::new(|| Rc::new(Sockets) as Rc<dyn Network>),
        secret,
        user,
    });
    let threads = RealThreads { seed: 0, options };
    LinkThread::start(world, &threads, setting, notices.of("link")).await.map(Some)
}

/// The secret that this site shares with its witness, or the user that it is in an etcd cluster; none if the file names no
/// secret. `folder` is that of the site file.
fn witness_secret(site: &Site, folder: &Path) -> Result<(Option<WitnessSecret>, Option<EtcdUser>), Refusal> {
    let Some(replication) = &site.replication else { return Ok((None, None)) };
    let (file, name) = (&replication.witness_secret_file, &replication.witness_user);
    match (file.is_empty(), name.is_empty()) {
        (true, true) => return Ok((None, None)),
        (true, false) => {
            let problem = format!("[replication] witness_user: {name} has no password");
            return Err(Refusal::new(problem, "name a file with it: witness_secret_file"));
        }
        (false, _) => {}
    }
    let path = folder.join(file);
    let remedy = "copy the witness's secret file here; only its owner may read it";
    let bytes = read_secret(&path, remedy)?;
    let refused = |problem: &str| Refusal::new(format!("{}: {problem}", path.display()), remedy);
    if !name.is_empty() {
        let password = String::from_utf8(bytes).map_err(|_| refused("a password is text"))?;
        return Ok((None, Some(EtcdUser { name: name.clone(), password })));
    }
    let secret = WitnessSecret::new(&bytes).ok_or_else(|| refused("it has fewer than 16 bytes"))?;
    Ok((Some(secret), None))
}
