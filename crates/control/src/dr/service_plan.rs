//! The rows that came with DR groups, beside those of this site's own file: what is served of them, and which clash.
//!
//! Invariants:
//!
//! 1. A row of the site's own file is served as it stands there, whatever came with a group.
//! 2. Each name has one meaning: of two groups with the same name, that with the lower UUID has it.
//! 3. A row that came with a group reaches nobody here who could not reach it there: neither without a secret, nor through a
//!    portal that more clients reach.

use super::{
    group_services::{GroupInitiator, GroupServices, PortalReach},
    kept_services::ServiceNames,
};
use array::format::{GroupId, VolumeId};
use iscsi::{
    session::chap::Credentials,
    target::access::{AccessRight, InitiatorRights},
};
use serving::export::{WantedExport, WantedExports, WantedTarget, WantedUnit, name_of};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A group with rows that came with it.
pub(super) struct KeptGroup {
    pub group: GroupId,
    pub services: Arc<GroupServices>,
    /// Names of its volumes here, by their UUIDs.
    pub volumes: BTreeMap<String, String>,
}

/// The surroundings of the rows.
pub(super) struct ServiceSurroundings<'a> {
    /// Of the pool, by the site's own file.
    pub wanted: &'a WantedExports,
    /// Of other pools, by the site's own file.
    pub taken: ServiceNames,
    /// Of groups in other pools.
    pub beside: Vec<(GroupId, Arc<GroupServices>)>,
    /// Of this site's portals, NBD and iSCSI.
    pub reach: (PortalReach, PortalReach),
}

/// The rows of a group that can be served.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GroupPlan {
    pub exports: Vec<WantedExport>,
    pub targets: Vec<WantedTarget>,
    pub rights: Vec<(String, InitiatorRights)>,
    /// iSCSI names.
    pub open: Vec<String>,
    pub own: Option<Credentials>,
    /// A line for each row that is not served, with the reason.
    pub clashes: Vec<String>,
}

impl GroupPlan {
    /// The rows that can be served, by kind and name.
    pub fn rows(&self) -> Vec<String> {
        let exports = self.exports.iter().map(|export| format!("NBD export {}", export.name));
        let units = self.targets.iter().flat_map(|target| {
            target.units.iter().map(move |unit| format!("unit {}/{}", target.name, unit.number))
        });
        exports.chain(units).collect()
    }
}

/// Names that are given away, as the groups come in the order of their UUIDs.
struct NameTable<'a> {
    surroundings: &'a ServiceSurroundings<'a>,
    exports: BTreeSet<String>,
    /// By iSCSI name and number.
    units: BTreeSet<(String, u64)>,
    /// True if every initiator may use the target, by its iSCSI name.
    open: BTreeMap<String, bool>,
    chap: BTreeMap<String, Option<Credentials>>,
    own: Option<Credentials>,
}

/// Plans the rows of a pool's groups.
pub(super) fn plan_services(
    groups: &[KeptGroup],
    surroundings: &ServiceSurroundings<'_>,
) -> BTreeMap<GroupId, GroupPlan> {
    let access = &surroundings.wanted.access;
    let chap = access.listed().map(|(name, rights)| (name.to_owned(), rights.credentials.clone()));
    let mut names = NameTable {
        surroundings,
        exports: BTreeSet::new(),
        units: BTreeSet::new(),
        open: BTreeMap::new(),
        chap: chap.collect(),
        own: access.own().cloned(),
    };
    let mut sorted: Vec<&KeptGroup> = groups.iter().collect();
    sorted.sort_by_key(|kept| kept.group);
    sorted.into_iter().map(|kept| (kept.group, names.plan(kept))).collect()
}

