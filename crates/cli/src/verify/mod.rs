//! `spindle verify`: whether databases and logs are whole, and whether they can be recovered.

pub mod arguments;
pub mod brought_up;
mod sources;
mod terminal;

use crate::{command_line::own_command, console::Console, exit_status::ExitStatus, progress::ProgressView};
use ::verify::{
    answer::{VerifyReport, document, json_report},
    running::{
        self, DividedDevice, FileDiscovery, RateLimiter, ResumeError, ResumeState, RunVerdict, ScanOutcome,
        Settings, VerifyLevel, VerifyOutcome, VerifyProgress,
    },
};
use arguments::VerifyArguments;
use report::{Document, Meta, Refusal, calendar::shown_time, html, text};
use runs::{
    observer::{ProgressDisplay, ProgressStatus},
    outputs::check_new_file,
};
use sources::OpenSources;
use std::{
    cell::Cell,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};
use world::{
    ByteCount, IoError, IoErrorKind, Moment, World,
    real::{
        self, RealOptions, Workers,
        host::machine,
        host_files::{self, PathKind},
        signals::interrupted,
    },
};

/// Interval of progress updates.
const GLANCE: Duration = Duration::from_millis(200);

/// Memory for the changes of a recovery, unless said otherwise: many times the checkpoint depth of a few databases.
const SCRATCH: ByteCount = ByteCount::gib(1);

/// Runs the verb to its end.
pub fn verify(arguments: &VerifyArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, arguments.quiet);
    if arguments.scratch.is_some() && arguments.level() != VerifyLevel::Recover {
        let problem = "--scratch is for recoveries, and none was asked for";
        return Err(Refusal::new(problem, "say --level recover, or leave it out"));
    }
    if let Some(html) = &arguments.html {
        check_new_file("--html", html)?;
    }
    real::run(0, RealOptions::plain(arguments.plain_io), async |world: World| {
        let report = match &arguments.fix_ecc {
            Some(out) => mended(&world, arguments, out, &console).await?,
            None if arguments.scan => scanned(&world, arguments, &console).await?,
            None => checked(&world, arguments, &console, &Watching::Person).await?,
        };
        deliver(&report, arguments, meta(&world), &console)
    })
}

/// Checks what lies at the paths; `watching` ends it early.
///
/// # Errors
///
/// A source cannot be opened, or nothing to check is there.
pub async fn checked<'a>(
    world: &World,
    arguments: &'a VerifyArguments,
    console: &Console,
    watching: &Watching,
) -> Result<VerifyReport<'a>, Refusal> {
    let sources = OpenSources::open(world, arguments, console).await?;
    let found = find(&sources.paths, &sources.devices, &arguments.paths).await?;
    let resume = arguments.resume.as_deref();
    let level = arguments.level();
    let state = resume.map(|path| ResumeState::open(path, &arguments.paths, level)).transpose();
    let state = state.map_err(refused_state)?;
    let pace = RateLimiter::new(world, arguments.throttle, arguments.at_most);
    let watch = VerifyWatch::begin_for(watching, world, console, &pace);
    let outcome = running::run(world, &settings(arguments), found, &pace, state).await;
    let took = watch.end().await;
    let outcome = outcome.map_err(refused_state)?;
    Ok(VerifyReport { took, ..report_of(arguments, outcome, &pace) })
}

