//! The peer: qemu-storage-daemon on a Unix socket, ended when dropped.

use anyhow::{Context, Result, ensure};
use std::{
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// One with an export `disk`.
pub(super) struct StorageDaemon {
    child: Child,
    /// URI of the export.
    pub uri: String,
}

impl StorageDaemon {
    /// Serves the export `disk` of its options on `socket`. Waits until that is there, and a socket of the options takes
    /// connections.
    pub fn begin(socket: &Path, options: &[&str], awaited: &Path) -> Result<Self> {
        let mut command = Command::new("qemu-storage-daemon");
        command.args(["--nbd-server", &format!("addr.type=unix,addr.path={}", socket.display())]);
        command.args(options);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let uri = format!("nbd+unix:///disk?socket={}", socket.display());
        let mut daemon = Self { child: child.context("qemu-storage-daemon")?, uri };
        let begun = Instant::now();
        while !socket.exists() || UnixStream::connect(awaited).is_err() {
            ensure!(daemon.child.try_wait()?.is_none(), "qemu-storage-daemon has ended");
            ensure!(begun.elapsed() < PATIENCE, "qemu-storage-daemon does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(daemon)
    }
}

impl Drop for StorageDaemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
