//! A command for each event, on the side of the person who follows: the server starts no program.

use crate::console::Console;
use control::web::client::{EventRow, EventSeverity};
use std::time::Duration;
use world::{
    program::{ProgramCall, ProgramEnd, ProgramResult},
    real::RealPrograms,
};

const TIME_MAX: Duration = Duration::from_secs(300);

/// Runs a command for an event, and shows its output and its end. A failure is shown, and ends nothing.
pub(super) async fn run_command(command: &str, row: &EventRow, console: &Console) {
    let call = ProgramCall {
        program: "sh".to_owned(),
        arguments: vec!["-c".to_owned(), command.to_owned()],
        environment: environment(row),
        time_limit: TIME_MAX,
        grace: Duration::ZERO,
        user: None,
    };
    let mut input = serde_json::to_vec(row).expect("plain fields");
    input.push(b'\n');
    let id = row.id;
    match RealPrograms::default().run_with_input(call, input).await {
        Err(error) => console.warn(&format!("the command for event {id} did not run: {error}")),
        Ok(ProgramResult { end, output }) => {
            for line in String::from_utf8_lossy(&output.bytes).lines() {
                console.say_progress(&format!("  {line}"));
            }
            if output.dropped_bytes > 0 {
                console.say_progress(&format!("  ({} bytes more)", output.dropped_bytes));
            }
            match end {
                ProgramEnd::Exited(0) => console.say_progress(&format!("  exit code 0 for event {id}")),
                ProgramEnd::Exited(code) => {
                    console.warn(&format!("the command for event {id} ended with exit code {code}"));
                }
                ProgramEnd::Signalled(signal) => {
                    console.warn(&format!("the command for event {id} was ended by signal {signal}"));
                }
                ProgramEnd::TimedOut => {
                    let seconds = TIME_MAX.as_secs();
                    console.warn(&format!("the command for event {id} was killed after {seconds} s"));
                }
            }
        }
    }
}

fn environment(row: &EventRow) -> Vec<(String, String)> {
    let severity = match row.severity {
        EventSeverity::Note => "note",
        EventSeverity::Warning => "warning",
        EventSeverity::Error => "error",
    };
    let state = row.details.get("state").and_then(|state| state.as_str()).unwrap_or_default();
    let id = row.id.to_string();
    let variables = [
        ("EVENT", row.event.as_str()),
        ("ID", &id),
        ("SEVERITY", severity),
        ("TIME", &row.time),
        ("POOL", &row.pool),
        ("TEXT", &row.text),
        ("NEXT_STEP", &row.next_step),
        ("STATE", state),
        ("MESSAGE", &row.message),
    ];
    // Variables end at a zero byte.
    let named = |(name, value): (&str, &str)| (format!("SPINDLE_{name}"), value.replace('\0', " "));
    variables.into_iter().map(named).collect()
}
