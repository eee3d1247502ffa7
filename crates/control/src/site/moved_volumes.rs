//! Volumes that were moved to other pools, in a site: what it says of them follows. Pure.
//!
//! A site file is a person's, and says the pool that a volume was in until they change it. So the journal knows moves, and a file
//! that says an old place is read as if it said the new one: a start would make an empty volume there otherwise.
//!
//! Invariants:
//!
//! 1. A site that has a volume in its new place is as it says, whatever it says of the old one.
//! 2. Only references to the volume and to its snapshots change; unit numbers, rights and settings stay.

use super::{adoption::with_groups_in_references, file_merge::follow_references};
use plan::site::{Site, SiteTarget, Volume, split_snapshot};
use std::collections::BTreeMap;

/// Places of volumes, `POOL/VOLUME`: where each was, and where it is.
pub type MovedPlaces = BTreeMap<String, String>;

/// The place of a volume, `POOL/VOLUME`.
pub(super) fn place_of(volume: &Volume) -> String {
    format!("{}/{}", volume.group, volume.name)
}

pub(super) fn pool_of(place: &str) -> &str {
    place.split_once('/').map_or("", |(pool, _)| pool)
}

/// Adds a move to those that are known. A volume that came back has not moved.
pub fn add_move(known: &mut MovedPlaces, from: &str, to: &str) {
    for place in known.values_mut().filter(|place| *place == from) {
        to.clone_into(place);
    }
    known.insert(from.to_owned(), to.to_owned());
    known.remove(to);
    assert!(known.iter().all(|(was, is)| was != is), "a volume that has moved is elsewhere: {known:?}");
}

/// Has a site whose references say groups follow a volume from one place to another. True if it said anything of it.
pub fn follow(site: &mut Site, from: &str, to: &str) -> bool {
    let before = site.clone();
    let (group, name) = to.split_once('/').expect("a place is POOL/VOLUME");
    let is_at = |place: &str| {
        let place = place.to_owned();
        move |volume: &Volume| place_of(volume) == place
    };
    if site.volumes.iter().any(is_at(to)) {
        site.volumes.retain(|volume| !is_at(from)(volume));
    }
    let levels: BTreeMap<String, _> = site.groups.iter().map(|one| (one.name.clone(), one.raid)).collect();
    for volume in site.volumes.iter_mut().filter(|volume| is_at(from)(volume)) {
        // Its class stays, whatever that of the other group is.
        if volume.raid.is_none() && levels.get(&volume.group) != levels.get(group) {
            volume.raid = levels.get(&volume.group).copied();
        }
        group.clone_into(&mut volume.group);
        name.clone_into(&mut volume.name);
        volume.was.clear();
    }
    follow_references(site, &BTreeMap::from([(from.to_owned(), to.to_owned())]));
    *site != before
}

/// Reads a site as if it said the places in which volumes are by now. Returns a line for each volume of which it says another.
pub fn follow_known(site: &mut Site, known: &MovedPlaces) -> Vec<String> {
    let stale = |(from, to): &(&String, &String)| is_stale(site, from, to);
    let due: Vec<(&String, &String)> = known.iter().filter(stale).collect();
    if due.is_empty() {
        return Vec::new();
    }
    let mut followed = with_groups_in_references(site.clone());
    let mut lines = Vec::new();
    for (from, to) in due {
        if follow(&mut followed, from, to) {
            let group = pool_of(to);
            lines.push(format!(
                "{from} was moved, and the file is read as if it said {to}: say group = {group:?} there"
            ));
        }
    }
    *site = followed;
    lines
}

/// The moves that a file does not need any more: it says the new place, or nothing of the volume.
pub fn settled(site: &Site, known: &MovedPlaces) -> Vec<String> {
    known.iter().filter(|(from, to)| !is_stale(site, from, to)).map(|(from, _)| from.clone()).collect()
}

/// True if a site says an old place of a volume.
fn is_stale(site: &Site, from: &str, to: &str) -> bool {
    site.volume(from).is_some() && site.volume(to).is_none() && site.group(pool_of(to)).is_some()
}

