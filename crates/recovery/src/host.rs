//! Filesystems of images on this host: loop devices, mounts, and their end.
//!
//! Programs of util-linux do it (`losetup`, `mount`, `umount`), since they know what a kernel of any age wants.
//!
//! Invariant: [`HostMounts::take_away`] needs nothing but two folders. It may be called again, by another process, after a kill at
//! any point.

use std::{
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};
use world::{
    IoError, IoErrorKind, IoResult, ProgramCall, ProgramEnd, Programs, World,
    real::{
        host::{loop_devices_below, mounts_below, users_of_folder},
        host_files,
    },
};

/// Time for one program. The journal of a large filesystem is replayed by `mount`.
const PROGRAM_MAX: Duration = Duration::from_secs(600);
/// Time after which a program gets SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// Time for those that look at each device, as `losetup --find` and udev do, to close one that was detached.
const LOOKERS_MAX: Duration = Duration::from_secs(2);
const LOOKED_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Users of a folder that are named.
const NAMED_USERS_MAX: usize = 5;
/// Folders in which the programs are, also for services with a short `PATH`.
const PROGRAM_FOLDERS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Mounts and loop devices of this host.
#[derive(Clone)]
pub struct HostMounts {
    world: World,
    programs: Rc<dyn Programs>,
}

impl HostMounts {
    pub fn new(world: &World, programs: Rc<dyn Programs>) -> Self {
        Self { world: world.clone(), programs }
    }

    /// Makes a loop device of an image, with direct I/O, so that its writes reach the image when they are answered.
    ///
    /// # Errors
    ///
    /// There is no loop device, or `losetup` failed.
    pub async fn attach(&self, image: &Path, sector: u32) -> IoResult<PathBuf> {
        let sector = sector.to_string();
        let image = path_text(image)?;
        let arguments = ["--find", "--show", "--direct-io=on", "--sector-size", &sector, image];
        let shown = self.run("losetup", &arguments).await?;
        Ok(PathBuf::from(shown.trim()))
    }

    /// Mounts a device at a folder. Its journal is replayed onto the device also if it is mounted read-only.
    ///
    /// # Errors
    ///
    /// `mount` failed.
    pub async fn mount(&self, device: &Path, folder: &Path, kind: &str, is_writable: bool) -> IoResult<()> {
        let mut options = String::from(if is_writable { "rw" } else { "ro" });
        options += ",nosuid,nodev";
        if kind == "xfs" {
            // The live filesystem of the same UUID may be mounted here.
            options += ",nouuid";
        }
        let arguments = ["-t", kind, "-o", &options, path_text(device)?, path_text(folder)?];
        self.run("mount", &arguments).await.map(drop)
    }

    /// Shows a folder at another place, read-only.
    ///
    /// # Errors
    ///
    /// `mount` failed.
    pub async fn show_at(&self, folder: &Path, place: &Path) -> IoResult<()> {
        self.run("mount", &["--bind", path_text(folder)?, path_text(place)?]).await.map(drop)
    }

