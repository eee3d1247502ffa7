//! Sets of a site file in words: a plan of changes compares these with those of the file that was applied last.

use super::wanted::{WantedFreeze, WantedSet};
use plan::site::{ProtectedSet, SiteIndex};
use protect::set_keeper::SetVolume;
use std::collections::BTreeMap;

/// Sets in words, as [`WantedSite::services`](crate::site::WantedSite::services) has them. All keys are among the words:
/// whatever changes is shown.
pub(crate) fn set_texts(index: &SiteIndex, sets: &[WantedSet]) -> BTreeMap<(&'static str, String), String> {
    let tables = index.protected_sets();
    let text = |set: &WantedSet| {
        let name = &set.settings.name;
        let table = tables.iter().find(|table| table.set == *name)?;
        Some((("set", name.clone()), set_text(set, table)))
    };
    sets.iter().filter_map(text).collect()
}

/// `24x1h, 30x1d in UTC, frozen by nothing: dbs/store, logs/log (logs); keep at_least 3`.
fn set_text(set: &WantedSet, table: &ProtectedSet) -> String {
    let volume = |one: &SetVolume| {
        let suffix = if one.is_log { " (logs)" } else { "" };
        format!("{one}{suffix}")
    };
    let volumes: Vec<String> = set.settings.volumes.iter().map(volume).collect();
    // `logs_every` is among the schedules.
    let ProtectedSet { freeze_every, freeze, keep, restore, .. } = table;
    let kind = if set.freeze == WantedFreeze::Nothing { "nothing" } else { &freeze.kind };
    let list = |words: &[String]| words.join(" ");
    let number = |number: Option<u32>| number.map_or(String::new(), |number| number.to_string());
    let of_freeze = [
        ("every", freeze_every.clone()),
        ("prepare", list(&freeze.prepare)),
        ("before", list(&freeze.before)),
        ("after", list(&freeze.after)),
        ("finally", list(&freeze.finally)),
        ("timeout", freeze.timeout.clone()),
        ("user", freeze.user.clone()),
        ("worth", freeze.worth.clone()),
        ("mounts", list(&freeze.mounts)),
        ("sockets", list(&freeze.sockets)),
        ("by", freeze.by.clone()),
        ("budget", freeze.budget.clone()),
        ("uncovered", freeze.uncovered.clone()),
    ];
    let of_keep = [
        ("at_least", number(keep.at_least)),
        ("not_before", keep.not_before.clone()),
        ("at_most", keep.at_most.clone()),
        ("only_after", keep.only_after.clone()),
        ("on_full", keep.on_full.clone()),
        ("lock", keep.lock.clone()),
    ];
    let of_restore = [
        ("before", list(&restore.before)),
        ("after", list(&restore.after)),
        ("timeout", restore.timeout.clone()),
    ];
    let said = |keys: &[(&str, String)], head: &str| {
        let said: Vec<String> = keys
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| format!("{key} {value}"))
            .collect();
        if said.is_empty() { String::new() } else { format!("{head}{}", said.join(", ")) }
    };
    let drilled = set.settings.drill.as_ref().map_or(String::new(), |policy| format!("; drill {policy}"));
    let verified = match &set.settings.verification {
        Some(policy) => format!("; verify {policy}"),
        None => String::new(),
    };
    let copied = set.settings.vault.as_ref().map_or(String::new(), |policy| format!("; vault {policy}"));
    format!(
        "{}, frozen by {kind}{}: {}{}{verified}{drilled}{copied}{}",
        set.settings.schedules,
        said(&of_freeze, ", "),
        volumes.join(", "),
        said(&of_keep, "; keep "),
        said(&of_restore, "; restore ")
    )
}