/// A reason for which the services of a volume cannot follow it into another pool, and the way on.
pub fn obstacle(site: &Site, place: &str) -> Option<(String, String)> {
    let is_it = |meant: &String| split_snapshot(meant).0 == place;
    if let Some(set) = site.sets.iter().find(|set| set.volumes.iter().chain(&set.logs).any(is_it)) {
        let problem = format!("the set {} keeps backups of {place} in its pool", set.set);
        return Some((problem, "take it out of the set in the site file, and apply that, first".to_owned()));
    }
    let mut replications = site.replication.iter().flat_map(|replication| &replication.dr_groups);
    if let Some(group) = replications.find(|group| group.volumes.iter().any(is_it)) {
        return Some((
            format!("{place} is in the DR group {}", group.name),
            "take it out of that first".to_owned(),
        ));
    }
    let shares = |target: &&SiteTarget| {
        let own = target.units.iter().filter(|unit| is_it(&unit.volume)).count();
        own > 0 && own < target.units.len()
    };
    let target = site.targets.iter().find(shares)?;
    let others: Vec<String> = target
        .units
        .iter()
        .filter(|unit| !is_it(&unit.volume))
        .map(|unit| format!("{} ({})", unit.number, unit.volume))
        .collect();
    Some((
        format!(
            "target {} has other units as well, and those of one target lie in one pool: {}",
            target.name,
            others.join(", ")
        ),
        "give the volume a target of its own first; its hosts log in there once".to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
        [[group]]
        name = 'mail'
        raid = 'raid0'
        [[group]]
        name = 'fast'
        [[volume]]
        name = 'store'
        group = 'mail'
        gb = 2
        [[volume]]
        name = 'log'
        group = 'mail'
        gb = 1
        [[target]]
        name = 'disks'
        [[target.unit]]
        number = 3
        volume = 'store'
        [[initiator]]
        name = 'iqn.x:a'
        uses = ['disks/3']
        [[nbd]]
        name = 'monday'
        volume = 'mail/store@monday'
        [[snapshots]]
        name = 'hourly'
        volumes = ['store', 'log']
        every_hours = 1
        keep = 2
    ";

    fn site(text: &str) -> Site {
        Site::from_toml(text).unwrap()
    }

    fn places(of: &[(&str, &str)]) -> MovedPlaces {
        of.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect()
    }

    #[test]
    fn what_a_file_says_of_a_volume_follows_it() {
        let mut file = site(FILE);
        let lines = follow_known(&mut file, &places(&[("mail/store", "fast/store")]));
        assert_eq!(
            lines,
            [
                "mail/store was moved, and the file is read as if it said fast/store: say group = \"fast\" there"
            ]
        );
        assert_eq!((&*file.volumes[0].group, &*file.volumes[1].group), ("fast", "mail"));
        assert_eq!(file.volumes[0].raid, site(FILE).groups[0].raid.into());
        assert_eq!((file.targets[0].units[0].number, &*file.targets[0].units[0].volume), (3, "fast/store"));
        assert_eq!(file.exports[0].volume, "fast/store@monday");
        assert_eq!(file.snapshots[0].volumes, ["fast/store", "mail/log"]);
        assert_eq!(file.initiators, site(FILE).initiators);
        assert_eq!(file.fault(), None);
        // Once more there is nothing to do, and the file is settled.
        let known = places(&[("mail/store", "fast/store")]);
        assert_eq!(settled(&site(FILE), &known), [""; 0]);
        assert_eq!(
            (follow_known(&mut file, &known), settled(&file, &known)),
            (vec![], vec!["mail/store".to_owned()])
        );
    }

    #[test]
    fn a_file_that_says_both_places_is_as_it_says() {
        let both =
            FILE.replace("[[target]]", "[[volume]]\nname = 'store'\ngroup = 'fast'\ngb = 1\n[[target]]");
        let both =
            both.replace("volume = 'store'", "volume = 'mail/store'").replace("['store'", "['mail/store'");
        let known = places(&[("mail/store", "fast/store")]);
        let mut file = site(&both);
        assert_eq!(follow_known(&mut file, &known), [""; 0]);
        assert_eq!(file, site(&both));
        assert_eq!(settled(&file, &known), ["mail/store"]);
    }

    #[test]
    fn moves_of_one_volume_lead_to_where_it_is() {
        let mut known = MovedPlaces::new();
        add_move(&mut known, "mail/store", "fast/store");
        add_move(&mut known, "fast/store", "slow/old");
        assert_eq!(known, places(&[("mail/store", "slow/old"), ("fast/store", "slow/old")]));
        add_move(&mut known, "slow/old", "mail/store");
        assert_eq!(known, places(&[("fast/store", "mail/store"), ("slow/old", "mail/store")]));
    }

    #[test]
    fn what_cannot_follow_is_named() {
        assert_eq!(obstacle(&with_groups_in_references(site(FILE)), "mail/store"), None);
        let two = FILE.replace("[[initiator]]", "[[target.unit]]\nnumber = 4\nvolume = 'log'\n[[initiator]]");
        let (problem, _) = obstacle(&with_groups_in_references(site(&two)), "mail/store").unwrap();
        assert!(problem.contains("target disks") && problem.contains("4 (mail/log)"), "{problem}");
    }
}
