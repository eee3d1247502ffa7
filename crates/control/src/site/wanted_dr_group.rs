//! DR groups as the site file has them, checked.
//!
//! A key that is left out leaves a setting of a group as it is; a new group gets its default.

use crate::dr::{
    access::{WITNESS_ADDRESSES, WitnessKind},
    mode::{BEHIND_BYTES, BEHIND_MS, DrMode, EVERY_MS, HOLD_MS, KEEP},
};
use plan::site::{DrGroup, Site, SiteIndex};
use report::Refusal;

const MINUTE_MS: f64 = 60_000.0;
const SECOND_MS: f64 = 1_000.0;
const MIB: f64 = (1u64 << 20) as f64;

/// The kind of replication of a DR group, in the words of the site file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrKind {
    Synchronous,
    Asynchronous,
    Periodic,
}

impl DrKind {
    const ALL: [Self; 3] = [Self::Synchronous, Self::Asynchronous, Self::Periodic];

    pub fn of(mode: &DrMode) -> Self {
        match mode {
            DrMode::Sync { .. } => Self::Synchronous,
            DrMode::Async { .. } => Self::Asynchronous,
            DrMode::Periodic { .. } => Self::Periodic,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Synchronous => "synchronous",
            Self::Asynchronous => "asynchronous",
            Self::Periodic => "periodic",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// The keys of this kind alone that a row says.
    fn keys_said(self, row: &DrGroup) -> Vec<&'static str> {
        let said = match self {
            Self::Synchronous => vec![
                ("hold_seconds", row.hold_seconds.is_some()),
                ("failsafe", row.failsafe.is_some()),
                ("witness", !row.witness.is_empty()),
            ],
            Self::Asynchronous => vec![
                ("behind_seconds", row.behind_seconds.is_some()),
                ("behind_mb", row.behind_mb.is_some()),
                ("push_back", row.push_back.is_some()),
            ],
            Self::Periodic => {
                vec![("every_minutes", row.every_minutes.is_some()), ("keep", row.keep.is_some())]
            }
        };
        said.into_iter().filter(|(_, is_said)| *is_said).map(|(key, _)| key).collect()
    }
}

/// The volumes of a DR group that lie in one pool.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WantedPlace {
    pub pool: String,
    /// Names.
    pub volumes: Vec<String>,
    /// Name of the pool in which the copies lie.
    pub pool_there: String,
}

/// A DR group as the site file has it.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedDrGroup {
    pub name: String,
    /// The pools in which its volumes lie, and their names, in the order of the file; empty if they are no pools of this site.
    pub(super) places: Vec<WantedPlace>,
    /// Of the site that gets the copies: its pools, and the names of the volumes that come to each.
    pub(super) copies: Vec<(String, Vec<String>)>,
    /// Names of the pools in which its volumes lie, at whichever site.
    pub(super) pools: Vec<String>,
    /// The other site; empty if the group is only planned.
    pub to: String,
    /// This is the site that gets the copies: the other one makes the group.
    pub(super) is_of_other_site: bool,
    /// `None` if the file does not say it.
    pub(super) kind: Option<DrKind>,
    /// Keys as the file says them.
    pub(super) row: DrGroup,
}

impl WantedDrGroup {
    /// The mode of a new group; `None` if the file does not say the kind.
    pub fn mode(&self) -> Option<DrMode> {
        let row = &self.row;
        Some(match self.kind? {
            DrKind::Synchronous => DrMode::Sync {
                hold_ms: row.hold_seconds.map_or(HOLD_MS, |seconds| rounded(seconds * SECOND_MS)),
                failsafe: row.failsafe.unwrap_or(false),
            },
            DrKind::Asynchronous => DrMode::Async {
                behind_ms: row.behind_seconds.map_or(BEHIND_MS, |seconds| rounded(seconds * SECOND_MS)),
                behind_bytes: row.behind_mb.map_or(BEHIND_BYTES, |mb| rounded(mb * MIB)),
                push_back: row.push_back.unwrap_or(false),
            },
            DrKind::Periodic => DrMode::Periodic {
                every_ms: row.every_minutes.map_or(EVERY_MS, |minutes| rounded(minutes * MINUTE_MS)),
                keep: row.keep.map_or(KEEP, |keep| u16::try_from(keep).unwrap_or(u16::MAX)),
            },
        })
    }

