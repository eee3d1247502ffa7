//! A site file at a start, and what was changed online since it was applied: what counts
//! ([the decision](../../../../docs/decisions/2026-11-27-rows-change-online.md)). Pure.
//!
//! Three sites are compared, row by row: the file as it was applied last, what was served at the end, and the file as it is now.
//! Sets that are backed up are changed by the file alone: they are as it says.
//!
//! Invariants:
//!
//! 1. A row that was changed online, and that the file says as it did before, stays as it was changed. If the file says something
//!    else by now, both changes count as far as they can (`row_merge`), and else the file does.
//! 2. Each difference between the result and the file is named, and each online change that does not count any more.
//! 3. What was taken away online never comes back by itself. If the site cannot be served with all that was changed, rows of
//!    which something was added are left out, one by one; a target that would be open to all is not served.

use super::{
    adoption::with_groups_in_references,
    moved_volumes::place_of,
    row_change::find_target,
    row_merge::{MergedRow, OnlineOutcome, RowVersions},
};
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
    /// Decisions between both, in words.
    pub said: Vec<String>,
}

/// The rows of a site by kind, name and unit number, which is 0 of those that have none.
#[derive(Clone, Debug, Default)]
struct SiteRows {
    /// Without their units.
    targets: BTreeMap<(String, u64), SiteTarget>,
    units: BTreeMap<(String, u64), SiteUnit>,
    initiators: BTreeMap<(String, u64), SiteInitiator>,
    exports: BTreeMap<(String, u64), plan::site::SiteExport>,
    schedules: BTreeMap<(String, u64), plan::site::Snapshots>,
}

impl SiteRows {
    fn of(site: &Site) -> Self {
        let mut rows = Self::default();
        for SiteTarget { name, open, units } in &site.targets {
            let key = name_of(name);
            let row = SiteTarget { name: name.clone(), open: *open, units: Vec::new() };
            rows.targets.insert((key.clone(), 0), row);
            rows.units.extend(units.iter().map(|unit| ((key.clone(), unit.number), unit.clone())));
        }
        let initiators = site.initiators.iter();
        rows.initiators = initiators.map(|row| ((row.name.to_ascii_lowercase(), 0), row.clone())).collect();
        rows.exports = site.exports.iter().map(|row| ((row.name.clone(), 0), row.clone())).collect();
        rows.schedules = site.snapshots.iter().map(|row| ((row.name.clone(), 0), row.clone())).collect();
        rows
    }
}

/// The kind, the name and the unit number of a row.
type RowKey = (u8, String, u64);

/// The merge of some rows; of those that are left out, the file's version without what was taken away online counts.
struct RowMerge<'s> {
    applied: &'s Site,
    served: &'s Site,
    file: &'s Site,
    left_out: BTreeMap<RowKey, String>,
}

/// A merge, which may contradict itself.
#[derive(Clone, Default)]
struct RowMergeOutcome {
    merged: MergedSite,
    /// Rows of which something was added online, which can be left out.
    additions: Vec<RowKey>,
    /// Rows of which something was taken away online that the file has.
    taken: Vec<String>,
}

