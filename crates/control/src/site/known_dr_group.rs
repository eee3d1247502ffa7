//! DR groups that there are: what a site file says otherwise of them, and the tables that say what they are.
//!
//! Invariant: the role of a group is state. No table says it, so a failover changes no plan.

use super::{
    adoption::FoundPool,
    handle::SiteView,
    wanted_dr_group::{DrKind, WantedDrGroup, row_of},
};
use crate::{
    dr::{group_view::DrGroupView, mode::DrMode, site_message::default_name},
    journal::{DaemonJournal, JournalError},
    planted::{self, DrBug},
    view::PoolView,
};
use array::{
    format::{GroupId, SiteId},
    pool::ReadOnlyPool,
};
use plan::site::{DrGroup, Site};
use replication::group_record::GroupRecord;
use report::Refusal;
use std::collections::{BTreeMap, BTreeSet};

/// A DR group that is there.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownDrGroup {
    pub name: String,
    /// Name of the other site here.
    pub peer: String,
    pub mode: DrMode,
    /// Its parts that are known, one in each pool.
    pub places: Vec<KnownPlace>,
    /// Of a group with volumes in several pools: its identity, and the number of its parts.
    pub joint: Option<(GroupId, usize)>,
    pub witness: Vec<String>,
}

/// The volumes of a group in one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownPlace {
    pub pool: String,
    /// Names in the pool.
    pub volumes: Vec<String>,
}

impl KnownDrGroup {
    /// All pools with its volumes are known.
    pub(super) fn is_whole(&self) -> bool {
        self.joint.is_none_or(|(_, parts)| self.places.len() == parts)
    }

    /// Its volumes: pool and name.
    pub(super) fn volumes(&self) -> impl Iterator<Item = (&String, &String)> {
        self.places.iter().flat_map(|place| place.volumes.iter().map(|name| (&place.pool, name)))
    }
}

/// The DR groups of a site's open pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownDrGroups {
    pub groups: Vec<KnownDrGroup>,
    /// Pools with a record of a group that cannot be used: it may be any group.
    pub damaged: BTreeSet<String>,
}

impl KnownDrGroups {
    /// The groups that the pools show.
    ///
    /// # Errors
    ///
    /// The journal, which has the names of paired sites, cannot be read.
    pub(super) fn of(view: &SiteView, journal: &DaemonJournal) -> Result<Self, JournalError> {
        let names = PeerNames::of(journal)?;
        let mut known = Self::default();
        for pool in view.pools.values() {
            let shown = pool.last_view();
            groups_of(&pool.name, &shown, &names).into_iter().for_each(|group| known.add(group));
            if !shown.dr.damaged.is_empty() {
                known.damaged.insert(pool.name.clone());
            }
        }
        // One that an apply had begun to make, and that lacks a part: the next apply goes on with it.
        let begun: BTreeSet<GroupId> = journal.dr_groups_being_made()?.into_values().collect();
        let is_begun = |group: &KnownDrGroup| group.joint.is_some_and(|(whole, _)| begun.contains(&whole));
        let is_planted = planted::is_in_dr(DrBug::HalfMadeTakenForMade);
        known.groups.retain(|group| group.is_whole() || is_planted || !is_begun(group));
        Ok(known)
    }

    /// Adds a group, or a part of one.
    fn add(&mut self, group: KnownDrGroup) {
        let mut known = self.groups.iter_mut();
        match known.find(|known| group.joint.is_some() && known.joint == group.joint) {
            Some(known) => known.places.extend(group.places),
            None => self.groups.push(group),
        }
    }

