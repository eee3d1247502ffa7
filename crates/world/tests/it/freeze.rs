//! Freezing of real filesystems: ext4 and XFS on loop devices that the tests made, and nothing else.
//!
//! Needs root. A watchdog process thaws and unmounts what a test leaves, also if the test is killed.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use world::{
    FreezableMount, IoErrorKind, IoResult, MountThaw,
    real::{
        RealOptions,
        freeze::{HelperProgram, RealMount, WritablePlace, check_order, check_privilege, helper_process},
        run,
    },
};

const LONG: Duration = Duration::from_secs(15);
const MOUNT: &str = "SPINDLE_TEST_MOUNT";

/// A filesystem on a loop device, mounted in a temporary folder.
struct LoopMount {
    folder: TempDir,
    watchdog: Child,
}

impl LoopMount {
    /// `None` if this machine cannot do it: then the test is skipped, with a line that says why.
    fn make(kind: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can mount and freeze");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let size = if kind == "xfs" { 384 << 20 } else { 32 << 20 };
        fs::File::create(folder.path().join("image")).unwrap().set_len(size).unwrap();
        fs::create_dir(folder.path().join("mount")).unwrap();
        let options: &[&str] = if kind == "xfs" { &["-qf"] } else { &["-qF"] };
        let image = folder.path().join("image");
        let made =
            Command::new(format!("mkfs.{kind}")).args(options).arg(&image).stdout(Stdio::null()).status();
        if !made.is_ok_and(|status| status.success()) {
            println!("skipped: mkfs.{kind} is not installed");
            return None;
        }
        let point = folder.path().join("mount");
        let mounted = Command::new("mount").args(["-o", "loop"]).args([&image, &point]).status();
        if !mounted.is_ok_and(|status| status.success()) {
            println!("skipped: this machine mounts no loop devices");
            return None;
        }
        // It waits for the end of its input, which is the end of the test, however that comes.
        let script = "cat >/dev/null; fsfreeze -u \"$1\" 2>/dev/null; umount \"$1\" || umount -l \"$1\"";
        let mut watchdog = Command::new("setsid");
        watchdog.args(["sh", "-c", script, "watchdog"]).arg(&point).stdin(Stdio::piped());
        let watchdog = watchdog.spawn().unwrap();
        Some(Self { folder, watchdog })
    }

    fn point(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn open(&self) -> RealMount {
        RealMount::open_with(&self.point(), &[], helper_program()).unwrap()
    }

    fn start_writer(&self) -> Writer {
        let script = "echo data > \"$1\" && sync -f \"$1\"";
        let path = self.point().join("written");
        Writer(Command::new("sh").args(["-c", script, "writer"]).arg(path).spawn().unwrap())
    }

    /// Thaws as a person would; true if it was frozen.
    fn thaw_by_hand(&self) -> bool {
        Command::new("fsfreeze").arg("-u").arg(self.point()).stderr(Stdio::null()).status().unwrap().success()
    }

    /// The helper that has this mount open as its standard error.
    fn helper(&self) -> Option<i32> {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.into_iter().find(|pid| {
            let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let opened = fs::read_link(format!("/proc/{pid}/fd/2"));
            command.contains("the_helper_process") && opened.is_ok_and(|path| path == self.point())
        })
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// A process that writes to the filesystem and syncs it.
struct Writer(Child);

impl Writer {
    fn is_done(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some_and(|status| {
            assert!(status.success());
            true
        })
    }

    fn expect_done_within(&mut self, most: Duration) {
        expect_within(most, "the write ends", || self.is_done());
    }
}

fn expect_within(most: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < most, "{what}");
        sleep(Duration::from_millis(10));
    }
}

/// This test binary, which runs one test: the helper.
fn helper_program() -> HelperProgram {
    let arguments = ["--exact", "freeze::the_helper_process", "--nocapture", "--test-threads=1"];
    HelperProgram { path: PathBuf::from("/proc/self/exe"), arguments: arguments.map(str::to_owned).to_vec() }
}

/// Not a test by itself: the helper process of the others, which has a folder as its standard error.
#[test]
fn the_helper_process() {
    let is_helper = rustix::fs::fstat(std::io::stderr())
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir());
    if is_helper {
        std::process::exit(helper_process::serve());
    }
}

