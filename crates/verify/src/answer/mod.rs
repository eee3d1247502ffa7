//! The result of a verification as an answer: a document for people, and its JSON form.

mod document;
mod json;
mod labels;
mod recoveries;
mod sections;

pub use document::document;
pub use json::{VerifyJson, finding_lines, json_report};

use crate::running::{FixedCopy, RateLimiter, ScanOutcome, VerifyLevel, VerifyOutcome};
use report::duration::show_duration;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use world::ByteCount;

/// Result of a verification.
pub struct VerifyReport<'a> {
    /// Paths that were named.
    pub paths: &'a [PathBuf],
    pub level: VerifyLevel,
    /// File of saved progress.
    pub resume: Option<&'a Path>,
    pub outcome: VerifyOutcome,
    /// Fixes in a copy, if one was made.
    pub mended: Option<FixedCopy>,
    /// Findings of a scan outside files.
    pub scanned: Option<ScanOutcome>,
    /// Bytes that were checked.
    pub read: ByteCount,
    pub took: Duration,
}

impl<'a> VerifyReport<'a> {
    /// The result of checking `paths`, with `outcome` and the bytes that `pace` counted.
    pub fn of(paths: &'a [PathBuf], outcome: VerifyOutcome, pace: &RateLimiter) -> Self {
        Self {
            paths,
            level: VerifyLevel::default(),
            resume: None,
            outcome,
            mended: None,
            scanned: None,
            read: ByteCount(pace.progress().job.done),
            took: Duration::ZERO,
        }
    }
}

/// Amount and rate of reading.
fn speed(read: ByteCount, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    if seconds > 0.1 {
        format!("{} in {}, {}/s", read, show_duration(took), ByteCount((read.0 as f64 / seconds) as u64))
    } else {
        read.to_string()
    }
}
