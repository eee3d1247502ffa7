//! The services of a pool's DR groups: rows of the site's own file, which travel, and rows that came from the other site.
//!
//! Invariants:
//!
//! 1. Rows that came are served while their group serves here, and while nothing is closed by a damaged record.
//! 2. Nothing of the own file travels before the pool was asked to serve it: a server that starts has not lost its rows.

use super::{
    could_serve::{ServingGrounds, reasons_against},
    group_services::GroupServices,
    group_view::{DrGroupView, DrRole, GroupHostsView},
    kept_services::{PoolServiceNames, ServiceNames},
    pool_groups::PoolDrGroups,
    service_plan::{GroupPlan, KeptGroup, ServiceSurroundings, names_of, plan_services, with_plans},
    shared_targets::{SharedTargets, SharingGroup},
};
use crate::planted::{self, DrBug};
use array::format::{GroupId, VolumeId};
use report::Refusal;
use serving::export::{WantedExports, name_of};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The services of a pool's groups, as they were planned last.
#[derive(Default)]
pub(super) struct ServiceState {
    /// As the site's own file has them; `None` before it was served.
    wanted: RefCell<Option<WantedExports>>,
    own: RefCell<BTreeMap<GroupId, Arc<GroupServices>>>,
    plans: RefCell<BTreeMap<GroupId, GroupPlan>>,
    /// Revision of what is kept.
    planned_at: Cell<u64>,
    /// The groups that were secondary here.
    secondary: RefCell<BTreeSet<GroupId>>,
}

impl PoolDrGroups {
    /// The part that hosts reach now, of the exports of the site's own file and of those that came with the groups.
    pub fn served_part(&self, wanted: &WantedExports) -> WantedExports {
        let open = self.open_part(wanted);
        if self.is_closed() {
            return open;
        }
        let plans = self.plan(wanted);
        let serves =
            |group: &&GroupId| self.serves(**group) || planted::is_in_dr(DrBug::RowsServedBySecondary);
        with_plans(open, plans.keys().filter(serves).map(|group| &plans[group]))
    }

    /// The exports of the site's own file, and all that came with the groups.
    pub fn with_all_rows(&self, wanted: &WantedExports) -> WantedExports {
        with_plans(wanted.clone(), self.services.plans.borrow().values())
    }

    /// The exports of the site's own file are served: they travel with the groups from now on.
    pub fn note_wanted(&self, wanted: &WantedExports) {
        let volumes = self.volumes_by_id();
        let groups = self.group_volumes();
        let own = ServiceNames {
            exports: wanted.nbd.iter().map(|export| export.name.clone()).collect(),
            targets: wanted.targets.iter().map(|target| name_of(&target.name)).collect(),
        };
        let names = PoolServiceNames { own, groups: groups.iter().map(|(group, _)| *group).collect() };
        self.kept().set_pool(self.pool_id(), names);
        let reach = self.kept().reach();
        let mut known = self.services.own.borrow_mut();
        let before = std::mem::take(&mut *known);
        for (group, ids) in groups {
            let services =
                GroupServices::of(wanted, &names_of(&ids, &volumes).1, reach, self.portal_group(group));
            let same = before.get(&group).filter(|before| ***before == services).cloned();
            known.insert(group, same.unwrap_or_else(|| Arc::new(services)));
        }
        drop(known);
        *self.services.wanted.borrow_mut() = Some(wanted.clone());
    }

    /// The rows of the site's own file for the volumes of a group that is to be made.
    pub fn services_for(&self, volumes: &[VolumeId]) -> GroupServices {
        let wanted = self.services.wanted.borrow().clone().unwrap_or_default();
        GroupServices::of(&wanted, &names_of(volumes, &self.volumes_by_id()).1, self.kept().reach(), 1)
    }

    /// A group was made or removed.
    pub(super) fn note_groups(&self) {
        let wanted = self.services.wanted.borrow().clone();
        wanted.iter().for_each(|wanted| self.note_wanted(wanted));
    }

