//! Two servers that keep groups alike, with a line between that may delay.

use super::relay::DelayRelay;
use crate::{
    bench::{Setting, fio::Jobs, our_programs::OurPrograms, serve::Server},
    step,
};
use anyhow::{Result, ensure};
use serde_json::Value;
use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks at a state.
const LOOK: Duration = Duration::from_millis(20);

/// Volumes of the first site: two of groups, and one of no group in a pool of its own.
const VOLUMES: [(&str, &str); 3] = [("sync", "mail"), ("async", "mail"), ("local", "own")];

/// A server of one site.
pub(super) struct Site {
    name: &'static str,
    program: PathBuf,
    folder: PathBuf,
    socket: PathBuf,
    pub server: Server,
    port: u16,
}

impl Site {
    fn begin(
        setting: &Setting,
        ours: &OurPrograms,
        name: &'static str,
        volumes: &[(&str, &str)],
    ) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let folder = setting.folder.join(name);
        fs::create_dir_all(&folder)?;
        let socket = folder.join("nbd.sock");
        fs::write(folder.join("site.toml"), site_file(name, (&socket, port), volumes))?;
        let server = Server::begin(ours, &folder)?;
        Ok(Self { name, program: ours.program(), folder, socket, server, port })
    }

    /// Names further volumes in the site's file.
    fn apply(&self, volumes: &[(&str, &str)]) -> Result<()> {
        fs::write(self.folder.join("site.toml"), site_file(self.name, (&self.socket, self.port), volumes))?;
        self.verb(&["apply", "site.toml"]).map(drop)
    }

    /// Output of a verb.
    pub fn verb(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        step::output(command.current_dir(&self.folder).args(words).args(["--state", "state"]))
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

fn site_file(name: &str, (socket, port): (&Path, u16), volumes: &[(&str, &str)]) -> String {
    let mut text = format!(
        "[serve]\nsite = '{name}'\nnbd = 'unix:{}'\niscsi = 'none'\n[[site]]\nname = '{name}'\n[replication]\n\
         listen = '127.0.0.1:{port}'\n",
        socket.display()
    );
    for pool in ["mail", "own"] {
        text += &format!("[[group]]\nname = '{pool}'\ndrives = 2\ndrive_gb = 1.0\n");
    }
    for (volume, pool) in volumes {
        text += &format!("[[volume]]\nname = '{volume}'\ngroup = '{pool}'\ngb = 0.125\n");
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
    /// Both sites, alike; through a relay if the line is to delay.
    pub fn begin(setting: &Setting, ours: &OurPrograms, has_relay: bool) -> Result<Self> {
        for name in ["boston", "denver"] {
            // Of the pair before.
            let _ = fs::remove_dir_all(setting.folder.join(name));
        }
        let boston = Site::begin(setting, ours, "boston", &VOLUMES)?;
        let denver = Site::begin(setting, ours, "denver", &VOLUMES[2..])?;
        let relay = if has_relay { Some(DelayRelay::to(boston.port)?) } else { None };
        let port = relay.as_ref().map_or(boston.port, |relay| relay.port);
        fs::write(denver.folder.join("token"), boston.verb(&["dr", "token"])?)?;
        denver.verb(&["dr", "pair", "boston", &format!("127.0.0.1:{port}"), "--pairing-token", "token"])?;
        until("boston knows denver", || {
            let mut command = Command::new(&boston.program);
            command.current_dir(&boston.folder).args(["dr", "status", "--state", "state"]);
            Ok(String::from_utf8_lossy(&command.output()?.stdout).contains("denver: connected"))
        })?;
        for mode in ["sync", "async"] {
            let volume = format!("mail/{mode}");
            boston.verb(&["dr", "create", mode, &volume, "--to", "denver", "--mode", mode])?;
            boston.wait_for(mode, ("primary", "streaming"), mode == "sync")?;
        }
        denver.apply(&VOLUMES)?;
        let fill = |uri: String| {
            let jobs = Jobs::nbd_once(&uri).job_without_file("fill", "rw=write bs=256k iodepth=4");
            jobs.run(&setting.folder).map(drop)
        };
        VOLUMES.iter().try_for_each(|(volume, _)| fill(boston.uri(volume)))?;
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
        ensure!(begun.elapsed() < PATIENCE, "after a minute still not: {what}");
        thread::sleep(LOOK);
    }
    Ok(())
}
