//! Sources of a verification: paths of the filesystem, and devices that an extent directory divides into files.

use super::arguments::VerifyArguments;
use crate::console::Console;
use ::verify::running::{DividedDevice, Source, UndividedDevice};
use report::Refusal;
use runs::remote::RemoteResolver;
use serving::pool::{
    damaged,
    folder::{OpenReadOnlyPool, VolumePath, is_held, refusal},
    record::is_pool,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    BlockDevice, World,
    real::{
        AccessMode, FileDevice,
        host_files::{self, PathKind},
    },
};

/// The sources of a run, open for reading alone.
#[derive(Default)]
pub struct OpenSources {
    /// Files and folders.
    pub paths: Vec<PathBuf>,
    pub devices: Vec<Rc<DividedDevice>>,
    /// Pools of the devices: they stay locked until the run ends.
    pools: BTreeMap<PathBuf, OpenReadOnlyPool>,
}

impl OpenSources {
    /// Opens what `arguments` name.
    ///
    /// # Errors
    ///
    /// A source is not there, cannot be read, or is not what its name says.
    pub async fn open(
        world: &World,
        arguments: &VerifyArguments,
        console: &Console,
    ) -> Result<Self, Refusal> {
        let mut sources = Self::default();
        for path in &arguments.paths {
            sources.add(world, path, arguments, console).await?;
        }
        Ok(sources)
    }

    /// Opens those that `arguments` name and that have databases; the others are returned with their reasons.
    pub async fn open_some(
        world: &World,
        arguments: &VerifyArguments,
        console: &Console,
    ) -> (Self, Vec<Refusal>) {
        let (mut sources, mut refused) = (Self::default(), Vec::new());
        for path in &arguments.paths {
            if let Err(refusal) = sources.add(world, path, arguments, console).await {
                refused.push(refusal);
            }
        }
        (sources, refused)
    }

    async fn add(
        &mut self,
        world: &World,
        path: &Path,
        arguments: &VerifyArguments,
        console: &Console,
    ) -> Result<(), Refusal> {
        match self.device(world, path, arguments, console).await? {
            Some(device) => {
                let divided = DividedDevice::open(path, device).await;
                self.devices.push(divided.map_err(|error| undivided(path, &error))?);
            }
            None => match divided_file(path).await {
                Some(divided) => self.devices.push(divided),
                None => self.paths.push(path.to_owned()),
            },
        }
        Ok(())
    }

    /// The bytes at `path`, whatever they hold.
    pub async fn bytes(
        &mut self,
        world: &World,
        path: &Path,
        arguments: &VerifyArguments,
        console: &Console,
    ) -> Result<Source, Refusal> {
        match self.device(world, path, arguments, console).await? {
            Some(device) => Ok(Source::of(device)),
            None => Source::open(path).map_err(|error| super::cannot_look(&error)),
        }
    }

    /// The device behind a URI, or a volume or snapshot of a pool; `None` for a path of the filesystem.
    async fn device(
        &mut self,
        world: &World,
        path: &Path,
        arguments: &VerifyArguments,
        console: &Console,
    ) -> Result<Option<Rc<dyn BlockDevice>>, Refusal> {
        if let Some(remote) = arguments.remote.resolve(path)? {
            let open = remote.open(world).await.map_err(|error| {
                Refusal::new(format!("{remote}: {error}"), "check its address, and that it is served")
            })?;
            return Ok(Some(open.device));
        }
        if is_pool(path) {
            let pool = path.display();
            let problem = format!("{pool} is the folder of a pool, not of databases");
            return Err(Refusal::new(
                problem,
                format!("name a volume or a snapshot of it: {pool}/VOLUME@SNAPSHOT"),
            ));
        }
        let is_missing = matches!(host_files::kind(path), Ok(PathKind::Missing));
        match VolumePath::of(path).filter(|volume| is_missing && is_pool(&volume.folder)) {
            Some(volume) => self.of_pool(world, &volume, console).await.map(Some),
            None => Ok(None),
        }
    }

    async fn of_pool(
        &mut self,
        world: &World,
        wanted: &VolumePath,
        console: &Console,
    ) -> Result<Rc<dyn BlockDevice>, Refusal> {
        let folder = &wanted.folder;
        if !self.pools.contains_key(folder) {
            if is_held(folder) {
                return Err(Refusal::new(
                    format!("{}: another Spindle has the pool open", folder.display()),
                    "verify what it exports, by its URI (nbd://HOST/EXPORT), or end it first",
                ));
            }
            let open = OpenReadOnlyPool::open(world, folder).await?;
            damaged::warnings(&open).iter().for_each(|warning| console.warn(warning));
            self.pools.insert(folder.clone(), open);
        }
        let pool = &self.pools[folder].pool;
        let device = match &wanted.snapshot {
            Some(snapshot) => pool.snapshot(&wanted.volume, snapshot),
            None => pool.volume(&wanted.volume),
        };
        let show = format!("see 'spindle pool show {}'", folder.display());
        Ok(Rc::new(device.map_err(|error| refusal(folder, &error, &show))?))
    }

    /// Refuses devices for what works with files of a filesystem alone.
    pub fn refuse_devices(&self, argument: &str, why: &str) -> Result<(), Refusal> {
        match self.devices.first() {
            None => Ok(()),
            Some(device) => {
                let problem = format!("{argument} {why}, and {} is a device", device.name().display());
                Err(Refusal::new(problem, format!("leave out {argument}")))
            }
        }
    }
}

/// A raw device or an image with an extent directory. Anything else, and what cannot be read, is looked at as a file.
async fn divided_file(path: &Path) -> Option<Rc<DividedDevice>> {
    if !matches!(host_files::kind(path), Ok(PathKind::File | PathKind::BlockDevice)) {
        return None;
    }
    let device = FileDevice::open(path, AccessMode::Read).ok()?;
    DividedDevice::open(path, Rc::new(device)).await.ok()
}

fn undivided(path: &Path, error: &UndividedDevice) -> Refusal {
    let remedy = match error {
        UndividedDevice::Io(_) => {
            let problem = format!("{}: {error}", path.display());
            return Refusal::new(problem, "check the device, and that it is served");
        }
        UndividedDevice::Blank(_) => "give the device that the databases are on",
        UndividedDevice::Foreign(_) => {
            "if it has a filesystem, mount it read-only and give the folder; or look for databases with --scan"
        }
    };
    Refusal::new(error.to_string(), remedy)
}
