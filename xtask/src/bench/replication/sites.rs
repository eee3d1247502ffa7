//! Two servers that keep groups alike, with a line between that may delay.

use super::relay::DelayRelay;
use crate::{
    bench::{Setting, fio::Jobs, our_programs::OurPrograms, serve::Server},
    step,
};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// A minute of a line is merged in less.
const PATIENCE: Duration = Duration::from_secs(300);
/// Pause between two looks at a state.
const LOOK: Duration = Duration::from_millis(20);

/// The volume of no group, which each site has in a pool of its own.
const LOCAL: (&str, &str) = ("local", "own");

/// The sites of a bench, before they are made.
pub(super) struct SitesPlan {
    /// The line can delay, and have a rate.
    pub has_relay: bool,
    /// Names of the groups, each of which has one volume of its name, with the words of `dr create` about its mode.
    pub groups: Vec<(&'static str, String)>,
    pub volume_mib: u32,
}

impl SitesPlan {
    /// Groups in sync and async over small volumes.
    pub fn small(has_relay: bool) -> Self {
        let groups = ["sync", "async"].map(|mode| (mode, format!("--mode {mode}")));
        Self { has_relay, groups: groups.into(), volume_mib: 119 }
    }

    fn volumes(&self) -> Vec<(&'static str, &'static str)> {
        self.groups.iter().map(|(name, _)| (*name, "mail")).chain([LOCAL]).collect()
    }
}

/// A server of one site.
pub(super) struct Site {
    name: &'static str,
    program: PathBuf,
    folder: PathBuf,
    pub socket: PathBuf,
    pub server: Server,
    port: u16,
    volume_mib: u32,
}

impl Site {
    fn begin(
        setting: &Setting,
        ours: &OurPrograms,
        name: &'static str,
        (volumes, volume_mib): (&[(&str, &str)], u32),
    ) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let folder = setting.folder.join(name);
        fs::create_dir_all(&folder)?;
        let socket = folder.join("nbd.sock");
        fs::write(folder.join("site.toml"), site_file(name, (&socket, port), (volumes, volume_mib)))?;
        let server = Server::begin(ours, &folder)?;
        let site = Self { name, program: ours.program(), folder, socket, server, port, volume_mib };
        site.make_room()?;
        Ok(site)
    }

    /// Gives the pools drives for what their volumes take: the server makes none above its share of the free space. Those of
    /// groups are written again while a cut of them is kept.
    fn make_room(&self) -> Result<()> {
        for (pool, needed) in [("mail", self.volume_mib * 3), ("own", self.volume_mib * 3 / 2)] {
            if self.usable_mib(pool)? < needed {
                for _ in 0..2 {
                    self.pool_verb(&["pool", "add-drive", pool, "--size", &format!("{needed}MiB")])?;
                }
            }
            let has = self.usable_mib(pool)?;
            ensure!(has >= needed, "pool {pool} has {has} MiB, and {needed} are needed");
        }
        Ok(())
    }

    fn usable_mib(&self, pool: &str) -> Result<u32> {
        let shown: Value = serde_json::from_str(&self.pool_verb(&["pool", "show", pool, "--json"])?)?;
        let bytes = shown["usable_bytes"].as_u64().context("the usable bytes of a pool")?;
        Ok(u32::try_from(bytes >> 20)?)
    }

    fn pool_verb(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        step::output(
            command.current_dir(&self.folder).args(words).args(["--server", "unix:state/spindle.sock"]),
        )
    }

    /// Ends the server as a loss of its machine would.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts it again.
    pub fn start(&mut self, ours: &OurPrograms) -> Result<()> {
        self.server = Server::begin(ours, &self.folder)?;
        Ok(())
    }

    /// Names further volumes in the site's file.
    fn apply(&self, volumes: &[(&str, &str)]) -> Result<()> {
        let text = site_file(self.name, (&self.socket, self.port), (volumes, self.volume_mib));
        fs::write(self.folder.join("site.toml"), text)?;
        self.verb(&["apply", "site.toml"]).map(drop)
    }

    /// Output of a verb.
    pub fn verb(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        step::output(command.current_dir(&self.folder).args(words).args(["--state", "state"]))
    }

    /// Output of a verb whose judgement may be bad.
    pub fn verb_of_any_end(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        let output = command.current_dir(&self.folder).args(words).args(["--state", "state"]).output()?;
        ensure!(
            !output.stdout.is_empty(),
            "spindle {}: {}",
            words.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    fn status(&self) -> Result<Value> {
        // Ends with 1 while something is to be done.
        let mut command = Command::new(&self.program);
        command.current_dir(&self.folder).args(["dr", "status", "--json", "--state", "state"]);
        Ok(serde_json::from_slice(&command.output()?.stdout)?)
    }

    /// The row of a group; null if there is none yet.
    pub fn group(&self, name: &str) -> Result<Value> {
        let status = self.status()?;
        let rows = status["groups"].as_array().cloned().unwrap_or_default();
        Ok(rows.into_iter().find(|row| row["name"] == name).unwrap_or_default())
    }

    /// Bytes that this side has put on its line to the other one since they are connected, framing included.
    pub fn line_bytes(&self) -> Result<f64> {
        let status = self.status()?;
        let peers = status["site"]["peers"].as_array().cloned().unwrap_or_default();
        let connections = peers.iter().filter_map(|peer| peer["connections"].as_array()).flatten();
        Ok(connections.filter_map(|connection| connection["line_bytes"].as_f64()).sum())
    }

    /// Waits until a group has this role and state, in sync if it is so.
    pub fn wait_for(&self, group: &str, (role, state): (&str, &str), is_sync: bool) -> Result<()> {
        until(&format!("{group} is {role}, {state} at {}", self.name), || {
            let row = self.group(group)?;
            let is_alone = row["is_alone"] != false;
            Ok(row["role"] == role && row["state"] == state && !(is_sync && is_alone))
        })
    }

    pub fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.socket.display())
    }
}

