//! Occurrences of DR groups that are seen by comparing two looks: a first copy or a merge that has ended, in sync again.

use crate::{
    dr::{
        LinkView,
        group_report::EndedDrMerge,
        group_view::{DrGroupView, DrRole},
    },
    site::handle::SiteView,
};
use array::format::GroupId;
use report::{calendar::shown_time, duration::show_duration};
use std::collections::BTreeMap;
use world::{ByteCount, WallTime};

/// Something that happened to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DrNews {
    pub pool: String,
    pub kind: &'static str,
    pub text: String,
}

/// A group as the last look saw it.
struct SeenGroup {
    role: DrRole,
    alone_since: Option<WallTime>,
    is_first_copy_lacking: bool,
    merges: u64,
}

/// Compares each look at the groups of a site with the one before.
#[derive(Default)]
pub(crate) struct DrWatch {
    seen: BTreeMap<GroupId, SeenGroup>,
}

impl DrWatch {
    /// News since the last look. The first look at a group says nothing.
    pub fn look(&mut self, site: &SiteView, link: Option<&LinkView>) -> Vec<DrNews> {
        let (mut news, mut seen) = (Vec::new(), BTreeMap::new());
        for (pool, handle) in &site.pools {
            let Some(view) = handle.view() else { continue };
            for group in &view.dr.groups {
                let peer = link.and_then(|link| link.peers.iter().find(|peer| peer.site == group.peer));
                let peer = peer.map_or("the other site", |peer| peer.name.as_str());
                let before = self.seen.remove(&group.group).filter(|before| before.role == group.role);
                let happened = before.map(|before| before.compare(group, peer)).unwrap_or_default();
                news.extend(happened.into_iter().map(|(kind, text)| DrNews {
                    pool: pool.clone(),
                    kind,
                    text,
                }));
                seen.insert(group.group, SeenGroup::of(group));
            }
        }
        self.seen = seen;
        news
    }
}

impl SeenGroup {
    fn of(group: &DrGroupView) -> Self {
        let report = &group.report;
        Self {
            role: group.role,
            alone_since: report.alone_since,
            is_first_copy_lacking: report.is_first_copy_lacking,
            merges: report.last_merge.as_ref().map_or(0, |last| last.number),
        }
    }

    fn compare(&self, group: &DrGroupView, peer: &str) -> Vec<(&'static str, String)> {
        let (name, report) = (&group.name, &group.report);
        let merge = report.last_merge.as_ref().filter(|last| last.number != self.merges);
        let mut happened = Vec::new();
        // The merge that it was has its figures once it has ended.
        let is_unseen = merge.is_none() && report.merge.is_none();
        let is_complete = self.is_first_copy_lacking && !report.is_first_copy_lacking;
        if merge.is_some_and(|merge| merge.is_first_copy) || is_complete && is_unseen {
            let figures = merge.map_or_else(String::new, |merge| format!(", {}", merge_figures(merge)));
            let text = match group.role {
                DrRole::Primary => format!("{name}: {peer} has the first copy whole{figures}"),
                DrRole::Secondary => format!("{name}: the first copy from {peer} is whole{figures}"),
            };
            happened.push(("dr_first_copy_complete", text));
        } else if let Some(merge) = merge {
            let figures = merge_figures(merge);
            let text = match group.role {
                DrRole::Primary => format!("{name}: {peer} has what it lacked, {figures}"),
                DrRole::Secondary => format!("{name}: what this site lacked is here from {peer}, {figures}"),
            };
            happened.push(("dr_merged", text));
        }
        if let (Some(since), None) = (self.alone_since, report.alone_since) {
            let since = shown_time(since.seconds);
            let text = format!("{name} is in sync with {peer}, after it was alone since {since}");
            happened.push(("dr_in_sync", text));
        }
        happened
    }
}

fn merge_figures(merge: &EndedDrMerge) -> String {
    format!("{} in {}", ByteCount(merge.bytes), show_duration(merge.took))
}