/// Not a test by itself: a process that freezes, and is killed by another test.
#[test]
fn a_process_that_freezes() {
    let Some(point) = env::var_os(MOUNT) else { return };
    run(1, RealOptions::default(), async |_| {
        let mount = RealMount::open_with(Path::new(&point), &[], helper_program()).unwrap();
        mount.prepare().await.unwrap();
        mount.freeze(LONG).await.unwrap();
        println!("it is frozen");
        std::future::pending::<()>().await;
    });
}

/// Not a test by itself: a process without the capability.
#[test]
fn a_process_without_privilege() {
    if env::var_os("SPINDLE_TEST_UNPRIVILEGED").is_some() {
        println!("{}", check_privilege().unwrap_err());
    }
}

fn in_each_filesystem(test: impl AsyncFn(&LoopMount)) {
    for kind in ["ext4", "xfs"] {
        if let Some(mounted) = LoopMount::make(kind) {
            run(1, RealOptions::default(), async |_| test(&mounted).await);
        }
    }
}

async fn frozen(mounted: &LoopMount, within: Duration) -> RealMount {
    let mount = mounted.open();
    mount.prepare().await.unwrap();
    mount.freeze(within).await.unwrap();
    mount
}

#[test]
fn writes_wait_and_nothing_changes_until_the_thaw() {
    in_each_filesystem(async |mounted| {
        fs::write(mounted.point().join("answered"), "before").unwrap();
        let mount = frozen(mounted, LONG).await;
        // Settled writeback of the image is not of interest, only its content.
        let before = fs::read(mounted.image()).unwrap();
        let mut writer = mounted.start_writer();
        sleep(Duration::from_millis(500));
        assert!(!writer.is_done(), "a write went through");
        assert!(fs::read(mounted.image()).unwrap() == before, "the image changed");
        assert_eq!(mount.thaw().await.unwrap(), MountThaw::First);
        writer.expect_done_within(LONG);
        assert!(fs::read(mounted.image()).unwrap() != before, "the writer's bytes are in the image");
        // Once more with the same object, in a second round.
        mount.prepare().await.unwrap();
        mount.freeze(LONG).await.unwrap();
        assert_eq!(mount.thaw().await.unwrap(), MountThaw::First);
        assert_eq!(mount.thaw().await.unwrap(), MountThaw::NotFrozen);
        expect_within(LONG, "the helper ends", || mounted.helper().is_none());
    });
}

#[test]
fn the_deadline_thaws_and_the_evidence_says_so() {
    in_each_filesystem(async |mounted| {
        let began = Instant::now();
        let mount = frozen(mounted, Duration::from_millis(700)).await;
        let mut writer = mounted.start_writer();
        writer.expect_done_within(LONG);
        let span = began.elapsed();
        assert!(span >= Duration::from_millis(700) && span < Duration::from_secs(3), "{span:?}");
        // Also long after: the backstop of this process must not have taken the helper for lost.
        sleep(Duration::from_millis(1500));
        assert_eq!(mount.thaw().await.unwrap(), MountThaw::DeadlineFirst);
    });
}

#[test]
fn another_s_thaw_is_in_the_evidence() {
    in_each_filesystem(async |mounted| {
        let mount = frozen(mounted, LONG).await;
        assert!(mounted.thaw_by_hand(), "it was frozen");
        assert_eq!(mount.thaw().await.unwrap(), MountThaw::OtherFirst);
    });
}

#[test]
fn a_second_freeze_is_busy_and_does_not_thaw_the_first() {
    in_each_filesystem(async |mounted| {
        let first = frozen(mounted, LONG).await;
        let second = mounted.open();
        let refusal = second.freeze(LONG).await.unwrap_err();
        assert!(refusal.to_string().ends_with("it was not prepared"), "{refusal}");
        let began = Instant::now();
        second.prepare().await.unwrap();
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "a clean filesystem is synced although it is frozen"
        );
        let refusal = second.freeze(LONG).await.unwrap_err();
        assert_eq!(refusal.kind(), IoErrorKind::Busy);
        let line = format!("{} is frozen already, by another set or program", mounted.point().display());
        assert_eq!(refusal.to_string(), line);
        assert_eq!(second.thaw().await.unwrap(), MountThaw::NotFrozen);
        assert_eq!(first.thaw().await.unwrap(), MountThaw::First);
    });
}

#[test]
fn dropping_a_freeze_thaws() {
    in_each_filesystem(async |mounted| {
        drop(frozen(mounted, LONG).await);
        mounted.start_writer().expect_done_within(Duration::from_secs(5));
        assert!(!mounted.thaw_by_hand(), "it is thawed");
    });
}

