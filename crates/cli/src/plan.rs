//! `spindle plan`: from the users of a mail system to the storage under it.

use crate::{
    command_line::own_command, console::Console, exit_status::ExitStatus, plan_arguments::PlanArguments,
};
use ::plan::{
    answer::{Explained, StoragePlan},
    catalogue::Catalogue,
    profile::{self, Profile, ProfileError, Tier},
    rules::{Rules, RulesError},
};
use report::{Document, Meta, Refusal, calendar::shown_time, html, text};
use runs::{outputs::check_new_file, text_file};
use std::{error::Error, path::Path};
use world::{
    World,
    real::{
        self,
        host_files::{self, PathKind},
    },
};

/// Runs the verb to its end.
pub fn plan(arguments: &PlanArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, arguments.quiet);
    let profile = profile(arguments)?;
    let rules = rules(arguments, &profile.rules)?;
    refuse_places(arguments)?;
    let answer = StoragePlan::of(profile, rules, &Catalogue::built_in()).map_err(refused)?;
    if let Some(id) = &arguments.explain {
        let explained = answer.explain(id).map_err(|error| {
            Refusal::new(
                error.to_string(),
                "'spindle plan' without --explain shows every number with its name",
            )
        })?;
        return explain(&explained, arguments, &console);
    }
    let site = match &arguments.site {
        Some(path) => {
            let site = answer.site().map_err(refused)?;
            Some((path, site.to_toml()))
        }
        None => None,
    };
    let document = answer.document(meta());
    if let Some(path) = &arguments.html {
        write(path, &html::render(&document))?;
    }
    if let Some((path, text)) = &site {
        write(path, text)?;
    }
    if arguments.json {
        console.json_of(&answer.for_programs())?;
    } else {
        for (what, path) in [("Plan", &arguments.html), ("Site", &arguments.site)] {
            path.iter().for_each(|path| console.say_always(&format!("{what}: {}", path.display())));
        }
        let site = arguments.site.as_ref().map(|path| path.display().to_string());
        let shown = if arguments.full { document } else { answer.summary(meta(), site.as_deref()) };
        say(shown, &console);
    }
    console.finish(if answer.first().is_some() { ExitStatus::Pass } else { ExitStatus::Fail })
}

fn explain(
    explained: &Explained,
    arguments: &PlanArguments,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    if arguments.json {
        console.json_of(explained)?
    } else {
        console.say_always(explained.to_string().trim_end())
    }
    console.finish(ExitStatus::Pass)
}

/// The profile, from the file and the flags.
fn profile(arguments: &PlanArguments) -> Result<Profile, Refusal> {
    let mut profile = match &arguments.profile {
        Some(path) => {
            let name = path.display().to_string();
            let text = text_file::read("PROFILE", &name, &["the flags --users, --quota"])?;
            Profile::parse(&text).map_err(|error| Refusal::new(format!("{name}: {error}"), ""))?
        }
        None => Profile { tiers: vec![users(arguments)?], ..Profile::default() },
    };
    flags(&mut profile, arguments)?;
    profile.check().map_err(refused)?;
    Ok(profile)
}

/// The single tier of users that flags can describe.
fn users(arguments: &PlanArguments) -> Result<Tier, Refusal> {
    let Some(users) = &arguments.users else { return Err(refused(ProfileError::NoUsers)) };
    let mut tier = Tier::new("all", whole("--users", users)?);
    if let Some(quota) = &arguments.quota {
        tier.quota("--quota", quota).map_err(refused)?;
    }
    if let Some(text) = &arguments.messages {
        let messages = text.parse().ok().filter(|number: &f64| number.is_finite());
        let messages =
            messages.ok_or_else(|| Refusal::new(format!("--messages: {text:?} is not a number"), ""))?;
        tier.messages("--messages", messages).map_err(refused)?;
    }
    if let Some(size) = &arguments.message_size {
        tier.message_size("--message-size", size).map_err(refused)?;
    }
    Ok(tier)
}

