//! `spindle completions`: verbs and options that a shell completes.

use crate::{arguments::Arguments, console::Console, exit_status::ExitStatus};
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::{Shell, generate};
use report::Refusal;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  source <(spindle completions bash)      for this session
  spindle completions bash > /etc/bash_completion.d/spindle
  spindle completions zsh > ~/.zfunc/_spindle
  spindle completions fish > ~/.config/fish/completions/spindle.fish

The Debian package installs all three.

Ends with 0.")]
pub struct CompletionsArguments {
    /// Shell that reads the script
    #[arg(value_name = "SHELL", ignore_case = true)]
    shell: CompletedShell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CompletedShell {
    Bash,
    Zsh,
    Fish,
}

/// Runs the verb to its end.
pub fn completions(arguments: &CompletionsArguments) -> Result<ExitStatus, Refusal> {
    let shell = match arguments.shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Zsh => Shell::Zsh,
        CompletedShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut Arguments::command(), "spindle", &mut script);
    let console = Console::new(false, false);
    let script = String::from_utf8(script).expect("names of verbs and options are text");
    console.say_as_it_is(&script);
    console.finish(ExitStatus::Pass)
}
