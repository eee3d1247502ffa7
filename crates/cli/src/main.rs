//! The `spindle` program: storage under a mail system. One file a verb.

mod advise;
mod answer;
mod arguments;
mod check_command;
mod command_line;
mod compare;
mod console;
mod disks;
mod dr;
mod exit_status;
mod export;
mod help_text;
mod line_thread;
mod link;
mod notice_lines;
mod plan;
mod plan_arguments;
mod pool;
mod progress;
mod protect;
mod prove;
mod quantity;
mod remote_arguments;
mod report;
mod server;
mod service;
mod setup;
mod shell;
mod site;
mod state_folder;
mod top;
mod verb_arguments;
mod verify;
mod witness;

use ::report::Refusal;
use arguments::Verb;
use exit_status::ExitStatus;
use std::{
    env,
    io::{self, Write},
    process::ExitCode,
};
use world::real;

/// Each command has several buffers aligned to 4 KiB, which glibc's allocator cuts out of larger pieces and joins again: up to a
/// quarter of the processor time of a volume that is served.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Filesystems are frozen by this program, started again: it must not have threads or files of its own.
    real::freeze::serve_if_helper();
    if env::args_os().nth(1).is_some_and(|verb| verb == "serve") {
        // Here, and not in the verb: what parses the command line fills several huge pages otherwise.
        real::use_small_pages();
    }
    match run() {
        Ok(status) => status.code(),
        Err(refusal) => {
            // Nobody may be listening any more.
            let _ = writeln!(io::stderr(), "spindle: {}", console::in_options(&refusal.to_string()));
            ExitStatus::NoAnswer.code()
        }
    }
}

fn run() -> Result<ExitStatus, Refusal> {
    let Some(arguments) = arguments::parse()? else { return Ok(ExitStatus::Pass) };
    real::prepare_process().map_err(|error| Refusal::new(error.to_string(), ""))?;
    match arguments.verb {
        Verb::Advise(arguments) => advise::advise(&arguments),
        Verb::Prove(arguments) => prove::prove(&arguments),
        Verb::Compare(arguments) => compare::compare(&arguments),
        Verb::Export(arguments) => export::export(&arguments),
        Verb::Plan(arguments) => plan::plan(&arguments),
        Verb::Pool(arguments) => pool::pool(&arguments),
        Verb::Volume(arguments) => pool::volume(&arguments),
        Verb::Group(arguments) => pool::group(&arguments),
        Verb::Job(arguments) => pool::job(&arguments),
        Verb::Setup(arguments) => setup::setup(&arguments),
        Verb::Serve(arguments) => site::serve(&arguments),
        Verb::Apply(arguments) => site::apply(&arguments),
        Verb::Site(arguments) => site::site(&arguments),
        Verb::Token(arguments) => server::token(&arguments),
        Verb::Audit(arguments) => server::audit(&arguments),
        Verb::Event(arguments) => server::event(&arguments),
        Verb::Completions(arguments) => shell::completions(&arguments),
        Verb::Disks(arguments) => disks::disks(&arguments),
        Verb::Drive(arguments) => server::drive(&arguments),
        Verb::Power(arguments) => server::power(&arguments),
        Verb::Target(arguments) => service::target(&arguments),
        Verb::Initiator(arguments) => service::initiator(&arguments),
        Verb::Session(arguments) => service::session(&arguments),
        Verb::Schedule(arguments) => service::schedule(&arguments),
        Verb::Protect(arguments) => protect::protect(&arguments),
        Verb::Man(arguments) => shell::man(&arguments),
        Verb::Top(arguments) => top::top(&arguments),
        Verb::Dr(arguments) => dr::dr(&arguments),
        Verb::Failover(arguments) => dr::fail_over(&arguments),
        Verb::Link(arguments) => link::link(&arguments),
        Verb::Report(arguments) => report::report(&arguments),
        Verb::Verify(arguments) => verify::verify(&arguments),
        Verb::Witness(arguments) => witness::witness(&arguments),
    }
}
