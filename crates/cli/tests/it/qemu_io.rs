//! `qemu-io`: a client with a session of its own, over NBD or iSCSI.

use crate::spindle::Bench;
use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};
use world::World;

/// Takes commands until it is dropped or ended.
pub struct QemuIo {
    child: Child,
    said: PathBuf,
    world: World,
}

impl QemuIo {
    pub fn begin(bench: &Bench, world: &World, name: &str, uri: &str) -> Self {
        Self::begin_with(bench, world, name, &["-f", "raw", uri])
    }

    /// An initiator with a name of its own.
    pub fn begin_as(bench: &Bench, world: &World, name: &str, (uri, initiator): (&str, &str)) -> Self {
        Self::begin_with(bench, world, name, &["--image-opts", &initiator_options(uri, initiator)])
    }

    /// An NBD client that connects again, and sends again what was not answered.
    pub fn begin_reconnecting(bench: &Bench, world: &World, name: &str, uri: &str) -> Self {
        let (server, export) = (uri.split('/').nth(2).unwrap(), uri.split('/').nth(3).unwrap());
        let (host, port) = server.rsplit_once(':').unwrap();
        let options = format!(
            "driver=raw,file.driver=nbd,file.server.type=inet,file.server.host={host},file.server.port={port},\
            file.export={export},file.reconnect-delay=30"
        );
        Self::begin_with(bench, world, name, &["--image-opts", &options])
    }

    fn begin_with(bench: &Bench, world: &World, name: &str, image: &[&str]) -> Self {
        let said = bench.path(name);
        let file = fs::File::create(&said).unwrap();
        let mut command = Command::new("qemu-io");
        command.args(["-t", "none"]).args(image).stdin(Stdio::piped());
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Self { child, said, world: world.clone() }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// Gives a command, and waits until `words` were said as often as `times`. It takes one command at a time.
    pub async fn says(&mut self, command: &str, words: &str, times: usize) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{command}").unwrap();
        stdin.flush().unwrap();
        for _ in 0..2_000 {
            if self.said().matches(words).count() >= times {
                return;
            }
            self.world.sleep(Duration::from_millis(10)).await;
        }
        panic!("{command:?} did not make it say {words:?}: {}", self.said());
    }

    /// Lets it close its session.
    pub async fn end(mut self) -> String {
        drop(self.child.stdin.take());
        while self.child.try_wait().unwrap().is_none() {
            self.world.sleep(Duration::from_millis(10)).await;
        }
        self.said()
    }
}

/// QEMU's options for a unit as an initiator with that name.
pub fn initiator_options(uri: &str, initiator: &str) -> String {
    let (portal, target) = (uri.split('/').nth(2).unwrap(), uri.split('/').nth(3).unwrap());
    format!(
        "driver=raw,file.driver=iscsi,file.transport=tcp,file.portal={portal},file.target={target},file.lun=0,\
        file.initiator-name={initiator}"
    )
}

impl Drop for QemuIo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
