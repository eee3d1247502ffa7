//! A site file at a start, and what was changed online since it was applied: what counts
//! ([the decision](../../../../docs/decisions/2026-11-27-rows-change-online.md)). Pure.
//!
//! Three sites are compared, row by row: the file as it was applied last, what was served at the end, and the file as it is now.
//!
//! Invariants:
//!
//! 1. A row that was changed online, and that the file says as it did before, stays as it was changed. If the file says something
//!    else by now, the file counts.
//! 2. Each difference between the result and the file is named, and each online change that does not count any more.

use super::{adoption::with_groups_in_references, row_change::find_target};
use plan::site::{Site, SiteIndex, SiteInitiator, SiteTarget, SiteUnit};
use serving::export::name_of;
use std::collections::{BTreeMap, BTreeSet};

/// The site that counts at a start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedSite {
    pub site: Site,
    /// Rows that were changed online and that the file does not say, in words.
    pub kept: Vec<String>,
    /// Online changes that do not count any more, in words with the reasons.
    pub lost: Vec<String>,
}

/// The rows of a site by kind and name.
#[derive(Clone, Debug, Default)]
struct SiteRows {
    /// True if open.
    targets: BTreeMap<String, (String, bool)>,
    units: BTreeMap<(String, u64), SiteUnit>,
    initiators: BTreeMap<String, SiteInitiator>,
    exports: BTreeMap<String, plan::site::SiteExport>,
    schedules: BTreeMap<String, plan::site::Snapshots>,
}

impl SiteRows {
    fn of(site: &Site) -> Self {
        let mut rows = Self::default();
        for SiteTarget { name, open, units } in &site.targets {
            let key = name_of(name);
            rows.targets.insert(key.clone(), (name.clone(), *open));
            rows.units.extend(units.iter().map(|unit| ((key.clone(), unit.number), unit.clone())));
        }
        let initiators = site.initiators.iter();
        rows.initiators = initiators.map(|row| (row.name.to_ascii_lowercase(), row.clone())).collect();
        rows.exports = site.exports.iter().map(|row| (row.name.clone(), row.clone())).collect();
        rows.schedules = site.snapshots.iter().map(|row| (row.name.clone(), row.clone())).collect();
        rows
    }
}

/// A row as it was applied, as it was served, and as the file has it now.
struct RowVersions<'r, T> {
    applied: Option<&'r T>,
    served: Option<&'r T>,
    file: Option<&'r T>,
}

