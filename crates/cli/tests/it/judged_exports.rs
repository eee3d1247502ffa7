//! Exports under others' loads: fio that finds again what was answered before a kill, a filesystem that is made and used.

use crate::{
    exported::is_here,
    spindle::{Bench, PROGRAM, json_of},
    storage::may_mount,
};
use std::{
    fs,
    io::Write,
    net::TcpStream,
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU8, Ordering},
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Jobs of fio, each with a part of the disk of its own, and what one writes at a time.
pub const JOBS: u64 = 4;
pub const PART: u64 = 32 << 20;
pub const BLOCK: u64 = 4096;

#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Endpoint that serves `disk.img` of a bench, before and after a kill.
pub enum Endpoint {
    /// NBD.
    Socket(PathBuf),
    /// iSCSI.
    Portal(String),
}

impl Endpoint {
    fn socket(bench: &Bench) -> Self {
        Self::Socket(bench.path("socket"))
    }

    /// An address of this machine for this test alone: a port that was free may be another's after a kill.
    fn portal() -> Self {
        static COUNT: AtomicU8 = AtomicU8::new(0);
        let [.., high, low] = std::process::id().to_be_bytes();
        let count = 64 + COUNT.fetch_add(1, Ordering::Relaxed) % 64;
        Self::Portal(format!("127.{count}.{high}.{low}:3260"))
    }

    fn is_answering(&self) -> bool {
        match self {
            Self::Socket(path) => UnixStream::connect(path).is_ok(),
            Self::Portal(portal) => TcpStream::connect(portal).is_ok(),
        }
    }

    fn flags(&self, bench: &Bench) -> Vec<String> {
        match self {
            Self::Socket(path) => vec!["--nbd".to_owned(), format!("unix:{}", path.display())],
            Self::Portal(portal) => {
                let access = bench.make_file("access.toml", b"[[target]]\nname = 'disk'\nunits = ['disk']\n");
                let access = access.display().to_string();
                ["--iscsi".to_owned(), portal.clone(), "--access".to_owned(), access].into()
            }
        }
    }

    /// fio's engine options for it.
    fn engine(&self) -> String {
        match self {
            Self::Socket(path) => {
                format!("ioengine=nbd\nuri=nbd+unix:///disk?socket={}", path.display())
            }
            Self::Portal(portal) => {
                let url = format!("iscsi://{portal}/iqn.2026-11.org.spindle:disk/0");
                format!("ioengine=libiscsi\nfilename={}", url.replace(':', "\\:"))
            }
        }
    }
}

/// The program, serving `disk.img` of the bench; killed when dropped.
struct Served(Child);