    /// Unmounts all that is mounted at `folder` and below it, detaches loop devices with images below `images`, and unmounts these.
    ///
    /// # Errors
    ///
    /// Each thing that is still there, with the processes that use it. The rest is gone.
    pub async fn take_away(&self, folder: &Path, images: &Path) -> Result<(), Vec<IoError>> {
        let mut problems = Vec::new();
        self.unmount_all(folder, &mut problems).await;
        // A step that did not end keeps all of the next one.
        if problems.is_empty() {
            match loop_devices_below(images) {
                Ok(devices) => {
                    for device in devices {
                        self.detach(&device.path, images, &mut problems).await;
                    }
                }
                Err(error) => problems.push(error),
            }
        }
        if problems.is_empty() {
            self.unmount_all(images, &mut problems).await;
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    async fn unmount_all(&self, folder: &Path, problems: &mut Vec<IoError>) {
        let mounts = match mounts_below(folder) {
            Ok(mounts) => mounts,
            Err(error) => return problems.push(error),
        };
        // Later ones lie on earlier ones.
        for mount in mounts.iter().rev() {
            if let Err(error) = self.unmount(&mount.point, &mount.kind).await {
                let users = users_text(&mount.point);
                match users.is_empty() {
                    true => problems.push(error),
                    false => {
                        let context = format!("{} is used by {users}", mount.point.display());
                        problems.push(IoError::new(IoErrorKind::Busy, context));
                    }
                }
            }
        }
    }

    async fn unmount(&self, point: &Path, kind: &str) -> IoResult<()> {
        let point = path_text(point)?;
        if kind.starts_with("fuse") && !rustix::process::geteuid().is_root() {
            // Users may unmount their own FUSE mounts, by the program with the privilege.
            return match self.run("fusermount3", &["-u", point]).await {
                Err(error) if error.kind() == IoErrorKind::NotFound => {
                    self.run("fusermount", &["-u", point]).await.map(drop)
                }
                other => other.map(drop),
            };
        }
        // Without its canonical form: a mount whose server is gone cannot be asked for it.
        self.run("umount", &["--no-canonicalize", point]).await.map(drop)
    }

    /// Detaches a loop device. A busy one is detached by the kernel when its last user closes it.
    async fn detach(&self, device: &Path, images: &Path, problems: &mut Vec<IoError>) {
        let detached = match path_text(device) {
            Ok(path) => self.run("losetup", &["--detach", path]).await.map(drop),
            Err(error) => Err(error),
        };
        let is_left =
            || loop_devices_below(images).is_ok_and(|left| left.iter().any(|one| one.path == device));
        let looked_at_until = self.world.now() + LOOKERS_MAX;
        while detached.is_ok() && is_left() && self.world.now() < looked_at_until {
            self.world.sleep(LOOKED_AGAIN_AFTER).await;
        }
        let is_left = is_left();
        match detached {
            Err(error) if is_left => problems.push(error),
            Ok(()) if is_left => {
                let users = users_text(device);
                let users = if users.is_empty() { "somebody" } else { &users };
                let context = format!("{} is used by {users}", device.display());
                problems.push(IoError::new(IoErrorKind::Busy, context));
            }
            _ => {}
        }
    }

    /// Runs a program to its end; its output.
    async fn run(&self, program: &str, arguments: &[&str]) -> IoResult<String> {
        let call = ProgramCall {
            program: program.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            environment: vec![
                ("PATH".to_owned(), PROGRAM_FOLDERS.to_owned()),
                ("LC_ALL".to_owned(), "C".to_owned()),
            ],
            time_limit: PROGRAM_MAX,
            grace: GRACE,
            user: None,
        };
        let result = self.programs.run(call).await?;
        let output = String::from_utf8_lossy(&result.output.bytes).into_owned();
        let why = match result.end {
            ProgramEnd::Exited(0) => return Ok(output),
            ProgramEnd::Exited(code) => format!("exit code {code}"),
            ProgramEnd::Signalled(signal) => format!("ended by signal {signal}"),
            ProgramEnd::TimedOut => format!("it did not end within {} s", PROGRAM_MAX.as_secs()),
        };
        let said = output.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or(&why).to_owned();
        let context = match said.strip_prefix(&format!("{program}: ")) {
            Some(rest) => format!("{program}: {rest}"),
            None => format!("{program}: {said}"),
        };
        Err(IoError::new(IoErrorKind::Other, context))
    }
}

/// `bash (process 123), vi (process 124)`; empty if nobody uses it.
fn users_text(path: &Path) -> String {
    let users = users_of_folder(path);
    let named = users.iter().take(NAMED_USERS_MAX);
    let named: Vec<String> =
        named.map(|user| format!("{} (process {})", user.program, user.process)).collect();
    let more = match users.len().saturating_sub(NAMED_USERS_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.join(", ") + &more
}

/// Removes a folder and the folders in it as far as they are empty. Files that somebody put there stay, and their folders.
pub fn remove_empty_folders(folder: &Path) {
    for name in host_files::list(folder).unwrap_or_default() {
        let _ = host_files::remove_folder_if_empty(&folder.join(name));
    }
    let _ = host_files::remove_folder_if_empty(folder);
}

fn path_text(path: &Path) -> IoResult<&str> {
    let refuse =
        || IoError::new(IoErrorKind::Unsupported, format!("{}: not a name in UTF-8", path.display()));
    path.to_str().ok_or_else(refuse)
}
