//! Places of pools: which are there, making them, opening them.

use super::wanted_pool::{WantedDrives, WantedPool};
use crate::{
    folder_drives::FolderDrives,
    notice::NoticeSender,
    pool_thread::{OpenedPool, PoolServices, PoolSetting},
};
use array::{format::PoolId, pool::events::PoolEventReader};
use report::Refusal;
use serving::{
    notices::Notices,
    pool::{
        create::{NewPoolDrives, NewPoolSetting, check_new, create},
        events::{EventReport, PoolContext},
        folder::OpenPool,
        record::is_pool,
        server_link::ServerLink,
        unfinished,
    },
    remote::RemoteSettings,
};
use std::{
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    ByteCount, LocalFuture, World,
    real::{
        host::filesystem_of,
        host_files::{self, PathKind},
    },
};

/// Part of the free space that drives in files take together: 1 of 10.
const FREE_PART: u64 = 10;
/// Largest drive in a file whose size nobody said.
const FILE_USUAL_MAX: ByteCount = ByteCount::gib(64);

/// The places of a site's pools.
pub trait PoolPlaces {
    /// True if the pool is there.
    fn is_made(&self, pool: &WantedPool) -> bool;

    /// Refuses what keeps a pool from being made. Nothing is changed.
    fn check(&self, world: &World, pool: &WantedPool) -> LocalFuture<Result<(), Refusal>>;

    /// Opens the pool on its thread.
    fn open(&self, pool: &WantedPool) -> PoolSetting;

    /// Makes the pool on its thread, with the UUID `id`, and opens it. If it `resumes`, an interrupted apply may have made a part
    /// of it.
    fn make(&self, pool: &WantedPool, id: PoolId, resumes: bool) -> PoolSetting;

    /// True if a pool is in a folder.
    fn is_pool(&self, folder: &Path) -> bool;

    /// True if two names are of one folder.
    fn is_one_folder(&self, one: &Path, other: &Path) -> bool;
}

/// Pools in folders of this host.
pub struct FolderPlaces {
    /// Unix socket of the server's API, to be named in the folders of open pools; `None` without a server.
    pub socket: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PlaceState {
    Made,
    /// Nothing is there.
    New(PoolId),
    /// Perhaps a part is there.
    Unfinished(PoolId),
}

impl PoolPlaces for FolderPlaces {
    fn is_made(&self, pool: &WantedPool) -> bool {
        is_pool(&pool.folder)
    }

    fn check(&self, world: &World, pool: &WantedPool) -> LocalFuture<Result<(), Refusal>> {
        let (world, pool) = (world.clone(), pool.clone());
        Box::pin(async move {
            let remote = RemoteSettings::default();
            let drives = drives_of(&pool, &remote)?;
            check_new(&world, &pool.folder, &drives, setting_of(&pool, None)).await
        })
    }

    fn open(&self, pool: &WantedPool) -> PoolSetting {
        self.setting(pool, PlaceState::Made)
    }

    fn make(&self, pool: &WantedPool, id: PoolId, resumes: bool) -> PoolSetting {
        self.setting(pool, if resumes { PlaceState::Unfinished(id) } else { PlaceState::New(id) })
    }

    fn is_pool(&self, folder: &Path) -> bool {
        is_pool(folder)
    }

