//! The load: `spindle prove` with the paper's set-up on the volumes of a site.

use super::{Scale, sites::Sites};
use crate::bench::{our_programs::OurPrograms, prove_report::ProveReport};
use anyhow::{Context, Result, bail, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(600);

/// A run of the load.
pub(super) struct Load {
    child: Child,
    printed: PathBuf,
    said: PathBuf,
    record: PathBuf,
}

impl Load {
    /// Begins on databases that are there, or makes them.
    pub fn begin(
        (ours, folder): (&OurPrograms, &Path),
        (sites, scale): (&Sites, &Scale),
        (measured, is_first): (Duration, bool),
    ) -> Result<Self> {
        let report = folder.join("load");
        let (printed, said, record) =
            (folder.join("printed.json"), folder.join("said"), folder.join("load.run"));
        for ending in ["html", "json", "run"] {
            // Of the run before.
            let _ = fs::remove_file(report.with_extension(ending));
        }
        let mut command = Command::new(ours.program());
        command.arg("prove").args(sites.uris("db"));
        for log in sites.uris("log") {
            command.args(["--logs", &log]);
        }
        let words = format!(
            "--setup continuous-access --databases 1 --iops 0.5 --judge all --json --seed 1 --allow-writes 1TB --groups {} \
             --size {}MiB --mailboxes {} --duration {}s {}",
            sites.groups,
            scale.databases_mib,
            scale.mailboxes,
            measured.as_secs(),
            if is_first { "--fresh" } else { "--attach" },
        );
        command.args(words.split_whitespace()).arg("--report").arg(&report).stdin(Stdio::null());
        let child = command.stdout(fs::File::create(&printed)?).stderr(fs::File::create(&said)?).spawn()?;
        Ok(Self { child, printed, said, record })
    }

    /// Waits until it measures; returns that moment.
    pub fn wait_for_measuring(&mut self) -> Result<Instant> {
        let begun = Instant::now();
        while !fs::read_to_string(&self.record).is_ok_and(|text| text.contains(r#"{"phase":"measure"}"#)) {
            ensure!(begun.elapsed() < PATIENCE, "spindle prove does not measure");
            if self.child.try_wait()?.is_some() {
                bail!("spindle prove has ended: {}", fs::read_to_string(&self.said)?);
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(Instant::now())
    }

    /// Its report. A verdict of *fail* is a result, too, and so is a load that a line this long did not let through.
    pub fn finish(mut self) -> Result<ProveReport> {
        let status = self.child.wait()?;
        let said = fs::read_to_string(&self.said)?;
        let printed = fs::read_to_string(&self.printed)?;
        ensure!(
            matches!(status.code(), Some(0..=2)) && !printed.is_empty(),
            "spindle prove ended with {status}: {said}"
        );
        ProveReport::parse(&printed).with_context(|| format!("spindle prove: {said}"))
    }
}
