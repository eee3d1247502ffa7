//! `cargo xtask test`: the judges, the build, every test, the documentation's examples, one line of counts.
//!
//! What the tests are told, by environment:
//!
//! | variable | means |
//! |---|---|
//! | `SPINDLE_JUDGES` | `require`: every judge is there, a test must use it; `optional`: skip with a line `skipped: why` |
//! | `SPINDLE_DISSECT_PYTHON` | the Python that can import `dissect.esedb`; unset if there is none |
//! | `SPINDLE_ESE_FILES` | a folder of real databases; unset if there is none |
//! | `SPINDLE_ISCSI_FIO` | a fio with an engine for iSCSI; unset if there is none |
//! | `SPINDLE_GUEST` | the folder of a guest with Linux's initiator; unset if there is none, or not under `--full` |
//! | `SPINDLE_PROGRAM` | the `spindle` of this build |
//! | `SPINDLE_FULL` | `1` under `--full`: the large counts; otherwise unset |

use crate::{
    judges,
    status::{self, FullRun},
    step,
    test_build::TestBuild,
    test_output::Tally,
};
use anyhow::{Context, Result, bail};
use std::{
    env,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// What one pass may take on two cores.
const TIME_LIMIT: Duration = Duration::from_secs(12 * 60);

/// How to run the tests.
#[derive(clap::Args)]
pub struct Options {
    /// Use the large counts and write the result into docs/status.md
    #[arg(long)]
    full: bool,
    /// Install the outside judges that are missing (always done under CI=true)
    #[arg(long)]
    install: bool,
    /// Run only the tests whose names contain this; nothing is recorded
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// Runs everything; fails after the summary line if any test did.
pub fn run(options: &Options) -> Result<()> {
    let start = Instant::now();
    let install = options.install || env::var_os("CI").is_some_and(|value| value == "true");
    let judges = judges::prepare(install, options.full)?;
    let build_start = Instant::now();
    println!("== build");
    let build = TestBuild::run()?;
    println!("== build: {}", step::seconds(build_start.elapsed()));
    let prepare_cargo = |arguments: &[&str]| {
        let mut command = step::cargo();
        command.arg("test").arg("--workspace").args(arguments);
        command.env("SPINDLE_JUDGES", if judges.complete() { "require" } else { "optional" });
        command.env_remove("SPINDLE_FULL").env_remove("SPINDLE_DISSECT_PYTHON");
        command.env_remove("SPINDLE_ISCSI_FIO").env_remove("SPINDLE_ESE_FILES").env_remove("SPINDLE_GUEST");
        if options.full {
            command.env("SPINDLE_FULL", "1");
        }
        if let Some(python) = &judges.dissect_python {
            command.env("SPINDLE_DISSECT_PYTHON", python);
        }
        if let Some(files) = &judges.ese_files {
            command.env("SPINDLE_ESE_FILES", files);
        }
        if let Some(fio) = &judges.iscsi_fio {
            command.env("SPINDLE_ISCSI_FIO", fio);
        }
        if let Some(guest) = &judges.guest {
            command.env("SPINDLE_GUEST", guest);
        }
        build.tell(&mut command);
        command
    };

    let mut tally = Tally::default();
    let shown = [&["--", "--show-output"][..], options.only.as_deref().as_slice()].concat();
    run_counted(
        "tests",
        &mut prepare_cargo(&[&["--no-fail-fast", "--tests"][..], &shown].concat()),
        &mut tally,
    )?;
    run_counted(
        "examples of the documentation",
        &mut prepare_cargo(&[&["--no-fail-fast", "--doc"][..], &shown].concat()),
        &mut tally,
    )?;
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
    println!("total: {}", step::seconds(took));
    println!("{}", tally.summary());
    if tally.failed > 0 {
        bail!("{} failed", tally.failed);
    }
    Ok(())
}

/// Runs test programs, or the cargo that runs them, passing their output on and adding their results to `tally`.
///
/// A failed test is a count, not an error; failing without one (an example does not build, say) is
/// counted too, so that no failure can leave the summary clean.
pub fn run_counted(name: &str, command: &mut Command, tally: &mut Tally) -> Result<()> {
    println!("== {name}");
    let start = Instant::now();
    let failed_before = tally.failed;
    let program = command.get_program().to_owned();
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{name}: cannot start {program:?}"))?;
    let stdout = child.stdout.take().expect("the output was asked for as a pipe");
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.with_context(|| format!("{name}: reading the output of {program:?}"))?;
        if let Some(text) = tally.line(&String::from_utf8_lossy(&line)) {
            println!("{text}");
        }
    }
    tally.end_of_output();
    let status = child.wait()?;
    if !status.success() && tally.failed == failed_before {
        println!("{program:?} ended with {status} and named no failed test");
        tally.failed += 1;
    }
    println!("== {name}: {}", step::seconds(start.elapsed()));
    Ok(())
}