    /// The rows that came with groups, or the names of other pools, are not those of the last plan.
    pub(super) fn is_plan_old(&self) -> bool {
        self.services.wanted.borrow().is_some()
            && (self.services.planned_at.get() != self.kept().revision()
                || *self.services.secondary.borrow() != self.secondary_groups())
    }

    /// The targets of the groups, with their portals at both sites; `open` is what the pool serves.
    pub fn shared_targets(&self, open: &WantedExports) -> SharedTargets {
        let (own, plans) = (self.services.own.borrow(), self.services.plans.borrow());
        let secondary = self.services.secondary.borrow();
        let groups = self.peers().into_iter().map(|(group, peer)| SharingGroup {
            is_secondary: secondary.contains(&group),
            own: own.get(&group).map(|own| &**own),
            plan: plans.get(&group),
            portal_group: self.portal_group(group),
            other_portal: self.kept().iscsi_portal_of(peer),
        });
        SharedTargets::of(open, groups.collect::<Vec<_>>())
    }

    fn portal_group(&self, group: GroupId) -> u16 {
        GroupServices::portal_group_beside(self.kept().of(group).as_deref())
    }

    /// The pool is about to serve what is wanted, by what the groups are and what came with them now.
    pub fn note_serving(&self, wanted: &WantedExports) {
        self.note_closed();
        self.services.planned_at.set(self.kept().revision());
        *self.services.secondary.borrow_mut() = self.secondary_groups();
        *self.services.plans.borrow_mut() = self.plan(wanted);
    }

    fn plan(&self, wanted: &WantedExports) -> BTreeMap<GroupId, GroupPlan> {
        let kept = self.kept();
        let volumes = self.volumes_by_id();
        let of = |(group, ids): (GroupId, Vec<VolumeId>)| {
            let services = kept.of(group)?;
            Some(KeptGroup { group, services, volumes: names_of(&ids, &volumes).0 })
        };
        let groups: Vec<KeptGroup> = self.group_volumes().into_iter().filter_map(of).collect();
        let (taken, beside) = kept.names_beside(self.pool_id());
        let surroundings = ServiceSurroundings { wanted, taken, beside, reach: kept.reach() };
        plan_services(&groups, &surroundings)
    }

    /// The services of a group, for its view.
    pub(super) fn hosts_view(&self, group: &DrGroupView, used_percent: u64) -> GroupHostsView {
        let own = self.services.own.borrow().get(&group.group).cloned();
        let plans = self.services.plans.borrow();
        let (plan, kept) = (plans.get(&group.group), self.kept().of(group.group));
        let (nbd, iscsi) = self.kept().reach();
        let grounds = ServingGrounds {
            is_complete: group.is_complete,
            used_percent,
            own: own.as_deref(),
            kept: kept.as_deref(),
            plan,
            reach: (nbd, iscsi),
        };
        let is_known = group.role == DrRole::Secondary && own.is_some();
        GroupHostsView {
            reasons_against: is_known.then(|| reasons_against(&grounds)),
            rows: plan.map(GroupPlan::rows).unwrap_or_default(),
            clashes: plan.map(|plan| plan.clashes.clone()).unwrap_or_default(),
            own,
            clients: self.clients_of_group(group.group),
            withheld: self.withheld_hosts(&group.volumes),
        }
    }

    /// Refuses to remove a group whose hosts use rows that came with it: they would be gone with the group.
    pub(super) fn check_rows_unused(&self, group: GroupId, name: &str) -> Result<(), Refusal> {
        let plans = self.services.plans.borrow();
        let Some(plan) = plans.get(&group).filter(|_| self.serves(group)) else { return Ok(()) };
        let rows = plan.rows();
        if rows.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(
            format!(
                "{name} serves hosts here by rows that came with it from the other site ({}), which would be gone with it",
                rows.join(", ")
            ),
            "write them into this site's file with the same names, and apply it; or move the group back first",
        ))
    }
}
