//! Could a secondary serve hosts now, if it were promoted?

use super::{
    group_services::{GroupServices, PortalReach},
    service_plan::GroupPlan,
};

/// Above it, a pool that takes over may soon be out of space.
const USED_PERCENT_MAX: u64 = 90;

/// Grounds on which hosts would find their disks here, or not.
pub(super) struct ServingGrounds<'a> {
    pub is_complete: bool,
    /// Of the pool's space.
    pub used_percent: u64,
    /// Rows of this site's own file.
    pub own: Option<&'a GroupServices>,
    /// Rows that came with the group, and what can be served of them.
    pub kept: Option<&'a GroupServices>,
    pub plan: Option<&'a GroupPlan>,
    /// Of this site's portals, NBD and iSCSI.
    pub reach: (PortalReach, PortalReach),
}

/// The reasons for which hosts would not be served as at the other site; none if they would.
pub(super) fn reasons_against(grounds: &ServingGrounds<'_>) -> Vec<String> {
    let ServingGrounds { is_complete, used_percent, own, kept, plan, reach } = grounds;
    let mut reasons = Vec::new();
    if !is_complete {
        reasons.push("the first copy is not complete".to_owned());
    }
    if *used_percent > USED_PERCENT_MAX {
        reasons.push(format!(
            "the pool is {used_percent} % full, and would stop its hosts when it is out of space"
        ));
    }
    let planned = |has: fn(&GroupPlan) -> bool| plan.is_some_and(has);
    let has_exports =
        own.is_some_and(|own| !own.exports.is_empty()) || planned(|plan| !plan.exports.is_empty());
    let has_units =
        own.is_some_and(|own| !own.targets.is_empty()) || planned(|plan| !plan.targets.is_empty());
    let clashes = plan.map(|plan| plan.clashes.as_slice()).unwrap_or_default();
    if !has_exports && !has_units && clashes.is_empty() {
        reasons.push(match kept {
            None => "the other site has not sent the group's targets, exports and rights yet, and this site's file has none",
            Some(_) => "no target and no NBD export has its volumes, at either site",
        }
        .to_owned());
    }
    let there = kept.map(|kept| (kept.nbd_reach, kept.iscsi_reach)).unwrap_or_default();
    let portals =
        [("NBD", "nbd", has_exports, reach.0, there.0), ("iSCSI", "iscsi", has_units, reach.1, there.1)];
    for (protocol, key, is_needed, here, there) in portals {
        if is_needed && here == PortalReach::Nobody {
            reasons.push(format!("this site has no {protocol} portal: {key} is none in [serve]"));
        } else if is_needed && kept.is_some() && here == PortalReach::Local && there > PortalReach::Local {
            reasons.push(format!(
                "this site's {protocol} portal is reached from its own machine alone, and that of the other site from others: \
                 see {key} in [serve]"
            ));
        }
    }
    let has_hosts = own.is_some_and(GroupServices::has_hosts)
        || planned(|plan| !plan.exports.is_empty() || !plan.rights.is_empty() || !plan.open.is_empty());
    if (has_exports || has_units) && !has_hosts {
        reasons.push("no host has a right on its units".to_owned());
    }
    reasons.extend(clashes.iter().cloned());
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dr::group_services::GroupExport;

    #[test]
    fn a_secondary_could_serve_when_hosts_would_find_a_portal_a_name_and_a_right() {
        let export = GroupExport { name: "a".to_owned(), volume: String::new(), is_read_only: false };
        let there = GroupServices {
            nbd_reach: PortalReach::Everyone,
            ..GroupServices::of(&serving::export::WantedExports::default(), &[].into(), Default::default(), 1)
        };
        let there = GroupServices { exports: vec![export], ..there };
        let plan = GroupPlan {
            exports: vec![serving::export::WantedExport {
                name: "a".to_owned(),
                volume: "a".to_owned(),
                is_read_only: false,
            }],
            ..GroupPlan::default()
        };
        let reasons = |nbd: PortalReach, used_percent: u64, plan: &GroupPlan| {
            let reach = (nbd, PortalReach::Nobody);
            let (own, kept) = (None, Some(&there));
            let plan = Some(plan);
            reasons_against(&ServingGrounds { is_complete: true, used_percent, own, kept, plan, reach })
        };
        assert_eq!(reasons(PortalReach::Everyone, 90, &plan), [""; 0]);
        let against = [
            (reasons(PortalReach::Everyone, 91, &plan), "91 % full"),
            (reasons(PortalReach::Nobody, 0, &plan), "no NBD portal"),
            (reasons(PortalReach::Local, 0, &plan), "from its own machine alone"),
            (reasons(PortalReach::Everyone, 0, &GroupPlan::default()), "at either site"),
        ];
        for (reasons, part) in against {
            assert!(reasons.len() == 1 && reasons[0].contains(part), "{reasons:?}");
        }
        let clash = GroupPlan { clashes: vec!["taken".to_owned()], ..GroupPlan::default() };
        assert_eq!(reasons(PortalReach::Everyone, 0, &clash), ["taken"]);
    }
}
