//! A violation found by a run, with the data to reproduce it.

use std::{
    any::Any,
    fmt::{Debug, Display},
    panic::{AssertUnwindSafe, catch_unwind},
};
use thiserror::Error;

#[derive(Clone, Debug, Error)]
#[error("seed {seed}: {what}\n{story}\nagain: {replay}")]
pub struct SeedFailure {
    pub seed: u64,
    /// The violation, or the message of a failed assertion.
    pub what: String,
    /// The plan and the events until then.
    pub story: String,
    /// The command that reproduces it.
    pub replay: String,
}

/// Completes a run. A failed assertion counts as a violation and becomes its message.
pub(crate) fn complete<T, E: Display>(run: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(ended) => ended.map_err(|violation| violation.to_string()),
        Err(panic) => Err(message_of(&*panic)),
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("an assertion failed: {}", text.unwrap_or("without a message"))
}

/// The plan and the events, for the failure report.
pub(crate) fn story(plan: &impl Debug, happened: &[String]) -> String {
    let mut story = format!("{plan:#?}\n");
    happened.iter().for_each(|line| story += &format!("- {line}\n"));
    story
}