    fn is_one_folder(&self, one: &Path, other: &Path) -> bool {
        let whole = |path: &Path| host_files::canonical(path).unwrap_or_else(|_| path.to_owned());
        whole(one) == whole(other)
    }
}

impl FolderPlaces {
    fn setting(&self, pool: &WantedPool, state: PlaceState) -> PoolSetting {
        let pool = pool.clone();
        let link = self.socket.clone().map(|socket| ServerLink { socket });
        let name = pool.name.clone();
        let open = move |world: World, notices: NoticeSender| -> LocalFuture<_> {
            Box::pin(async move {
                make_if_missing(&world, &pool, state, &notices).await?;
                let teller = notices.clone();
                let notices: Rc<dyn Notices> = Rc::new(notices);
                let mut open = OpenPool::open(&world, &pool.folder, &notices).await?;
                open.follow_events(|events, context| Box::pin(tell_events(events, context, teller)));
                let (opened, meters) = (Rc::clone(&open.pool), Rc::clone(&open.meters));
                if let Some(Err(refusal)) = link.map(|link| link.write(&pool.folder)) {
                    notices.warn(&format!("commands will not find this server: {refusal}"));
                }
                let drives = FolderDrives::new(&world, open, &notices);
                let closing = Rc::clone(&drives);
                let close = Box::new(move || -> LocalFuture<_> {
                    ServerLink::remove(&pool.folder);
                    Box::pin(async move { closing.close().await })
                });
                let services = PoolServices::default();
                Ok(OpenedPool { pool: opened, meters, services, drives: Some(drives), close })
            })
        };
        PoolSetting { name, open: Box::new(open) }
    }
}

/// Tells the events of a pool until it is closed.
async fn tell_events(mut events: PoolEventReader, context: PoolContext, teller: NoticeSender) {
    while let Some(event) = events.next().await {
        teller.event(EventReport::new(&event, &context));
    }
}

async fn make_if_missing(
    world: &World,
    pool: &WantedPool,
    state: PlaceState,
    notices: &NoticeSender,
) -> Result<(), Refusal> {
    let remote = RemoteSettings::default();
    let drives = drives_of(pool, &remote)?;
    let id = match state {
        PlaceState::Made => return Ok(()),
        PlaceState::New(id) => id,
        PlaceState::Unfinished(id) => {
            if unfinished::settle(world, &pool.folder, (&drives, id), notices).await? {
                return Ok(());
            }
            id
        }
    };
    if let NewPoolDrives::Files { count, size } = &drives {
        let wanted = match &pool.drives {
            WantedDrives::Files { size_max: Some(wanted), .. } if wanted.0 >> 20 > size.0 >> 20 => format!(
                ", instead of the {wanted} that are wanted: together they take a tenth of the free space there at most, so make \
                 room, name devices, or add drives with 'spindle pool add-drive {} --size SIZE'",
                pool.name
            ),
            _ => String::new(),
        };
        notices.warn(format!(
            "{count} drives in files of {size}{wanted}; all are on one filesystem, so copies protect nothing from its loss"
        ));
    }
    let made = create(world, &pool.folder, drives, setting_of(pool, Some(id)), notices).await?;
    notices.note(format!("made: {} drives, {} in all, {} copies", made.drive_count, made.bytes, made.copies));
    Ok(())
}

fn setting_of(pool: &WantedPool, id: Option<PoolId>) -> NewPoolSetting<'static> {
    NewPoolSetting { copies: pool.copies, sparing: pool.sparing, domains: &[], pool: id }
}

fn drives_of<'p>(pool: &'p WantedPool, remote: &'p RemoteSettings) -> Result<NewPoolDrives<'p>, Refusal> {
    Ok(match &pool.drives {
        WantedDrives::Devices(devices) => NewPoolDrives::Devices(devices, remote),
        WantedDrives::Files { count, size_max } => {
            NewPoolDrives::Files { count: *count, size: file_size(&pool.folder, *count, *size_max)? }
        }
    })
}

/// Size of each drive in a file: as it is wanted, within a tenth of the free space for all, in whole MiB.
fn file_size(folder: &Path, count: u16, size_max: Option<ByteCount>) -> Result<ByteCount, Refusal> {
    let is_there = |folder: &&Path| matches!(host_files::kind(folder), Ok(PathKind::Folder));
    let there = folder.ancestors().find(is_there).unwrap_or(Path::new("."));
    let free =
        filesystem_of(there).map_err(|error| Refusal::new(error.to_string(), "check the folder"))?.free;
    let within = free.0 / FREE_PART / u64::from(count.max(1));
    let wanted = size_max.unwrap_or(FILE_USUAL_MAX).0;
    // One that is too small for a pool is refused there, with what it takes.
    Ok(ByteCount(within.min(wanted) >> 20 << 20))
}
