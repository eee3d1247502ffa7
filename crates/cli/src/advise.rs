//! `spindle advise`: what is wrong with a site.

use crate::{
    arguments::AdviseArguments, command_line::own_command, console::Console, exit_status::ExitStatus,
};
use ::plan::advice::{Advice, Severity, advise as advice_for};
use report::{Meta, Refusal, html, text};
use runs::{outputs::check_new_file, record_reader, run_facts::run_facts, site};
use serde::Serialize;
use std::path::Path;
use world::real::host_files;

/// The answer as JSON.
#[derive(Serialize)]
struct AdviceAnswer<'a> {
    site: &'a str,
    run: Option<&'a Path>,
    errors: usize,
    warnings: usize,
    notes: usize,
    #[serde(flatten)]
    advice: &'a Advice,
}

/// Runs the verb to its end.
pub fn advise(arguments: &AdviseArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, arguments.quiet);
    if arguments.template {
        console.say_always(::plan::site::template().trim_end());
        return console.finish(ExitStatus::Pass);
    }
    let name = arguments.site.as_deref().expect("the arguments have a site, or ask for a template");
    if let Some(html) = &arguments.html {
        check_new_file("--html", html)?;
    }
    let site = site::read("SITE", name)?;
    let run = match &arguments.run {
        Some(path) => Some(run_facts(&record_reader::read(&record_reader::record_of(path))?.results)?),
        None => None,
    };
    let advice = advice_for(&site, run.as_ref());
    let meta = Meta {
        generator: concat!("spindle ", env!("CARGO_PKG_VERSION")).to_owned(),
        command: Some(own_command()),
        ..Meta::default()
    };
    let document = advice.document(name, meta);
    if let Some(path) = &arguments.html {
        host_files::write_atomically(path, html::render(&document).as_bytes())
            .map_err(|error| Refusal::new(format!("{} could not be written: {error}", path.display()), ""))?;
    }
    if console.is_quiet() {
        console.say_always(&advice.in_short());
    } else {
        let options = text::TextOptions { width: console.width, colour: console.colour };
        console.say(text::render(&document, options).trim_end());
    }
    arguments.html.iter().for_each(|path| console.say_always(&format!("Advice: {}", path.display())));
    if arguments.json {
        console.json_of(&AdviceAnswer {
            site: name,
            run: arguments.run.as_deref(),
            errors: advice.count(Severity::Error),
            warnings: advice.count(Severity::Warning),
            notes: advice.count(Severity::Note),
            advice: &advice,
        })?;
    }
    console.finish(if advice.has_errors() { ExitStatus::Fail } else { ExitStatus::Pass })
}
