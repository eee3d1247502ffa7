//! Beside btrfs: a file with checksums on RAID 10 over eight loop devices, on the same storage.
//!
//! The filesystem is mounted in a mount namespace of a process of its own. When that ends, however it ends, and with it the
//! last one there, the kernel takes the mount away and, since they detach when unused, the loop devices:
//! nothing is left behind by an interruption.

use super::{
    super::{
        Setting,
        fio::Jobs,
        our_programs::OurPrograms,
        record::Record,
        row::{Goal, Row, interleave},
    },
    BLOCK_BYTES, DEPTH, DRIVES, READ_PERCENT, make_pool,
};
use crate::step;
use anyhow::{Context, Result, bail};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

const WHAT: [(&str, &str); 2] = [
    ("mixed, depth 32, stable, beside btrfs", "sync=dsync"),
    ("mixed, depth 32, write cache on, beside btrfs", ""),
];
const FULL_PERCENT: u32 = 50;
/// Makes it in the folder $1, mounted at $1/mount, of $2 files of $3 bytes; then waits for the end of its input.
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

struct Scale {
    volume_mib: u64,
    seconds: f64,
    rounds: usize,
}

const FULL: Scale = Scale { volume_mib: 2048, seconds: 12.0, rounds: 5 };
const QUICK: Scale = Scale { volume_mib: 256, seconds: 2.5, rounds: 2 };

/// A btrfs that is mounted.
pub(crate) struct Btrfs {
    holder: Child,
    folder: PathBuf,
    /// Its loop devices, by name.
    devices: Vec<String>,
}

impl Btrfs {
    /// Why there can be none here.
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

    /// Makes one with so many bytes a device.
    pub fn make(folder: &Path, device_bytes: u64) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "btrfs"])
            .arg(folder)
            .args([DRIVES.to_string(), device_bytes.to_string()])
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

/// Measures both rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let wanted: Vec<_> = WHAT.into_iter().filter(|(what, _)| setting.wants(what)).collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(why) = Btrfs::obstacle(setting)? {
        let not_measured =
            |(what, _)| Row::new(what, "IOPS", Goal::None, format!("btrfs: not measured: {why}"));
        return Ok(wanted.into_iter().map(not_measured).collect());
    }
    let scale = if setting.quick { QUICK } else { FULL };
    let bytes = scale.volume_mib << 20;
    println!("   make btrfs on {DRIVES} loop devices and a pool");
    let pool = setting.folder.join("pool");
    make_pool(ours, &pool, bytes, FULL_PERCENT)?;
    let btrfs = Btrfs::make(&setting.folder.join("btrfs"), bytes * 4 / u64::from(DRIVES) + (256 << 20))?;
    let file = btrfs.mount().join("plain");
    let lay_out = format!("rw=write bs=1m iodepth=8 size={bytes} end_fsync=1");
    Jobs::new(None).job("lay-out", &file, &lay_out).run_by(btrfs.command("fio"), &setting.folder)?;
    let mut rows = Vec::new();
    for (what, sync) in wanted {
        println!("   {what}");
        let mut row = Row::new(
            what,
            "IOPS",
            Goal::OfPeer(3.0),
            "beside btrfs: fio on a file with checksums, RAID 10 on eight loop devices (O_DIRECT asked for on all levels; \
             this kernel's btrfs may read and write such files through its cache); stable: each of its writes dsync",
        );
        let writes = if sync.is_empty() { "cached" } else { "stable" };
        let arguments = [
            "run".to_owned(),
            READ_PERCENT.to_string(),
            BLOCK_BYTES.to_string(),
            DEPTH.to_string(),
            scale.seconds.to_string(),
            writes.to_owned(),
        ];
        let options = format!("rw=randrw rwmixread={READ_PERCENT} bs={BLOCK_BYTES} iodepth={DEPTH} {sync}");
        interleave(
            &mut row,
            scale.rounds,
            || ours.pool_load(&pool, &arguments),
            || {
                let jobs = Jobs::new(Some(scale.seconds)).job("load", &file, &options);
                let outcome = jobs.run_by(btrfs.command("fio"), &setting.folder)?;
                let value = outcome.total_iops();
                Ok(outcome.measured(value))
            },
        )?;
        rows.push(row);
    }
    drop(btrfs);
    fs::remove_dir_all(&pool)?;
    record.method(
        "btrfs: mkfs.btrfs -d raid10 -m raid10 over loop devices with direct I/O, default mount options",
    );
    Ok(rows)
}

fn has(program: &str, version: &str) -> bool {
    step::succeeds(Command::new(program).arg(version))
}
