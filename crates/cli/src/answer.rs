//! Delivery of an answer, the same way for every verb: text, report files, JSON and exit status.

use crate::{console::Console, exit_status::ExitStatus};
use report::{Document, Refusal, Severity, json, text};
use runs::outputs::{Outputs, WriteOutcome};

/// The answer, the few figures wanted first, and what speaks against them; the rest is in the report.
fn in_short(document: &Document) -> Document {
    let mut answer = document.clone();
    answer.sections.clear();
    answer.findings.retain(|finding| finding.severity < Severity::Note);
    for finding in &mut answer.findings {
        finding.source.clear();
    }
    answer
}

/// Prints a whole document, writes it to `outputs` if given, and prints it as JSON if `json`.
/// In quiet mode only `answer` is printed.
pub fn deliver_whole(
    document: &Document,
    answer: &str,
    outputs: Option<&Outputs>,
    json: bool,
    console: &Console,
) -> Result<(), Refusal> {
    let options = text::TextOptions { width: console.width, colour: console.colour };
    if console.is_quiet() {
        console.say_always(answer)
    } else {
        console.say(text::render(document, options).trim_end())
    }
    if let Some(outputs) = outputs {
        outputs.write(document)?;
        console.say_always(&format!("Comparison: {} (and .json)", outputs.html.display()));
    }
    if json { console.json(&json::render(document)) } else { Ok(()) }
}

/// Writes the report, prints its summary, and returns the exit status. With `json` the document is printed as well.
pub fn deliver(
    document: &Document,
    outputs: &Outputs,
    json: bool,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let answer = in_short(document);
    let options = text::TextOptions { width: console.width, colour: console.colour };
    if console.is_quiet() {
        if let Some(verdict) = &document.verdict {
            console.say_always(&format!("{}: {}", verdict.outcome.word(), verdict.headline));
        }
    } else {
        console.say(text::render(&answer, options).trim_end());
    }
    let was = match outputs.write(document)? {
        WriteOutcome::New => "",
        WriteOutcome::Same => ", as it was",
    };
    console.say_always(&format!("Report: {} (and .json){was}", outputs.html.display()));
    if json {
        console.json(&json::render(document))?;
    }
    Ok(ExitStatus::of(document.verdict.as_ref().map(|verdict| verdict.outcome)))
}
