//! Verification after the run: every page of every database and every log file is read and checked.

use crate::database::load::{
    error::Error,
    operation::{FailureKind, RunFailure},
};
use maildb::verify::StampsVerdict;
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use verify::{
    FileFinding, FilePart,
    in_world::{LogFileReport, verify_database_with_stamps, verify_logs},
};
use world::{ByteCount, Directory, World};

/// Result for one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifiedFile {
    /// File name.
    pub name: String,
    /// Bytes read.
    pub bytes: u64,
    /// Elapsed time, in seconds.
    pub seconds: f64,
    /// Good pages (of a database) or segments (of a log).
    pub good: u64,
    /// Blank pages (of a database) or segments (of a log).
    pub empty: u64,
    /// True if blank pages could not be judged: the database was not shut down cleanly, so their content may
    /// be in the log, lost, or may never have existed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blank_unjudged: bool,
    /// One sentence for each damage.
    pub damaged: Vec<String>,
}

impl VerifiedFile {
    /// The damage as failures of the run.
    pub fn failures(&self) -> impl Iterator<Item = RunFailure> {
        self.damaged.iter().map(|damage| RunFailure {
            kind: FailureKind::Checksum,
            text: format!("{}: {damage}", self.name),
        })
    }
}

/// Verifies the database `name`.
pub async fn verify_one_database(
    world: &World,
    directory: &Rc<dyn Directory>,
    name: &str,
    on_progress: &mut dyn FnMut(ByteCount, ByteCount),
) -> Result<VerifiedFile, Error> {
    let began = world.now();
    let file = directory.open(name).await?;
    let bytes = file.geometry().size.0;
    let verdict = verify_database_with_stamps(directory, name, on_progress).await?;
    let mut damaged: Vec<String> =
        verdict.damaged.iter().map(|damage| format!("page {}: {}", damage.page.0, damage.problem)).collect();
    if verdict.header_copies_good < 2 {
        damaged.push("one of its two header copies is damaged".to_owned());
    }
    if let StampsVerdict::Unusable(problem) = &verdict.stamps {
        damaged.push(format!(
            "its page stamps in {} cannot be used: {problem}",
            maildb::stamps::file_name(name)
        ));
    }
    Ok(VerifiedFile {
        name: name.to_owned(),
        bytes,
        seconds: world.now().since(began).as_secs_f64(),
        good: verdict.pages_good.into(),
        empty: verdict.pages_empty.into(),
        blank_unjudged: verdict.pages_empty > 0 && !verdict.blank_are_judged(),
        damaged,
    })
}

/// Verifies the log files of `base_name`, reported as one file.
pub async fn verify_group_logs(
    world: &World,
    directory: &Rc<dyn Directory>,
    base_name: &str,
    on_progress: &mut dyn FnMut(ByteCount, ByteCount),
) -> Result<VerifiedFile, Error> {
    let began = world.now();
    let report = verify_logs(directory, base_name, on_progress).await?;
    let mut damaged: Vec<String> = report.files.iter().filter_map(log_damage).collect();
    if let Some(broken) = &report.broken {
        damaged.push(format!("its records cannot be read to the end: {broken}"));
    }
    Ok(VerifiedFile {
        name: format!("{} log files {base_name}*", report.files.len()),
        bytes: report.bytes().0,
        seconds: world.now().since(began).as_secs_f64(),
        good: report.total(|tally| tally.good),
        empty: report.total(|tally| tally.empty),
        blank_unjudged: false,
        damaged,
    })
}

/// The damage of a log file in one sentence; `None` if it is clean.
fn log_damage(file: &LogFileReport) -> Option<String> {
    if file.is_clean() {
        return None;
    }
    if file.verdict.facts.is_none() {
        return Some(format!("{}: its header is damaged", file.name));
    }
    let is_segment = |finding: &&FileFinding| matches!(finding.place.part, FilePart::Segment(_));
    let (segments, others): (Vec<_>, Vec<_>) = file.damage().partition(is_segment);
    Some(match others.first() {
        Some(finding) => format!("{}: {finding}", file.name),
        None => format!("{}: {} damaged segments", file.name, segments.len()),
    })
}
