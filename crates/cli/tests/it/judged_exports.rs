//! Exports under others' loads: fio that finds again what was answered before a kill, a filesystem that is made and used.

use crate::{
    spindle::{Bench, PROGRAM, json_of},
    storage::may_mount,
};
use std::{
    fs,
    io::Write,
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Jobs of fio, each with a part of the disk of its own, and what one writes at a time.
const JOBS: u64 = 4;
const PART: u64 = 32 << 20;
const BLOCK: u64 = 4096;

fn is_here(program: &str, package: &str) -> bool {
    let here = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    let required = std::env::var_os("SPINDLE_JUDGES").is_some_and(|value| value == "require");
    assert!(here || !required, "{program} is required: apt-get install {package}");
    if !here {
        println!("skipped: {program} is not installed (apt-get install {package})");
    }
    here
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The program, serving `disk.img` of the bench on a socket; killed when dropped.
struct Served(Child);

impl Served {
    fn begin(bench: &Bench) -> Self {
        let socket = bench.path("socket");
        let place = format!("unix:{}", socket.display());
        let mut command =
            bench.command(&["export", "disk.img", "--name", "disk", "--quiet", "--nbd", &place]);
        let served = Self(command.stdout(Stdio::null()).spawn().unwrap());
        until("it listens before long", || UnixStream::connect(&socket).is_ok());
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
fn fio(bench: &Bench, options: &str, lengths: [u64; JOBS as usize]) -> Command {
    let mut file = fs::File::create(bench.path("jobs.fio")).unwrap();
    let uri = format!("nbd+unix:///disk?socket={}", bench.path("socket").display());
    writeln!(file, "[global]\nioengine=nbd\nuri={uri}\nrw=write\nbs={BLOCK}\niodepth=1\nthread=1").unwrap();
    writeln!(file, "verify=crc32c\nverify_fatal=1\n{options}").unwrap();
    for (job, length) in (0..JOBS).zip(lengths) {
        if length > 0 {
            writeln!(file, "[part-{job}]\noffset={}\nsize={length}", job * PART).unwrap();
        }
    }
    let mut command = Command::new("fio");
    command.current_dir(bench.path("")).args(["--output-format=json", "--output=said.json", "jobs.fio"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Kills the server under load; what fio had been answered by then must be there afterwards.
fn kill_under_fio() {
    let bench = Bench::new();
    let disk = make_disk(&bench, JOBS * PART);
    let served = Served::begin(&bench);
    let mut writing = fio(&bench, "do_verify=0\nrate_iops=1500", [PART; JOBS as usize]).spawn().unwrap();
    // The file is sparse: its blocks are what was written.
    until("it writes", || fs::metadata(&disk).unwrap().blocks() * 512 > 800 * BLOCK);
    drop(served);
    assert!(!writing.wait().unwrap().success(), "it was cut short");
    let text = fs::read_to_string(bench.path("said.json")).unwrap();
    let said = json_of(&text[text.find('{').unwrap()..]);
    // A job has one write under way: the last one, which was not answered, is counted too.
    let answered = |job: usize| said["jobs"][job]["write"]["total_ios"].as_u64().unwrap().saturating_sub(1);
    let lengths = [0, 1, 2, 3].map(|job| answered(job) * BLOCK);
    assert!(lengths.iter().sum::<u64>() > 400 * BLOCK, "{lengths:?}");
    fs::remove_file(bench.path("socket")).unwrap();
    let _served = Served::begin(&bench);
    let verified = fio(&bench, "verify_only=1", lengths).status().unwrap();
    assert!(verified.success(), "{}", fs::read_to_string(bench.path("said.json")).unwrap());
}

/// `cargo xtask test --full` kills 20 times.
#[test]
fn fio_finds_all_that_was_answered_before_the_server_was_killed() {
    if !is_here("fio", "fio") {
        return;
    }
    for _ in 0..if std::env::var_os("SPINDLE_FULL").is_some() { 20 } else { 3 } {
        kill_under_fio();
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
    let _served = Served::begin(&bench);
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
