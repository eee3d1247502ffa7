//! The iSCSI targets that two sites have: their portals at both, and logins that belong to the other one.
//!
//! Invariant: a target that this pool serves has not moved.

use super::{group_services::GroupServices, service_plan::GroupPlan};
use iscsi::target::{ListedTarget, TargetPortals, access::AccessList};
use serving::export::{WantedExports, name_of};
use std::collections::{BTreeMap, BTreeSet};

/// Targets of a pool's groups, for the portal.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SharedTargets {
    /// By iSCSI name.
    pub portals: BTreeMap<String, TargetPortals>,
    /// Those that are served at the other site.
    pub listed: Vec<ListedTarget>,
    /// Rights on these, beside those of the site's own file.
    pub access: AccessList,
}

/// A group with targets.
pub(super) struct SharingGroup<'a> {
    pub is_secondary: bool,
    pub own: Option<&'a GroupServices>,
    pub plan: Option<&'a GroupPlan>,
    /// Tag of this site's portal group: 1 at the site whose rows came first, 2 at the other one.
    pub portal_group: u16,
    /// The iSCSI portal of the other site.
    pub other_portal: Option<String>,
}

impl SharedTargets {
    /// `open` is what the pool serves.
    pub(super) fn of<'g>(open: &WantedExports, groups: impl IntoIterator<Item = SharingGroup<'g>>) -> Self {
        let served = open.targets.iter().filter(|target| !target.units.is_empty());
        let served: BTreeSet<String> = served.map(|target| name_of(&target.name)).collect();
        let nobody = AccessList::only([], None).expect("nobody has a secret");
        let mut shared = Self { access: nobody, ..Self::default() };
        for group in groups {
            let mut units: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
            for target in group.own.iter().flat_map(|own| &own.targets) {
                let numbers = target.units.iter().map(|unit| unit.number);
                units.entry(name_of(&target.name)).or_default().extend(numbers);
            }
            for target in group.plan.iter().flat_map(|plan| &plan.targets) {
                let numbers = target.units.iter().map(|unit| unit.number);
                units.entry(name_of(&target.name)).or_default().extend(numbers);
            }
            for (name, units) in units {
                let has_moved = group.is_secondary && group.other_portal.is_some() && !served.contains(&name);
                let portals = TargetPortals {
                    group: group.portal_group,
                    others: group.other_portal.iter().cloned().collect(),
                    other_group: 3 - group.portal_group,
                    has_moved,
                };
                // Two groups may have units of one target.
                if shared.portals.insert(name.clone(), portals).is_none() && has_moved {
                    shared.listed.push(ListedTarget { name, units });
                }
            }
            if let Some(plan) = group.plan.filter(|_| group.is_secondary) {
                let (rights, open) = (plan.rights.clone(), plan.open.clone());
                shared.access = shared.access.with_added(rights, open, plan.own.clone());
            }
        }
        shared
    }
}