impl RowMerge<'_> {
    fn rows<T: MergedRow>(
        &self,
        kind: u8,
        [applied, served, file]: [&BTreeMap<(String, u64), T>; 3],
        say: impl Fn(&str, u64) -> String,
        outcome: &mut RowMergeOutcome,
    ) -> BTreeMap<(String, u64), T> {
        let keys: BTreeSet<&(String, u64)> = applied.keys().chain(served.keys()).chain(file.keys()).collect();
        let mut rows = BTreeMap::new();
        for key in keys {
            let versions =
                RowVersions { applied: applied.get(key), served: served.get(key), file: file.get(key) };
            let shown = say(&key.0, key.1);
            let row_key = (kind, key.0.clone(), key.1);
            let restricted = versions.restricted();
            let RowMergeOutcome { merged, additions, taken } = outcome;
            if let Some(why) = self.left_out.get(&row_key) {
                merged.lost.push(format!("{shown}: it does not go with the file: {why}"));
                if restricted.as_ref() != versions.file {
                    merged.kept.push(format!("{shown}: what was taken away online stays away"));
                }
                rows.extend(restricted.map(|row| (key.clone(), row)));
                continue;
            }
            if restricted.as_ref() != versions.file {
                taken.push(shown.clone());
            }
            let mut said = Vec::new();
            let (row, change) = versions.merged(&mut |line| said.push(format!("{shown}: {line}")));
            merged.said.append(&mut said);
            match change {
                Some(OnlineOutcome::Kept) if row.is_none() => {
                    merged.kept.push(format!("{shown}: it was deleted"));
                }
                Some(OnlineOutcome::Kept) => merged.kept.push(shown),
                Some(OnlineOutcome::KeptWithFile) => {
                    merged.kept.push(format!("{shown}: the file changes it as well"));
                }
                Some(OnlineOutcome::StaysAway) => {
                    merged.said.push(format!(
                        "{shown}: it was deleted online, and stays away although the file changes it by now"
                    ));
                    merged.kept.push(format!("{shown}: it was deleted"));
                }
                Some(OnlineOutcome::Lost) => {
                    merged.lost.push(format!("{shown}: the file says something else by now, and counts"));
                }
                None => {}
            }
            if row != restricted {
                additions.push(row_key);
            }
            rows.extend(row.map(|row| (key.clone(), row)));
        }
        rows
    }

    /// The site that the rows make.
    fn outcome(&self) -> RowMergeOutcome {
        let rows = [self.applied, self.served, self.file].map(SiteRows::of);
        let [was, now, said] = &rows;
        let mut outcome = RowMergeOutcome::default();
        let target_name = |key: &str| {
            let key = (key.to_owned(), 0);
            let known = [now, said, was].into_iter().find_map(|rows| rows.targets.get(&key));
            known.map_or(key.0, |target| target.name.clone())
        };
        let initiators = self.rows(
            0,
            rows.each_ref().map(|rows| &rows.initiators),
            |name, _| format!("initiator {name}"),
            &mut outcome,
        );
        let targets = self.rows(
            1,
            rows.each_ref().map(|rows| &rows.targets),
            |key, _| format!("target {}", target_name(key)),
            &mut outcome,
        );
        let units = self.rows(
            2,
            rows.each_ref().map(|rows| &rows.units),
            |key, number| format!("unit {}/{number}", target_name(key)),
            &mut outcome,
        );
        let exports = self.rows(
            3,
            rows.each_ref().map(|rows| &rows.exports),
            |name, _| format!("NBD export {name}"),
            &mut outcome,
        );
        let schedules = self.rows(
            4,
            rows.each_ref().map(|rows| &rows.schedules),
            |name, _| format!("snapshots {name}"),
            &mut outcome,
        );
        let mut site = self.file.clone();
        site.targets = targets.into_values().collect();
        let mut orphans = Vec::new();
        for ((key, number), unit) in units {
            match site.targets.iter_mut().find(|target| name_of(&target.name) == key) {
                Some(target) => target.units.push(unit),
                // One of the file went with its target.
                None if said.units.contains_key(&(key.clone(), number)) => {}
                None => orphans.push(format!("unit {}/{number}", target_name(&key))),
            }
        }
        // Not kept, for want of its target.
        outcome.merged.kept.retain(|line| !orphans.contains(line));
        let why = |unit: String| format!("{unit}: its target is not there any more");
        outcome.merged.lost.extend(orphans.into_iter().map(why));
        site.initiators = initiators.into_values().collect();
        site.exports = exports.into_values().collect();
        site.snapshots = schedules.into_values().collect();
        add_volumes(&mut site, self.served);
        drop_dangling(&mut site, &mut outcome.merged.lost);
        outcome.merged.site = site;
        outcome
    }

    /// Targets that would be open to all, and that neither were so nor are so by the file alone.
    fn opened(&self, site: &Site) -> BTreeSet<String> {
        let before = implicitly_open(self.served);
        let by_file = implicitly_open(self.file);
        let users = |site: &Site, name: &str| {
            let own = format!("{name}/");
            let is_own = |meant: &String| meant == name || meant.starts_with(&own);
            let has = |row: &&SiteInitiator| row.uses.iter().chain(&row.reads).any(is_own);
            site.initiators
                .iter()
                .filter(has)
                .map(|row| row.name.to_ascii_lowercase())
                .collect::<BTreeSet<_>>()
        };
        // Online changes have restricted it.
        let is_restricted = |name: &str| {
            let is_served = find_target(self.served, name).is_some_and(|target| !target.open);
            is_served && users(self.served, name) != users(self.applied, name)
        };
        let opened = implicitly_open(site).into_iter();
        opened
            .filter(|name| !before.contains(name))
            .filter(|name| !by_file.contains(name) || is_restricted(name))
            .collect()
    }
}

