//! The standing of a set by the DR groups of its volumes: the server keeps it where those are primary, and serve.

use super::served_set::{SetReplication, SetRole};
use crate::{
    dr::{
        group_view::{DrGroupView, DrRole},
        set_memory::{SetMemory, SetRecord},
    },
    planted::{self, FollowBug},
    site::handle::SiteView,
};
use protect::set_keeper::{SetSettings, SetVolume};
use std::collections::BTreeSet;

/// The DR groups of a set's volumes, as the views of the pools show them, a second old at most.
#[derive(Default)]
struct SetGroups {
    serving: Vec<(SetVolume, DrGroupView)>,
    /// Primary here, and not serving: they have to compare with the other site first, or a person has to choose.
    not_serving: Vec<(SetVolume, DrGroupView)>,
    secondary: Vec<(SetVolume, DrGroupView)>,
    outside: Vec<SetVolume>,
    /// Their pools do not say.
    unknown: Vec<SetVolume>,
}

impl SetGroups {
    fn of(site: &SiteView, settings: &SetSettings) -> Self {
        let mut groups = Self::default();
        for volume in &settings.volumes {
            let Some(view) = site.pools.get(&volume.pool).and_then(|pool| pool.view()) else {
                groups.unknown.push(volume.clone());
                continue;
            };
            let is_meant =
                |known: &&crate::view::VolumeView| known.name == volume.volume && known.left_by.is_none();
            let Some(known) = view.volumes.iter().find(is_meant) else {
                groups.unknown.push(volume.clone());
                continue;
            };
            match view.dr.groups.iter().find(|group| group.volumes.contains(&known.volume)) {
                None => groups.outside.push(volume.clone()),
                Some(group) => {
                    let list = match group.role {
                        DrRole::Secondary => &mut groups.secondary,
                        DrRole::Primary if group.serves => &mut groups.serving,
                        DrRole::Primary => &mut groups.not_serving,
                    };
                    list.push((volume.clone(), group.clone()));
                }
            }
        }
        groups
    }
}

/// The standing of a set; `None` if no volume of it lies in a DR group.
pub(super) fn replication_of(
    site: &SiteView,
    settings: &SetSettings,
    memory: &SetMemory,
) -> Option<SetReplication> {
    let groups = SetGroups::of(site, settings);
    let record = memory.of(&settings.name);
    let SetGroups { serving, not_serving, secondary, outside, unknown } = &groups;
    let members = || serving.iter().chain(not_serving).chain(secondary);
    if members().next().is_none() {
        return pool_of_follower(&record, unknown);
    }
    let peers: BTreeSet<_> = members().map(|(_, group)| group.peer).collect();
    let sites = peers.iter().map(|peer| memory.site_name(*peer)).collect::<Vec<_>>().join(" and ");
    let names = |list: &[(SetVolume, DrGroupView)]| {
        let names: BTreeSet<&str> = list.iter().map(|(_, group)| group.name.as_str()).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    };
    let volumes = |list: &[SetVolume]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let role = match (secondary.is_empty(), serving.is_empty() && not_serving.is_empty()) {
        _ if planted::is_in_following(FollowBug::KeptBySecondary) => SetRole::Keeps,
        (false, false) => SetRole::Divided,
        (false, true) => SetRole::Follows,
        _ if !not_serving.is_empty() || (record.is_following && !unknown.is_empty()) => SetRole::Waits,
        _ => SetRole::Keeps,
    };
    let text = match role {
        SetRole::Divided => format!(
            "DR group {} is primary here and DR group {} at site {sites}, so no site can back the set up whole; move them to one \
             site: 'spindle failover GROUP'",
            names(&[serving.as_slice(), not_serving].concat()),
            names(secondary)
        ),
        SetRole::Follows => {
            let text =
                format!("DR group {} is secondary here, and site {sites} keeps the set", names(secondary));
            match outside.is_empty() {
                true => text,
                false => format!(
                    "{text}; {} is in no DR group, and its backups are not made here",
                    volumes(outside)
                ),
            }
        }
        SetRole::Waits if not_serving.is_empty() => {
            format!("the set was kept by site {sites} before, and {} is not open here", volumes(unknown))
        }
        SetRole::Waits => format!(
            "DR group {} is primary here and does not serve hosts yet, so nothing is made or deleted; see 'spindle dr status'",
            names(not_serving)
        ),
        SetRole::Keeps if !outside.is_empty() => format!(
            "{} is in no DR group, so site {sites} gets no whole backup; add it to {}, or take it out of the set",
            volumes(outside),
            names(serving)
        ),
        SetRole::Keeps => String::new(),
    };
    let (peers, told) = (peers.into_iter().collect(), record.told);
    // Asked is the site that follows.
    let asked = memory.asked(&settings.name).filter(|_| role == SetRole::Follows);
    Some(SetReplication { role, peers, sites, text, extract: None, told, wanted: None, asked, verdict: None })
}

/// The standing of a set that followed when its pools were seen last, and none of them is open.
fn pool_of_follower(record: &SetRecord, unknown: &[SetVolume]) -> Option<SetReplication> {
    let volume = unknown.first().filter(|_| record.is_following)?;
    Some(SetReplication {
        role: SetRole::Waits,
        peers: Vec::new(),
        sites: "the other site".to_owned(),
        text: format!("another site kept the set before, and {volume} is not open here"),
        extract: None,
        told: record.told.clone(),
        wanted: None,
        asked: None,
        verdict: None,
    })
}