/// Writes a copy without single flipped bits, and checks that.
async fn mended<'a>(
    world: &World,
    arguments: &'a VerifyArguments,
    out: &Path,
    console: &Console,
) -> Result<VerifyReport<'a>, Refusal> {
    let [path] = arguments.paths.as_slice() else {
        return Err(Refusal::new("--fix-ecc copies one file", "give one PATH"));
    };
    if let Ok(PathKind::Folder) = host_files::kind(path) {
        let problem = format!("--fix-ecc copies one file, and {} is a folder", path.display());
        return Err(Refusal::new(problem, "give the file"));
    }
    check_new_file("--fix-ecc", out)?;
    let sources = OpenSources::open(world, arguments, console).await?;
    sources.refuse_devices("--fix-ecc", "copies one file")?;
    let found = find(&sources.paths, &[], &arguments.paths).await?;
    let [candidate] = found.candidates.as_slice() else { return Err(nothing_there(&arguments.paths)) };
    let pace = RateLimiter::new(world, arguments.throttle, None);
    let watch = VerifyWatch::begin(world, console, &pace);
    pace.begin("copy", &path.display().to_string());
    let mended = match running::write_fixed_copy(candidate, out, &pace).await {
        Ok(mended) => mended,
        Err(error) => {
            watch.end().await;
            return Err(Refusal::new(format!("--fix-ecc: {error}"), "nothing was changed"));
        }
    };
    // What was written is read again, all of it: the answer is that of the copy.
    let copy = [out.to_owned()];
    let outcome = match find(&copy, &[], &copy).await {
        Ok(found) => running::run(world, &settings(arguments), found, &pace, None).await,
        Err(refusal) => {
            watch.end().await;
            return Err(refusal);
        }
    };
    let took = watch.end().await;
    let outcome = outcome.map_err(refused_state)?;
    Ok(VerifyReport { took, mended: Some(mended), ..report_of(arguments, outcome, &pace) })
}

/// Finds what lies on devices and in images.
async fn scanned<'a>(
    world: &World,
    arguments: &'a VerifyArguments,
    console: &Console,
) -> Result<VerifyReport<'a>, Refusal> {
    let mut open = OpenSources::default();
    let mut sources = Vec::new();
    for path in &arguments.paths {
        sources.push(open.bytes(world, path, arguments, console).await?);
    }
    let workers = Workers::new(settings(arguments).jobs);
    let pace = RateLimiter::new(world, arguments.throttle, None);
    let watch = VerifyWatch::begin(world, console, &pace);
    let mut all = ScanOutcome::default();
    let mut failed = None;
    for (path, source) in arguments.paths.iter().zip(&sources) {
        match running::scan(path, source, &workers, &pace).await {
            Ok(one) => all.add(one),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let took = watch.end().await;
    if let Some(error) = failed {
        return Err(cannot_look(&error));
    }
    let outcome = std::mem::take(&mut all.found);
    Ok(VerifyReport { took, scanned: Some(all), ..report_of(arguments, outcome, &pace) })
}

/// The files to check at `paths`; a refusal names `named`.
async fn find(
    paths: &[PathBuf],
    devices: &[Rc<DividedDevice>],
    named: &[PathBuf],
) -> Result<FileDiscovery, Refusal> {
    let found = running::find(paths, devices).await.map_err(|error| cannot_look(&error))?;
    if found.candidates.is_empty() && found.failures.is_empty() {
        Err(nothing_there(named))
    } else {
        Ok(found)
    }
}

fn report_of<'a>(
    arguments: &'a VerifyArguments,
    outcome: VerifyOutcome,
    pace: &RateLimiter,
) -> VerifyReport<'a> {
    let (level, resume) = (arguments.level(), arguments.resume.as_deref());
    VerifyReport { level, resume, ..VerifyReport::of(&arguments.paths, outcome, pace) }
}

fn settings(arguments: &VerifyArguments) -> Settings {
    let processors = NonZeroUsize::new(machine().cpu_count).unwrap_or(NonZeroUsize::MIN);
    Settings {
        level: arguments.level(),
        jobs: arguments.jobs.unwrap_or(processors),
        scratch: arguments.scratch.unwrap_or(SCRATCH),
    }
}

/// Prints the result, writes the page, prints the JSON.
fn deliver(
    report: &VerifyReport<'_>,
    arguments: &VerifyArguments,
    meta: Meta,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let document = document(report, meta);
    say(&document, console);
    if let Some(path) = &arguments.html {
        let written = host_files::write_atomically(path, html::render(&document).as_bytes());
        written.map_err(|error| Refusal::new(format!("--html: {error}"), "the answer above stands"))?;
        console.say_always(&format!("Page: {}", path.display()));
    }
    if arguments.json {
        console.json_of(&json_report(report))?;
    }
    console.finish(match report.outcome.verdict() {
        RunVerdict::Clean => ExitStatus::Pass,
        RunVerdict::Damaged => ExitStatus::Fail,
        RunVerdict::Unfinished => ExitStatus::NoAnswer,
    })
}

