//! `cargo xtask test`: the judges, the build, every test, the documentation's examples, one line of counts.
//!
//! The environment of the tests:
//!
//! | variable | means |
//! |---|---|
//! | `SPINDLE_JUDGES` | `require`: every judge is there, a test must use it; `optional`: skip with a line `skipped: why` |
//! | `SPINDLE_DISSECT_PYTHON` | the Python that can import `dissect.esedb`; unset if there is none |
//! | `SPINDLE_SCHEMATHESIS` | the program of schemathesis; unset if there is none, or not under `--full` |
//! | `SPINDLE_PLAYWRIGHT_PYTHON`, `SPINDLE_AXE` | a Python with playwright, and the script of axe-core; as above |
//! | `SPINDLE_ESE_FILES` | a folder of real databases; unset if there is none |
//! | `SPINDLE_ISCSI_FIO` | a fio with an engine for iSCSI; unset if there is none |
//! | `SPINDLE_GUEST` | the folder of a guest with Linux's initiator; unset if there is none, or not under `--full` |
//! | `SPINDLE_PROGRAM` | the `spindle` of this build |
//! | `SPINDLE_FULL` | `1` under `--full`: the large counts; otherwise unset |
//! | `MALLOC_…` | rooms whose tests compute: freed memory is kept, as simulated drives come and go |

use crate::{
    budget::RoomTimes,
    judges::{self, Judges},
    package::{self, PackageOptions},
    seeded_tests,
    status::{self, FullRun},
    step,
    test_build::TestBuild,
    test_output::Tally,
    watched_program::{self, ProgramEnd},
};
use anyhow::{Context, Result, bail};
use std::{
    env,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// Seeds of backups in a full run, as far as these minutes go.
const BACKUP_SEEDS: u64 = 10_000;
const BACKUP_MINUTES: u64 = 10;

/// Time limit of one pass on two cores.
const TIME_LIMIT: Duration = Duration::from_secs(12 * 60);

/// A test program that is silent for so long hangs; under `--full` one test alone may take an hour.
pub const PATIENCE: Duration = Duration::from_secs(8 * 60);
const PATIENCE_FULL: Duration = Duration::from_secs(3 * 3600);

/// TestOptions of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct TestOptions {
    /// Use the large counts and write the result into docs/status.md
    #[arg(long)]
    full: bool,
    /// Install the outside judges that are missing (always done under CI=true)
    #[arg(long)]
    install: bool,
    /// Run only the tests whose names contain this; nothing is recorded
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Show how long each room's tests took, and may take
    #[arg(long)]
    budget: bool,
}

/// Runs everything; fails after the summary line if any test did.
pub fn run(options: &TestOptions) -> Result<()> {
    let start = Instant::now();
    let install = options.install || env::var_os("CI").is_some_and(|value| value == "true");
    println!("== judges and build");
    // The judges are downloaded and unpacked while the processors compile.
    let (judges, build) = thread::scope(|scope| {
        let judges = scope.spawn(|| judges::prepare(install, options.full));
        let build = TestBuild::run();
        (judges.join().expect("it does not panic"), build)
    });
    let (judges, build) = (judges?, build?);
    println!("== judges and build: {}", step::seconds(start.elapsed()));
    let tell = |command: &mut Command| {
        tell_of_judges(command, &judges, options.full);
        build.tell(command);
    };

    let mut tally = Tally::default();
    let mut times = RoomTimes::default();
    let only = options.only.as_deref();
    let patience = if options.full { PATIENCE_FULL } else { PATIENCE };
    // The rules of the repository are a step of their own behind this one.
    for program in build.tests.iter().filter(|program| !program.is_tidy()) {
        let begun = Instant::now();
        let mut command = program.command();
        tell(command.arg("--show-output").args(threads(program.room())?).args(only));
        keep_freed_memory(program.room(), &mut command);
        run_counted(&format!("tests of {}", program.room()), &mut command, patience, &mut tally)?;
        times.add(program.room(), begun.elapsed());
    }
    let mut examples = step::cargo();
    examples.args(["test", "--workspace", "--no-fail-fast", "--doc", "--", "--show-output"]);
    tell(examples.args(only));
    run_counted("examples of the documentation", &mut examples, patience, &mut tally)?;
    if options.full && only.is_none() {
        run_seeds_of_backups(&build, &mut tally);
        run_package(&mut tally);
    }
    let took = start.elapsed();

    if options.full && options.only.is_none() {
        status::write(&FullRun::now(&tally, took)?)?;
    } else if took > TIME_LIMIT {
        println!(
            "warning: {} is more than the {} a pass may take",
            step::seconds(took),
            step::seconds(TIME_LIMIT)
        );
    }
    if options.budget {
        print!("{}", times.table());
    }
    if !options.full {
        times.warnings().iter().for_each(|warning| println!("{warning}"));
    }
    println!("total: {}", step::seconds(took));
    tally.warnings.iter().for_each(|warning| println!("{warning}"));
    tally.panics.iter().for_each(|panic| println!("{panic}"));
    println!("{}", tally.summary());
    if tally.failed > 0 {
        bail!("{} failed", tally.failed);
    }
    Ok(())
}

