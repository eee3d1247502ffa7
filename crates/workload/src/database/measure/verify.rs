//! Verification after the run: every page of every database and every log file is read and checked.

use crate::database::load::{
    error::Error,
    operation::{FailureKind, RunFailure},
};
use maildb::{
    log::verify::{SegmentVerdict, verify_logs},
    verify::StampsVerdict,
};
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use verify::in_world::verify_database_with_stamps;
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
    let verdict = verify_logs(directory, base_name, on_progress).await.map_err(maildb::Error::from)?;
    let mut damaged: Vec<String> = Vec::new();
    for (name, file) in verdict.files.iter().filter(|(_, file)| !file.is_clean()) {
        let bad = file.count(SegmentVerdict::Bad);
        damaged.push(match file.header {
            None => format!("{name}: its header is damaged"),
            Some(_) => format!("{name}: {bad} damaged segments"),
        });
    }
    if let Some(broken) = &verdict.broken {
        damaged.push(format!("its records cannot be read to the end: {broken}"));
    }
    Ok(VerifiedFile {
        name: format!("{} log files {base_name}*", verdict.files.len()),
        bytes: verdict.bytes().0,
        seconds: world.now().since(began).as_secs_f64(),
        good: verdict.count(SegmentVerdict::Good) as u64,
        empty: verdict.count(SegmentVerdict::Empty) as u64,
        blank_unjudged: false,
        damaged,
    })
}
