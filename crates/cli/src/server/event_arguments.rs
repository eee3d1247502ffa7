//! Arguments of `spindle event`.

use super::place::ServerPlace;
use clap::{Args, Subcommand, ValueEnum};
use report::Severity;

#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  spindle event                          what is kept, oldest first
  spindle event --follow                 and what happens, until Ctrl-C
  spindle event --follow --after 1795736016000042 --json >> events.jsonl
  spindle event --follow --severity warning --exec 'logger -t spindle \"$SPINDLE_POOL: $SPINDLE_TEXT\"'
  spindle event conditions               what lasts, such as a pool that is nearly full

The server keeps the newest events, 100,000 at most, over restarts. Each has a number that grows: with --after, a program \
goes on where it was. With --json each is an object on a line, with \"id\", \"event\" (its kind), \"severity\", \"time\", \
\"pool\", \"text\", \"next_step\", \"message\" and \"details\".

--exec runs a command for each event, one at a time, by 'sh -c'. The event is in its environment (SPINDLE_EVENT, \
SPINDLE_ID, SPINDLE_SEVERITY, SPINDLE_TIME, SPINDLE_POOL, SPINDLE_TEXT, SPINDLE_NEXT_STEP, SPINDLE_STATE, SPINDLE_MESSAGE) \
and, as JSON, on its standard input. Its exit code is shown; after one that fails the next event follows. A command that runs \
for 5 minutes is killed. Without --after it begins with what happens next.

Ends with 0, or with 2 if there is no answer."
)]
pub struct EventArguments {
    #[command(subcommand)]
    pub verb: Option<EventVerb>,

    /// Only the events after this number [default: 0; with --exec the newest one]
    #[arg(long, value_name = "N")]
    pub after: Option<u64>,

    /// Go on with what happens
    #[arg(long, short)]
    pub follow: bool,

    /// Only events of this severity, or a worse one
    #[arg(long, value_name = "SEVERITY", ignore_case = true, default_value = "note")]
    pub severity: SeverityArgument,

    /// Run a command for each event (with --follow)
    #[arg(long, value_name = "COMMAND", requires = "follow")]
    pub exec: Option<String>,

    /// Print the answer as JSON on standard output; everything else goes to standard error
    #[arg(long, global = true)]
    pub json: bool,

    #[command(flatten)]
    pub place: ServerPlace,
}

#[derive(Clone, Debug, Subcommand)]
pub enum EventVerb {
    /// List what lasts: conditions that are open
    #[command(after_help = "Examples:
  spindle event conditions
  spindle event conditions --json

Ends with 0 if none is open that nobody has acknowledged, with 1 otherwise, and with 2 if there is no answer.")]
    Conditions,
    /// Say that you have taken a condition on: it is no news any more until it becomes worse
    #[command(after_help = "Example:
  spindle event acknowledge space:mail

It stays open until it has ended. 'spindle event conditions' lists the ids.")]
    Acknowledge {
        /// Id of the condition
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Send a test message to notifiers, and print the outcome
    #[command(after_help = "Examples:
  spindle event test
  spindle event test ops

Ends with 0 if each was delivered, with 1 if one was not, and with 2 if there is no answer.")]
    Test {
        /// Name of the notifier [default: each of the site file]
        #[arg(value_name = "NOTIFIER")]
        notifier: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SeverityArgument {
    /// Everything
    Note,
    /// A person should act on it
    Warning,
    /// Mail stands still, or data is in danger
    Error,
}

impl SeverityArgument {
    pub fn severity(self) -> Severity {
        match self {
            Self::Note => Severity::Note,
            Self::Warning => Severity::Warning,
            Self::Error => Severity::Error,
        }
    }
}