impl Served {
    fn begin(bench: &Bench, endpoint: &Endpoint) -> Self {
        let mut command = bench.command(&["export", "disk.img", "--name", "disk", "--quiet"]);
        command.args(endpoint.flags(bench));
        let served = Self(command.stdout(Stdio::null()).spawn().unwrap());
        until("it listens before long", || endpoint.is_answering());
        served
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn make_disk(bench: &Bench, bytes: u64) -> PathBuf {
    let path = bench.path("disk.img");
    fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

/// fio with a job for each part of the disk that has a length; `options` are for all.
pub fn fio(
    (bench, program): (&Bench, &Path),
    endpoint: &Endpoint,
    options: &str,
    lengths: [u64; JOBS as usize],
) -> Command {
    let mut file = fs::File::create(bench.path("jobs.fio")).unwrap();
    writeln!(file, "[global]\n{}\nrw=write\nbs={BLOCK}\niodepth=1\nthread=1", endpoint.engine()).unwrap();
    writeln!(file, "verify=crc32c\nverify_fatal=1\n{options}").unwrap();
    for (job, length) in (0..JOBS).zip(lengths) {
        if length > 0 {
            writeln!(file, "[part-{job}]\noffset={}\nsize={length}", job * PART).unwrap();
        }
    }
    let mut command = Command::new(program);
    command.current_dir(bench.path("")).args(["--output-format=json", "--output=said.json", "jobs.fio"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Bytes of each job that were answered before fio was cut short.
pub fn answered_lengths(bench: &Bench) -> [u64; JOBS as usize] {
    let text = fs::read_to_string(bench.path("said.json")).unwrap();
    let said = json_of(&text[text.find('{').unwrap()..]);
    // A job has one write under way: the last one, which was not answered, is counted too.
    let answered = |job: usize| said["jobs"][job]["write"]["total_ios"].as_u64().unwrap().saturating_sub(1);
    [0, 1, 2, 3].map(|job| answered(job) * BLOCK)
}

/// Kills the server under load; all writes acknowledged to fio must be there afterwards. An initiator reconnects
/// to the new server, which is a different one: that ends fio. A broken NBD connection ends it at once.
fn kill_under_fio(program: &Path, endpoint: impl FnOnce(&Bench) -> Endpoint) {
    let bench = Bench::new();
    let endpoint = endpoint(&bench);
    let disk = make_disk(&bench, JOBS * PART);
    let served = Served::begin(&bench, &endpoint);
    let by = (&bench, program);
    let mut writing =
        fio(by, &endpoint, "do_verify=0\nrate_iops=1500", [PART; JOBS as usize]).spawn().unwrap();
    // The file is sparse: its blocks are what was written.
    until("it writes", || fs::metadata(&disk).unwrap().blocks() * 512 > 800 * BLOCK);
    drop(served);
    let _served = Served::begin(&bench, &endpoint);
    let mut ended = None;
    until("fio hears of it", || {
        ended = writing.try_wait().unwrap();
        ended.is_some()
    });
    assert!(!ended.unwrap().success(), "it was cut short");
    let lengths = answered_lengths(&bench);
    assert!(lengths.iter().sum::<u64>() > 400 * BLOCK, "{lengths:?}");
    let verified = fio(by, &endpoint, "verify_only=1", lengths).status().unwrap();
    assert!(verified.success(), "{}", fs::read_to_string(bench.path("said.json")).unwrap());
}

/// `cargo xtask test --full` kills 20 times.
fn kills() -> u32 {
    if std::env::var_os("SPINDLE_FULL").is_some() { 20 } else { 3 }
}

#[test]
fn fio_finds_all_acknowledged_writes_after_the_server_was_killed() {
    if !is_here("fio", "fio") {
        return;
    }
    for _ in 0..kills() {
        kill_under_fio(Path::new("fio"), Endpoint::socket);
    }
}

#[test]
fn fio_finds_all_acknowledged_writes_after_the_target_was_killed() {
    let Some(fio) = std::env::var_os("SPINDLE_ISCSI_FIO") else {
        return println!("skipped: no fio with libiscsi (cargo xtask test --install)");
    };
    for _ in 0..kills() {
        kill_under_fio(Path::new(&fio), |_| Endpoint::portal());
    }
}

/// Undoes what was made, last first, however the test ends.
#[derive(Default)]
struct Undo(Vec<Command>);

impl Drop for Undo {
    fn drop(&mut self) {
        for mut command in self.0.drain(..).rev() {
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

impl Undo {
    fn with(&mut self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(program);
        command.args(arguments);
        self.0.push(command);
    }
}

#[track_caller]
fn must(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_filesystem_is_made_and_used_over_nbdfuse_and_a_loop_device() {
    if !may_mount() || !is_here("nbdfuse", "libnbd-bin") {
        return;
    }
    if !Path::new("/dev/fuse").exists() {
        return println!("skipped: FUSE is not to be had here (no /dev/fuse)");
    }
    let bench = Bench::new();
    make_disk(&bench, 96 << 20);
    let _served = Served::begin(&bench, &Endpoint::socket(&bench));
    let mut undo = Undo::default();
    let (fuse, mount) = (bench.make_folder("fuse"), bench.make_folder("mount"));
    let [fuse, mount] = [fuse, mount].map(|path| path.display().to_string());
    let uri = format!("nbd+unix:///disk?socket={}", bench.path("socket").display());
    let mut nbdfuse = Command::new("nbdfuse").args([&fuse, &uri]).stderr(Stdio::null()).spawn().unwrap();
    undo.with("umount", &["-l", &fuse]);
    let file = format!("{fuse}/nbd");
    let mut is_refused = false;
    until("nbdfuse shows the disk", || {
        is_refused = nbdfuse.try_wait().unwrap().is_some();
        is_refused || Path::new(&file).exists()
    });
    if is_refused {
        return println!("skipped: nbdfuse may not mount here");
    }
    let looped =
        Command::new("losetup").args(["--find", "--show", "--direct-io=on", &file]).output().unwrap();
    if !looped.status.success() {
        return println!("skipped: no loop device to be had");
    }
    let device = String::from_utf8(looped.stdout).unwrap().trim().to_owned();
    undo.with("losetup", &["--detach", &device]);
    must("mkfs.ext4", &["-q", "-F", &device]);
    must("mount", &[&device, &mount]);
    undo.with("umount", &[&mount]);
    let content = fs::read(PROGRAM).unwrap();
    let content = &content[..content.len().min(24 << 20)];
    fs::write(Path::new(&mount).join("program"), content).unwrap();
    for number in 0..200 {
        fs::write(Path::new(&mount).join(format!("letter-{number}")), vec![number as u8; 3000]).unwrap();
    }
    must("umount", &[&mount]);
    must("e2fsck", &["-f", "-n", &device]);
    must("mount", &[&device, &mount]);
    assert!(fs::read(Path::new(&mount).join("program")).unwrap() == content);
    for number in 0..200 {
        assert!(
            fs::read(Path::new(&mount).join(format!("letter-{number}"))).unwrap() == vec![number as u8; 3000]
        );
    }
}