    /// Adds the groups of a pool that is opened read-only.
    pub(super) fn add_closed(&mut self, pool: &str, open: &ReadOnlyPool, names: &PeerNames) {
        let volumes: BTreeMap<_, _> =
            open.volumes().into_iter().map(|info| (info.volume, info.name)).collect();
        for (id, bytes) in open.replication_records() {
            let record = bytes.ok().and_then(|bytes| GroupRecord::decode(&bytes).ok());
            let Some(GroupRecord { settings, .. }) = record.filter(|record| record.group == id) else {
                self.damaged.insert(pool.to_owned());
                continue;
            };
            let volumes = settings.volumes.iter().filter_map(|id| volumes.get(id).cloned()).collect();
            self.add(KnownDrGroup {
                name: settings.name,
                peer: names.of_site(settings.peer),
                mode: DrMode::of(settings.mode),
                places: vec![KnownPlace { pool: pool.to_owned(), volumes }],
                joint: settings.joint.map(|part| (part.whole, part.parts.into())),
                witness: settings.auto.map(|auto| auto.witness).unwrap_or_default(),
            });
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<&KnownDrGroup> {
        self.groups.iter().find(|group| group.name == name)
    }
}

/// Names of the paired sites.
pub struct PeerNames(BTreeMap<SiteId, String>);

impl PeerNames {
    /// The names that the journal has.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn of(journal: &DaemonJournal) -> Result<Self, JournalError> {
        let paired = journal.paired_sites()?.into_iter();
        Ok(Self(paired.map(|peer| (SiteId(peer.site), peer.name)).collect()))
    }

    /// One that is not paired any more has the name that it had without one.
    fn of_site(&self, site: SiteId) -> String {
        self.0.get(&site).cloned().unwrap_or_else(|| default_name(&site.0))
    }
}

fn groups_of(pool: &str, view: &PoolView, names: &PeerNames) -> Vec<KnownDrGroup> {
    let known: BTreeMap<_, _> = view.volumes.iter().map(|volume| (volume.volume, &volume.name)).collect();
    let volumes_of = |group: &DrGroupView| {
        group.volumes.iter().filter_map(|id| known.get(id).map(|name| (*name).clone())).collect()
    };
    let groups = view.dr.groups.iter().map(|group| KnownDrGroup {
        name: group.name.clone(),
        peer: names.of_site(group.peer),
        mode: DrMode::of(group.mode),
        places: vec![KnownPlace { pool: pool.to_owned(), volumes: volumes_of(group) }],
        joint: group.joint.as_ref().map(|joint| (joint.part.whole, joint.part.parts.into())),
        witness: group.witness.as_ref().map(|witness| witness.addresses.clone()).unwrap_or_default(),
    });
    groups.collect()
}

/// The first thing that the file says of a group otherwise than it is, of those that no group changes while it lives. `renamed`
/// gives a volume the name that it is to have.
pub(super) fn fixed_difference(
    wanted: &WantedDrGroup,
    known: &KnownDrGroup,
    renamed: impl Fn(&str, &str) -> String,
) -> Option<Refusal> {
    let said = &wanted.row;
    if wanted.to.is_empty() {
        return None;
    }
    let mut differences = Vec::new();
    let mut compare = |key: &str, has: String, says: Option<String>| {
        if let Some(says) = says.filter(|says| *says != has) {
            differences.push(format!("{key} = {has}, which is fixed for its life, and the file says {says}"));
        }
    };
    let to = Some(wanted.to.clone()).filter(|_| !wanted.is_of_other_site);
    compare("to", format!("{:?}", known.peer), to.map(|to| format!("{to:?}")));
    let listed = |names: BTreeSet<(&String, String)>| {
        names.into_iter().map(|(pool, name)| format!("{pool}/{name}")).collect::<Vec<_>>()
    };
    let has = listed(known.volumes().map(|(pool, name)| (pool, renamed(pool, name))).collect());
    let says = listed(wanted.own_volumes().map(|(pool, name)| (pool, name.clone())).collect());
    // Names of copies are their own site's. Volumes in pools that are not open are not known.
    let says = Some(says).filter(|says| !says.is_empty() && known.is_whole());
    compare("volumes", format!("{has:?}"), says.map(|says| format!("{says:?}")));
    let witness = Some(format!("{:?}", said.witness)).filter(|_| !said.witness.is_empty());
    compare("witness", format!("{:?}", known.witness), witness);
    let goes_on_alone = |mode: DrMode| matches!(mode, DrMode::Sync { failsafe: false, .. });
    if !known.witness.is_empty() && !wanted.mode_after(&known.mode).is_none_or(goes_on_alone) {
        let kind = "a mode other than synchronous without failsafe".to_owned();
        compare("witness", format!("{:?}", known.witness), Some(kind));
    }
    let name = &wanted.name;
    let difference = differences.into_iter().next()?;
    Some(Refusal::new(
        format!("DR group {name:?} has {difference}"),
        format!(
            "say what it has, or make it again: 'spindle dr remove {name}' at both sites, then apply the file"
        ),
    ))
}

/// The tables of the groups that are there, in the place of those that `site` has; tables of other sites' groups and of planned
/// ones stay. The lines name what was left out, with the reasons.
pub(super) fn with_dr_groups(
    mut site: Site,
    pools: &[FoundPool],
    known: &KnownDrGroups,
) -> (Site, Vec<String>) {
    let tables = site.replication.as_mut().map(|replication| std::mem::take(&mut replication.dr_groups));
    let tables = tables.unwrap_or_default();
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for group in &known.groups {
        let said = tables.iter().find(|table| table.name == group.name);
        if !group.is_whole() {
            match said {
                Some(said) => rows.push(said.clone()),
                None => left_out.push(format!("DR group {}: not all of its pools are open", group.name)),
            }
            continue;
        }
        let table = table_of(group, said, (&site, pools));
        match table.volumes.iter().all(|meant| site.volume(meant).is_some()) {
            true => rows.push(table),
            false => left_out.push(format!("DR group {}: a file cannot name its volumes", group.name)),
        }
    }
    // In a pool with a record that cannot be used it may be there.
    let is_in_pool = |meant: &String| {
        let has = |name: &str| pools.iter().any(|pool| pool.name == name && !known.damaged.contains(name));
        site.volume(meant).is_some_and(|volume| has(&volume.group))
    };
    let grouped: BTreeSet<String> = rows.iter().flat_map(|row| row.volumes.iter().cloned()).collect();
    for table in tables.into_iter().filter(|table| known.find(&table.name).is_none()) {
        let name = &table.name;
        let is_made_here = !table.to.is_empty() && table.to != site.serve.site;
        if is_made_here && table.volumes.iter().any(is_in_pool) {
            left_out.push(format!("DR group {name}: it is not there"));
        } else if table.volumes.iter().any(|meant| site.volume(meant).is_none() || grouped.contains(meant)) {
            left_out.push(format!("DR group {name}: its volumes are not there any more, or in another one"));
        } else {
            rows.push(table);
        }
    }
    if !rows.is_empty() {
        site.replication.get_or_insert_default().dr_groups = rows;
    }
    (site, left_out)
}

/// The table of a group that is there. Keys that `said` leaves out stay left out.
fn table_of(group: &KnownDrGroup, said: Option<&DrGroup>, (site, pools): (&Site, &[FoundPool])) -> DrGroup {
    let own_volumes = || group.volumes().map(|(pool, name)| format!("{pool}/{name}")).collect();
    let usual = site.replication.as_ref().map_or("", |replication| replication.kind.as_str());
    let mut full = DrGroup {
        name: group.name.clone(),
        volumes: own_volumes(),
        to: group.peer.clone(),
        witness: group.witness.clone(),
        ..row_of(&group.mode)
    };
    if full.kind == usual {
        full.kind.clear();
    }
    let Some(said) = said.filter(|said| !said.to.is_empty()) else {
        full.failsafe = full.failsafe.filter(|&is_failsafe| is_failsafe);
        full.push_back = full.push_back.filter(|&pushes_back| pushes_back);
        return full;
    };
    let is_elsewhere = |meant: &String| {
        let volume = site.volume(meant);
        volume.is_some_and(|volume| pools.iter().all(|pool| pool.name != volume.group))
    };
    let is_own = said.to == site.serve.site;
    let to = if is_own { said.to.clone() } else { full.to };
    DrGroup {
        name: full.name,
        volumes: if said.volumes.iter().all(is_elsewhere) { said.volumes.clone() } else { full.volumes },
        to_group: if to == said.to { said.to_group.clone() } else { String::new() },
        to_groups: if to == said.to { said.to_groups.clone() } else { Vec::new() },
        to,
        kind: if said.kind.is_empty() { full.kind } else { DrKind::of(&group.mode).word().to_owned() },
        hold_seconds: full.hold_seconds.filter(|_| said.hold_seconds.is_some()),
        failsafe: full.failsafe.filter(|_| said.failsafe.is_some()),
        witness: if said.witness.is_empty() { Vec::new() } else { full.witness },
        behind_seconds: full.behind_seconds.filter(|_| said.behind_seconds.is_some()),
        behind_mb: full.behind_mb.filter(|_| said.behind_mb.is_some()),
        push_back: full.push_back.filter(|_| said.push_back.is_some()),
        every_minutes: full.every_minutes.filter(|_| said.every_minutes.is_some()),
        keep: full.keep.filter(|_| said.keep.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dr::mode::HOLD_MS;

    const SITE: &str = "
        [serve]
        site = 'denver'
        [[site]]
        name = 'denver'
        [[group]]
        name = 'mail'
        [[volume]]
        name = 'disk'
        group = 'mail'
        [[volume]]
        name = 'more'
        group = 'mail'
    ";

    fn printed(tables: &str, known: &[KnownDrGroup]) -> (Vec<DrGroup>, Vec<String>) {
        let site = Site::from_toml(&format!("{SITE}{tables}")).unwrap();
        let pool = FoundPool {
            name: "mail".to_owned(),
            folder: "/mail".into(),
            devices: Vec::new(),
            drives: 2,
            volumes: Vec::new(),
            presented: BTreeSet::new(),
        };
        let known = KnownDrGroups { groups: known.to_vec(), ..KnownDrGroups::default() };
        let (site, left_out) = with_dr_groups(site, &[pool], &known);
        assert_eq!(site.fault(), None);
        (site.dr_groups().to_vec(), left_out)
    }

    fn sg1(mode: DrMode) -> KnownDrGroup {
        KnownDrGroup {
            name: "sg1".to_owned(),
            peer: "boston".to_owned(),
            mode,
            places: vec![KnownPlace { pool: "mail".to_owned(), volumes: vec!["disk".to_owned()] }],
            joint: None,
            witness: Vec::new(),
        }
    }

    #[test]
    fn groups_are_printed_as_they_are_in_the_words_of_the_file() {
        let in_sync = || sg1(DrMode::Sync { hold_ms: HOLD_MS, failsafe: false });
        let (all, left_out) = printed("", &[in_sync()]);
        assert_eq!((&*all[0].to, &*all[0].kind, all[0].hold_seconds), ("boston", "synchronous", Some(15.0)));
        assert!(left_out.is_empty() && all[0].failsafe.is_none() && all[0].volumes == ["mail/disk"]);
        // Keys that are left out stay so, unless the kind is another one.
        let table = "[[replication.dr_group]]\nname = 'sg1'\nvolumes = ['mail/disk']\n";
        let own = format!("[replication]\nkind = 'synchronous'\n{table}to = 'denver'\n");
        let (all, _) = printed(&own, &[in_sync()]);
        assert_eq!(
            (&*all[0].to, &*all[0].kind, all[0].hold_seconds),
            ("denver", "", None),
            "it is this site"
        );
        let (all, _) = printed(&own, &[sg1(DrMode::Periodic { every_ms: 60_000, keep: 2 })]);
        assert_eq!(all[0].kind, "periodic");
    }

    #[test]
    fn tables_of_groups_that_are_not_there_are_left_out_unless_another_site_makes_them() {
        let table = |name: &str, volume: &str, to: &str| {
            format!("[[replication.dr_group]]\nname = '{name}'\nvolumes = ['mail/{volume}']\n{to}\n")
        };
        let (all, left_out) = printed(&table("sg1", "disk", "to = 'boston'"), &[]);
        assert_eq!((all.len(), left_out), (0, vec!["DR group sg1: it is not there".to_owned()]));
        assert_eq!(printed(&table("sg1", "disk", "to = 'denver'"), &[]).0.len(), 1);
        assert_eq!(printed(&table("planned", "more", ""), &[]).0.len(), 1);
        let known = sg1(DrMode::Sync { hold_ms: HOLD_MS, failsafe: true });
        let (all, left_out) = printed(&table("old", "disk", "to = 'denver'"), &[known]);
        assert_eq!((all.len(), all[0].failsafe, left_out.len()), (1, Some(true), 1), "a volume is in one");
    }
}