impl NameTable<'_> {
    fn plan(&mut self, kept: &KeptGroup) -> GroupPlan {
        let mut plan = GroupPlan::default();
        self.plan_exports(kept, &mut plan);
        self.plan_targets(kept, &mut plan);
        for initiator in &kept.services.initiators {
            self.plan_rights(initiator, &mut plan);
        }
        let own = kept.services.own.as_ref().and_then(|own| own.credentials());
        match (&self.own, own) {
            (Some(known), Some(own)) if *known != own => plan.clashes.push(format!(
                "the targets have another CHAP secret of their own here than that of {}: hosts that ask for it are refused",
                own.name
            )),
            (None, own @ Some(_)) => {
                self.own.clone_from(&own);
                plan.own = own;
            }
            _ => {}
        }
        plan
    }

    fn plan_exports(&mut self, kept: &KeptGroup, plan: &mut GroupPlan) {
        let ServiceSurroundings { wanted, taken, beside, reach: (reach, _) } = self.surroundings;
        for export in &kept.services.exports {
            let Some(volume) = kept.volumes.get(&export.volume) else { continue };
            let name = &export.name;
            let own = wanted.nbd.iter().find(|known| known.name == *name);
            let is_beside = beside.iter().any(|(group, services)| {
                *group < kept.group && services.exports.iter().any(|other| other.name == *name)
            });
            let is_wider = *reach > kept.services.nbd_reach.max(PortalReach::Certified);
            let clash = match own {
                // The administrator wrote it already.
                Some(own) if own.volume == *volume => continue,
                Some(own) => Some(format!("the name of NBD export {name} is taken by {}", own.volume)),
                None if taken.exports.contains(name) || is_beside || self.exports.contains(name) => {
                    Some(format!("the name of NBD export {name} is taken"))
                }
                None if is_wider => Some(format!(
                    "NBD export {name} would be open to all who reach this site's NBD address, as it is not at the other site: \
                     set nbd_tls with a ca-cert.pem, or write the export in this site's file"
                )),
                None => None,
            };
            match clash {
                Some(clash) => plan.clashes.push(clash),
                None => {
                    self.exports.insert(name.clone());
                    plan.exports.push(WantedExport {
                        name: name.clone(),
                        volume: volume.clone(),
                        is_read_only: export.is_read_only,
                    });
                }
            }
        }
    }

    fn plan_targets(&mut self, kept: &KeptGroup, plan: &mut GroupPlan) {
        let ServiceSurroundings { wanted, taken, beside, reach: (_, reach) } = self.surroundings;
        for target in &kept.services.targets {
            let full = name_of(&target.name);
            let own = wanted.targets.iter().find(|known| name_of(&known.name) == full);
            let is_beside = beside.iter().any(|(group, services)| {
                let mut names = services.targets.iter().map(|other| name_of(&other.name));
                *group < kept.group && names.any(|other| other == full)
            });
            if target.is_open && *reach > kept.services.iscsi_reach {
                plan.clashes.push(format!(
                    "target {} names no initiators, and would be open to all who reach this site's iSCSI address",
                    target.name
                ));
                continue;
            }
            let is_other = self.open.get(&full).is_some_and(|is_open| *is_open != target.is_open);
            if taken.targets.contains(&full) || is_beside || is_other {
                plan.clashes.push(format!("the name of target {} is taken", target.name));
                continue;
            }
            let mut units = Vec::new();
            for unit in &target.units {
                let Some(volume) = kept.volumes.get(&unit.volume) else { continue };
                let place = format!("{}/{}", target.name, unit.number);
                let known = own.map(|own| own.units.iter().find(|known| known.number == unit.number));
                match known {
                    Some(Some(known)) if known.volume == *volume => {}
                    Some(Some(known)) => {
                        plan.clashes.push(format!("the name of unit {place} is taken by {}", known.volume));
                    }
                    Some(None) => plan.clashes.push(format!(
                        "target {} is one of this site's own file, and has no unit {}",
                        target.name, unit.number
                    )),
                    None if !self.units.insert((full.clone(), unit.number)) => {
                        plan.clashes.push(format!("the name of unit {place} is taken"));
                    }
                    None => units.push(WantedUnit {
                        number: unit.number,
                        volume: volume.clone(),
                        is_read_only: unit.is_read_only,
                        is_shared: unit.is_shared,
                        write_cache: unit.write_cache,
                    }),
                }
            }
            if !units.is_empty() {
                self.open.insert(full.clone(), target.is_open);
                if target.is_open {
                    plan.open.push(full);
                }
                plan.targets.push(WantedTarget { name: target.name.clone(), units });
            }
        }
    }

    /// The rights of a host on what is planned.
    fn plan_rights(&mut self, initiator: &GroupInitiator, plan: &mut GroupPlan) {
        let InitiatorRights { credentials, units } = GroupServices::rights_of(initiator);
        let planned = |target: &WantedTarget| {
            let full = name_of(&target.name);
            let rights = units.get(&full)?;
            let has = |unit: &WantedUnit| Some((unit.number, *rights.get(&unit.number)?));
            let rights: BTreeMap<u64, AccessRight> = target.units.iter().filter_map(has).collect();
            (!rights.is_empty()).then_some((full, rights))
        };
        let units: BTreeMap<_, _> = plan.targets.iter().filter_map(planned).collect();
        if units.is_empty() {
            return;
        }
        let name = &initiator.name;
        let secret = |chap: &Option<Credentials>| chap.as_ref().map(|chap| chap.secret.clone());
        if credentials.is_some() && secret(&credentials) == secret(&self.own) {
            return plan.clashes.push(format!(
                "initiator {name} has the CHAP secret of the targets here: its rights are not given"
            ));
        }
        match self.chap.get(name) {
            Some(None) if credentials.is_some() => {
                return plan.clashes.push(format!(
                    "initiator {name} has CHAP at the other site and none here: its rights are not given without"
                ));
            }
            Some(known) if *known != credentials => plan.clashes.push(format!(
                "initiator {name} has another CHAP user or secret here than at the other site, and has to present that of here"
            )),
            Some(_) => {}
            None => drop(self.chap.insert(name.clone(), credentials.clone())),
        }
        plan.rights.push((name.clone(), InitiatorRights { credentials, units }));
    }
}