/// A seed that fails counts as a failed test.
fn run_seeds_of_backups(build: &TestBuild, tally: &mut Tally) {
    println!("== seeds of backups");
    if let Err(error) = seeded_tests::run_protect(build, BACKUP_SEEDS, BACKUP_MINUTES) {
        println!("{error:#}");
        tally.failed += 1;
    }
}

/// The package and the image, built and judged; a judge that fails counts as a failed test.
fn run_package(tally: &mut Tally) {
    println!("== package");
    match package::run(&PackageOptions { judge: true, container: true, no_build: false }) {
        Ok(()) => tally.passed += 1,
        Err(error) => {
            println!("{error:#}");
            tally.failed += 1;
        }
    }
}

/// Arguments that set the threads of a room's tests: those of the program wait for programs that they started more than
/// they compute.
fn threads(room: &str) -> Result<Option<String>> {
    let cores = thread::available_parallelism().context("counting the processors")?;
    Ok((room == "cli").then(|| format!("--test-threads={}", 2 * cores.get())))
}

/// Lets a room's tests keep the memory that they free: each simulated drive would otherwise be given back to the system
/// and faulted in again, a quarter of the processor time of `replication`. The program is tested as it is started.
fn keep_freed_memory(room: &str, command: &mut Command) {
    if room != "cli" {
        let kept = (1 << 30).to_string();
        command.env("MALLOC_TRIM_THRESHOLD_", &kept).env("MALLOC_MMAP_THRESHOLD_", &kept);
        command.env("MALLOC_TOP_PAD_", (64 << 20).to_string());
    }
}

/// Tells a test program, by environment, which judges there are and whether the large counts are wanted.
fn tell_of_judges(command: &mut Command, judges: &Judges, full: bool) {
    command.env("SPINDLE_JUDGES", if judges.complete() { "require" } else { "optional" });
    let full = full.then_some(Path::new("1"));
    for (name, value) in [
        ("SPINDLE_FULL", full),
        ("SPINDLE_DISSECT_PYTHON", judges.dissect_python.as_deref()),
        ("SPINDLE_SCHEMATHESIS", judges.schemathesis.as_deref()),
        ("SPINDLE_PLAYWRIGHT_PYTHON", judges.playwright_python.as_deref()),
        ("SPINDLE_AXE", judges.axe.as_deref()),
        ("SPINDLE_ESE_FILES", judges.ese_files.as_deref()),
        ("SPINDLE_ISCSI_FIO", judges.iscsi_fio.as_deref()),
        ("SPINDLE_GUEST", judges.guest.as_deref()),
    ] {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// Runs test programs, or the cargo that runs them, passing their output on and adding their results to `tally`.
///
/// A failed test is a count, not an error; failing without one (an example does not build, say) is
/// counted too, so that no failure can leave the summary clean.
/// A program that says nothing for as long as `patience` is ended, which is a failure too.
pub fn run_counted(name: &str, command: &mut Command, patience: Duration, tally: &mut Tally) -> Result<()> {
    println!("== {name}");
    let start = Instant::now();
    let failed_before = tally.failed;
    let program = command.get_program().to_owned();
    let hear = |line: &str| {
        if let Some(text) = tally.line(line) {
            println!("{text}");
        }
    };
    let ended = watched_program::run(command, patience, hear).context(name.to_owned())?;
    if let ProgramEnd::Silent(below) = &ended {
        tally.ended_silent(patience, below);
    }
    tally.end_of_output();
    if let ProgramEnd::Itself(status) = ended
        && !status.success()
        && tally.failed == failed_before
    {
        println!("{program:?} ended with {status} and named no failed test");
        tally.failed += 1;
    }
    println!("== {name}: {}", step::seconds(start.elapsed()));
    Ok(())
}
