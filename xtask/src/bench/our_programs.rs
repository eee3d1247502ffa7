//! Our side: the released program and the small programs beside it that drive one part of the engine.

use super::row::Measurement;
use crate::step;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

/// Sampling interval of a running program's memory; the kernel keeps the peak.
const LOOK: Duration = Duration::from_millis(20);
/// A program beside `spindle`.
#[derive(Clone, Copy)]
pub(crate) struct Example {
    /// Whose example it is.
    pub package: &'static str,
    pub name: &'static str,
}

/// Folder of the built programs.
pub(crate) struct OurPrograms {
    folder: PathBuf,
}

/// Result of one run of a program.
pub(crate) struct ProgramRun {
    /// Its standard output.
    pub printed: String,
    /// Most memory it held, in bytes.
    pub memory_peak_bytes: u64,
    /// The command, as it may be typed.
    pub command: String,
}

impl OurPrograms {
    /// Builds in release what a bench needs: the program too, if `with_program`, and those examples.
    pub fn build(with_program: bool, examples: &[Example]) -> Result<Self> {
        let mut command = step::cargo();
        command.args(["build", "--release"]);
        if with_program {
            command.args(["-p", "cli", "--bin", "spindle"]);
        }
        for Example { package, name } in examples {
            command.args(["-p", package, "--example", name]);
        }
        step::run("build in release", &mut command)?;
        Ok(Self { folder: step::target_directory()?.join("release") })
    }

    /// The program itself.
    pub fn program(&self) -> PathBuf {
        self.folder.join("spindle")
    }

    /// Runs `spindle prove`; a verdict of *fail* is a result, too.
    pub fn prove(&self, arguments: &[&str], folder: &Path) -> Result<ProgramRun> {
        let mut command = Command::new(self.program());
        command.arg("prove").arg(folder).args(arguments).arg("--json");
        finish(&mut command, &[0, 1])
    }

    /// A check of databases and logs, which must be clean: what it printed, with its peak memory.
    pub fn verify(&self, path: &Path, flags: &[&str]) -> Result<Value> {
        let mut command = Command::new(self.program());
        command.arg("verify").arg(path).args(flags).args(["--json", "--quiet"]);
        let outcome = finish(&mut command, &[0])?;
        let printed: Value = serde_json::from_str(outcome.printed.trim()).context("what verify printed")?;
        let kept = ["bytes_read", "seconds", "processor_seconds"].map(|what| (what, printed[what].clone()));
        let mut raw: Value = kept.into_iter().map(|(what, value)| (what.to_owned(), value)).collect();
        raw["memory_peak_bytes"] = json!(outcome.memory_peak_bytes);
        // The file's folder is of no interest.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        raw["command"] = json!(["spindle verify", &name, &flags.join(" ")].join(" ").trim_end());
        Ok(raw)
    }

    /// Reads of the bare device path, a second.
    pub fn random_read(&self, file: &Path, bytes: u64, depth: u32, seconds: f64) -> Result<Measurement> {
        let arguments = [bytes.to_string(), depth.to_string(), seconds.to_string()];
        let raw = self.example("random_read", |command| command.arg(file).args(&arguments))?;
        Ok(Measurement { value: rate(&raw, "reads")?, raw })
    }

    /// Pages read through the engine, a second.
    pub fn page_reads(&self, folder: &Path, database: &str, depth: u32, seconds: f64) -> Result<Measurement> {
        let arguments = [database.to_owned(), depth.to_string(), seconds.to_string()];
        let raw = self.example("page_reads", |command| command.arg(folder).args(&arguments))?;
        Ok(Measurement { value: rate(&raw, "reads")?, raw })
    }

    /// A pool made, or a load on its volume: IOPS.
    pub fn pool_load(&self, folder: &Path, arguments: &[String]) -> Result<Measurement> {
        let raw = self.example("pool_load", |command| command.arg(folder).args(arguments))?;
        Ok(Measurement { value: rate(&raw, "ios")?, raw })
    }

    /// The same load on the volumes of several pools at once, a program each: what they printed.
    pub fn pool_loads(&self, folders: &[PathBuf], arguments: &[String]) -> Result<Vec<Measurement>> {
        thread::scope(|scope| {
            let running: Vec<_> =
                folders.iter().map(|folder| scope.spawn(move || self.pool_load(folder, arguments))).collect();
            running.into_iter().map(|load| load.join().expect("it does not panic")).collect()
        })
    }

    /// One or more passes of verification: what the program printed.
    pub fn verify_pages(&self, folder: &Path, database: &str, passes: u32) -> Result<Value> {
        let passes = passes.to_string();
        self.example("verify_pages", |command| command.arg(folder).args([database, &passes]))
    }

    /// The figures an example prints, with the command.
    pub fn example(&self, name: &str, arguments: impl FnOnce(&mut Command) -> &mut Command) -> Result<Value> {
        let mut command = Command::new(self.folder.join("examples").join(name));
        arguments(&mut command);
        let outcome = finish(&mut command, &[0])?;
        let mut raw: Value = serde_json::from_str(outcome.printed.trim())
            .with_context(|| format!("what {name} printed: {}", outcome.printed))?;
        raw["command"] = json!(outcome.command);
        Ok(raw)
    }
}

/// `what` a second, of a program's line of figures.
fn rate(raw: &Value, what: &str) -> Result<f64> {
    Ok(number(raw, what)? / number(raw, "seconds")?)
}

/// A figure of a program's line.
pub fn number(raw: &Value, what: &str) -> Result<f64> {
    raw[what].as_f64().with_context(|| format!("no figure {what} in {raw}"))
}

/// Runs a program to its end, with its output and peak memory; fails if it ends with any other code.
fn finish(command: &mut Command, codes: &[i32]) -> Result<ProgramRun> {
    let shown = shown(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {shown}"))?;
    let printed = collect(child.stdout.take().expect("asked for as a pipe"));
    let complained = collect(child.stderr.take().expect("asked for as a pipe"));
    let memory_peak_bytes = watch_memory(&mut child)?;
    let status = child.wait()?;
    let (printed, complained) =
        (printed.join().expect("it only reads"), complained.join().expect("likewise"));
    if !status.code().is_some_and(|code| codes.contains(&code)) {
        let last: Vec<&str> = complained.lines().rev().take(5).collect();
        bail!("{shown} ended with {status}: {}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
    Ok(ProgramRun { printed, memory_peak_bytes, command: shown })
}

fn collect(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is shown all the same.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The most memory the child ever held, as the kernel counts it, up to the last look before its end.
fn watch_memory(child: &mut Child) -> Result<u64> {
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait()?.is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0) * 1024);
        thread::sleep(LOOK);
    }
    Ok(peak)
}

/// The command as it may be typed, the program by its name alone, without its folder.
pub fn shown(command: &Command) -> String {
    let program =
        Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    [program].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}
