//! A mail host in a bench: volumes of a server reached by `nbdfuse` and a loop device, with filesystems that are mounted live, and
//! a folder of open backups of its own.

use crate::{
    exported::{is_here, judge, text},
    sites_served::Served,
    spindle::{Bench, ProgramOutput, json_of},
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};
use world::real::host::{loop_devices_below, mounts_below};

/// A live filesystem: its volume, its type, and GB of the volume.
pub type LiveVolume = (&'static str, &'static str, f64);

/// The smallest that `mkfs.xfs` makes is 300 MB.
pub const XFS_GB: f64 = 0.32;
pub const EXT4_GB: f64 = 0.0625;

pub struct MailHost {
    pub bench: Bench,
    pub served: Option<Served>,
    bridges: Vec<Child>,
    volumes: &'static [LiveVolume],
    port: u16,
}

/// False, with the reason, if no such host can be on this machine.
pub fn can_mount(programs: &[(&str, &str)]) -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can mount");
        return false;
    }
    if !Path::new("/dev/fuse").exists() || !Path::new("/dev/loop-control").exists() {
        println!("skipped: this machine has no FUSE or no loop devices");
        return false;
    }
    [("nbdfuse", "libnbd-bin")].iter().chain(programs).all(|(program, package)| is_here(program, package))
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl MailHost {
    /// Serves the volumes as the set `post`, makes filesystems on them, and mounts these at `live/VOLUME`.
    pub fn begin(volumes: &'static [LiveVolume]) -> Self {
        let (bench, port) = (Bench::new(), free_port());
        let mut site = format!(
            "[serve]\nnbd = '127.0.0.1:{port}'\niscsi = '127.0.0.1:0'\n[[group]]\nname = 'mail'\ndrives = 2\ndrive_gb = 1.2\n"
        );
        for (name, _, gb) in volumes {
            site += &format!("[[volume]]\nname = '{name}'\ngroup = 'mail'\ngb = {gb}\n");
            site += &format!("[[nbd]]\nname = '{name}'\nvolume = '{name}'\n");
        }
        let names: Vec<String> = volumes.iter().map(|(name, ..)| format!("'{name}'")).collect();
        site +=
            &format!("[[protect]]\nset = 'post'\nvolumes = [{}]\nschedules = ['24x1h']\n", names.join(", "));
        bench.make_file("site.toml", site.as_bytes());
        let served = Some(Served::begin(&bench));
        let mut host = Self { bench, served, bridges: Vec::new(), volumes, port };
        host.mount_live();
        host
    }

    fn mount_live(&mut self) {
        for (name, kind, _) in self.volumes {
            let file = self.bench.make_file(&format!("{name}.nbd"), b"");
            let uri = format!("nbd://127.0.0.1:{}/{name}", self.port);
            let mut bridge = Command::new("nbdfuse");
            bridge.arg(&file).arg(uri).stdout(Stdio::null()).stderr(Stdio::null());
            self.bridges.push(bridge.spawn().unwrap());
            wait_until("nbdfuse shows the volume", || fs::metadata(&file).is_ok_and(|found| found.len() > 0));
            let device = judge("losetup", &["--direct-io=on", "-f", "--show", &text(&file)]);
            let live = text(&self.bench.make_folder(&format!("live/{name}")));
            judge(&format!("mkfs.{kind}"), &["-q", device.trim()]);
            judge("mount", &[device.trim(), &live]);
        }
    }

    /// A path of a live filesystem.
    pub fn live(&self, path: &str) -> PathBuf {
        self.bench.path("live").join(path)
    }

    /// Runs `spindle protect` on this host.
    pub fn protect(&self, arguments: &[&str]) -> ProgramOutput {
        self.bench.said(self.command(arguments).output().unwrap())
    }

    /// The same, which must end with 0.
    #[track_caller]
    pub fn done(&self, arguments: &[&str]) -> String {
        let said = self.protect(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}{}", said.stdout, said.stderr);
        said.stdout
    }

    /// The same, with an answer as JSON.
    #[track_caller]
    pub fn answer(&self, arguments: &[&str]) -> Value {
        let said = self.done(&[arguments, &["--json"]].concat());
        json_of(&said.replace("DIR", self.bench.path("").to_str().unwrap().trim_end_matches('/')))
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.bench.command(&[&["protect"], arguments, &["--state", "state"]].concat());
        command.env("RUNTIME_DIRECTORY", self.bench.path("run"));
        command
    }

    /// Writes what the live filesystems hold to their volumes, and makes a backup; its number.
    #[track_caller]
    pub fn back_up(&self) -> String {
        for (name, ..) in self.volumes {
            judge("sync", &["-f", &text(&self.live(name))]);
        }
        self.answer(&["now", "post", "--hold", "test"])["number"].to_string()
    }

    /// Opens a backup; its folder.
    #[track_caller]
    pub fn open(&self, backup: &str, more: &[&str]) -> PathBuf {
        let opened = self.answer(&[&["open", &format!("post@{backup}")], more].concat());
        PathBuf::from(opened["folder"].as_str().unwrap())
    }

    /// Numbers of the processes that serve a backup, and that watch it.
    pub fn processes(&self, backup: &str) -> (String, String) {
        let file = self.bench.path(&format!("run/open/post-{backup}.json"));
        let keeper = json_of(&fs::read_to_string(&file).unwrap())["process"].to_string();
        let children = format!("/proc/{keeper}/task/{keeper}/children");
        let mut watcher = String::new();
        wait_until("a watcher is there", || {
            watcher = fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
            !watcher.is_empty()
        });
        (keeper, watcher)
    }

    /// All that a backup may leave: mounts, loop devices, folders and files here, clones and exports on the server.
    pub fn left(&self) -> Vec<String> {
        let run = self.bench.path("run");
        let mut left: Vec<String> =
            mounts_below(&run).unwrap().iter().map(|mount| format!("{mount:?}")).collect();
        left.extend(loop_devices_below(&run).unwrap().iter().map(|device| format!("{device:?}")));
        let files = fs::read_dir(run.join("open")).into_iter().flatten().flatten();
        left.extend(files.map(|file| text(&file.path())).filter(|path| !path.ends_with("/.images")));
        if self.served.is_some() {
            let exports = json_of(&self.bench.run(&["export", "list", "--state", "state", "--json"]).stdout);
            let names = exports.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap());
            left.extend(names.filter(|name| name.contains("-until-")).map(|name| format!("export {name}")));
            let volumes = self.volumes();
            left.extend(volumes.into_iter().filter(|name| name.contains("-until-")));
        }
        left
    }

    /// Names of all volumes of the server.
    pub fn volumes(&self) -> Vec<String> {
        let socket = text(&self.bench.path("state/spindle.sock"));
        let page = judge("curl", &["-sS", "--unix-socket", &socket, "http://spindle/v1/volumes"]);
        let page = json_of(&page);
        page["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["name"].as_str().unwrap().to_owned())
            .collect()
    }

    #[track_caller]
    pub fn expect_nothing_left(&self) {
        wait_until("nothing is left", || self.left().is_empty());
    }
}