#[test]
fn nothing_stays_frozen_when_the_process_that_froze_is_killed() {
    in_each_filesystem(async |mounted| {
        let arguments = ["--exact", "freeze::a_process_that_freezes", "--nocapture"];
        let mut process = Command::new("/proc/self/exe");
        process.args(arguments).env(MOUNT, mounted.point()).stdout(Stdio::piped()).process_group_of_its_own();
        let mut process = process.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("it is frozen")));
        let mut writer = mounted.start_writer();
        sleep(Duration::from_millis(300));
        assert!(!writer.is_done(), "it is frozen");
        let helper = mounted.helper().unwrap();
        // Ctrl-C and a service manager's SIGTERM reach the helper as well; then everything else is killed.
        for signal in ["-INT", "-TERM", "-HUP", "-QUIT", "-USR1"] {
            kill(signal, helper);
        }
        sleep(Duration::from_millis(300));
        assert!(
            !writer.is_done() && mounted.helper() == Some(helper),
            "the helper does not end before it thaws"
        );
        let began = Instant::now();
        kill("-KILL", -(process.id() as i32));
        process.wait().unwrap();
        writer.expect_done_within(Duration::from_secs(5));
        println!("note: thawed {} ms after SIGKILL", began.elapsed().as_millis());
        assert!(!mounted.thaw_by_hand(), "it is thawed");
        expect_within(LONG, "the helper ends", || mounted.helper().is_none());
    });
}

#[test]
fn a_helper_that_dies_or_stops_leaves_nothing_frozen() {
    in_each_filesystem(async |mounted| {
        let mount = frozen(mounted, LONG).await;
        let mut writer = mounted.start_writer();
        sleep(Duration::from_millis(200));
        assert!(!writer.is_done());
        kill("-KILL", mounted.helper().unwrap());
        writer.expect_done_within(Duration::from_secs(5));
        let lost = mount.thaw().await.unwrap_err();
        assert!(lost.to_string().ends_with("was killed, so it was thawed at once"), "{lost}");

        let began = Instant::now();
        let mount = frozen(mounted, Duration::from_millis(500)).await;
        let helper = mounted.helper().unwrap();
        kill("-STOP", helper);
        mounted.start_writer().expect_done_within(Duration::from_secs(5));
        let span = began.elapsed();
        assert!(span >= Duration::from_millis(1500), "the backstop is 1 s after the deadline: {span:?}");
        assert!(mount.thaw().await.is_err());
        expect_within(LONG, "a helper that does not answer is killed", || mounted.helper().is_none());
    });
}

#[test]
fn a_helper_is_hard_to_kill_and_out_of_the_group() {
    in_each_filesystem(async |mounted| {
        let mount = frozen(mounted, LONG).await;
        let helper = mounted.helper().unwrap();
        let read = |name: &str| fs::read_to_string(format!("/proc/{helper}/{name}")).unwrap();
        let own = rustix::thread::capabilities(None).unwrap().effective;
        if own.contains(rustix::thread::CapabilitySet::SYS_RESOURCE) {
            assert_eq!(read("oom_score_adj").trim(), "-1000");
        } else {
            println!("note: without CAP_SYS_RESOURCE a helper cannot be hidden from the OOM killer");
        }
        let status = read("status");
        let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap().trim().to_owned();
        assert_ne!(locked, "0 kB");
        println!("note: a helper locks {locked}");
        let stat = read("stat");
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let pid = helper.to_string();
        assert_eq!((fields[2], fields[3]), (&*pid, &*pid), "a group and a session of its own");
        assert_eq!(mount.thaw().await.unwrap(), MountThaw::First);
    });
}

fn refusal(opened: IoResult<RealMount>) -> String {
    opened.err().expect("it is refused").to_string()
}

fn place(what: &str, path: PathBuf) -> [WritablePlace; 1] {
    [WritablePlace { what: what.to_owned(), path }]
}