    /// The mode that a group with another one is to have; `None` if the file does not say the kind.
    pub(super) fn mode_after(&self, known: &DrMode) -> Option<DrMode> {
        if self.kind? != DrKind::of(known) {
            return self.mode();
        }
        let (said, known) = (&self.row, row_of(known));
        let row = DrGroup {
            hold_seconds: said.hold_seconds.or(known.hold_seconds),
            failsafe: said.failsafe.or(known.failsafe),
            behind_seconds: said.behind_seconds.or(known.behind_seconds),
            behind_mb: said.behind_mb.or(known.behind_mb),
            push_back: said.push_back.or(known.push_back),
            every_minutes: said.every_minutes.or(known.every_minutes),
            keep: said.keep.or(known.keep),
            ..said.clone()
        };
        Self { row, ..self.clone() }.mode()
    }

    /// The group in words, as the step that makes it shows it.
    pub(super) fn text(&self) -> String {
        let volumes = self.own_volumes().map(|(pool, name)| format!("{pool}/{name}"));
        let mode = self.mode().map_or(String::new(), |mode| format!(", {mode}"));
        let witness = match self.row.witness.as_slice() {
            [] => String::new(),
            addresses => format!(", witness {}", addresses.join(", ")),
        };
        format!("{} to {}{mode}{witness}", volumes.collect::<Vec<_>>().join(", "), self.to)
    }

    /// Its volumes that lie in pools of this site: pool and name.
    pub(super) fn own_volumes(&self) -> impl Iterator<Item = (&String, &String)> {
        self.places.iter().flat_map(|place| place.volumes.iter().map(|name| (&place.pool, name)))
    }

    /// True if a volume of this site's file is a copy that comes with the group.
    pub(super) fn brings(&self, pool: &str, volume: &str) -> bool {
        self.is_of_other_site
            && self
                .copies
                .iter()
                .any(|(copied_to, names)| copied_to == pool && names.iter().any(|name| name == volume))
    }

    /// Refuses what no group can be.
    fn check(&self) -> Result<(), Refusal> {
        let (row, name) = (&self.row, &self.name);
        let refused = |problem: String, remedy: &str| {
            Err(Refusal::new(format!("DR group {name:?}: {problem}"), remedy))
        };
        if !row.kind.is_empty() && self.kind.is_none() {
            let problem = format!("there is no kind {:?} of replication", row.kind);
            return refused(problem, "say synchronous, asynchronous or periodic");
        }
        let Some(kind) = self.kind else { return Ok(()) };
        for other in DrKind::ALL.into_iter().filter(|other| *other != kind) {
            if let Some(key) = other.keys_said(row).first() {
                let problem = format!("{key} is of {} groups, and this one is {}", other.word(), kind.word());
                return refused(problem, "take it out, or say the other kind");
            }
        }
        if self.mode().is_some_and(|mode| mode.checked().is_err()) {
            return match kind {
                DrKind::Synchronous => refused(
                    "hold_seconds is out of its bounds: Linux gives a disk up after 30 s".to_owned(),
                    "say one above 0 and at most 25",
                ),
                DrKind::Asynchronous => {
                    refused("behind_seconds and behind_mb are above 0".to_owned(), "as 30 and 256")
                }
                DrKind::Periodic => refused(
                    "every_minutes or keep is out of its bounds".to_owned(),
                    "every_minutes is from 0.0167 to 10080, and keep from 1 to 64",
                ),
            };
        }
        if let [one, other, ..] = &self.pools[..] {
            let lie = format!("its volumes lie in the pools {one} and {other}");
            if kind == DrKind::Periodic {
                let problem = format!("{lie}, and such a group is not periodic today");
                return refused(
                    problem,
                    "say kind = \"synchronous\" or \"asynchronous\", or make a group for each pool",
                );
            }
        }
        if row.witness.is_empty() {
            return Ok(());
        }
        if row.failsafe == Some(true) {
            let problem = "it refuses writes without the other site, so it has no witness".to_owned();
            return refused(problem, "take failsafe or witness out");
        }
        match WitnessKind::parse(&row.witness) {
            Ok(_) => Ok(()),
            Err(problem) => refused(format!("witness: {problem}"), WITNESS_ADDRESSES),
        }
    }
}

