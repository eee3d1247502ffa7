//! A person's own check of clones: a command of this machine, which gets their URIs.

use report::Refusal;
use std::time::Duration;
use world::{
    program::{ProgramCall, ProgramEnd, Programs},
    real::RealPrograms,
};

/// Bytes of output that are shown: its end says most.
const SHOWN_BYTES: usize = 4096;

/// The answer of a command.
pub struct CommandCheck {
    /// The answer in a sentence.
    pub headline: String,
    pub has_passed: bool,
    /// The end of its output, if there is any.
    pub output: Option<String>,
}

/// Runs the command by `sh -c`: the URIs are `$1`, `$2` and so on, and `SPINDLE_URI_1` and so on in the environment, with
/// `named`. Its exit code is the answer.
///
/// # Errors
///
/// There is no shell.
pub async fn run(
    (command, within): (&str, Duration),
    named: (&str, &str),
    uris: &[String],
) -> Result<CommandCheck, Refusal> {
    let mut environment = vec![(named.0.to_owned(), named.1.to_owned())];
    let numbered = (1..).zip(uris);
    environment.extend(numbered.map(|(number, uri)| (format!("SPINDLE_URI_{number}"), uri.clone())));
    // The word behind the command is $0.
    let words = ["-c", command, "spindle-check"].map(str::to_owned);
    let call = ProgramCall {
        program: "sh".to_owned(),
        arguments: words.into_iter().chain(uris.iter().cloned()).collect(),
        environment,
        time_limit: within,
        grace: Duration::ZERO,
        user: None,
    };
    let ended = RealPrograms::default().run(call).await;
    let result = ended.map_err(|error| Refusal::new(error.to_string(), "a shell is needed for ⟨check⟩"))?;
    let problem = match result.end {
        ProgramEnd::Exited(0) => None,
        ProgramEnd::Exited(code) => Some(format!("the check {command:?} ended with {code}")),
        ProgramEnd::Signalled(signal) => Some(format!("signal {signal} ended the check {command:?}")),
        ProgramEnd::TimedOut => Some(format!("the check {command:?} had not ended in the time of ⟨within⟩")),
    };
    let bytes = &result.output.bytes;
    let shown = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SHOWN_BYTES)..]).trim().to_owned();
    Ok(CommandCheck {
        has_passed: problem.is_none(),
        headline: problem.unwrap_or_else(|| format!("the check {command:?} passed")),
        output: Some(shown).filter(|shown| !shown.is_empty()),
    })
}
