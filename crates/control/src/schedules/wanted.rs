//! The schedules of a site file, checked.

use plan::site::{Site, SiteIndex};
use protect::{SnapshotSchedule, schedule_mark::is_schedule_name};
use report::Refusal;
use std::collections::{BTreeMap, BTreeSet};

/// A schedule of snapshots as it is to run here.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedSchedule {
    pub name: String,
    pub schedule: SnapshotSchedule,
    /// Names of its volumes, by the names of their pools. No pool has none.
    pub volumes: BTreeMap<String, BTreeSet<String>>,
}

/// The schedules of a site file that run on these pools, and lines about those that do not.
///
/// # Errors
///
/// A schedule's interval, time, number or name is out of its bounds.
pub(crate) fn wanted_schedules(
    site: &Site,
    index: &SiteIndex,
    is_pool: impl Fn(&str) -> bool,
) -> Result<(Vec<WantedSchedule>, Vec<String>), Refusal> {
    let (mut schedules, mut notes) = (Vec::new(), Vec::new());
    for table in &site.snapshots {
        let name = &table.name;
        let lacks = |what: &str| format!("snapshots {name:?}: none are taken, for it says no {what}");
        if table.is_set() {
            // Sets keep it, and check it; without volumes there is none.
            notes.extend(index.scheduled_volumes(table).next().is_none().then(|| lacks("volumes")));
            continue;
        }
        let (Some(every_hours), Some(keep)) = (table.every_hours, table.keep) else {
            notes.push(lacks(if table.every_hours.is_none() { "every_hours" } else { "keep" }));
            continue;
        };
        let at = Some(table.at.as_str()).filter(|at| !at.is_empty());
        let refused =
            |problem: String, remedy: &str| Refusal::new(format!("snapshots {name:?}: {problem}"), remedy);
        let schedule =
            SnapshotSchedule::new(every_hours, at, keep).map_err(|error| refused(error.to_string(), ""))?;
        if !is_schedule_name(name) {
            let remedy = "choose one of at most 64 bytes without /, @ and ~";
            return Err(refused("its snapshots cannot be named by this name".to_owned(), remedy));
        }
        let mut volumes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let (mut all, mut here) = (0, 0);
        for volume in index.scheduled_volumes(table) {
            all += 1;
            if is_pool(&volume.group) {
                here += 1;
                volumes.entry(volume.group.clone()).or_default().insert(volume.name.clone());
            }
        }
        if here > 0 {
            schedules.push(WantedSchedule { name: name.clone(), schedule, volumes });
        } else if all == 0 {
            notes.push(lacks("volumes"));
        }
    }
    Ok((schedules, notes))
}

/// Schedules in words, as [`WantedSite::services`](crate::site::WantedSite::services) has them: `every day at 03:00 UTC, 7
/// kept: mail/store, all of logs`.
pub(crate) fn schedule_texts(
    (site, index): (&Site, &SiteIndex),
    schedules: &[WantedSchedule],
) -> BTreeMap<(&'static str, String), String> {
    // A file may say them without their groups.
    let whole = |meant: &String| match index.served_volume(meant) {
        Some(volume) => format!("{}/{}", volume.group, volume.name),
        None => meant.clone(),
    };
    let text = |wanted: &WantedSchedule| {
        let table = site.snapshots.iter().find(|table| table.name == wanted.name)?;
        let groups = table.groups.iter().map(|group| format!("all of {group}"));
        let all: Vec<String> = table.volumes.iter().map(whole).chain(groups).collect();
        let text = format!("{}: {}", wanted.schedule.text(), all.join(", "));
        Some((("snapshots", wanted.name.clone()), text))
    };
    schedules.iter().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: &str = "
        [[group]]
        name = 'mail'
        [[group]]
        name = 'logs'
        [[group]]
        name = 'elsewhere'
        [[volume]]
        name = 'store'
        group = 'mail'
        [[volume]]
        name = 'more'
        group = 'mail'
        [[volume]]
        name = 'store'
        group = 'logs'
        [[volume]]
        name = 'store'
        group = 'elsewhere'
    ";

    fn read(tables: &str) -> Result<(Vec<WantedSchedule>, Vec<String>), String> {
        let site = Site::from_toml(&format!("{SITE}{tables}")).map_err(|error| error.to_string())?;
        wanted_schedules(&site, &SiteIndex::of(&site), |pool| pool != "elsewhere")
            .map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn volumes_are_found_by_group_and_by_name_in_the_pools_that_are_here() {
        let (schedules, notes) = read(
            "[[snapshots]]\nname = 'daily'\nevery_hours = 24\nat = '03:00'\nkeep = 7\ngroups = ['logs', 'elsewhere']\n\
             volumes = ['mail/store']\n[[snapshots]]\nname = 'other'\nevery_hours = 1\nkeep = 1\ngroups = ['elsewhere']\n",
        )
        .unwrap();
        let [daily] = &schedules[..] else { panic!("{schedules:?}") };
        let store = || BTreeSet::from(["store".to_owned()]);
        assert_eq!(
            daily.volumes,
            BTreeMap::from([("logs".to_owned(), store()), ("mail".to_owned(), store())])
        );
        assert_eq!(daily.schedule.text(), "every day at 03:00 UTC, 7 kept");
        assert_eq!(notes, Vec::<String>::new());
    }

    #[test]
    fn schedules_of_older_files_that_say_too_little_are_named_and_wrong_ones_refused() {
        let (schedules, notes) = read(
            "[[snapshots]]\nname = 'a'\nkeep = 1\ngroups = ['mail']\n[[snapshots]]\nname = 'b'\nevery_hours = 1\ngroups = ['mail']\n\
             [[snapshots]]\nname = 'c'\nevery_hours = 1\nkeep = 1\n",
        )
        .unwrap();
        assert_eq!((schedules.len(), notes.len()), (0, 3));
        assert_eq!(notes[1], "snapshots \"b\": none are taken, for it says no keep");
        for (table, problem) in [
            ("name = 'a'\nevery_hours = 745\nkeep = 1", "snapshots \"a\": every 745 hours: an interval is"),
            ("name = 'a'\nevery_hours = 1\nkeep = 1\nat = '03:00'", "needs an interval of whole days"),
            ("name = 'a/b'\nevery_hours = 1\nkeep = 1", "cannot be named by this name; choose one"),
        ] {
            let refused = read(&format!("[[snapshots]]\n{table}\ngroups = ['mail']\n")).unwrap_err();
            assert!(refused.contains(problem), "{refused}");
        }
    }
}
