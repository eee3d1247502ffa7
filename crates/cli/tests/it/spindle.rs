//! Starting the program and looking at what it left.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// Path of the program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_spindle");

/// No run of these tests takes this long, on any machine.
const PATIENCE: Duration = Duration::from_secs(200);

/// A temporary folder that a test works in; removed with everything in it.
pub struct Bench {
    folder: tempfile::TempDir,
}

/// Output of a finished program.
pub struct ProgramOutput {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    /// Standard error, with the bench's path as `DIR`.
    pub stderr: String,
}

impl Bench {
    /// An empty one, under the build's target folder: a real filesystem, not one in memory.
    pub fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
        Self { folder }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a folder in it.
    pub fn make_folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("a folder");
        path
    }

    /// Makes a file in it.
    pub fn make_file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).expect("a file");
        path
    }

    /// The program with `arguments`, at work in this folder, without a terminal.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env_remove("NO_COLOR").env_remove("TERM").env("RUST_BACKTRACE", "0");
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, arguments: &[&str]) -> ProgramOutput {
        self.said(watched_output(&mut self.command(arguments)))
    }

    /// Runs the program and interrupts it, as Ctrl-C does, once `when` returns true.
    #[track_caller]
    pub fn interrupted_when(&self, arguments: &[&str], when: impl Fn() -> bool) -> ProgramOutput {
        let mut command = self.command(arguments);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let watch = Watchdog::over(&child);
        while !when() {
            assert!(child.try_wait().expect("asked").is_none(), "it ended before it could be interrupted");
            thread::sleep(Duration::from_millis(2));
        }
        let sent = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
        assert!(sent.expect("there is a kill").success(), "it can be interrupted");
        let output = child.wait_with_output().expect("the program ends");
        watch.call_off();
        self.said(output)
    }

    pub fn said(&self, output: Output) -> ProgramOutput {
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes).replace(&self.folder.path().display().to_string(), "DIR")
        };
        ProgramOutput {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// Runs the program, which must refuse: code 2, one line, nothing on standard output but the
    /// plan, and everything in the folder as it was. Gives the line.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str]) -> String {
        let before = inventory(self.folder.path());
        let said = self.run(arguments);
        assert_eq!(said.code, Some(2), "exit code of {arguments:?}: {}{}", said.stdout, said.stderr);
        let errors: Vec<&str> = said.stderr.lines().filter(|line| !line.starts_with("warning:")).collect();
        assert_eq!(errors.len(), 1, "one line is said: {}", said.stderr);
        assert_eq!(inventory(self.folder.path()), before, "everything is as it was");
        errors[0].to_owned()
    }

    /// Everything in a folder of the bench, with sizes, modes and times.
    pub fn inventory(&self, name: &str) -> BTreeMap<PathBuf, String> {
        inventory(&self.path(name))
    }
}

/// Output of a program, which is ended if it hangs.
pub fn watched_output(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let watch = Watchdog::over(&child);
    let output = child.wait_with_output().expect("the program ends");
    watch.call_off();
    output
}

/// Ends a program that hangs, so that the test fails.
pub struct Watchdog {
    stop: mpsc::Sender<()>,
}

impl Watchdog {
    /// Watches `child` from now on.
    pub fn over(child: &Child) -> Self {
        let (stop, stopped) = mpsc::channel();
        let id = child.id().to_string();
        thread::spawn(move || {
            if stopped.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").args(["-s", "KILL", &id]).status();
            }
        });
        Self { stop }
    }

    /// To be called when the child has ended: its number may be another's soon.
    pub fn call_off(self) {
        let _ = self.stop.send(());
    }
}

/// Everything below `folder`, with type, size, mode and time of change. Folders that cannot be
/// entered are named only.
pub fn inventory(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for entry in entries {
        let path = entry.expect("an entry").path();
        let about = fs::symlink_metadata(&path).expect("metadata");
        let text = format!("{:o} {} {}.{}", about.mode(), about.len(), about.mtime(), about.mtime_nsec());
        if about.is_dir() {
            found.append(&mut inventory(&path));
        }
        found.insert(path, text);
    }
    found
}

/// Names in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The smallest run worth the name: a few seconds.
const SHORT: [&str; 6] = ["--size", "16MiB", "--cache", "4MiB", "--duration", "2s"];

/// `prove` with `arguments`, the smallest run worth the name.
pub fn short<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["prove"], arguments, &SHORT].concat()
}

/// The program ran and answered, with pass or fail: on a busy machine either may be true.
#[track_caller]
pub fn answered(said: &ProgramOutput) {
    assert!(matches!(said.code, Some(0 | 1)), "{:?}\n{}\n{}", said.code, said.stdout, said.stderr);
}

/// `text`, which is JSON.
pub fn json_of(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

/// Reads standard error until a line holds `word`.
pub fn wait_for_line(child: &mut Child, word: &str) -> BufReader<ChildStderr> {
    let mut reader = BufReader::new(child.stderr.take().expect("piped"));
    let mut said = String::new();
    loop {
        let mut line = String::new();
        let length = reader.read_line(&mut line).expect("text");
        said.push_str(&line);
        assert!(length > 0, "the program ended before it said {word:?}: {said}");
        if line.contains(word) {
            return reader;
        }
    }
}

/// True in full runs (`cargo xtask test --full`), which have the judges that take long; else prints which one is left out.
pub fn is_full_run(judge: &str) -> bool {
    let is_full = std::env::var_os("SPINDLE_FULL").is_some();
    if !is_full {
        println!("skipped: {judge} is of full runs alone (cargo xtask test --full)");
    }
    is_full
}

/// Sends `child` the signal of that name.
pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

/// Stops a process. On a busy machine its threads run on until one of them takes the signal: returns when all stand still.
pub fn pause(child: &Child) {
    signal(child, "STOP");
    let tasks = format!("/proc/{}/task", child.id());
    let stands = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
    let all_stand = || {
        let mut threads = std::fs::read_dir(&tasks).expect("it runs").flatten();
        threads.all(|thread| std::fs::read_to_string(thread.path().join("stat")).is_ok_and(stands))
    };
    while !all_stand() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
