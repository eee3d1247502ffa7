//! Real storage made for a test: loop devices, small filesystems, read-only mounts. Needs root; a
//! test that cannot have it prints a line and passes.

use crate::spindle::Bench;
use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A loop device over a file in a folder of its own; detached when dropped, before the folder goes.
pub struct LoopDevice {
    path: PathBuf,
    image: tempfile::TempDir,
}

/// A mounted filesystem; unmounted when dropped.
pub struct Mount {
    point: PathBuf,
}

/// True if this process may make devices and mounts; prints a line if not.
pub fn may_mount() -> bool {
    let is_root = succeeds(Command::new("id").arg("-u")).is_some_and(|output| output.stdout == b"0\n");
    if !is_root {
        eprintln!("skipped: needs root to make a device");
    }
    is_root
}

fn succeeds(command: &mut Command) -> Option<Output> {
    command.output().ok().filter(|output| output.status.success())
}

impl LoopDevice {
    /// A device of `bytes` zero bytes; none (and a line) where there are no loop devices.
    pub fn new(bytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
        let image = folder.path().join("image");
        File::create(&image).expect("an image").set_len(bytes).expect("a length");
        let output = succeeds(Command::new("losetup").args(["--find", "--show"]).arg(&image));
        if output.is_none() {
            eprintln!("skipped: no loop device to be had");
        }
        let path = PathBuf::from(String::from_utf8(output?.stdout).expect("UTF-8").trim());
        let device = Self { path, image: folder };
        // `blockdev --setro` belongs to the number and outlives the file attached to it, whoever set it.
        device.refuse_writes(false);
        Some(device)
    }

    /// Has the kernel answer each write with "Operation not permitted" from now on, or no more.
    pub fn refuse_writes(&self, are_refused: bool) {
        let flag = if are_refused { "--setro" } else { "--setrw" };
        succeeds(Command::new("blockdev").arg(flag).arg(&self.path))
            .expect("blockdev works on a loop device");
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes all but the first `bytes` from the file below it: what is read beyond fails from now on.
    pub fn cut_off(&self, bytes: u64) {
        let image = File::options().write(true).open(self.image()).expect("the image opens");
        image.set_len(bytes).expect("it is cut");
    }

    /// A name for it: a node at `path`, which leads to it as /dev/sdX leads to a disk until the next start.
    pub fn make_node(&self, path: &Path) {
        let number = std::fs::metadata(&self.path).expect("metadata").rdev();
        let (major, minor) = (rustix::fs::major(number).to_string(), rustix::fs::minor(number).to_string());
        let _ = std::fs::remove_file(path);
        let mut command = Command::new("mknod");
        command.arg(path).args(["b", &major, &minor]);
        succeeds(&mut command).expect("a node for a device");
    }

    /// Makes a filesystem of `kind` on it, with the options that mkfs takes; false (and a line) where it cannot be made.
    pub fn make_filesystem(&self, kind: &str, options: &[&str]) -> bool {
        let made = succeeds(Command::new(format!("mkfs.{kind}")).args(options).arg(&self.path)).is_some();
        if !made {
            eprintln!("skipped: no mkfs.{kind} to be had");
        }
        made
    }

    /// The file below it.
    pub fn image(&self) -> PathBuf {
        self.image.path().join("image")
    }

    /// Its first and last MiB, where formats leave their marks.
    pub fn ends(&self) -> (Vec<u8>, Vec<u8>) {
        let mut device = File::open(&self.path).expect("the device opens");
        let mut read = |from: SeekFrom| {
            let mut bytes = vec![0; 1 << 20];
            device.seek(from).and_then(|_| device.read_exact(&mut bytes)).expect("the device reads");
            bytes
        };
        (read(SeekFrom::Start(0)), read(SeekFrom::End(-(1 << 20))))
    }

    /// Makes an ext4 filesystem on it.
    pub fn make_ext4(&self) {
        // Whole at once: the kernel writes nothing later on that nobody asked for.
        let options = ["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        let made = succeeds(Command::new("mkfs.ext4").args(options).arg(&self.path));
        made.expect("mkfs.ext4 works on a loop device");
    }

    /// Mounts it on a folder of the bench.
    pub fn mount(&self, bench: &Bench, name: &str) -> Mount {
        let point = bench.make_folder(name);
        succeeds(Command::new("mount").arg(&self.path).arg(&point)).expect("an ext4 filesystem mounts");
        succeeds(Command::new("sync").arg("--file-system").arg(&point))
            .expect("a mounted filesystem is synced");
        Mount { point }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // A test that failed may have left it so, and the number is used again.
        let _ = Command::new("blockdev").arg("--setrw").arg(&self.path).status();
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

impl Mount {
    /// A filesystem in memory.
    pub fn tmpfs(bench: &Bench, name: &str, options: &str) -> Self {
        let point = bench.make_folder(name);
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&point);
        succeeds(&mut command).expect("a tmpfs mounts");
        Self { point }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    /// Has everything on it fail from now on, as a drive that is pulled does; false (and a line) if that cannot be done.
    pub fn shut_down(&self) -> bool {
        let mut command = Command::new("xfs_io");
        let is_done = succeeds(command.args(["-x", "-c", "shutdown"]).arg(&self.point)).is_some();
        if !is_done {
            eprintln!("skipped: xfs_io (apt-get install xfsprogs) cannot shut a filesystem down here");
        }
        is_done
    }

    /// Makes it read-only.
    pub fn make_read_only(&self) {
        succeeds(Command::new("mount").args(["-o", "remount,ro"]).arg(&self.point)).expect("a remount");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.point).status();
    }
}
