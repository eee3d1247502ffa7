//! The run itself: the workload driven on the places, shown as it goes, and made a document.

use super::{
    allowance::Allowance,
    ground::Door,
    layout::{GroupLayout, Spot},
    progress::{ProgressView, Standing},
    survey::Survey,
};
use crate::{console::Console, refusal::Refusal};
use maildb::log::LogError;
use report::Document;
use rustix::io::Errno;
use std::{
    collections::BTreeMap,
    env,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use workload::database::{
    self, Error, OpenGroup, Surroundings, document::document, group::GroupStorage, plan::RunPlan,
    progress::Phase, verdict::Verdict,
};
use world::{
    Directory, IoErrorKind, IoResult, World,
    real::{RealOptions, signals::interrupted},
};

/// What is run, and where.
pub struct Run<'a> {
    /// What is to be done.
    pub plan: RunPlan,
    /// Where each file lies.
    pub layout: &'a [GroupLayout],
    /// The places.
    pub survey: &'a Survey,
    /// How files are reached.
    pub options: RealOptions,
}

/// Runs a plan to its end, to the user's Ctrl-C, or until `allowance` is spent.
pub async fn run(
    world: &World,
    run: Run<'_>,
    mut allowance: Allowance,
    console: &Console,
) -> Result<Document, Refusal> {
    let Run { plan, layout, survey, options } = run;
    let stop = Arc::new(AtomicBool::new(false));
    let mut view = ProgressView::new(console);
    world.spawn("interruption", {
        let (stop, console) = (Arc::clone(&stop), console.clone());
        async move {
            interrupted().await;
            stop.store(true, Ordering::Relaxed);
            console.say_progress("\nEnding, with a partial report. Once more to end at once.");
        }
    });
    let surroundings = Surroundings {
        open: opener(layout, survey),
        place: database::Place::Threads(options),
        stop: Arc::clone(&stop),
        generator: concat!("spindle ", env!("CARGO_PKG_VERSION")).to_owned(),
        host: survey.host.clone(),
        read_host: Some(Box::new(super::machine::read_host)),
    };
    let began = world.now();
    let outcome = database::run(world, plan, surroundings, |progress| {
        let standing = (progress.phase != Phase::Done).then(|| Standing::of(progress));
        let lines: Vec<&str> = progress.lines.iter().map(|line| line.text.as_str()).collect();
        view.tell(world.now().since(began), standing.as_ref(), &lines);
        if allowance.is_met() {
            stop.store(true, Ordering::Relaxed);
            view.say("As much is written as may be. Ending, with a partial report.");
        }
    })
    .await;
    drop(view);
    let results = outcome.map_err(refusal_of)?;
    let verdict = Verdict::of(&results).map_err(|error| Refusal::new(error.to_string(), ""))?;
    let mut document = document(&results, &verdict);
    if let Some(finding) = allowance.finding() {
        let errors = document.findings.iter().take_while(|other| other.severity < finding.severity).count();
        document.findings.insert(errors, finding);
    }
    document.meta.command = Some(command_line(env::args()));
    Ok(document)
}

/// The command as it may be typed again: words that a shell would take apart are quoted.
fn command_line(words: impl Iterator<Item = String>) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,%+@".contains(c);
    let quoted = words.enumerate().map(|(index, word)| match (index, word.chars().all(is_plain)) {
        (0, _) => "spindle".to_owned(),
        (_, true) if !word.is_empty() => word,
        _ => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Opens the storage of each group on the thread it runs on; a place is opened once for a group.
fn opener(layout: &[GroupLayout], survey: &Survey) -> OpenGroup {
    let layout = layout.to_vec();
    let doors: Vec<(Door, String)> = survey
        .places
        .all
        .iter()
        .map(|place| (Door::of(&place.ground), place.given.display().to_string()))
        .collect();
    Arc::new(move |_, group| {
        let (group, doors) = (layout[group as usize].clone(), doors.clone());
        Box::pin(async move { open_group(&group, &doors).await })
    })
}

async fn open_group(group: &GroupLayout, doors: &[(Door, String)]) -> IoResult<GroupStorage> {
    let mut opened: BTreeMap<usize, Rc<dyn Directory>> = BTreeMap::new();
    for place in group.places() {
        opened.insert(place, doors[place].0.open().await?);
    }
    let directory = |spot: &Spot| Rc::clone(&opened[&spot.place]);
    let volume = |spot: &Spot| doors[spot.place].1.clone();
    Ok(GroupStorage {
        databases: group
            .databases
            .iter()
            .map(|spot| (directory(spot), spot.name.clone(), volume(spot)))
            .collect(),
        log: (directory(&group.log), volume(&group.log)),
    })
}

/// A run that ended without results, in one line.
fn refusal_of(error: Error) -> Refusal {
    let remedy = match &error {
        full if is_out_of_space(full) => {
            "make room and run again, or begin anew with --fresh and a smaller --size"
        }
        Error::Plan(_) | Error::Thread(_) => "",
        Error::Storage(_) => "check the storage; what was made stays until --fresh or --clean",
        _ => "the files stay as they are for a look; --fresh replaces them, --clean removes them",
    };
    Refusal::new(error.to_string(), remedy)
}

/// True if the kernel's answer below the error was "no space" or "over quota", wherever it arose:
/// in a database, in its log, or beside them.
fn is_out_of_space(error: &Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let code = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        if code.is_some_and(|code| [Errno::NOSPC, Errno::DQUOT].contains(&Errno::from_raw_os_error(code))) {
            return true;
        }
        cause = error.source();
    }
    // A raw device runs full without the kernel: Spindle's own directory says so.
    let kind = match error {
        Error::Database(maildb::Error::Log(LogError::Io(error))) => Some(error.kind()),
        other => other.storage_kind(),
    };
    kind == Some(IoErrorKind::NoSpace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_report_may_be_typed_again() {
        let words = ["target/debug/spindle", "prove", "/mnt/my mail", "it's", "--size", "4GiB", ""];
        assert_eq!(
            command_line(words.map(str::to_owned).into_iter()),
            r"spindle prove '/mnt/my mail' 'it'\''s' --size 4GiB ''"
        );
    }
}