/// The DR groups of a site file, as the site called `own` sees them; `is_pool` knows its pools.
///
/// # Errors
///
/// A group that is to be made says what none can be.
pub(super) fn wanted_dr_groups(
    (site, index): (&Site, &SiteIndex),
    own: &str,
    is_pool: impl Fn(&str) -> bool,
) -> Result<Vec<WantedDrGroup>, Refusal> {
    let usual = site.replication.as_ref().map_or("", |replication| replication.kind.as_str());
    let mut groups = Vec::new();
    for row in site.dr_groups() {
        let mut by_pool: Vec<(String, Vec<String>)> = Vec::new();
        for volume in row.volumes.iter().filter_map(|meant| index.volume(meant)) {
            match by_pool.iter_mut().find(|(pool, _)| *pool == volume.group) {
                Some((_, names)) => names.push(volume.name.clone()),
                None => by_pool.push((volume.group.clone(), vec![volume.name.clone()])),
            }
        }
        let place = |(pool, volumes): &(String, Vec<String>)| WantedPlace {
            pool: pool.clone(),
            volumes: volumes.clone(),
            pool_there: row.group_there(pool).to_owned(),
        };
        let places: Vec<WantedPlace> = by_pool.iter().filter(|(pool, _)| is_pool(pool)).map(place).collect();
        if !row.to.is_empty() && !places.is_empty() && places.len() < by_pool.len() {
            let other = by_pool.iter().find(|(pool, _)| !is_pool(pool)).map_or("", |(pool, _)| pool);
            return Err(Refusal::new(
                format!(
                    "DR group {:?} has volumes in pools of this site, and in {other}, which is none",
                    row.name
                ),
                "a group has its volumes at one site; name those alone",
            ));
        }
        // A copy is named as it lies there, or as its source lies.
        let copied_to = |pool: &String| match is_pool(pool) {
            true => pool.clone(),
            false => row.group_there(pool).to_owned(),
        };
        let copies = by_pool.iter().map(|(pool, names)| (copied_to(pool), names.clone())).collect();
        let kind = if row.kind.is_empty() { usual } else { &row.kind };
        let group = WantedDrGroup {
            name: row.name.clone(),
            pools: by_pool.into_iter().map(|(pool, _)| pool).collect(),
            places,
            copies,
            to: row.to.clone(),
            is_of_other_site: !own.is_empty() && row.to == own,
            kind: DrKind::parse(kind),
            row: row.clone(),
        };
        // A plan may say anything.
        if !group.to.is_empty() {
            group.check()?;
        }
        groups.push(group);
    }
    Ok(groups)
}

fn rounded(value: f64) -> u64 {
    value.round() as u64
}

