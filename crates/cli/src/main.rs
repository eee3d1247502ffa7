//! The `spindle` program: storage under a mail system. One file a verb.

mod arguments;
mod console;
mod ending;
mod prove;
mod quantity;
mod refusal;

use arguments::Verb;
use ending::Ending;
use refusal::Refusal;
use std::{
    io::{self, Write},
    process::ExitCode,
};

fn main() -> ExitCode {
    match run() {
        Ok(ending) => ending.code(),
        Err(refusal) => {
            // Nobody may be listening any more.
            let _ = writeln!(io::stderr(), "spindle: {refusal}");
            Ending::NoAnswer.code()
        }
    }
}

fn run() -> Result<Ending, Refusal> {
    let Some(arguments) = arguments::parse()? else { return Ok(Ending::Pass) };
    match arguments.verb {
        Verb::Prove(arguments) => prove::prove(&arguments),
    }
}