/// Waits for something that takes no longer than 20 s on any machine.
#[track_caller]
pub fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    let (begun, mut is_so) = (Instant::now(), is_so);
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

pub fn kill(process: &str) {
    judge("kill", &["-KILL", process]);
}

impl Drop for MailHost {
    /// Leaves nothing on this machine, also after a failure.
    fn drop(&mut self) {
        let quiet = |program: &str, arguments: &[&str]| -> Option<Output> {
            Command::new(program).args(arguments).output().ok()
        };
        if thread::panicking() {
            for file in fs::read_dir(self.bench.path("run/open")).into_iter().flatten().flatten() {
                let Ok(said) = fs::read_to_string(file.path()) else { continue };
                eprintln!("{}: {said}", file.path().display());
                let opening: Value = serde_json::from_str(&said).unwrap_or_default();
                if let Some(process) = opening["process"].as_u64() {
                    // The watcher takes the rest away, or fails; what is left then goes below.
                    quiet("kill", &["-KILL", &process.to_string()]);
                }
            }
            thread::sleep(Duration::from_secs(2));
        }
        let mounts = mounts_below(&self.bench.path("")).unwrap_or_default();
        let unmount = |point: &Path| drop(quiet("umount", &["-l", &text(point)]));
        mounts.iter().rev().filter(|mount| mount.kind != "fuse").for_each(|mount| unmount(&mount.point));
        for device in loop_devices_below(&self.bench.path("")).unwrap_or_default() {
            quiet("losetup", &["-d", &text(&device.path)]);
        }
        mounts.iter().rev().filter(|mount| mount.kind == "fuse").for_each(|mount| unmount(&mount.point));
        for bridge in &mut self.bridges {
            let _ = bridge.kill();
            let _ = bridge.wait();
        }
    }
}
