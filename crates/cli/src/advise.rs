//! `spindle advise`: what is wrong with a site.

use crate::{
    arguments::AdviseArguments, command_line::own_command, console::Console, exit_status::ExitStatus,
    server::place::ServerAddress,
};
use ::plan::advice::{Advice, Severity, advise as advice_for};
use control::web::client::SiteAdvice;
use report::{Meta, Refusal, html, text};
use runs::{outputs::check_new_file, record_reader, run_facts::run_facts, site};
use serde::Serialize;
use std::path::Path;
use world::{
    World,
    real::{self, RealOptions, host_files},
};

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
    let name = match (&arguments.site, &arguments.address.server) {
        (Some(name), _) => name.as_str(),
        (None, server) => {
            server.as_deref().expect("the arguments have a site, a server, or ask for a template")
        }
    };
    if let Some(html) = &arguments.html {
        check_new_file("--html", html)?;
    }
    let advice = match &arguments.site {
        Some(file) => {
            let site = site::read("SITE", file)?;
            let run = match &arguments.run {
                Some(path) => {
                    Some(run_facts(&record_reader::read(&record_reader::record_of(path))?.results)?)
                }
                None => None,
            };
            advice_for(&site, run.as_ref())
        }
        None => advice_of_server(&arguments.address)?,
    };
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

/// The advice of a server on the site that it serves.
fn advice_of_server(address: &ServerAddress) -> Result<Advice, Refusal> {
    real::run(0, RealOptions::default(), async |world: World| {
        let server = address.connection(&world)?.expect("the arguments name a server");
        let advice: SiteAdvice = server.get("/v1/site/advice").await?;
        Ok(advice.advice())
    })
}