/// The site that counts at a start: `file`, with what was changed online from `applied` to `served`. Volumes of `served` are as
/// they are in the pools; all paths are whole. `check` refuses a site that cannot be served.
pub fn merged(
    applied: Site,
    served: Site,
    file: Site,
    check: impl Fn(&Site) -> Result<(), String>,
) -> MergedSite {
    let [mut applied, mut served] = [applied, served].map(with_groups_in_references);
    let original = file;
    let file = with_groups_in_references(original.clone());
    follow_renames(&file, &mut applied, &mut served);
    let mut merge = RowMerge { applied: &applied, served: &served, file: &file, left_out: BTreeMap::new() };
    let is_refused = |merge: &RowMerge<'_>, site: &Site, allowed: &BTreeSet<String>| {
        let opened = merge.opened(site);
        let new = opened.iter().find(|name| !allowed.contains(*name));
        let mut site = site.clone();
        site.targets.retain(|target| !opened.contains(&target.name));
        new.map(|name| format!("target {name} would be open to every initiator"))
            .or_else(|| site.fault())
            .or_else(|| check(&site).err())
    };
    let mut outcome = merge.outcome();
    if let Some(why) = is_refused(&merge, &outcome.merged.site, &BTreeSet::new()) {
        // Row by row: what was taken away, and as much of what was added as goes with the file.
        let additions = std::mem::take(&mut outcome.additions);
        merge.left_out = additions.iter().map(|key| (key.clone(), why.clone())).collect();
        let mut opened = merge.opened(&merge.outcome().merged.site);
        // Twice: one may need another.
        for key in additions.iter().chain(&additions) {
            if merge.left_out.remove(key).is_none() {
                continue;
            }
            let site = merge.outcome().merged.site;
            match is_refused(&merge, &site, &opened) {
                Some(why) => drop(merge.left_out.insert(key.clone(), why)),
                None => opened = merge.opened(&site),
            }
        }
        outcome = merge.outcome();
        withhold(&mut outcome.merged, &opened);
    }
    let MergedSite { kept, .. } = &outcome.merged;
    match kept.is_empty() {
        true => MergedSite { site: original, ..outcome.merged },
        false => outcome.merged,
    }
}

/// The online changes that a file undoes if it is applied as it is, in words; those first that took something away.
pub fn undone(applied: Site, served: Site, file: Site) -> Vec<String> {
    let [mut applied, mut served, file] = [applied, served, file].map(with_groups_in_references);
    follow_renames(&file, &mut applied, &mut served);
    let merge = RowMerge { applied: &applied, served: &served, file: &file, left_out: BTreeMap::new() };
    let RowMergeOutcome { merged, taken, .. } = merge.outcome();
    let is_among =
        |line: &String| taken.iter().any(|row| line == row || line.starts_with(&format!("{row}: ")));
    let others = merged.kept.into_iter().chain(merged.lost).filter(|line| !is_among(line));
    let back = taken.iter().map(|row| format!("the file gives back what was taken away online: {row}"));
    back.chain(others.map(|line| format!("the file undoes what was changed online: {line}"))).collect()
}