#[test]
fn what_must_not_be_frozen_is_refused() {
    let Some(outer) = LoopMount::make("ext4") else { return };
    let point = outer.point();
    let shown = point.display();
    fs::create_dir(point.join("folder")).unwrap();
    let line = refusal(RealMount::open(&point.join("folder"), &[]));
    let expected = format!(
        "{shown}/folder is no mount point: it lies on the ext4 filesystem at {shown}, which would be frozen \
         whole; name a mount point"
    );
    assert_eq!(line, expected);
    let line = refusal(RealMount::open(Path::new("/"), &[]));
    let refused_root = ["/ is the filesystem of /: this machine would stop", "/ is a overlay"];
    assert!(refused_root.iter().any(|start| line.starts_with(start)), "{line}");
    let line = refusal(RealMount::open(Path::new("/proc"), &[]));
    assert_eq!(line, "/proc is a proc, which has no drive; there is nothing to freeze");

    // Also a file that is not there yet.
    let catalogue = point.join("state/mail.catalogue");
    let line = refusal(RealMount::open(&point, &place("the catalogue", catalogue.clone())));
    let expected = format!(
        "the catalogue ({}) lies on {shown}: it must take writes while {shown} is frozen; move one of them",
        catalogue.display()
    );
    assert_eq!(line, expected);
    RealMount::open(&point, &place("the output", outer.folder.path().join("report"))).unwrap();
}

#[test]
fn loop_devices_do_not_hide_the_filesystem_below() {
    let (Some(outer), Some(other)) = (LoopMount::make("xfs"), LoopMount::make("ext4")) else { return };
    // A filesystem in a file of the outer one.
    let inner = outer.point().join("inner.img");
    fs::File::create(&inner).unwrap().set_len(16 << 20).unwrap();
    assert!(Command::new("mkfs.ext4").arg("-qF").arg(&inner).status().unwrap().success());
    let point = outer.folder.path().join("inner");
    fs::create_dir(&point).unwrap();
    assert!(Command::new("mount").args(["-o", "loop"]).args([&inner, &point]).status().unwrap().success());
    let inner_device = {
        let output = Command::new("findmnt").args(["-no", "SOURCE"]).arg(&point).output().unwrap();
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    };
    let checked = std::panic::catch_unwind(|| {
        for path in [point.join("drive"), inner_device.clone(), inner.clone()] {
            let line =
                refusal(RealMount::open(&outer.point(), &place("a drive of the pool main", path.clone())));
            let start = format!("a drive of the pool main ({}) lies on ", path.display());
            assert!(line.starts_with(&start), "{line}");
        }
        // The other way round nothing is in the way.
        RealMount::open(&point, &place("a drive of the pool main", outer.point().join("drive"))).unwrap();
        RealMount::open(&outer.point(), &place("a drive", other.point().join("drive"))).unwrap();

        let outer_mount = RealMount::open(&outer.point(), &[]).unwrap();
        let inner_mount = RealMount::open(&point, &[]).unwrap();
        let other_mount = RealMount::open(&other.point(), &[]).unwrap();
        check_order(&[&inner_mount, &outer_mount, &other_mount]).unwrap();
        let line = check_order(&[&outer_mount, &other_mount, &inner_mount]).unwrap_err().to_string();
        let (inner, outer) = (point.display(), outer.point());
        let outer = outer.display();
        assert_eq!(line, format!("freeze {inner} before {outer}: it lies on it, and would wait for it"));
        let again = RealMount::open(&other.point(), &[]).unwrap();
        let line = check_order(&[&other_mount, &again]).unwrap_err().to_string();
        assert!(line.ends_with("are one filesystem; name it once"), "{line}");
    });
    assert!(Command::new("umount").arg(&point).status().unwrap().success());
    checked.unwrap();
}

#[test]
fn a_process_without_the_capability_is_told_so() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root has the capability to lose");
    }
    check_privilege().unwrap();
    let mut process = Command::new("setpriv");
    process.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]);
    process.arg(env::current_exe().unwrap());
    process.args(["--exact", "freeze::a_process_without_privilege", "--nocapture"]);
    let Ok(output) = process.env("SPINDLE_TEST_UNPRIVILEGED", "1").output() else {
        return println!("skipped: setpriv is not installed");
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("freezing filesystems needs CAP_SYS_ADMIN; run this as root"), "{text}");
}

fn kill(signal: &str, process: i32) {
    let process = process.to_string();
    assert!(Command::new("kill").args([signal, "--", &process]).status().unwrap().success());
}

trait OwnGroup {
    fn process_group_of_its_own(&mut self) -> &mut Self;
}

impl OwnGroup for Command {
    fn process_group_of_its_own(&mut self) -> &mut Self {
        std::os::unix::process::CommandExt::process_group(self, 0)
    }
}
