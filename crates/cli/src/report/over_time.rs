//! `spindle report --from`: what the hosts of a server did over time, and a profile of it.

use super::{
    host_load::{HostLoad, period},
    load_document::{ReportedLoad, document_of},
    load_profile::LoadProfile,
};
use crate::{answer::deliver, arguments::ReportArguments, console::Console, exit_status::ExitStatus};
use report::{Refusal, calendar::shown_time};
use runs::outputs::{Outputs, check_new_file};
use world::{
    World,
    real::{self, RealOptions, host_files},
};

/// Runs the verb to its end.
pub(super) fn report(arguments: &ReportArguments) -> Result<ExitStatus, Refusal> {
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(arguments.json, arguments.quiet);
        let from = arguments.from.as_deref().expect("the arguments have it, or a run");
        let now = world.wall();
        let (from, to) = period(from, arguments.to.as_deref(), now.seconds)?;
        let outputs = Outputs::choose_report(arguments.report.as_deref(), now, &[])?;
        let file = outputs.prefix().with_extension("toml");
        check_new_file("⟨report⟩", &file)?;
        let server = arguments.place.connection(&world)?;
        let load = HostLoad::ask(&server, (from, to), &arguments.volume).await?;

        let sum = load.sum();
        let words = format!("{} to {}", shown_time(from), shown_time(to));
        let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let size_bytes = load.volumes.iter().map(|volume| volume.size_bytes).sum();
        let of = (arguments.base.as_str(), name.as_str(), words.as_str());
        let profile = LoadProfile::of(&sum, of, (arguments.mailboxes, size_bytes))?;
        let command = profile.as_ref().map(|profile| profile.command(&file));
        let reported = ReportedLoad {
            load: &load,
            sum: &sum,
            profile: profile.as_ref(),
            command: command.as_deref(),
            are_all: arguments.volume.is_empty(),
        };
        let document = document_of(&reported, (&words, &shown_time(now.seconds)));
        deliver(&document, &outputs, arguments.json, &console)?;
        if let (Some(profile), Some(command)) = (&profile, &command) {
            host_files::write_atomically(&file, profile.profile.to_toml().as_bytes())
                .map_err(|error| Refusal::new(format!("{}: {error}", file.display()), ""))?;
            console.say_always(&format!("Profile: {}", file.display()));
            console.say(&format!("Next: {command}"));
        }
        // It judges nothing.
        console.finish(ExitStatus::Pass)
    })
}
