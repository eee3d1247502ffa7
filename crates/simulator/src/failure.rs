//! A promise that a run broke, with all that is needed to see it again.

use std::{
    any::Any,
    fmt::{Debug, Display},
    panic::{AssertUnwindSafe, catch_unwind},
};
use thiserror::Error;

/// A broken promise.
#[derive(Clone, Debug, Error)]
#[error("seed {seed}: {what}\n{story}\nagain: {again}")]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Which promise, or the message of a failed assertion.
    pub what: String,
    /// Plan and what happened until then.
    pub story: String,
    /// The command that does it again.
    pub again: String,
}

/// Completes a run. A failed assertion is a broken promise like any other: what it was, if one was broken.
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

/// What was planned, and what happened.
pub(crate) fn story(plan: &impl Debug, happened: &[String]) -> String {
    let mut story = format!("{plan:#?}\n");
    happened.iter().for_each(|line| story += &format!("- {line}\n"));
    story
}
