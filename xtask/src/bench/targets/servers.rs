//! Servers of one file: ours, tgt, qemu-storage-daemon. Each is ended when it is dropped.

use anyhow::{Context, Result, bail};
use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const TARGET: &str = "iqn.2026-11.test:t";
/// A server that does not listen by then will not.
const PATIENCE: Duration = Duration::from_secs(20);
/// Processor time in /proc is in ticks of so many a second (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// Durability of an acknowledged write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// It is stable after the next flush.
    Cached,
    /// It is stable.
    Stable,
}

/// A server that is under way.
pub(crate) struct Server {
    child: Child,
    /// URIs of the served file.
    pub uris: Vec<String>,
}

impl Server {
    fn begin(mut command: Command, port: u16, uris: Vec<String>) -> Result<Self> {
        let shown = super::super::our_programs::shown(&command);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = child.with_context(|| format!("starting {shown}"))?;
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let has_ended = child.try_wait()?.is_some();
            if has_ended || begun.elapsed() > PATIENCE {
                // It may have ended already.
                let _ = child.kill();
                bail!("{shown} does not listen");
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { child, uris })
    }

    /// Ours, of a file or a volume, over both protocols: iSCSI, then NBD; times of its steps go to a new file `steps`.
    pub fn ours(program: &Path, path: &Path, writes: Writes, steps: Option<&Path>) -> Result<Self> {
        let (nbd, iscsi) = (free_port()?, free_port()?);
        let mut command = Command::new(program);
        command.arg("export").arg(path).args(["--name", "disk", "--quiet"]);
        if writes == Writes::Cached {
            command.arg("--write-cache");
        }
        if let Some(steps) = steps {
            command.arg("--step-times").arg(steps);
        }
        command.args(["--iscsi", &format!("127.0.0.1:{iscsi}"), "--nbd", &format!("127.0.0.1:{nbd}")]);
        // A target that is named has a name known beforehand.
        let access = std::env::temp_dir().join(format!("spindle-bench-{}.toml", std::process::id()));
        fs::write(&access, "[[target]]\nname = 'disk'\nunits = ['disk']\n")?;
        command.arg("--access").arg(&access);
        let uris = vec![
            format!("iscsi://127.0.0.1:{iscsi}/iqn.2026-11.org.spindle:disk/0"),
            format!("nbd://127.0.0.1:{nbd}/disk"),
        ];
        Self::begin(command, nbd, uris)
    }

    /// tgt: the same file as two units, one for each way it has of doing I/O (rdwr, aio). Of these only rdwr can be told to
    /// write stably (`--bsoflags sync`).
    pub fn tgt(file: &Path, folder: &Path, writes: Writes) -> Result<Self> {
        let port = free_port()?;
        let socket = folder.join("tgt");
        let of = |program: &str| {
            let mut command = Command::new(program);
            command.env("TGT_IPC_SOCKET", &socket);
            command
        };
        let mut command = of("tgtd");
        command.args(["-f", "--iscsi", &format!("portal=127.0.0.1:{port}")]);
        let (units, flags): (&[(&str, &str)], &[&str]) = match writes {
            Writes::Cached => (&[("1", "rdwr"), ("2", "aio")], &[]),
            Writes::Stable => (&[("1", "rdwr")], &["--bsoflags", "sync"]),
        };
        let uri = |&(unit, _): &(&str, &str)| format!("iscsi://127.0.0.1:{port}/{TARGET}/{unit}");
        let uris = units.iter().map(uri).collect();
        let server = Self::begin(command, port, uris)?;
        let admin = |mode: &str, words: &[&str]| {
            let mut command = of("tgtadm");
            command.args(["--lld", "iscsi", "--mode", mode]).args(words);
            crate::step::output(&mut command).map(drop)
        };
        // It listens before it answers.
        let begun = Instant::now();
        while admin("target", &["--op", "show"]).is_err() && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(20));
        }
        admin("target", &["--op", "new", "--tid", "1", "-T", TARGET])?;
        let file = file.to_str().context("a path in UTF-8")?;
        for (unit, way) in units {
            let words = ["--op", "new", "--tid", "1", "--lun", unit, "-b", file, "--bstype", way];
            admin("logicalunit", &[&words, flags].concat())?;
        }
        admin("target", &["--op", "bind", "--tid", "1", "-I", "ALL"])?;
        Ok(server)
    }

    /// NBD by a command that is qemu-storage-daemon, or leads to it: past the page cache, with io_uring and a write cache.
    pub fn qemu(mut command: Command, file: &Path) -> Result<Self> {
        let port = free_port()?;
        let file =
            format!("driver=file,node-name=f,filename={},cache.direct=on,aio=io_uring", file.display());
        command.args(["--blockdev", &file, "--blockdev", "driver=raw,node-name=r,file=f"]);
        command
            .args(["--nbd-server", &format!("addr.type=inet,addr.host=127.0.0.1,addr.port={port}")])
            .args(["--export", "type=nbd,id=e,node-name=r,name=disk,writable=on"]);
        Self::begin(command, port, vec![format!("nbd://127.0.0.1:{port}/disk")])
    }

    /// Ends ours as Ctrl-C does: what it holds is stable, and its pools can be opened by others.
    pub fn end(mut self) -> Result<()> {
        crate::step::output(Command::new("kill").args(["-s", "INT", &self.child.id().to_string()]))?;
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }

    /// Processor time it has used, in seconds.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let file = format!("/proc/{}/stat", self.child.id());
        let text = fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
        cpu_seconds(&text).with_context(|| format!("what {file} says"))
    }
}

/// User and system time, behind the name, which may have anything in it but a closing bracket last (proc(5)).
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) / TICKS_PER_SECOND)
}

impl Drop for Server {
    fn drop(&mut self) {
        // tgtd does not always leave on TERM.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "17 (a ) b) S 1 17 17 0 -1 4194304 100 0 0 0 250 50 0 0 20 0";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("17 (cut"), None);
    }
}