/// The whole answer; with `--quiet` its one line.
fn say(document: &Document, console: &Console) {
    match (&document.verdict, console.is_quiet()) {
        (Some(verdict), true) => {
            console.say_always(&format!("{}: {}", verdict.outcome.word(), verdict.headline));
        }
        _ => {
            let options = text::TextOptions { width: console.width, colour: console.colour };
            console.say(text::render(&terminal::for_terminal(document), options).trim_end());
        }
    }
}

fn meta(world: &World) -> Meta {
    Meta {
        generator: concat!("spindle ", env!("CARGO_PKG_VERSION")).to_owned(),
        created_utc: shown_time(world.wall().seconds),
        machine: machine().hostname,
        seed: None,
        command: Some(own_command()),
    }
}

/// The observer of a check, who ends it.
pub enum Watching {
    /// A person, who sees its progress and presses Ctrl-C.
    Person,
    /// A thread of a program that goes on: true ends the check.
    Thread(Rc<dyn Fn() -> bool>),
}

/// Ctrl-C, and what is seen while it goes on.
struct VerifyWatch {
    is_over: Rc<Cell<bool>>,
    drawing: world::JoinHandle<()>,
    world: World,
    began: Moment,
}

impl VerifyWatch {
    fn begin(world: &World, console: &Console, pace: &RateLimiter) -> Self {
        Self::begin_for(&Watching::Person, world, console, pace)
    }

    fn begin_for(watching: &Watching, world: &World, console: &Console, pace: &RateLimiter) -> Self {
        let is_ending: Rc<dyn Fn() -> bool> = match watching {
            Watching::Thread(is_ending) => Rc::clone(is_ending),
            Watching::Person => {
                let (stopping, ended, said) = (pace.clone(), interrupted(), console.clone());
                world.spawn("interrupted", async move {
                    ended.await;
                    said.say_progress("ending; Ctrl-C again ends it at once");
                    stopping.stop();
                });
                Rc::new(|| false)
            }
        };
        let is_over = Rc::new(Cell::new(false));
        let began = world.now();
        let (over, looked, pace) = (Rc::clone(&is_over), world.clone(), pace.clone());
        let mut view = ProgressView::new(console);
        let drawing = world.spawn("progress", async move {
            while !over.get() {
                if is_ending() {
                    pace.stop();
                }
                let elapsed = looked.now().since(began);
                view.tell(elapsed, status(&pace.progress(), elapsed).as_ref(), &[]);
                looked.sleep(GLANCE).await;
            }
            view.tell(looked.now().since(began), None, &[]);
        });
        Self { is_over, drawing, world: world.clone(), began }
    }

    /// Gives how long it took.
    async fn end(self) -> Duration {
        let took = self.world.now().since(self.began);
        self.is_over.set(true);
        self.drawing.await;
        took
    }
}

/// The progress line; `None` until the size is known.
fn status(progress: &VerifyProgress, elapsed: Duration) -> Option<ProgressStatus> {
    if progress.doing.is_empty() || progress.job.total == 0 {
        return None;
    }
    let mut status = ProgressStatus::of_job(progress.doing, &progress.job, elapsed);
    if progress.damage > 0 {
        status.figures.push(format!("{} damaged", progress.damage));
    }
    Some(status)
}

fn nothing_there(paths: &[PathBuf]) -> Refusal {
    let named: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    Refusal::new(
        format!("{}: no mail database found: no database, log or checkpoint", named.join(", ")),
        "give the folder they are in, or --scan a device that no filesystem can be mounted from",
    )
}

fn cannot_look(error: &IoError) -> Refusal {
    let remedy = match error.kind() {
        IoErrorKind::PermissionDenied => "run as a user who may read it",
        IoErrorKind::Busy => "it is mounted or in use: give the folder it is mounted at, or a snapshot of it",
        _ => "give files, folders or block devices that are there",
    };
    Refusal::new(error.to_string(), remedy)
}

fn refused_state(error: ResumeError) -> Refusal {
    let remedy = match &error {
        ResumeError::Io(_) => "give another file with --resume",
        ResumeError::Foreign { .. } => "nothing was written over; give another file with --resume",
        ResumeError::Changed { .. } => {
            "the saved progress does not apply to it: remove the state file to start over"
        }
        ResumeError::Other { .. } => "give the same paths, or another file with --resume",
    };
    Refusal::new(format!("--resume: {error}"), remedy)
}