/// Takes targets out that would be open to all.
fn withhold(merged: &mut MergedSite, opened: &BTreeSet<String>) {
    for name in opened {
        merged.site.targets.retain(|target| target.name != *name);
        let why = "it is not served: it would be open to every initiator, and was not";
        merged.kept.push(format!("target {name}: {why}"));
        merged.said.push(format!("target {name}: {why}; 'spindle target create' serves it again"));
    }
}

/// Has references follow volumes that the file renames, unless the pools have both names.
fn follow_renames(file: &Site, applied: &mut Site, served: &mut Site) {
    let mut renames = BTreeMap::new();
    for volume in file.volumes.iter().filter(|volume| !volume.was.is_empty()) {
        let [was, now] = [&volume.was, &volume.name].map(|name| format!("{}/{name}", volume.group));
        let has_both = served.volume(&was).is_some() && served.volume(&now).is_some();
        if file.volume(&was).is_none() && !has_both {
            renames.insert(was, (now, volume.name.clone()));
        }
    }
    let places: BTreeMap<String, String> =
        renames.iter().map(|(was, (now, _))| (was.clone(), now.clone())).collect();
    for site in [applied, served] {
        for volume in &mut site.volumes {
            if let Some((_, name)) = renames.get(&place_of(volume)) {
                volume.name.clone_from(name);
                volume.was.clear();
            }
        }
        follow_references(site, &places);
    }
}

