//! An emulated guest with Linux's own initiator, and a network that is this test's alone.
//!
//! Both ends of that network have addresses of 10.9.0.0/24 and 10.9.1.0/24 and no route beyond them.

use crate::serial_line::SerialLine;
use std::{
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The guest boots in 10 s on an idle machine.
const BOOT_MAX: Duration = Duration::from_secs(240);
/// A command of the guest takes no longer.
const COMMAND_MAX: Duration = Duration::from_secs(600);
/// Two ports of the guest, one link each; the shell is this host's end of them.
const LINKS: &str = "ip link set lo up; for port in 0 1; do ip tuntap add dev tap$port mode tap; \
    ip addr add 10.9.$port.1/24 dev tap$port; ip link set tap$port up; done; echo ready; exec sleep 3600";

/// The network, the guest, and its shell; all of it ends when this is dropped.
pub struct Guest {
    /// Holds the network's namespace.
    holder: Child,
    qemu: Child,
    shell: GuestShell,
}

/// The shell of a booted guest.
pub struct GuestShell {
    line: SerialLine,
    commands: u32,
}

/// The folder of the guest among the judges; `None`, with a line that names the reason, if there is none.
pub fn folder() -> Option<PathBuf> {
    let folder = env::var_os("SPINDLE_GUEST").map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: there is no guest (cargo xtask test --full --install makes one)");
    }
    folder
}

impl Guest {
    /// Boots it. `None`, with a line that names the reason, if it cannot be had.
    pub fn boot() -> Option<Self> {
        let folder = folder()?;
        let mut holder = Command::new("unshare");
        holder.args(["--net", "sh", "-c", LINKS]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut holder = holder.spawn().expect("util-linux is everywhere");
        let mut line = String::new();
        let _ = BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line);
        if line != "ready\n" {
            let _ = holder.kill();
            let _ = holder.wait();
            println!("skipped: a network of its own for the guest needs root and /dev/net/tun");
            return None;
        }
        let mut qemu = inside(&holder, &loader(&folder));
        qemu.args(qemu_arguments(&folder)).env("QEMU_MODULE_DIR", modules(&folder));
        let mut qemu =
            qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let shell = GuestShell::of(SerialLine::of(&mut qemu));
        let mut guest = Self { holder, qemu, shell };
        guest.shell.await_boot(BOOT_MAX);
        Some(guest)
    }

    /// A program of this host, in the guest's network.
    pub fn beside(&self, program: &str) -> Command {
        inside(&self.holder, Path::new(program))
    }

    /// Output of a shell command of the guest, and true if it succeeded.
    pub fn run(&mut self, command: &str) -> (bool, String) {
        self.shell.run(command)
    }

    /// Output of a command that must succeed.
    #[track_caller]
    pub fn must(&mut self, command: &str) -> String {
        self.shell.must(command)
    }

    /// Output of a command that must fail.
    #[track_caller]
    pub fn must_not(&mut self, command: &str) -> String {
        let (is_done, said) = self.shell.run(command);
        assert!(!is_done, "{command}: {said}");
        said
    }
}

impl GuestShell {
    /// The shell of a machine that boots.
    pub fn of(line: SerialLine) -> Self {
        Self { line, commands: 0 }
    }

    /// Returns when the machine has booted, and commands may be run.
    pub fn await_boot(&mut self, patience: Duration) {
        self.line.read_until("GUEST READY", patience);
        // A shell at a terminal prompts, which would be mixed with the output of commands.
        self.must("PS1= PS2=");
        self.line.skip_received();
    }

    /// Output of a shell command of the guest, and true if it succeeded.
    fn run(&mut self, command: &str) -> (bool, String) {
        self.commands += 1;
        let tag = format!("DONE-{}", self.commands);
        // The tag that is read is not the one that is written, should the line be echoed.
        let line = format!("{{ {command}\n}} 2>&1; echo {tag}\"\"=$?\n");
        self.line.write(line.as_bytes());
        let said = self.line.read_until(&format!("{tag}="), COMMAND_MAX);
        let code = self.line.read_until("\n", COMMAND_MAX);
        (code.trim() == "0", said)
    }

    /// Output of a command that must succeed.
    #[track_caller]
    pub fn must(&mut self, command: &str) -> String {
        let (is_done, said) = self.run(command);
        assert!(is_done, "{command}: {said}");
        said
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        for child in [&mut self.qemu, &mut self.holder] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A program in the namespace that `holder` is in.
fn inside(holder: &Child, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--target", &holder.id().to_string(), "--net"]).arg(program);
    command
}

/// QEMU is unpacked, not installed: its own loader starts it with its own libraries.
fn loader(folder: &Path) -> PathBuf {
    folder.join("rootfs/lib64/ld-linux-x86-64.so.2")
}

fn modules(folder: &Path) -> PathBuf {
    folder.join("rootfs/usr/lib/x86_64-linux-gnu/qemu")
}

fn qemu_arguments(folder: &Path) -> Vec<String> {
    let root = folder.join("rootfs");
    let below = |path: &str| root.join(path).display().to_string();
    let libraries = [below("lib/x86_64-linux-gnu"), below("usr/lib/x86_64-linux-gnu")].join(":");
    let mut arguments = vec!["--library-path".to_owned(), libraries, below("usr/bin/qemu-system-x86_64")];
    for firmware in ["usr/share/qemu", "usr/share/seabios"] {
        arguments.extend(["-L".to_owned(), below(firmware)]);
    }
    let kernel = "console=ttyS0 panic=-1 loglevel=3 mitigations=off";
    let plain = "-M q35 -accel tcg,thread=multi -cpu max -m 1024 -smp 2 -nodefaults -display none -no-reboot -serial stdio";
    arguments.extend(plain.split(' ').map(str::to_owned));
    let file = |name: &str| folder.join(name).display().to_string();
    arguments.extend(["-kernel".to_owned(), file("vmlinuz"), "-initrd".to_owned(), file("initrd.img")]);
    arguments.extend(["-append".to_owned(), kernel.to_owned()]);
    for port in 0..2 {
        let tap = format!("tap,id=n{port},ifname=tap{port},script=no,downscript=no");
        arguments.extend(["-netdev".to_owned(), tap, "-device".to_owned()]);
        arguments.push(format!("virtio-net-pci,netdev=n{port},romfile="));
    }
    arguments
}
