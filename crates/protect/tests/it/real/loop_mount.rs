//! A filesystem on a loop device, for one test. A watchdog process thaws and unmounts it, also if the test is
//! killed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;

pub struct LoopMount {
    folder: TempDir,
    watchdog: Child,
}

impl LoopMount {
    /// `None` if this machine cannot do it: then the test is skipped, with a line that says why.
    pub fn make(kind: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can mount and freeze");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (image, point) = (folder.path().join("image"), folder.path().join("mount"));
        let size = if kind == "xfs" { 384 << 20 } else { 256 << 20 };
        fs::File::create(&image).unwrap().set_len(size).unwrap();
        let options: &[&str] = if kind == "xfs" { &["-qf"] } else { &["-qF"] };
        let made =
            Command::new(format!("mkfs.{kind}")).args(options).arg(&image).stdout(Stdio::null()).status();
        if !made.is_ok_and(|status| status.success()) {
            println!("skipped: mkfs.{kind} is not installed");
            return None;
        }
        if !mount(&image, &point, "loop") {
            println!("skipped: this machine mounts no loop devices");
            return None;
        }
        // It waits for the end of its input, which is the end of the test, however that comes.
        let script = "cat >/dev/null; for point in mount restored; do \
                      fsfreeze -u \"$1/$point\" 2>/dev/null; \
                      mountpoint -q \"$1/$point\" && { umount \"$1/$point\" || umount -l \"$1/$point\"; }; done";
        let mut watchdog = Command::new("setsid");
        watchdog.args(["sh", "-c", script, "watchdog"]).arg(folder.path()).stdin(Stdio::piped());
        let watchdog = watchdog.spawn().unwrap();
        Some(Self { folder, watchdog })
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn point(&self) -> PathBuf {
        self.folder().join("mount")
    }

    pub fn image(&self) -> PathBuf {
        self.folder().join("image")
    }

    /// Mounts a copy of its device beside it.
    pub fn mount_cut(&self, cut: &Path) -> PathBuf {
        let point = self.folder().join("restored");
        // XFS mounts no second filesystem with one number.
        assert!(mount(cut, &point, "loop,nouuid") || mount(cut, &point, "loop"), "the cut is mounted");
        point
    }

    /// True if it takes no writes: tried by a process that may hang until the thaw.
    pub fn is_frozen(&self) -> bool {
        let probe = "timeout -s KILL 0.5 sh -c ': > \"$1/probe\"' probe \"$1\" & wait $!";
        !Command::new("sh").args(["-c", probe, "probe"]).arg(self.point()).status().unwrap().success()
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

fn mount(image: &Path, point: &Path, options: &str) -> bool {
    fs::create_dir_all(point).unwrap();
    let mounted =
        Command::new("mount").args(["-o", options]).args([image, point]).stderr(Stdio::null()).status();
    mounted.is_ok_and(|status| status.success())
}
