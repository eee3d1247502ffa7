//! A root folder without anything of this machine but programs and devices: in memory, in a mount namespace of its own.
//!
//! /etc and /var have what the package brings, its user and its empty folders. /usr is this machine's.

use crate::{
    guest::Guest,
    spindle::{Bench, PROGRAM},
    storage::LoopDevice,
};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Output, Stdio},
};

/// Makes the root at `$1`, with the program `$2`, and stays in it. The devices that follow belong to the group `disk` in it, as
/// udev has it.
const SETUP: &str = r#"
set -e
root=$1 program=$2
shift 2
ip link set lo up
mount -t tmpfs clean "$root"
cd "$root"
mkdir -p usr dev proc sys etc/spindle var/lib/spindle run tmp root opt/nodes
for name in bin sbin lib lib64; do ln -s usr/$name $name; done
mount --bind /usr usr
for name in dev proc sys; do mount --rbind /$name $name; done
cp "$program" opt/spindle
printf '#!/bin/sh\nexec "$@"\n' > opt/sudo
chmod 755 opt/sudo
grep -v ^spindle: /etc/passwd > etc/passwd
echo 'spindle:x:64990:64990::/var/lib/spindle:/usr/sbin/nologin' >> etc/passwd
printf 'root:x:0:\ntty:x:5:\ndisk:x:6:spindle\nspindle:x:64990:\n' > etc/group
chown 0:64990 etc/spindle
chown 64990:64990 var/lib/spindle
chmod 750 etc/spindle var/lib/spindle
for device in "$@"; do
    node=opt/nodes/${device##*/}
    mknod -m 660 $node b $(stat -c '0x%t 0x%T' $device)
    chown 0:6 $node
    mount --bind $node .$device
done
exec chroot . sh -c 'echo ready; exec sleep 3600'
"#;

pub struct CleanRoot {
    /// Holds the namespace.
    holder: Child,
}

impl CleanRoot {
    /// Makes one in the network of a guest.
    pub fn beside(guest: &Guest, bench: &Bench, disks: &[LoopDevice]) -> Self {
        Self::make(guest.beside("unshare"), bench, disks)
    }

    /// Makes one with a network of its own.
    pub fn alone(bench: &Bench, disks: &[LoopDevice]) -> Self {
        let mut command = Command::new("unshare");
        command.arg("--net");
        Self::make(command, bench, disks)
    }

    fn make(mut command: Command, bench: &Bench, disks: &[LoopDevice]) -> Self {
        command.args(["--mount", "--propagation", "private", "sh", "-c", SETUP, "sh"]);
        command.arg(bench.make_folder("root")).arg(PROGRAM).args(disks.iter().map(LoopDevice::path));
        let mut holder = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the root is made");
        Self { holder }
    }

    /// A program in it, with the programs of the package and `sudo` in its path.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--net", "--mount", "--root", "--wd"]);
        command.args(["env", "-i", "PATH=/opt:/usr/sbin:/usr/bin", "TERM=dumb", program]);
        command
    }

    /// Runs a line of a shell as root.
    pub fn shell(&self, line: &str) -> Output {
        self.command("sh").args(["-euc", line]).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a line at a terminal, at which somebody types `answers`.
    pub fn at_terminal(&self, bench: &Bench, line: &str, answers: &[&str]) -> Output {
        let typed: String = answers.iter().map(|answer| format!("{answer}\n")).collect();
        let typed = fs::File::open(bench.make_file("typed", typed.as_bytes())).unwrap();
        self.command("script").args(["-qec", line, "/dev/null"]).stdin(typed).output().unwrap()
    }

    /// The service, as its unit starts it: the user, no capabilities, the state folder. Output goes to `log` of the bench.
    pub fn start_service(&self, bench: &Bench) -> Child {
        let mut command = self.command("setpriv");
        command.args(["--reuid=spindle", "--regid=spindle", "--init-groups", "--no-new-privs"]);
        command.args(["--bounding-set=-all", "env", "STATE_DIRECTORY=/var/lib/spindle", "/opt/spindle"]);
        let log = fs::File::create(bench.path("log")).unwrap();
        command.args(["serve", "/etc/spindle/site.toml"]).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }
}

impl Drop for CleanRoot {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
