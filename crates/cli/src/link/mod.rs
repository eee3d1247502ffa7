//! `spindle link`: the line to another site, measured by the servers at both ends and judged here.

pub mod arguments;
mod line_rate;
mod line_verdict;

use crate::{
    command_line::own_command, console::Console, exit_status::ExitStatus,
    server::connection::ServerConnection,
};
use arguments::{LinkArguments, LinkTestArguments, LinkVerb, QUICK_SECONDS, SECONDS};
use control::web::client::{LineTestRow, Method, NewLineTestBody, in_uri};
use line_verdict::{LineNeeds, LineVerdict, measured};
use plan::{
    rules::{DEFAULT, Rules},
    site::{MeasuredLink, Site},
};
use report::{Meta, Refusal, text};
use runs::text_file;
use std::{path::Path, pin::pin, time::Duration};
use world::{
    World,
    real::{self, RealOptions, host_files},
    with_deadline,
};

/// Between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Runs the verb to its end.
pub fn link(arguments: &LinkArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.common.json, false);
    let LinkVerb::Test(test) = &arguments.verb;
    // What can be refused is refused before anything is measured.
    let site = site_of(test)?;
    let row = real::run(0, RealOptions::default(), async |world: World| {
        let server = arguments.common.place.connection(&world)?;
        measure(&world, &server, test, &console).await
    })?;
    let needs = LineNeeds { groups: test.groups, needed_mbit: test.needed.map(|needed| needed.get()) };
    let line = test.line.as_deref().map(|name| (name, rated_mbit(name)));
    let figures = measured(&row)?;
    let mut judged = LineVerdict::new(row, site, needs, line)?;
    if let Some(path) = &test.write {
        judged.written = write(path, &figures)?;
    }
    let meta = Meta {
        generator: concat!("spindle ", env!("CARGO_PKG_VERSION")).to_owned(),
        command: Some(own_command()),
        ..Meta::default()
    };
    let document = judged.document(&format!("Line test, {} s", seconds(test)), meta);
    let options = text::TextOptions { width: console.width, colour: console.colour };
    console.say(text::render(&document, options).trim_end());
    if let Some(path) = &test.write {
        let shown = path.display();
        judged.written.iter().for_each(|change| console.say(&format!("{shown}: {change}")));
        if judged.written.is_empty() {
            console.say(&format!("{shown}: it has these figures already"));
        }
    }
    if console.is_for_programs() {
        console.json_of(&judged)?;
    }
    console.finish(if judged.fits { ExitStatus::Pass } else { ExitStatus::Fail })
}

fn seconds(test: &LinkTestArguments) -> u64 {
    test.seconds.unwrap_or(if test.quick { QUICK_SECONDS } else { SECONDS })
}

/// The rate of a line whose name was checked.
fn rated_mbit(name: &str) -> f64 {
    let key = plan::profile::line(name).expect("the argument was checked");
    Rules::named(DEFAULT).expect("they are built in").value(key)
}

/// The site whose needs count: an empty one if no file is named. A file to be written is tried.
fn site_of(test: &LinkTestArguments) -> Result<Site, Refusal> {
    let mut site = Site::default();
    if let Some(path) = &test.write {
        let text = read(path)?;
        let refuse =
            |error: plan::site::SiteError| Refusal::new(format!("--write: {}: {error}", path.display()), "");
        MeasuredLink { rtt_ms: 1.0, mbit_each: 1.0, paths: 1 }.write_into(&text).map_err(refuse)?;
        site = Site::from_toml(&text).map_err(refuse)?;
    }
    match &test.site {
        Some(name) => runs::site::read("--site", name),
        None => Ok(site),
    }
}

fn read(path: &Path) -> Result<String, Refusal> {
    let name = path.to_string_lossy();
    text_file::read_any("--write", &name, "give a site file, as 'spindle plan' writes it")
}

/// Writes the figures into a site file; returns the changes.
fn write(path: &Path, figures: &MeasuredLink) -> Result<Vec<String>, Refusal> {
    let refuse = |error: String| Refusal::new(format!("{}: {error}", path.display()), "nothing was written");
    let (text, changes) = figures.write_into(&read(path)?).map_err(|error| refuse(error.to_string()))?;
    if !changes.is_empty() {
        host_files::write_atomically(path, text.as_bytes()).map_err(|error| refuse(error.to_string()))?;
    }
    Ok(changes)
}

/// Has the server measure, and says how far it is meanwhile.
async fn measure(
    world: &World,
    server: &ServerConnection,
    test: &LinkTestArguments,
    console: &Console,
) -> Result<LineTestRow, Refusal> {
    let (peer, all) = (&test.peer, seconds(test));
    let path = format!("/v1/dr/sites/{}/link-tests", in_uri(peer));
    let body = NewLineTestBody { seconds: all as f64, connections: test.connections };
    console.say_progress(&format!("measuring the line to {peer}, about {all} s"));
    let begun = world.now();
    let mut asking = pin!(server.change_to_its_end(Method::POST, &path, Some(&body)));
    loop {
        if let Some(reply) = with_deadline(world.sleep(PROGRESS_EVERY), &mut asking).await {
            return reply?.parsed();
        }
        let passed = world.now().since(begun).as_secs();
        console.say_progress(&format!("measuring the line to {peer}: {passed} s of about {all}"));
    }
}