/// Applies the flags other than those of users.
fn flags(profile: &mut Profile, arguments: &PlanArguments) -> Result<(), Refusal> {
    if let Some(rules) = &arguments.rules {
        profile.rules.clone_from(rules);
    }
    if let Some(copies) = &arguments.copies {
        let copies = whole("--copies", copies)?;
        profile.copies = Some(u32::try_from(copies).unwrap_or(u32::MAX));
    }
    if let Some(mode) = &arguments.mode {
        profile.mode = Some(profile::parse_mode(mode).map_err(refused)?);
    }
    if let Some(size) = &arguments.max_db_size {
        profile.database_max = Some(profile::parse_database_max("--max-db-size", size).map_err(refused)?);
    }
    if let Some(growth) = &arguments.growth {
        profile.growth = profile::parse_growth("--growth", growth).map_err(refused)?;
    }
    if let Some(raid) = &arguments.raid {
        profile.raid = Some(profile::parse_raid(raid).map_err(refused)?);
    }
    if let Some(array) = &arguments.array {
        profile.array = Some(array.clone());
    }
    if let Some(link) = &arguments.link {
        profile::line(link).map_err(refused)?;
        profile.link = Some(link.clone());
    }
    profile.set.extend(arguments.set.iter().cloned());
    Ok(())
}

/// A whole number that is not negative.
fn whole(flag: &str, text: &str) -> Result<u64, Refusal> {
    text.parse()
        .map_err(|_| Refusal::new(format!("{flag}: {text:?} is not a whole number of at least 1"), ""))
}

/// The rule set called `name`, or of the file that is.
fn rules(arguments: &PlanArguments, name: &str) -> Result<Rules, Refusal> {
    match Rules::named(name) {
        Ok(rules) => Ok(rules),
        Err(RulesError::Unknown { nearest, .. }) => {
            if !matches!(host_files::kind(Path::new(name)), Ok(PathKind::File)) {
                let place = match &arguments.profile {
                    Some(profile) if arguments.rules.is_none() => profile.display().to_string(),
                    _ => "--rules".to_owned(),
                };
                let known: Vec<&str> = Rules::names().collect();
                let said = format!(
                    "{place}: no rule set is called {name:?} (there are {}, or give a file)",
                    known.join(", ")
                );
                let question = nearest.map_or(String::new(), |nearest| format!("did you mean {nearest:?}?"));
                return Err(Refusal::new(said, question));
            }
            let text = text_file::read("--rules", name, &Rules::names().collect::<Vec<_>>())?;
            Rules::parse(&text).map_err(|error| Refusal::new(format!("{name}: {error}"), ""))
        }
        Err(error) => Err(refused(error)),
    }
}

/// Errors of the plan crate are whole lines.
fn refused(error: impl Error) -> Refusal {
    Refusal::new(error.to_string(), "")
}

fn meta() -> Meta {
    let now = real::run(0, real::RealOptions::default(), async |world: World| world.wall());
    Meta {
        generator: concat!("spindle ", env!("CARGO_PKG_VERSION")).to_owned(),
        created_utc: shown_time(now.seconds),
        machine: String::new(),
        seed: None,
        command: Some(own_command()),
    }
}

fn say(mut shown: Document, console: &Console) {
    let options = text::TextOptions { width: console.width, colour: console.colour };
    if console.is_quiet() {
        shown.sections.clear();
    }
    console.say_always(text::render(&shown, options).trim_end());
}

/// A plan is not written over another, nor over a site that somebody may have changed.
fn refuse_places(arguments: &PlanArguments) -> Result<(), Refusal> {
    if let (Some(html), Some(site)) = (&arguments.html, &arguments.site)
        && html == site
    {
        let what = format!("--html and --site are both {}", html.display());
        return Err(Refusal::new(what, "give each a name of its own"));
    }
    let files = [("--html", &arguments.html), ("--site", &arguments.site)];
    files
        .into_iter()
        .filter_map(|(flag, file)| Some((flag, file.as_ref()?)))
        .try_for_each(|(flag, file)| check_new_file(flag, file))
}

fn write(path: &Path, text: &str) -> Result<(), Refusal> {
    host_files::write_atomically(path, text.as_bytes())
        .map_err(|error| Refusal::new(format!("{} could not be written: {error}", path.display()), ""))
}