impl<'r, T: PartialEq + Clone> RowVersions<'r, T> {
    /// The version that counts, and whether an online change is kept or lost by that.
    fn merged(&self) -> (Option<T>, Option<OnlineOutcome>) {
        let Self { applied, served, file } = self;
        let is_changed_online = served != applied && served != file;
        match is_changed_online {
            false => (file.cloned(), None),
            true if file == applied => (served.cloned(), Some(OnlineOutcome::Kept)),
            true => (file.cloned(), Some(OnlineOutcome::Lost)),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OnlineOutcome {
    Kept,
    Lost,
}

/// Merges the rows of one kind; `say` puts a row in words.
fn merge<K: Ord + Clone, T: PartialEq + Clone>(
    [applied, served, file]: [&BTreeMap<K, T>; 3],
    say: impl Fn(&K) -> String,
    merged: &mut MergedSite,
) -> BTreeMap<K, T> {
    let keys: BTreeSet<&K> = applied.keys().chain(served.keys()).chain(file.keys()).collect();
    let mut rows = BTreeMap::new();
    for key in keys {
        let versions =
            RowVersions { applied: applied.get(key), served: served.get(key), file: file.get(key) };
        let (row, change) = versions.merged();
        let is_gone = served.get(key).is_none();
        match change {
            Some(OnlineOutcome::Kept) if is_gone => merged.kept.push(format!("{}: it was deleted", say(key))),
            Some(OnlineOutcome::Kept) => merged.kept.push(say(key)),
            Some(OnlineOutcome::Lost) => {
                merged.lost.push(format!("{}: the file says something else by now, and counts", say(key)));
            }
            None => {}
        }
        rows.extend(row.map(|row| (key.clone(), row)));
    }
    rows
}

/// The site that counts at a start: `file`, with what was changed online from `applied` to `served`. Volumes of `served` are as
/// they are in the pools; all paths are whole.
pub fn merged(applied: Site, served: Site, file: Site) -> MergedSite {
    let [applied, served] = [applied, served].map(with_groups_in_references);
    let original = file;
    let file = with_groups_in_references(original.clone());
    let rows = [&applied, &served, &file].map(SiteRows::of);
    let [was, now, said] = &rows;
    let mut merged = MergedSite::default();
    let target_name = |key: &String| {
        let known = [now, said, was].into_iter().find_map(|rows| rows.targets.get(key));
        known.map_or(key.clone(), |(name, _)| name.clone())
    };
    let targets = merge(
        [&was.targets, &now.targets, &said.targets],
        |key| format!("target {}", target_name(key)),
        &mut merged,
    );
    let units = merge(
        [&was.units, &now.units, &said.units],
        |(target, number)| format!("unit {}/{number}", target_name(target)),
        &mut merged,
    );
    let initiators = merge(
        [&was.initiators, &now.initiators, &said.initiators],
        |name| format!("initiator {name}"),
        &mut merged,
    );
    let exports =
        merge([&was.exports, &now.exports, &said.exports], |name| format!("NBD export {name}"), &mut merged);
    let schedules = merge(
        [&was.schedules, &now.schedules, &said.schedules],
        |name| format!("snapshots {name}"),
        &mut merged,
    );
    if merged.kept.is_empty() {
        return MergedSite { site: original, ..merged };
    }
    let mut site = file;
    site.targets = targets
        .iter()
        .map(|(_, (name, open))| SiteTarget { name: name.clone(), open: *open, units: Vec::new() })
        .collect();
    for ((key, number), unit) in units {
        match site.targets.iter_mut().find(|target| name_of(&target.name) == key) {
            Some(target) => target.units.push(unit),
            None => merged.lost.push(format!("unit {key}/{number}: its target is not there any more")),
        }
    }
    site.initiators = initiators.into_values().collect();
    site.exports = exports.into_values().collect();
    site.snapshots = schedules.into_values().collect();
    add_volumes(&mut site, &served);
    drop_dangling(&mut site, &mut merged.lost);
    let problem = site.fault().or_else(|| {
        // A right that was taken away must not open a target to all.
        let before = implicitly_open(&served);
        let mut opened = implicitly_open(&site).into_iter();
        let opened = opened.find(|name| !before.contains(name) && !implicitly_open(&original).contains(name));
        opened.map(|name| format!("target {name} would be open to every initiator"))
    });
    match problem {
        None => MergedSite { site, ..merged },
        Some(problem) => {
            let lost =
                merged.kept.iter().map(|row| format!("{row}: it does not go with the file: {problem}"));
            MergedSite {
                lost: merged.lost.iter().cloned().chain(lost).collect(),
                site: original,
                kept: Vec::new(),
            }
        }
    }
}

/// Names of the targets that are open because no initiator uses them.
pub fn implicitly_open(site: &Site) -> BTreeSet<String> {
    let index = SiteIndex::of(site);
    let rights = site.initiators.iter().flat_map(|initiator| initiator.uses.iter().chain(&initiator.reads));
    let used: BTreeSet<&str> =
        rights.filter_map(|meant| index.units_meant(meant)).map(|(target, _)| target.name.as_str()).collect();
    let unused = site.targets.iter().filter(|target| !target.open && !used.contains(target.name.as_str()));
    unused.map(|target| target.name.clone()).collect()
}

/// Adds the volumes of `served` that are served and that the file lacks.
fn add_volumes(site: &mut Site, served: &Site) {
    for meant in served_names(site) {
        if let (None, Some(volume)) = (site.served_volume(&meant), served.served_volume(&meant))
            && site.group(&volume.group).is_some()
        {
            site.volumes.push(volume.clone());
        }
    }
}

/// The volumes that services refer to.
pub(super) fn served_names(site: &Site) -> Vec<String> {
    let units = site.targets.iter().flat_map(|target| &target.units).map(|unit| &unit.volume);
    let exports = site.exports.iter().map(|export| &export.volume);
    let scheduled = site.snapshots.iter().flat_map(|schedule| &schedule.volumes);
    units.chain(exports).chain(scheduled).cloned().collect()
}

/// Takes rows out that refer to what is not there.
fn drop_dangling(site: &mut Site, lost: &mut Vec<String>) {
    let known = site.clone();
    let has = |meant: &str| known.served_volume(meant).is_some();
    for target in &mut site.targets {
        let name = target.name.clone();
        for unit in target.units.extract_if(.., |unit| !has(&unit.volume)) {
            lost.push(format!("unit {name}/{}: {} is not in the file any more", unit.number, unit.volume));
        }
    }
    for export in site.exports.extract_if(.., |export| !has(&export.volume)) {
        lost.push(format!("NBD export {}: {} is not in the file any more", export.name, export.volume));
    }
    for schedule in &mut site.snapshots {
        let name = schedule.name.clone();
        for volume in schedule.volumes.extract_if(.., |volume| !has(volume)) {
            lost.push(format!("snapshots {name}: {volume} is not in the file any more"));
        }
        let groups = &known.groups;
        for group in schedule.groups.extract_if(.., |name| !groups.iter().any(|group| group.name == *name)) {
            lost.push(format!("snapshots {name}: the group {group} is not in the file any more"));
        }
    }
    let known = site.clone();
    let known = SiteIndex::of(&known);
    for initiator in &mut site.initiators {
        let is_there = |meant: &String| known.units_meant(meant).is_some();
        initiator.uses.retain(is_there);
        initiator.reads.retain(is_there);
    }
}

/// The differences of what is served from a file: tables for the file, and rows that it has and that are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileDifference {
    /// TOML of the rows as they are served.
    pub tables: String,
    /// Rows to take out of the file, in words.
    pub gone: Vec<String>,
}

/// What a file is to say so that it says what is served.
pub fn difference(file: Site, served: Site) -> FileDifference {
    let [file, served] = [file, served].map(with_groups_in_references);
    let [said, now] = [&file, &served].map(SiteRows::of);
    let mut site = Site::default();
    let is_same_target = |target: &&SiteTarget| find_target(&file, &target.name) == Some(*target);
    site.targets = served.targets.iter().filter(|target| !is_same_target(target)).cloned().collect();
    let same = |row: &&SiteInitiator| said.initiators.get(&row.name.to_ascii_lowercase()) == Some(*row);
    site.initiators = served.initiators.iter().filter(|row| !same(row)).cloned().collect();
    let exports = served.exports.iter().filter(|row| said.exports.get(&row.name) != Some(*row));
    site.exports = exports.cloned().collect();
    let schedules = served.snapshots.iter().filter(|row| said.schedules.get(&row.name) != Some(*row));
    site.snapshots = schedules.cloned().collect();
    let is_new = |meant: &String| file.served_volume(meant).is_none();
    let new: BTreeSet<(String, String)> = served_names(&served)
        .iter()
        .filter(|meant| is_new(meant))
        .filter_map(|meant| served.served_volume(meant))
        .map(|volume| (volume.group.clone(), volume.name.clone()))
        .collect();
    let is_among = |volume: &&plan::site::Volume| new.contains(&(volume.group.clone(), volume.name.clone()));
    site.volumes = served.volumes.iter().filter(is_among).cloned().collect();
    let text = site.to_toml();
    // Without the head and the version.
    let tables = text.find("[[").map_or(String::new(), |start| text[start..].trim_end().to_owned());
    let gone = |kind: &str, names: Vec<&String>| {
        names.into_iter().map(|name| format!("{kind} {name}")).collect::<Vec<_>>()
    };
    let targets = said.targets.iter().filter(|(key, _)| !now.targets.contains_key(*key));
    let initiators = said.initiators.iter().filter(|(key, _)| !now.initiators.contains_key(*key));
    let exports = said.exports.keys().filter(|name| !now.exports.contains_key(*name));
    let schedules = said.schedules.keys().filter(|name| !now.schedules.contains_key(*name));
    let gone = [
        gone("[[target]]", targets.map(|(_, (name, _))| name).collect()),
        gone("[[initiator]]", initiators.map(|(_, row)| &row.name).collect()),
        gone("[[nbd]]", exports.collect()),
        gone("[[snapshots]]", schedules.collect()),
    ];
    FileDifference { tables, gone: gone.concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
        [[group]]
        name = 'mail'
        [[volume]]
        name = 'store'
        group = 'mail'
        gb = 2
        [[target]]
        name = 'disks'
        [[target.unit]]
        number = 0
        volume = 'store'
        [[initiator]]
        name = 'iqn.x:a'
        uses = ['disks']
        [[nbd]]
        name = 'store'
        volume = 'store'
    ";

    fn site(text: &str) -> Site {
        Site::from_toml(text).unwrap()
    }

    /// The file with a volume, its unit and an export more, and one export less.
    fn served() -> Site {
        let mut site = with_groups_in_references(site(FILE));
        let volume = plan::site::Volume { name: "new".into(), ..site.volumes[0].clone() };
        site.volumes.push(volume);
        let unit = SiteUnit { number: 1, volume: "mail/new".into(), ..SiteUnit::default() };
        site.targets[0].units.push(unit);
        site.exports.clear();
        site
    }

    #[test]
    fn an_unchanged_file_changes_nothing_and_names_what_it_lacks() {
        let merged = merged(site(FILE), served(), site(FILE));
        assert_eq!(merged.kept, ["unit disks/1", "NBD export store: it was deleted"]);
        assert_eq!(merged.lost, [""; 0]);
        assert_eq!(merged.site.targets, served().targets);
        assert_eq!(merged.site.exports, []);
        assert_eq!(merged.site.volumes, served().volumes);
    }

    #[test]
    fn without_online_changes_the_file_is_what_it_says() {
        let new = site(&FILE.replace("name = 'iqn.x:a'", "name = 'iqn.x:b'"));
        let merged = merged(site(FILE), site(FILE), new.clone());
        assert_eq!((merged.site, merged.kept, merged.lost), (new, Vec::new(), Vec::new()));
    }

    #[test]
    fn a_row_that_the_file_changes_is_as_the_file_says_and_the_others_stay() {
        // The file gets an initiator, and says another volume of the unit that an online change set.
        let new =
            site(&FILE.replace("[[nbd]]", "[[initiator]]\nname = 'iqn.x:b'\nuses = ['disks/0']\n[[nbd]]"));
        let mut online = served();
        online.initiators[0].uses.push("disks/1".into());
        let merged = merged(site(FILE), online, new.clone());
        assert_eq!(merged.site.initiators.len(), 2);
        assert_eq!(merged.site.initiators[0].uses, ["disks", "disks/1"]);
        assert_eq!(merged.lost, [""; 0]);
        let new = site(&FILE.replace("number = 0\n", "number = 1\n"));
        let merged = super::merged(site(FILE), served(), new);
        assert_eq!(merged.lost, ["unit disks/1: the file says something else by now, and counts"]);
        assert_eq!(merged.site.targets[0].units.len(), 1);
        assert_eq!(merged.site.targets[0].units[0].volume, "mail/store");
        assert_eq!(merged.kept, ["NBD export store: it was deleted"]);
    }

    #[test]
    fn a_right_that_is_taken_away_opens_nothing_to_all() {
        let mut online = served();
        online.targets.push(SiteTarget {
            name: "own".into(),
            units: vec![SiteUnit { volume: "mail/new@monday".into(), ..SiteUnit::default() }],
            ..SiteTarget::default()
        });
        online.initiators[0].uses.push("own".into());
        // The file drops the only initiator: its target of the file is open to all of this machine then, as the file says.
        let new = site(&FILE.replace("name = 'iqn.x:a'", "name = 'iqn.x:b'"));
        let merged = merged(site(FILE), online, new.clone());
        assert_eq!((merged.site, merged.kept.len()), (new, 0));
        assert!(
            merged.lost.iter().any(|line| line.contains("target own would be open to every initiator")),
            "{:?}",
            merged.lost
        );
    }

    #[test]
    fn the_difference_from_a_file_is_what_brings_it_there() {
        let said = difference(site(FILE), served());
        assert_eq!(said.gone, ["[[nbd]] store"]);
        assert!(said.tables.starts_with("[[volume]]\nname = \"new\""), "{}", said.tables);
        assert!(
            said.tables.contains("volume = \"mail/new\"") && !said.tables.contains("initiator"),
            "{}",
            said.tables
        );
        assert_eq!(difference(site(FILE), site(FILE)), FileDifference::default());
    }
}
