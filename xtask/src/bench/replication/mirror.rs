//! The peer: qemu-storage-daemon, whose `blockdev-mirror` copies each write to another daemon over NBD before it is
//! answered (`copy-mode=write-blocking`). Every write is flushed, as ours is stable when it is answered.

use super::relay::DelayRelay;
use crate::bench::fio::Jobs;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Lines, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(60);
const DISK_BYTES: u64 = 128 << 20;

/// A daemon with one file, killed when dropped.
struct Daemon {
    child: Child,
    monitor: PathBuf,
    port: u16,
}

impl Daemon {
    fn begin(folder: &Path, name: &str) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let (file, monitor) = (folder.join(format!("{name}.disk")), folder.join(format!("{name}.qmp")));
        fs::File::create(&file)?.set_len(DISK_BYTES)?;
        let node =
            format!("driver=file,node-name=f,filename={},cache.direct=on,aio=io_uring", file.display());
        let mut command = Command::new("qemu-storage-daemon");
        command
            .args(["--blockdev", &node, "--blockdev", "driver=raw,node-name=r,file=f"])
            .args(["--nbd-server", &format!("addr.type=inet,addr.host=127.0.0.1,addr.port={port}")])
            .args(["--export", "type=nbd,id=e,node-name=r,name=disk,writable=on,writethrough=on"])
            .args(["--chardev", &format!("socket,id=m,path={},server=on,wait=off", monitor.display())])
            .args(["--monitor", "chardev=m"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut daemon = Self { child: child.context("qemu-storage-daemon")?, monitor, port };
        let begun = Instant::now();
        let listens = |daemon: &Self| {
            UnixStream::connect(&daemon.monitor).is_ok()
                && TcpStream::connect(("127.0.0.1", daemon.port)).is_ok()
        };
        while !listens(&daemon) {
            ensure!(daemon.child.try_wait()?.is_none(), "qemu-storage-daemon has ended");
            ensure!(begun.elapsed() < PATIENCE, "qemu-storage-daemon does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A session with a daemon's monitor.
struct Monitor {
    sender: UnixStream,
    lines: Lines<BufReader<UnixStream>>,
}

impl Monitor {
    fn open(path: &Path) -> Result<Self> {
        let sender = UnixStream::connect(path)?;
        sender.set_read_timeout(Some(PATIENCE))?;
        let lines = BufReader::new(sender.try_clone()?).lines();
        let mut monitor = Self { sender, lines };
        monitor.lines.next().context("a greeting of QMP")??;
        monitor.execute("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    /// The answer to a command; events before it are passed over.
    fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        writeln!(self.sender, "{}", json!({ "execute": command, "arguments": arguments }))?;
        loop {
            let line = self.lines.next().context("an answer of QMP")??;
            let answer: Value = serde_json::from_str(&line)?;
            ensure!(answer["error"].is_null(), "{command}: {}", answer["error"]);
            if !answer["return"].is_null() {
                return Ok(answer["return"].clone());
            }
        }
    }
}

/// Two daemons, of which the first mirrors to the second over a line that delays.
pub(super) struct Mirror {
    source: Daemon,
    _target: Daemon,
    pub relay: DelayRelay,
}

impl Mirror {
    /// A mirror that has everything, and copies what is written from now on.
    pub fn begin(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let (source, target) = (Daemon::begin(folder, "source")?, Daemon::begin(folder, "target")?);
        let relay = DelayRelay::to(target.port)?;
        let fill = Jobs::nbd_once(&uri(source.port)).job_without_file("fill", "rw=write bs=1m iodepth=4");
        fill.run(folder)?;
        let mut monitor = Monitor::open(&source.monitor)?;
        let server = json!({ "type": "inet", "host": "127.0.0.1", "port": relay.port.to_string() });
        let node = json!({ "driver": "nbd", "node-name": "far", "server": server, "export": "disk" });
        monitor.execute("blockdev-add", node)?;
        let job = json!({
            "job-id": "mirror", "device": "r", "target": "far", "sync": "full", "copy-mode": "write-blocking",
        });
        monitor.execute("blockdev-mirror", job)?;
        let begun = Instant::now();
        loop {
            let jobs = monitor.execute("query-block-jobs", json!({}))?;
            let job = &jobs[0];
            if job["ready"] == true && job["actively-synced"] != false {
                break;
            }
            ensure!(!job.is_null() && begun.elapsed() < PATIENCE, "the mirror is not ready: {jobs}");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(Self { source, _target: target, relay })
    }

    pub fn uri(&self) -> String {
        uri(self.source.port)
    }
}

fn uri(port: u16) -> String {
    format!("nbd://127.0.0.1:{port}/disk")
}