/// Size of a drive: two volumes at least, each written again while it is there.
fn drive_mib(volume_mib: u32) -> u32 {
    volume_mib * 4 + 480
}

fn site_file(
    name: &str,
    (socket, port): (&Path, u16),
    (volumes, volume_mib): (&[(&str, &str)], u32),
) -> String {
    let volume_gb = f64::from(volume_mib) * f64::from(1 << 20) / 1e9;
    let drive_gb = f64::from(drive_mib(volume_mib)) * f64::from(1 << 20) / 1e9;
    let mut text = format!(
        "[serve]\nsite = '{name}'\nnbd = 'unix:{}'\niscsi = 'none'\n[[site]]\nname = '{name}'\n[replication]\n\
         listen = '127.0.0.1:{port}'\n",
        socket.display()
    );
    for pool in ["mail", "own"] {
        text += &format!("[[group]]\nname = '{pool}'\ndrives = 2\ndrive_gb = {drive_gb:.2}\n");
    }
    for (volume, pool) in volumes {
        text += &format!("[[volume]]\nname = '{volume}'\ngroup = '{pool}'\ngb = {volume_gb:.6}\n");
        text += &format!("[[nbd]]\nname = '{volume}'\nvolume = '{pool}/{volume}'\n");
    }
    text
}

/// Boston, which is primary of the groups *sync* and *async*, and Denver. Each has a volume *local* of no group.
pub(super) struct Sites {
    pub boston: Site,
    pub denver: Site,
    pub relay: Option<DelayRelay>,
}

impl Sites {
    /// Both sites, alike.
    pub fn begin(setting: &Setting, ours: &OurPrograms, plan: &SitesPlan) -> Result<Self> {
        for name in ["boston", "denver"] {
            // Of the pair before.
            let _ = fs::remove_dir_all(setting.folder.join(name));
        }
        let volumes = plan.volumes();
        let boston = Site::begin(setting, ours, "boston", (&volumes, plan.volume_mib))?;
        let denver = Site::begin(setting, ours, "denver", (&[LOCAL], plan.volume_mib))?;
        let relay = if plan.has_relay { Some(DelayRelay::to(boston.port)?) } else { None };
        let port = relay.as_ref().map_or(boston.port, |relay| relay.port);
        fs::write(denver.folder.join("token"), boston.verb(&["dr", "token"])?)?;
        denver.verb(&["dr", "pair", "boston", &format!("127.0.0.1:{port}"), "--pairing-token", "token"])?;
        until("boston knows denver", || {
            let mut command = Command::new(&boston.program);
            command.current_dir(&boston.folder).args(["dr", "status", "--state", "state"]);
            Ok(String::from_utf8_lossy(&command.output()?.stdout).contains("denver: connected"))
        })?;
        for (name, mode) in &plan.groups {
            let volume = format!("mail/{name}");
            let words = ["dr", "create", name, &volume, "--to", "denver"].into_iter().chain(mode.split(' '));
            boston.verb(&words.collect::<Vec<_>>())?;
            let is_periodic = mode.contains("periodic");
            let state = if is_periodic { "waiting" } else { "streaming" };
            boston.wait_for(name, ("primary", state), mode.contains("--mode sync"))?;
        }
        denver.apply(&volumes)?;
        let fill = |uri: String| {
            let jobs = Jobs::nbd_once(&uri).job_without_file("fill", "rw=write bs=256k iodepth=4");
            jobs.run(&setting.folder).map(drop)
        };
        volumes.iter().try_for_each(|(volume, _)| fill(boston.uri(volume)))?;
        fill(denver.uri("local"))?;
        Ok(Self { boston, denver, relay })
    }

    /// Waits until both groups are alike again.
    pub fn settle(&self) -> Result<()> {
        self.boston.wait_for("sync", ("primary", "streaming"), true)?;
        until("async has nothing unconfirmed", || {
            let row = self.boston.group("async")?;
            Ok(row["state"] == "streaming" && row["unconfirmed_bytes"] == 0)
        })
    }
}

/// Waits for a state.
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        ensure!(begun.elapsed() < PATIENCE, "after {} s still not: {what}", PATIENCE.as_secs());
        thread::sleep(LOOK);
    }
    Ok(())
}
