//! Pools of folders: opened on their threads, with the volumes and snapshots that they serve.

use crate::{
    folder_drives::FolderDrives,
    notice::NoticeSender,
    pool_thread::{OpenedPool, PoolServices, PoolSetting},
};
use array::pool::Pool;
use iscsi::target::access::AccessList;
use report::Refusal;
use serving::{
    export::{
        ExportOffers, ExportSettings, OpenExports, PlannedTarget, access_of, assemble, identities,
        nbd_exports,
    },
    figures::PoolMeters,
    notices::Notices,
    pool::folder::OpenPool,
};
use std::{path::PathBuf, rc::Rc};
use world::World;

/// Sees a pool that was opened.
pub type OpenHook = Box<dyn Fn(&World, &mut OpenPool) + Send>;

/// A pool by its folder, and what it serves.
pub struct FolderPool {
    /// The pool's name in front of people.
    pub name: String,
    pub folder: PathBuf,
    /// Names of exports, and their `VOLUME` or `VOLUME@SNAPSHOT`.
    pub exports: Vec<(String, String)>,
    pub settings: ExportSettings,
    /// Their units are exports by their names.
    pub targets: Vec<PlannedTarget>,
    /// Rights on targets by the names of the plan; those of other pools may be among them.
    pub access: AccessList,
    /// Folder for identities that can be stored nowhere else.
    pub state: PathBuf,
    /// Called on the pool's thread once it is open: it may follow its events.
    pub on_open: OpenHook,
    /// Takes what is served, to be shown.
    pub on_served: Box<dyn FnOnce(Vec<ExportOffers>) + Send>,
}

impl From<FolderPool> for PoolSetting {
    fn from(pool: FolderPool) -> Self {
        let name = pool.name.clone();
        let open = move |world: World, notices: NoticeSender| -> world::LocalFuture<_> {
            Box::pin(async move {
                let mut exports = OpenExports::default();
                let notices: Rc<dyn Notices> = Rc::new(notices);
                let folder = pool.folder.clone();
                match open_all(&world, pool, &mut exports, &notices).await {
                    Ok((pool, meters, services)) => {
                        let open = exports.take_pool(&folder).expect("it was opened");
                        let drives = FolderDrives::new(&world, open, &notices);
                        let closing = Rc::clone(&drives);
                        let close = Box::new(move || -> world::LocalFuture<_> {
                            Box::pin(async move {
                                let ended = exports.close().await;
                                ended.and(closing.close().await)
                            })
                        });
                        Ok(OpenedPool { pool, meters, services, drives: Some(drives), close })
                    }
                    Err(refusal) => {
                        // The first failure is the news.
                        let _ = exports.close().await;
                        Err(refusal)
                    }
                }
            })
        };
        Self { name, open: Box::new(open) }
    }
}

async fn open_all(
    world: &World,
    FolderPool { folder, exports: names, settings, targets, access, state, on_open, on_served, .. }: FolderPool,
    exports: &mut OpenExports,
    notices: &Rc<dyn Notices>,
) -> Result<(Rc<Pool>, Rc<PoolMeters>, PoolServices), Refusal> {
    let opened = |open: &mut OpenPool| on_open(world, open);
    let open = exports.open_pool((world, notices), &opened, &folder).await?;
    let (pool, meters) = (Rc::clone(&open.pool), Rc::clone(&open.meters));
    for (name, volume) in names {
        exports.add(world, name, &folder.join(volume), &settings, notices, &opened).await?;
    }
    let identities = identities(world, &exports.shared, &state, &**notices)?;
    let served = (&exports.shared[..], &identities[..]);
    on_served(ExportOffers::all(served, &targets, settings.write_cache));
    let access = access_of(access, &targets, served);
    // Before the units: one with a write cache turns on that of its volume, which NBD clients were not promised.
    let nbd = nbd_exports(&exports.shared, settings.write_cache);
    let targets = assemble(&targets, served, &settings);
    Ok((pool, meters, PoolServices { exports: nbd, targets, access }))
}
