//! A published test as defaults for options the user left open.

use crate::{
    request::{RunRequest, Threads},
    sweep::SweptSetting,
    text_file,
};
use report::Refusal;
use std::time::Duration;
use workload::{
    database::plan::{
        LoadPlan,
        setup::{Setup, SetupError},
    },
    verdict::judged_part::JudgedPart,
};
use world::ByteCount;

/// `request` with open options filled in from their set-up, and the set-up; refused if the load is
/// then only half given.
pub fn filled_in(request: &RunRequest) -> Result<(RunRequest, Option<Setup>), Refusal> {
    let setup = load(request)?;
    let filled = match &setup {
        Some(setup) => fill_in(request, setup),
        None => request.clone(),
    };
    let (given, missing) = match (filled.mailboxes, filled.iops) {
        (Some(_), None) => ("⟨mailboxes⟩", "⟨iops⟩, the IOPS of each"),
        (None, Some(_)) => ("⟨iops⟩", "⟨mailboxes⟩, how many there are"),
        _ => return Ok((filled, setup)),
    };
    Err(Refusal::new(format!("{given} alone does not define a load"), format!("add {missing}")))
}

/// The requested set-up, if any.
fn load(request: &RunRequest) -> Result<Option<Setup>, Refusal> {
    let Some(name) = &request.setup else { return Ok(None) };
    if name.contains('/') || name.ends_with(".toml") {
        let text = text_file::read("⟨setup⟩", name, &Setup::names())?;
        let setup = Setup::parse(&text).map_err(|error| Refusal::new(format!("{name}: {error}"), ""))?;
        return Ok(Some(setup));
    }
    Setup::load(name).map(Some).map_err(|error| match &error {
        SetupError::Unknown { name, nearest } => {
            let remedy = match nearest {
                Some(nearest) => format!("did you mean {nearest:?}?"),
                None => format!("there are {}", Setup::names().join(", ")),
            };
            Refusal::new(format!("no set-up is called {name:?}"), remedy)
        }
        _ => Refusal::new(error.to_string(), ""),
    })
}

/// `request` with open options filled in from `setup`.
///
/// A run of another duration than the published one judges the same share of it. Of mailboxes and their
/// rate one may be given alone: the other is the published one.
fn fill_in(request: &RunRequest, setup: &Setup) -> RunRequest {
    let mut filled = request.clone();
    filled.groups.get_or_insert(setup.groups.value);
    filled.databases.get_or_insert(setup.databases_per_group.value);
    filled.profile.get_or_insert_with(|| setup.profile.value.clone());
    filled.limits.get_or_insert_with(|| setup.limits.value.clone());
    filled.size.get_or_insert(ByteCount(setup.size_bytes.value));
    let planned_s = setup.duration_s.value;
    let duration = *filled.duration.get_or_insert(Duration::from_secs(planned_s));
    filled.judge.get_or_insert_with(|| match duration.as_secs() {
        same if same == planned_s => setup.judged(),
        other => setup.judged().scaled(planned_s, other.max(1)),
    });
    if filled.mailboxes.is_some() || filled.iops.is_some() {
        filled.mailboxes.get_or_insert(setup.mailboxes.value);
        filled.iops.get_or_insert(setup.iops_each.value);
    }
    let is_swept = filled.sweep.as_ref().is_some_and(|sweep| sweep.setting == SweptSetting::Threads);
    if filled.threads.is_none() && filled.mailboxes.is_none() && !filled.max && !is_swept {
        match setup.load_of() {
            LoadPlan::Threads { per_group } => filled.threads = Some(Threads::Count(per_group)),
            LoadPlan::Mailboxes { iops_each, .. } => {
                (filled.mailboxes, filled.iops) = (Some(setup.mailboxes.value), Some(iops_each));
            }
            // No published test searched; its load is given.
            LoadPlan::Maximum { .. } | LoadPlan::TunedThreads { .. } => {}
        }
    }
    filled
}

/// The judged part of the run, from `--judge`.
pub fn judged(request: &RunRequest) -> JudgedPart {
    request.judge.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn filled(setup: &str, given: RunRequest) -> RunRequest {
        filled_in(&RunRequest { setup: Some(setup.to_owned()), ..given }).expect("accepted").0
    }

    #[test]
    fn a_set_up_fills_in_what_was_not_said() {
        let eva8000 = filled("eva8000", RunRequest::default());
        assert_eq!(
            (eva8000.groups, eva8000.databases, eva8000.threads),
            (Some(4), Some(5), Some(Threads::Count(30)))
        );
        assert_eq!(eva8000.profile.as_deref(), Some("exchange-2003"));
        assert_eq!(eva8000.limits.as_deref(), Some("eva8000"));
        assert_eq!(eva8000.size, Some(ByteCount(375_000_000_000)));
        assert_eq!(eva8000.duration, Some(Duration::from_hours(2)));
        assert_eq!(eva8000.judge, Some(JudgedPart::All));
    }

    #[test]
    fn what_was_said_stands() {
        let minute = RunRequest { duration: Some(Duration::from_secs(60)), ..RunRequest::default() };
        let small = filled(
            "snapmanager",
            RunRequest {
                size: Some(ByteCount::gib(1)),
                threads: Some(Threads::Count(3)),
                groups: Some(1),
                ..minute.clone()
            },
        );
        assert_eq!(
            (small.groups, small.databases, small.threads),
            (Some(1), Some(1), Some(Threads::Count(3)))
        );
        assert_eq!((small.mailboxes, small.iops), (None, None));
        assert_eq!(small.size, Some(ByteCount::gib(1)));
        assert_eq!(small.judge, Some(JudgedPart::Last { seconds: 24 }), "4 h of 10 h");
        let all = filled("snapmanager", RunRequest { judge: Some(JudgedPart::All), ..minute });
        assert_eq!(all.judge, Some(JudgedPart::All));
        assert_eq!((all.mailboxes, all.iops), (Some(3000), Some(0.32)));
    }

    #[test]
    fn one_half_of_the_load_leaves_the_other_as_published() {
        let rate = |setup, mailboxes, iops| {
            let filled = filled(setup, RunRequest { mailboxes, iops, ..RunRequest::default() });
            (filled.mailboxes, filled.iops, filled.threads)
        };
        assert_eq!(rate("stortrends", Some(900), None), (Some(900), Some(0.45), None));
        assert_eq!(rate("stortrends", None, Some(0.9)), (Some(600), Some(0.9), None));
        assert_eq!(rate("eva8000", Some(900), None), (Some(900), Some(1.0), None), "instead of threads");
    }
}
