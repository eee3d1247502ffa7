//! The hooks in the folder `hooks`, each with the servers that it is for.
//!
//! A test whose server is not installed is skipped, with a line.

/// Cyrus IMAP, which is unpacked beside Dovecot.
mod cyrus;
/// A virtual machine's agent.
mod guest;
/// Dovecot and Postfix.
mod mail;
/// A database server whose filesystem is frozen.
mod postgresql;

use super::{CopyCutter, LoopMount, helper_program, script};
use protect::backup::{
    BackupCutter, BackupOutcome, BackupPolicy, BackupSet, Freezable, UncoveredCut,
    filesystem::FilesystemFreeze,
    hooks::{HookCommand, HookRun, HookSettings, HookedApplication},
    start_backup,
};
use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    rc::Rc,
    time::{Duration, Instant},
};
use world::{
    World,
    real::{RealPrograms, freeze::RealMount},
};

/// A shipped hook.
fn hook_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hooks").join(name).canonicalize().unwrap()
}

/// A hook of all phases: the shipped one, with variables that its service would give it.
fn shipped(folder: &Path, name: &str, variables: &str, arguments: &[&str]) -> HookSettings {
    let states = folder.join("states");
    let start = folder.join(format!("start-{name}"));
    let hook = hook_file(name);
    let (states, hook) = (states.display(), hook.display());
    script(&start, &format!("export SPINDLE_HOOKS_STATE='{states}'\n{variables}\nexec '{hook}' \"$@\""));
    let words: Vec<String> = [&*start.display().to_string()]
        .into_iter()
        .chain(arguments.iter().copied())
        .map(str::to_owned)
        .collect();
    let command = HookCommand::new(&words).unwrap();
    let mut settings = HookSettings::new(command.clone(), command.clone());
    (settings.prepare, settings.after) = (Some(command.clone()), Some(command));
    settings
}

/// A round of an application whose hooks are `settings`, perhaps over a frozen filesystem.
async fn round(
    world: &World,
    settings: &HookSettings,
    filesystem: Option<&LoopMount>,
    cutter: impl BackupCutter + 'static,
) -> (BackupOutcome, Vec<HookRun>) {
    let programs = Rc::new(RealPrograms::default());
    let application = Rc::new(HookedApplication::new(world, programs, settings.clone(), "mail", "b1"));
    let mut things = vec![Rc::clone(&application) as Rc<dyn Freezable>];
    if let Some(mounted) = filesystem {
        let mount = RealMount::open_with(&mounted.point(), &[], helper_program()).unwrap();
        things.push(Rc::new(FilesystemFreeze::new(world, Rc::new(mount))));
    }
    let set = BackupSet { things, cutter: Rc::new(cutter) };
    let policy = BackupPolicy::default().with_uncovered(UncoveredCut::KeepAsCrash);
    let outcome = start_backup(world, set, policy, "b1").await;
    for run in application.runs() {
        println!("note: {} {} took {} ms: {:?}", run.program, run.phase, run.span.as_millis(), run.end);
    }
    (outcome, application.runs())
}

/// A script that runs when the test has ended, however that came.
struct Cleanup(Child);

impl Cleanup {
    fn new(script: &str) -> Self {
        let mut process = Command::new("setsid");
        process.args(["sh", "-c", &format!("cat >/dev/null\n{script}")]).stdin(Stdio::piped());
        Self(process.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Runs a script to its end, and returns what it printed.
fn shell(text: &str) -> String {
    let output = Command::new("sh").args(["-euc", text]).stdin(Stdio::null()).output().unwrap();
    let (text_out, text_err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{text_out}\n{text_err}");
    text_out.into_owned()
}

fn is_installed(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| {
        let found = Command::new("sh")
            .args(["-c", "command -v \"$1\"", "sh", program])
            .stdout(Stdio::null())
            .status();
        !found.unwrap().success()
    });
    if let Some(missing) = missing {
        println!("skipped: {missing} is not installed");
    }
    missing.is_none()
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn expect_within(most: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < most, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn shipped_hooks_are_plain_shell_scripts() {
    let folder = hook_file("");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 6, "{files:?}");
    for file in &files {
        let checked = Command::new("dash").arg("-n").arg(file).status();
        assert!(checked.is_ok_and(|status| status.success()), "{file:?}");
    }
    if is_installed(&["shellcheck"]) {
        let checked =
            Command::new("shellcheck").arg("-x").args(&files).current_dir(folder.join("..")).output();
        let checked = checked.unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}