/// Has references to volumes, and to their snapshots, follow: from `POOL/VOLUME` to the place that `places` has for it.
pub(super) fn follow_references(site: &mut Site, places: &BTreeMap<String, String>) {
    let follow = |meant: &mut String| {
        let (volume, snapshot) = plan::site::split_snapshot(meant);
        if let Some(now) = places.get(volume) {
            *meant = snapshot.map_or(now.clone(), |snapshot| format!("{now}@{snapshot}"));
        }
    };
    site.exports.iter_mut().for_each(|export| follow(&mut export.volume));
    site.snapshots.iter_mut().flat_map(|schedule| &mut schedule.volumes).for_each(follow);
    site.sets.iter_mut().flat_map(|set| set.volumes.iter_mut().chain(&mut set.logs)).for_each(follow);
    site.targets.iter_mut().flat_map(|target| &mut target.units).for_each(|unit| follow(&mut unit.volume));
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
pub fn served_names(site: &Site) -> Vec<String> {
    let units = site.targets.iter().flat_map(|target| &target.units).map(|unit| &unit.volume);
    let exports = site.exports.iter().map(|export| &export.volume);
    let scheduled = site.snapshots.iter().flat_map(|schedule| &schedule.volumes);
    let protected = site.sets.iter().flat_map(|set| &set.volumes);
    units.chain(exports).chain(scheduled).chain(protected).cloned().collect()
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
        let name = initiator.name.clone();
        let is_gone = |meant: &mut String| known.units_meant(meant).is_none();
        for meant in initiator.uses.extract_if(.., is_gone).chain(initiator.reads.extract_if(.., is_gone)) {
            lost.push(format!("initiator {name}: its right on {meant}, which is not there any more"));
        }
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

/// Changes of a file that make it say what is served.
pub fn difference(file: Site, served: Site) -> FileDifference {
    let [file, served] = [file, served].map(with_groups_in_references);
    let [said, now] = [&file, &served].map(SiteRows::of);
    let mut site = Site::default();
    let is_same_target = |target: &&SiteTarget| find_target(&file, &target.name) == Some(*target);
    site.targets = served.targets.iter().filter(|target| !is_same_target(target)).cloned().collect();
    let same = |row: &&SiteInitiator| said.initiators.get(&(row.name.to_ascii_lowercase(), 0)) == Some(*row);
    site.initiators = served.initiators.iter().filter(|row| !same(row)).cloned().collect();
    let exports = served.exports.iter().filter(|row| said.exports.get(&(row.name.clone(), 0)) != Some(*row));
    site.exports = exports.cloned().collect();
    let schedules =
        served.snapshots.iter().filter(|row| said.schedules.get(&(row.name.clone(), 0)) != Some(*row));
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
        gone("[[target]]", targets.map(|(_, row)| &row.name).collect()),
        gone("[[initiator]]", initiators.map(|(_, row)| &row.name).collect()),
        gone("[[nbd]]", exports.map(|(name, _)| name).collect()),
        gone("[[snapshots]]", schedules.map(|(name, _)| name).collect()),
    ];
    FileDifference { tables, gone: gone.concat() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::site::SiteExport;

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

    fn merged(applied: Site, served: Site, file: Site) -> MergedSite {
        super::merged(applied, served, file, |_| Ok(()))
    }

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
        let merged = super::merged(site(FILE), served(), new, |_| Ok(()));
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
        // The others stay.
        assert_eq!(merged.kept, ["unit disks/1", "NBD export store: it was deleted"]);
        assert_eq!(merged.site.initiators, new.initiators);
        assert_eq!(merged.site.targets.len(), 1);
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

    #[test]
    fn what_was_taken_away_stays_away_when_what_was_added_does_not_go_with_the_file() {
        let two = FILE.replace("[[nbd]]", "[[initiator]]\nname = 'iqn.evil'\nuses = ['disks']\n[[nbd]]");
        let mut online = with_groups_in_references(site(&two));
        online.initiators.retain(|row| row.name != "iqn.evil");
        online.exports.push(SiteExport { name: "nx".into(), volume: "mail/store".into(), read_only: false });
        // The file renames the volume: its references follow.
        let renamed = two
            .replace(
                "name = 'store'\n        group",
                "name = 'archive'\n        was = 'store'\n        group",
            )
            .replace("volume = 'store'", "volume = 'archive'");
        let good = merged(site(&two), online.clone(), site(&renamed));
        assert_eq!(good.kept, ["initiator iqn.evil: it was deleted", "NBD export nx"]);
        assert_eq!((good.site.exports.len(), &*good.site.exports[1].volume), (2, "mail/archive"));
        assert_eq!(good.site.fault(), None);
        assert_eq!(good.lost, [""; 0]);
        // The export is refused: it alone goes.
        let check = |site: &Site| match site.exports.len() {
            1 => Ok(()),
            _ => Err("no".to_owned()),
        };
        let bad = super::merged(site(&two), online, site(&renamed), check);
        assert_eq!(bad.kept, ["initiator iqn.evil: it was deleted"]);
        assert_eq!(bad.lost, ["NBD export nx: it does not go with the file: no"]);
        assert_eq!(bad.site.initiators.len(), 1);
    }

    #[test]
    fn an_initiator_whose_new_secret_cannot_be_read_is_not_served_with_the_old_one() {
        let secret = |text: &str, file: &str| {
            let mut site = site(text);
            (site.initiators[0].user, site.initiators[0].secret_file) = ("u".into(), file.into());
            site
        };
        let check = |site: &Site| match site.initiators.iter().any(|row| row.secret_file == "new") {
            true => Err("it cannot be read".to_owned()),
            false => Ok(()),
        };
        let merged = super::merged(secret(FILE, "old"), secret(FILE, "new"), secret(FILE, "old"), check);
        assert_eq!(merged.site.initiators, []);
        assert_eq!(merged.site.targets, [], "it would be open to all");
        assert!(merged.said.iter().any(|line| line.contains("target disks: it is not served")), "{merged:?}");
    }

    #[test]
    fn a_right_that_has_nothing_to_be_on_is_said_and_opens_nothing() {
        // Disks is open to its machine by the file, and was restricted online; the file renumbers its unit.
        let open = FILE.replace("uses = ['disks']", "");
        let mut online = with_groups_in_references(site(&open));
        online.initiators[0].uses.push("disks/0".into());
        let merged = merged(site(&open), online, site(&open.replace("number = 0", "number = 1")));
        assert_eq!(merged.site.targets, []);
        assert!(merged.lost.iter().any(|line| line.contains("its right on disks/0")), "{merged:?}");
        assert!(merged.said.iter().any(|line| line.contains("target disks: it is not served")), "{merged:?}");
    }
}
