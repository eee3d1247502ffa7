//! A server in this process, for what no verb does beside hosts yet.

use serving::{
    export::{
        ExportSettings, IscsiEndpoints, OpenExports, SharedDevice, identities, listen, nbd_endpoint,
        target_plan,
    },
    notices::Notices,
};
use std::{
    fs,
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{Address, World};

struct Silent;

impl Notices for Silent {
    fn note(&self, _: &str) {}
    fn warn(&self, _: &str) {}
}

pub fn silent() -> Rc<dyn Notices> {
    Rc::new(Silent)
}

/// A volume, served over NBD and iSCSI.
pub struct OwnServer {
    pub exports: OpenExports,
    pub nbd_uri: String,
    pub iscsi_uri: String,
}

impl OwnServer {
    /// Opens a pool below `folder`, and serves `volume` at a socket in that folder and at `portal`.
    pub async fn begin(world: &World, folder: &Path, (pool, volume): (&str, &str), portal: &str) -> Self {
        let notices = silent();
        let settings = ExportSettings {
            read_only: false,
            create: None,
            write_cache: None,
            block_bytes: (512, 4096),
            is_removable: false,
            is_movable: true,
        };
        let mut exports = OpenExports::default();
        let path = folder.join(pool).join(volume);
        exports.add(world, volume.to_owned(), &path, &settings, &notices, &|_| ()).await.unwrap();
        let identities = identities(world, &exports.shared, &folder.join("state"), &*notices).unwrap();
        let socket: PathBuf = folder.join("socket");
        // Of a server that was killed.
        let _ = fs::remove_file(&socket);
        let nbd = listen(Some(Address::Unix(socket)), "nbd").await.unwrap().unwrap();
        let iscsi = listen(Some(Address::parse(portal, 0).unwrap()), "iscsi").await.unwrap().unwrap();
        let nbd = nbd_endpoint(world, (nbd, nbd::TlsMode::Off), &exports.shared, &settings, Rc::new(|_| ()));
        let plan = target_plan(None, &[volume.to_owned()]).unwrap();
        let (units, _targets) = IscsiEndpoints::new(plan, iscsi, Vec::new()).open(
            world,
            (&exports.shared, &identities),
            &settings,
            &(Rc::new(|_| ()) as Rc<dyn Fn(iscsi::target::TargetEvent)>),
        );
        let (nbd_uri, iscsi_uri) = (nbd.offers[0].uri.clone(), units[0].offers[0].uri.clone());
        for endpoint in units.into_iter().chain([nbd]) {
            world.spawn("export", endpoint.serving);
        }
        Self { exports, nbd_uri, iscsi_uri }
    }

    pub fn shared(&self) -> &SharedDevice {
        &self.exports.shared[0]
    }
}
