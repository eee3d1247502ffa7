//! btrfs with checksums, RAID 10 over eight loop devices, on the storage that a bench measures.
//!
//! It is mounted in a mount namespace of a process of its own. When the last process there ends, however it ends,
//! the kernel removes the mount and the loop devices, which detach when unused: an interruption leaves nothing
//! behind.

use super::{Setting, fio::Jobs};
use crate::step;
use anyhow::{Context, Result, bail};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Loop devices of one filesystem.
pub const DEVICES: u32 = 8;
/// Makes a filesystem in the folder $1, mounted at $1/mount, of $2 files of $3 bytes; then waits for the end of its input.
const SCRIPT: &str = r#"
set -e
devices=""
detach() { for device in $devices; do losetup -d "$device" || true; done; }
trap detach EXIT
mkdir -p "$1/mount"
index=0
while [ "$index" -lt "$2" ]; do
    fallocate -l "$3" "$1/loop$index"
    device=$(losetup --find --show --direct-io=on "$1/loop$index" 2>/dev/null || losetup --find --show "$1/loop$index")
    devices="$devices $device"
    index=$((index + 1))
done
mkfs.btrfs --quiet --force --data raid10 --metadata raid10 $devices >/dev/null
btrfs device scan $devices >/dev/null
mount -t btrfs "${devices##* }" "$1/mount"
# They go with the last who uses them: the mount.
detach
trap - EXIT
echo "mounted$devices"
cat >/dev/null
"#;

/// A btrfs that is mounted.
pub(crate) struct Btrfs {
    holder: Child,
    folder: PathBuf,
    /// Its loop devices, by name.
    devices: Vec<String>,
}

impl Btrfs {
    /// The reason there can be none here, if there is one.
    pub fn obstacle(setting: &Setting) -> Result<Option<String>> {
        if setting.install && !has("mkfs.btrfs", "--version") {
            crate::judges::btrfs_progs()?;
        }
        let missing = [("mkfs.btrfs", "--version"), ("losetup", "--version"), ("unshare", "--version")];
        if let Some((program, _)) = missing.into_iter().find(|(program, version)| !has(program, version)) {
            return Ok(Some(format!("{program} is missing (btrfs-progs, util-linux; or --install)")));
        }
        let user = step::output(Command::new("id").arg("-u"))?;
        if user.trim() != "0" {
            return Ok(Some("loop devices need root".to_owned()));
        }
        Ok(None)
    }

    /// Makes one with room for so many bytes of files, each stored twice.
    pub fn make(folder: &Path, file_bytes: u64) -> Result<Self> {
        /// For metadata, which is stored twice as well.
        const SPARE_BYTES: u64 = 256 << 20;
        let device_bytes = file_bytes * 2 / u64::from(DEVICES) + SPARE_BYTES;
        fs::create_dir_all(folder)?;
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "btrfs"])
            .arg(folder)
            .args([DEVICES.to_string(), device_bytes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting unshare")?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().expect("asked for as a pipe")).read_line(&mut line)?;
        let mut words = line.split_whitespace();
        if words.next() != Some("mounted") {
            let status = holder.wait()?;
            bail!("btrfs on loop devices cannot be made ({status})");
        }
        let devices = words.map(|device| device.trim_start_matches("/dev/").to_owned()).collect();
        Ok(Self { holder, folder: folder.to_owned(), devices })
    }

    /// Makes a file on it whose every byte has been written; the job file lies in `folder`.
    pub fn lay_out(&self, file: &Path, bytes: u64, folder: &Path) -> Result<()> {
        let options = format!("rw=write bs=1m iodepth=8 size={bytes} end_fsync=1");
        Jobs::new(None).job("lay-out", file, &options).run_by(self.command("fio"), folder).map(drop)
    }

    /// Writes to the devices what it holds in the page cache.
    pub fn sync(&self) -> Result<()> {
        step::output(self.command("sync").arg("--file-system").arg(self.mount())).map(drop)
    }

    /// Mount point, for btrfs commands.
    pub fn mount(&self) -> PathBuf {
        self.folder.join("mount")
    }

    /// A command that sees it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.holder.id().to_string(), program]);
        command
    }

    /// Reads, and bytes written, of all its devices since they are there.
    pub fn device_counts(&self) -> Result<(f64, f64)> {
        const SECTOR_BYTES: f64 = 512.0;
        let (mut reads, mut written) = (0.0, 0.0);
        for device in &self.devices {
            let text = fs::read_to_string(format!("/sys/block/{device}/stat"))?;
            let fields: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let (&read, &sectors) =
                fields.first().zip(fields.get(6)).context("the figures of a loop device")?;
            reads += read;
            written += sectors * SECTOR_BYTES;
        }
        Ok((reads, written))
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        // Its input ends, so does it, and the kernel does the rest.
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn has(program: &str, version: &str) -> bool {
    step::succeeds(Command::new(program).arg(version))
}