/// The keys of a mode, all said.
pub(super) fn row_of(mode: &DrMode) -> DrGroup {
    let row = DrGroup { kind: DrKind::of(mode).word().to_owned(), ..DrGroup::default() };
    match *mode {
        DrMode::Sync { hold_ms, failsafe } => {
            DrGroup { hold_seconds: Some(hold_ms as f64 / SECOND_MS), failsafe: Some(failsafe), ..row }
        }
        DrMode::Async { behind_ms, behind_bytes, push_back } => DrGroup {
            behind_seconds: Some(behind_ms as f64 / SECOND_MS),
            behind_mb: Some(behind_bytes as f64 / MIB),
            push_back: Some(push_back),
            ..row
        },
        DrMode::Periodic { every_ms, keep } => {
            DrGroup { every_minutes: Some(every_ms as f64 / MINUTE_MS), keep: Some(keep.into()), ..row }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: &str = "
        [[group]]
        name = 'mail'
        [[volume]]
        name = 'disk'
        group = 'mail'
        [[replication.dr_group]]
        name = 'sg1'
        volumes = ['disk']
        to = 'denver'
    ";

    fn read(keys: &str, own: &str) -> Result<WantedDrGroup, String> {
        let site = Site::from_toml(&format!("{SITE}{keys}")).map_err(|error| error.to_string())?;
        let groups = wanted_dr_groups((&site, &SiteIndex::of(&site)), own, |pool| pool == "mail");
        Ok(groups.map_err(|refusal| refusal.to_string())?.remove(0))
    }

    #[test]
    fn keys_that_are_left_out_are_those_of_dr_create() {
        for (keys, text) in [
            ("kind = 'synchronous'", "synchronous, hold 15 s"),
            (
                "kind = 'synchronous'\nhold_seconds = 0.5\nfailsafe = true",
                "synchronous, hold 0.5 s, failsafe",
            ),
            ("kind = 'synchronous'\nwitness = ['w', 'x:1']", "synchronous, hold 15 s, witness w, x:1"),
            ("kind = 'asynchronous'", "asynchronous, at most 30 s and 256 MiB behind"),
            (
                "kind = 'asynchronous'\nbehind_seconds = 90\nbehind_mb = 1\npush_back = true",
                "asynchronous, at most 90 s and 1.00 MiB behind, push back",
            ),
            ("kind = 'periodic'", "periodic, every 15 min, 4 states kept"),
            ("kind = 'periodic'\nevery_minutes = 0.05\nkeep = 2", "periodic, every 3 s, 2 states kept"),
        ] {
            let group = read(keys, "boston").unwrap();
            assert_eq!(group.text(), format!("mail/disk to denver, {text}"));
            let mode = group.mode().unwrap();
            let again = WantedDrGroup { row: row_of(&mode), ..group };
            assert_eq!(again.mode(), Some(mode), "as it is printed");
        }
    }

    #[test]
    fn a_group_that_none_can_be_is_refused_unless_it_is_only_planned() {
        for (keys, why) in [
            ("kind = 'sync'", "no kind \"sync\" of replication; say synchronous, asynchronous or periodic"),
            (
                "kind = 'periodic'\nhold_seconds = 5",
                "hold_seconds is of synchronous groups, and this one is periodic",
            ),
            ("kind = 'synchronous'\nhold_seconds = 60", "hold_seconds is out of its bounds"),
            ("kind = 'asynchronous'\nbehind_mb = 0", "behind_seconds and behind_mb are above 0"),
            ("kind = 'periodic'\nkeep = 65", "keep from 1 to 64"),
            ("kind = 'synchronous'\nfailsafe = true\nwitness = ['w']", "take failsafe or witness out"),
            ("kind = 'synchronous'\nwitness = ['w', 'etcd://x']", "a group has one witness"),
        ] {
            let refused = read(keys, "boston").unwrap_err();
            assert!(refused.starts_with("DR group \"sg1\": ") && refused.contains(why), "{refused}");
            let planned = format!("{SITE}{keys}").replace("to = 'denver'", "");
            let site = Site::from_toml(&planned).unwrap();
            assert!(wanted_dr_groups((&site, &SiteIndex::of(&site)), "boston", |_| true).is_ok());
        }
    }

    #[test]
    fn the_site_that_gets_the_copies_makes_no_group() {
        let group = read("kind = 'synchronous'", "denver").unwrap();
        assert!(group.is_of_other_site && group.brings("mail", "disk") && !group.brings("mail", "other"));
        assert!(!read("kind = 'synchronous'", "boston").unwrap().brings("mail", "disk"));
        assert!(!read("", "").unwrap().is_of_other_site);
    }
}
