//! Two servers with as many DR groups as the load has storage groups, and the line between them.

use super::Scale;
use crate::{
    bench::{DelayRelay, Server, our_programs::OurPrograms},
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

const PATIENCE: Duration = Duration::from_secs(300);
/// Transaction logs of a group.
const LOG_MIB: f64 = 96.0;
/// A volume of databases beside what they have at first, and at least.
const DATABASE_FACTOR: f64 = 1.5;
const DATABASE_MIB_MIN: f64 = 80.0;
/// Volumes of the groups, beside what their logs and checkpoints take.
const POOL_FACTOR: f64 = 1.5;

/// Boston, which is primary of all groups, and Denver.
pub(super) struct Sites {
    program: PathBuf,
    folder: PathBuf,
    _boston: Server,
    _denver: Server,
    nbd_port: u16,
    pub relay: DelayRelay,
    pub groups: usize,
}

impl Sites {
    pub fn begin((ours, folder): (&OurPrograms, &Path), scale: &Scale, groups: usize) -> Result<Self> {
        let (boston, denver) = (folder.join("boston"), folder.join("denver"));
        for folder in [&boston, &denver] {
            // Of the sites before.
            let _ = fs::remove_dir_all(folder);
            fs::create_dir_all(folder)?;
        }
        let [nbd_port, link_port, other_port] = free_ports()?;
        fs::write(boston.join("site.toml"), site_file("boston", (nbd_port, link_port), (scale, groups)))?;
        fs::write(denver.join("site.toml"), site_file("denver", (0, other_port), (scale, 0)))?;
        let servers = (Server::begin(ours, &boston)?, Server::begin(ours, &denver)?);
        let relay = DelayRelay::to(link_port)?;
        let sites = Self {
            program: ours.program(),
            folder: folder.to_owned(),
            _boston: servers.0,
            _denver: servers.1,
            nbd_port,
            relay,
            groups,
        };
        fs::write(denver.join("token"), sites.verb("boston", "dr token")?)?;
        let pair = format!("dr pair boston 127.0.0.1:{} --pairing-token token", sites.relay.port);
        sites.verb("denver", &pair)?;
        until("boston knows denver", || {
            Ok(sites.status()?["site"]["peers"][0]["connected_since"].is_string())
        })?;
        for group in 0..groups {
            let make = format!(
                "dr create sg{group} mail/db{group} mail/log{group} --to denver --mode sync --hold 5s"
            );
            sites.verb("boston", &make)?;
        }
        sites.wait_until_in_sync()?;
        Ok(sites)
    }

    /// URIs of the volumes of one kind, by group.
    pub fn uris(&self, kind: &str) -> Vec<String> {
        (0..self.groups).map(|group| format!("nbd://127.0.0.1:{}/{kind}{group}", self.nbd_port)).collect()
    }

    /// Output of a verb at a site.
    pub fn verb(&self, site: &str, words: &str) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.current_dir(self.folder.join(site)).args(words.split(' ')).args(["--state", "state"]);
        step::output(&mut command)
    }

    fn status(&self) -> Result<Value> {
        // Ends with 1 while something is to be done.
        let mut command = Command::new(&self.program);
        command.current_dir(self.folder.join("boston"));
        command.args(["dr", "status", "--json", "--state", "state"]);
        Ok(serde_json::from_slice(&command.output()?.stdout)?)
    }

    /// Rows of the groups, by their names.
    pub fn rows(&self) -> Result<Vec<Value>> {
        Ok(self.status()?["groups"].as_array().cloned().unwrap_or_default())
    }

    pub fn wait_until_in_sync(&self) -> Result<()> {
        until("all groups are in sync", || {
            let rows = self.rows()?;
            let is_in_sync = |row: &Value| row["state"] == "streaming" && row["is_alone"] == false;
            Ok(rows.len() == self.groups && rows.iter().all(is_in_sync))
        })
    }
}

fn free_ports() -> Result<[u16; 3]> {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0"));
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener?.local_addr()?.port();
    }
    Ok(ports)
}

fn site_file(name: &str, (nbd, link): (u16, u16), (scale, groups): (&Scale, usize)) -> String {
    let gb = |mib: f64| mib * f64::from(1 << 20) / 1e9;
    let volumes_mib = |groups: usize| {
        let database_mib = f64::from(scale.databases_mib) * DATABASE_FACTOR / groups as f64;
        [database_mib.max(DATABASE_MIB_MIN), LOG_MIB]
    };
    // Both sites have the same pool, whatever the number of groups.
    let pool_mib = 8.0 * volumes_mib(8).iter().sum::<f64>();
    let pool_gb = gb(pool_mib) * POOL_FACTOR + 0.5;
    let mut text = format!(
        "[serve]\nsite = '{name}'\nnbd = '127.0.0.1:{nbd}'\niscsi = 'none'\n[[site]]\nname = '{name}'\n[replication]\nlisten = \
         '127.0.0.1:{link}'\n[[group]]\nname = 'mail'\ndrives = 2\ndrive_gb = {pool_gb:.2}\n"
    );
    for group in 0..groups {
        for (kind, mib) in ["db", "log"].into_iter().zip(volumes_mib(groups)) {
            text += &format!("[[volume]]\nname = '{kind}{group}'\ngroup = 'mail'\ngb = {:.4}\n", gb(mib));
            text += &format!("[[nbd]]\nname = '{kind}{group}'\nvolume = 'mail/{kind}{group}'\n");
        }
    }
    text
}

/// Waits for a state.
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        ensure!(begun.elapsed() < PATIENCE, "after {} s still not: {what}", PATIENCE.as_secs());
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