/// The exports of a pool, with the rows of these groups.
pub(super) fn with_plans<'p>(
    wanted: WantedExports,
    plans: impl IntoIterator<Item = &'p GroupPlan>,
) -> WantedExports {
    let mut all = wanted;
    for plan in plans {
        all.nbd.extend(plan.exports.iter().cloned());
        for target in &plan.targets {
            match all.targets.iter_mut().find(|known| name_of(&known.name) == name_of(&target.name)) {
                // Two groups have units of one target.
                Some(known) => known.units.extend(target.units.iter().cloned()),
                None => all.targets.push(target.clone()),
            }
        }
        all.access = all.access.with_added(plan.rights.clone(), plan.open.clone(), plan.own.clone());
    }
    all
}

/// Names here of a group's volumes.
pub(super) fn names_of(
    volumes: &[VolumeId],
    all: &BTreeMap<VolumeId, String>,
) -> (BTreeMap<String, String>, BTreeMap<String, VolumeId>) {
    let known = volumes.iter().filter_map(|volume| Some((*volume, all.get(volume)?.clone())));
    let known: Vec<(VolumeId, String)> = known.collect();
    let by_id = known.iter().map(|(volume, name)| (volume.to_string(), name.clone())).collect();
    (by_id, known.into_iter().map(|(volume, name)| (name, volume)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use iscsi::{session::chap::Secret, target::access::AccessList};

    const ONE: VolumeId = VolumeId([1; 16]);
    const TWO: VolumeId = VolumeId([2; 16]);
    const HOST: &str = "iqn.x:host";

    fn chap(secret: &str) -> Option<Credentials> {
        Some(Credentials { name: "user".to_owned(), secret: Secret::new(secret).unwrap() })
    }

    fn unit(number: u64, volume: &str) -> WantedUnit {
        let (volume, write_cache) = (volume.to_owned(), None);
        WantedUnit { number, volume, is_read_only: false, is_shared: false, write_cache }
    }

    fn export(name: &str, volume: &str) -> WantedExport {
        WantedExport { name: name.to_owned(), volume: volume.to_owned(), is_read_only: false }
    }

    /// A site's file with one export, one target, and one host with CHAP.
    fn file((name, volume): (&str, &str), secret: Option<Credentials>) -> WantedExports {
        let units = [(0, AccessRight::Write), (7, AccessRight::Read)].into();
        let rights = InitiatorRights { credentials: secret, units: [(name_of(name), units)].into() };
        WantedExports {
            nbd: vec![export(name, volume)],
            targets: vec![WantedTarget { name: name.to_owned(), units: vec![unit(0, volume)] }],
            access: AccessList::only([(HOST.to_owned(), rights)], None).unwrap(),
        }
    }

    fn nothing() -> WantedExports {
        WantedExports { access: AccessList::only([], None).unwrap(), ..WantedExports::default() }
    }

    fn kept(group: u8, wanted: &WantedExports, volume: VolumeId, reach: PortalReach) -> KeptGroup {
        let there: BTreeMap<String, VolumeId> = [("there".to_owned(), volume)].into();
        let services = GroupServices::of(wanted, &there, (reach, reach), 1);
        assert_eq!(GroupServices::parse(&services.text()).as_ref(), Ok(&services));
        let volumes = [(volume.to_string(), format!("here{}", volume.0[0]))].into();
        KeptGroup { group: GroupId([group; 16]), services: Arc::new(services), volumes }
    }

    fn planned(
        groups: &[KeptGroup],
        own: &WantedExports,
        reach: PortalReach,
    ) -> (WantedExports, Vec<String>) {
        let surroundings = ServiceSurroundings {
            wanted: own,
            taken: ServiceNames::default(),
            beside: Vec::new(),
            reach: (reach, reach),
        };
        let plans = plan_services(groups, &surroundings);
        let clashes = plans.values().flat_map(|plan| plan.clashes.clone()).collect();
        (with_plans(own.clone(), plans.values()), clashes)
    }

    #[test]
    fn rows_of_the_other_site_are_served_by_the_names_of_volumes_here_with_the_secret_of_there() {
        let there = file(("disk", "there"), chap("twelve bytes"));
        let groups = [kept(1, &there, ONE, PortalReach::Everyone)];
        let (served, clashes) = planned(&groups, &nothing(), PortalReach::Everyone);
        assert_eq!(clashes, [""; 0]);
        assert_eq!((&served.nbd[0].name, &served.nbd[0].volume), (&"disk".to_owned(), &"here1".to_owned()));
        assert_eq!(served.targets[0].units, [unit(0, "here1")]);
        let right = |number| served.access.right(HOST, &name_of("disk"), number);
        assert_eq!((right(0), right(7)), (Some(AccessRight::Write), None), "unit 7 is none of the group");
        assert_eq!(served.access.credentials_of(HOST), chap("twelve bytes").as_ref());
        let text = format!("{:?}", groups[0].services);
        let digits = crate::hexadecimal::hexadecimal(b"twelve bytes");
        assert!(groups[0].services.text().contains(&digits), "it travels");
        assert!(!text.contains(&digits) && !text.contains("twelve"), "{text}");
    }

    #[test]
    fn rows_of_this_sites_file_stay_as_they_are_and_each_clash_is_said() {
        let there = file(("disk", "there"), chap("twelve bytes"));
        let groups = [kept(1, &there, ONE, PortalReach::Everyone)];
        // The administrator wrote the same: his rows count, without a word.
        let same = file(("disk", "here1"), chap("another twelve"));
        assert_eq!(planned(&groups, &same, PortalReach::Everyone), (same, vec![]));
        let other = file(("DISK", "mine"), None);
        let (served, clashes) = planned(&groups, &other, PortalReach::Everyone);
        assert_eq!((&served.targets, served.nbd.len()), (&other.targets, 2), "names of exports have a case");
        assert_eq!(clashes, ["the name of unit disk/0 is taken by mine"]);
        let (_, clashes) = planned(&groups, &file(("disk", "mine"), None), PortalReach::Everyone);
        assert_eq!(clashes[0], "the name of NBD export disk is taken by mine");
        // The host is known here without a secret: it does not get units that need one.
        let mut known = file(("mine", "mine"), None);
        let (served, clashes) = planned(&groups, &known, PortalReach::Everyone);
        assert_eq!(served.access.right(HOST, &name_of("disk"), 0), None);
        assert!(clashes[0].starts_with("initiator iqn.x:host has CHAP at the other site"), "{clashes:?}");
        known.access = AccessList::only([], chap("twelve bytes")).unwrap();
        let (served, clashes) = planned(&groups, &known, PortalReach::Everyone);
        assert_eq!(served.access.right(HOST, &name_of("disk"), 0), None, "{clashes:?}");
    }

    #[test]
    fn of_two_groups_with_one_name_that_with_the_lower_uuid_has_it() {
        let there = file(("disk", "there"), None);
        let groups = [kept(2, &there, TWO, PortalReach::Local), kept(1, &there, ONE, PortalReach::Local)];
        let (served, clashes) = planned(&groups, &nothing(), PortalReach::Local);
        assert_eq!(
            (served.nbd, &served.targets[0].units[..]),
            (vec![export("disk", "here1")], &[unit(0, "here1")][..])
        );
        assert_eq!(clashes, ["the name of NBD export disk is taken", "the name of unit disk/0 is taken"]);
        // In another pool.
        let surroundings = ServiceSurroundings {
            wanted: &nothing(),
            taken: ServiceNames { targets: [name_of("disk")].into(), ..ServiceNames::default() },
            beside: vec![(groups[1].group, Arc::clone(&groups[1].services))],
            reach: (PortalReach::Local, PortalReach::Local),
        };
        let plans = plan_services(&groups, &surroundings);
        let clashes = |group: &KeptGroup| plans[&group.group].clashes.len();
        assert_eq!((clashes(&groups[0]), clashes(&groups[1])), (2, 1));
    }

    #[test]
    fn nothing_is_open_to_more_clients_than_at_the_other_site() {
        let mut there = file(("disk", "there"), None);
        there.access = there.access.with_open([name_of("disk")]);
        let count = |there_reach, here| {
            let groups = [kept(1, &there, ONE, there_reach)];
            let (served, clashes) = planned(&groups, &nothing(), here);
            (served.nbd.len(), served.targets.len(), clashes.len())
        };
        use PortalReach::{Certified, Everyone, Local, Nobody};
        assert_eq!(count(Everyone, Everyone), (1, 1, 0));
        assert_eq!(count(Local, Local), (1, 1, 0));
        assert_eq!(count(Local, Everyone), (0, 0, 2));
        assert_eq!(count(Certified, Everyone), (0, 0, 2));
        assert_eq!(count(Local, Certified), (1, 0, 1));
        assert_eq!(count(Everyone, Nobody), (1, 1, 0));
    }
}
