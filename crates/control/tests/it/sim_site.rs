//! A site's pools and journal in simulated time.

use array::{
    format::{DriveId, PoolId, SparingLevel},
    pool::{NewDrive, NewPool, OpenSetting, create, open},
};
use control::{
    DaemonJournal,
    notice::NoticeSender,
    pool_thread::{OpenedPool, PoolServices, PoolSetting},
    sets::CatalogueFiles,
    site::{PoolPlaces, WantedPool},
};
use fragile::Fragile;
use protect::UnixSecond;
use report::Refusal;
use serving::figures::PoolMeters;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    rc::Rc,
    sync::Arc,
};
use world::{
    BlockDevice, IoResult, LocalFuture, StateFile, World,
    sim::{SimDrive, SimStateFile, StateFileFaults},
};

pub const MIB: u64 = 1 << 20;

pub type Drives = BTreeMap<String, Vec<Rc<SimDrive>>>;

/// Pools on simulated drives, of which only these sites know.
pub struct SimPlaces {
    pub drives: Drives,
    pub made: MadePools,
}

/// Names of the pools whose making has ended: as the record in a folder, which is written last.
pub type MadePools = Rc<RefCell<BTreeSet<String>>>;

/// Bytes of all places of superblocks.
const SUPERBLOCK_BYTES: usize = MIB as usize;

fn has_superblock(drive: &Rc<SimDrive>) -> bool {
    let mut places = vec![0; SUPERBLOCK_BYTES];
    drive.peek(0, &mut places);
    places.iter().any(|&byte| byte != 0)
}

impl PoolPlaces for SimPlaces {
    fn is_made(&self, pool: &WantedPool) -> bool {
        self.made.borrow().contains(&pool.name)
    }

    fn check(&self, _: &World, _: &WantedPool) -> LocalFuture<Result<(), Refusal>> {
        Box::pin(async { Ok(()) })
    }

    fn open(&self, pool: &WantedPool) -> PoolSetting {
        setting(&pool.name, &self.drives[&pool.name], None)
    }

    fn is_pool(&self, folder: &Path) -> bool {
        self.made.borrow().contains(folder.file_name().unwrap().to_str().unwrap())
    }

    fn is_one_folder(&self, one: &Path, other: &Path) -> bool {
        one == other
    }

    fn make(&self, pool: &WantedPool, id: PoolId, resumes: bool) -> PoolSetting {
        let drives = &self.drives[&pool.name];
        assert!(
            resumes || !drives.iter().any(has_superblock),
            "only an apply that was interrupted leaves a part"
        );
        drives.iter().for_each(|drive| drive.poke(0, &vec![0; SUPERBLOCK_BYTES]));
        setting(&pool.name, drives, Some((id, &self.made)))
    }
}

fn setting(name: &str, drives: &[Rc<SimDrive>], new: Option<(PoolId, &MadePools)>) -> PoolSetting {
    let (drives, own) = (Fragile::new(drives.to_vec()), name.to_owned());
    let new = new.map(|(id, made)| (id, Fragile::new(Rc::clone(made))));
    let open_pool = move |world: World, _: NoticeSender| -> LocalFuture<Result<OpenedPool, Refusal>> {
        Box::pin(async move {
            let devices: Vec<Rc<dyn BlockDevice>> =
                drives.get().iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect();
            let refused = |error: array::error::Error| Refusal::new(error.to_string(), "");
            if let Some((id, made)) = new {
                make(&world, &own, id, &devices).await.map_err(refused)?;
                made.get().borrow_mut().insert(own);
            }
            let pool = open(&world, &devices, OpenSetting::default()).await.map_err(refused)?;
            let closing = Rc::clone(&pool);
            let close = Box::new(move || -> LocalFuture<Result<(), Refusal>> {
                Box::pin(
                    async move { closing.close().await.map_err(|error| Refusal::new(error.to_string(), "")) },
                )
            });
            Ok(OpenedPool {
                pool,
                meters: PoolMeters::new(&world),
                services: PoolServices::default(),
                drives: None,
                close,
            })
        })
    };
    PoolSetting { name: name.to_owned(), open: Box::new(open_pool) }
}

async fn make(
    world: &World,
    name: &str,
    pool: PoolId,
    devices: &[Rc<dyn BlockDevice>],
) -> array::error::Result<()> {
    let number = name.as_bytes()[0];
    let new = NewPool { pool, name: name.to_owned(), slot_bytes: MIB as u32, sparing: SparingLevel::None };
    let drive = |(index, device): (u8, &Rc<dyn BlockDevice>)| NewDrive {
        drive: DriveId([number + index; 16]),
        serial: format!("{name}-{index}"),
        domain: None,
        device: Rc::clone(device),
    };
    create(world, &new, &(0..).zip(devices).map(drive).collect::<Vec<_>>()).await
}

/// Catalogues of sets, which outlive a server.
#[derive(Clone, Default)]
pub struct SimCatalogues(Rc<RefCell<BTreeMap<String, SimStateFile>>>);

impl SimCatalogues {
    pub fn file(&self, set: &str) -> SimStateFile {
        let mut files = self.0.borrow_mut();
        files.entry(set.to_owned()).or_insert_with(|| SimStateFile::new(set, 0)).clone()
    }

    /// Loses a catalogue: a keeper that has it open finds that it cannot be written.
    pub fn lose(&self, set: &str) {
        let lost = self.0.borrow_mut().remove(set).expect("it is there");
        lost.set_faults(StateFileFaults { no_space: 0..u64::MAX, ..Default::default() });
    }

    pub fn cut_power(&self) {
        self.0.borrow().values().for_each(SimStateFile::cut_power);
    }
}

impl CatalogueFiles for SimCatalogues {
    fn open(&self, set: &str) -> IoResult<Box<dyn StateFile>> {
        Ok(Box::new(self.file(set).open()))
    }

    fn keep_copy(&self, set: &str, _: UnixSecond) -> IoResult<Option<String>> {
        Ok(Some(format!("{set}.copy")))
    }
}

pub fn journal_of(file: &SimStateFile) -> Result<DaemonJournal, String> {
    DaemonJournal::open(Arc::new(file.open())).map_err(|error| error.to_string())
}
