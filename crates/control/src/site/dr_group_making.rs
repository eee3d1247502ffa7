//! DR groups made: the flow that the API and an apply share, and the step of an apply.
//!
//! Invariants:
//!
//! 1. The journal has the UUID of a group before the other site hears of it: an apply that was cut short goes on with the same
//!    one, and finds what it made.
//! 2. A group that cannot be made keeps no other part of a site from being as the file says.

use super::{
    changes::SiteStep,
    handle::PoolHandle,
    server::SiteServer,
    wanted_dr_group::{WantedDrGroup, WantedPlace},
};
use crate::{
    dr::{
        LinkHandle, LinkView,
        access::{WITNESS_ADDRESSES, WitnessKind},
        group_view::DrGroupView,
        mode::DrMode,
        pool_groups::begin_change,
        site_message::GroupOffer,
    },
    order::OrderRefusal,
    planted::{self, DrBug},
};
use array::format::{GroupId, SiteId, VolumeId};
use replication::{
    group_record::{AutoFailover, GroupSettings},
    joint_group::JointPart,
    witness::client::WITNESS_PORT,
};
use report::Refusal;
use serving::uuid::random_uuid;
use std::time::Duration;
use world::{Address, with_deadline};

/// Time for the making of a group: the other site has 20 s for its part.
const MADE_WITHIN: Duration = Duration::from_secs(60);

/// A DR group to be made, or a part of one, of which this site is primary.
pub(crate) struct NewDrGroup {
    pub name: String,
    /// Its volumes, which lie in one pool.
    pub volumes: Vec<VolumeId>,
    pub peer: SiteId,
    /// Name of the pool there.
    pub pool_there: String,
    pub mode: DrMode,
    pub auto: Option<AutoFailover>,
    /// Its place in a group with volumes in several pools.
    pub joint: Option<JointPart>,
}

/// The reason for which a group was not made.
pub(crate) enum DrGroupRefusal {
    Refused(Refusal),
    /// The pool did not take an order.
    Pool(OrderRefusal),
}

impl From<Refusal> for DrGroupRefusal {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<OrderRefusal> for DrGroupRefusal {
    fn from(refusal: OrderRefusal) -> Self {
        Self::Pool(refusal)
    }
}

/// Makes a group with volumes in one pool or several. Returns the UUID of its first part, or its own. Repeated with its UUID, it
/// goes on.
pub(crate) async fn make_in_pools(
    link: &LinkHandle,
    group: GroupId,
    mut new: Vec<(PoolHandle, NewDrGroup)>,
) -> Result<GroupId, DrGroupRefusal> {
    if new.len() > 1 {
        return make_parts(link, group, new).await;
    }
    let (pool, new) = new.remove(0);
    make_dr_group((link, &pool), group, new).await.map(|()| group)
}

/// UUID of a part: the same whenever the making of its group is repeated.
fn part_id(whole: GroupId, index: u8) -> GroupId {
    let mut id = whole.0;
    id[15] ^= index + 1;
    GroupId(id)
}

/// Makes a group with volumes in several pools: first all replicas, then all parts.
async fn make_parts(
    link: &LinkHandle,
    whole: GroupId,
    new: Vec<(PoolHandle, NewDrGroup)>,
) -> Result<GroupId, DrGroupRefusal> {
    let parts = u8::try_from(new.len()).expect("as many as a group may have");
    let mut offered = Vec::new();
    for (index, (pool, part)) in (0_u8..).zip(new) {
        let part = NewDrGroup { joint: Some(JointPart { whole, index, parts }), ..part };
        let id = part_id(whole, index);
        let is_made = pool.last_view().dr.groups.iter().any(|known| known.group == id);
        if !is_made {
            let settings = offer_dr_group((link, &pool), id, part).await?;
            offered.push((pool, id, settings));
        }
    }
    for (pool, id, settings) in offered {
        create_dr_group(&pool, id, settings).await?;
    }
    Ok(part_id(whole, 0))
}

/// Makes a group: the other site makes replicas, and gets a first copy. Repeated with its UUID, it goes on.
async fn make_dr_group(
    (link, pool): (&LinkHandle, &PoolHandle),
    group: GroupId,
    new: NewDrGroup,
) -> Result<(), DrGroupRefusal> {
    let settings = offer_dr_group((link, pool), group, new).await?;
    create_dr_group(pool, group, settings).await
}

/// Has the other site make replicas for a group. Repeated with its UUID, it finds them.
async fn offer_dr_group(
    (link, pool): (&LinkHandle, &PoolHandle),
    group: GroupId,
    new: NewDrGroup,
) -> Result<GroupSettings, DrGroupRefusal> {
    let NewDrGroup { name, volumes, peer, pool_there, mode, auto, joint } = new;
    let checked = mode.checked()?;
    check_witness(&link.look(), peer, auto.as_ref())?;
    let (own_name, own_ids) = (name.clone(), volumes.clone());
    let found = pool.begin("check DR group", move |served| {
        Box::pin(async move {
            let found = served.dr.check_new(&own_name, &own_ids)?;
            Ok::<_, Refusal>((found, served.dr.services_for(&own_ids)))
        })
    })?;
    let (found, services) = found.await??;
    let offer = GroupOffer::new(group, (&name, mode), &pool_there, &found);
    let offer = offer.with_witness(auto.as_ref()).with_joint(joint);
    let settings = GroupSettings { name, mode: checked, peer, volumes, auto, joint };
    let of_group = settings.clone();
    // Before the other site makes anything.
    let witness_answers = begin_change(pool, "check witness", move |dr| {
        Box::pin(async move { dr.check_settings(group, &of_group).await })
    })?;
    witness_answers.await??;
    link.offer(peer, offer, services).await?;
    Ok(settings)
}

/// Makes a group whose replicas are there: hosts write to it from now on.
async fn create_dr_group(
    pool: &PoolHandle,
    group: GroupId,
    settings: GroupSettings,
) -> Result<(), DrGroupRefusal> {
    let made = begin_change(pool, "make DR group", move |dr| {
        Box::pin(async move { dr.create_primary(group, settings).await })
    })?;
    Ok(made.await??)
}

/// Refuses a witness on the machine of one of both sites: it would be lost together with that.
fn check_witness(link: &LinkView, peer: SiteId, auto: Option<&AutoFailover>) -> Result<(), Refusal> {
    let host = |address: &str| match Address::parse(address, WITNESS_PORT) {
        Ok(Address::Tcp { host, .. }) => Some(host),
        _ => None,
    };
    let peers = link.peers.iter().filter(|known| known.site == peer);
    let of_peer = peers.flat_map(|known| {
        let connected = known.connections.iter().map(|connection| connection.address.as_str());
        connected.chain(known.addresses.iter().map(String::as_str)).filter_map(host).collect::<Vec<_>>()
    });
    let of_sites: Vec<String> = of_peer.chain(host(&link.address)).collect();
    let Some(auto) = auto else { return Ok(()) };
    let refused = |problem| Refusal::new(problem, WITNESS_ADDRESSES);
    let (_, parsed) = WitnessKind::parse(&auto.witness).map_err(refused)?;
    for (address, parsed) in auto.witness.iter().zip(parsed) {
        let Address::Tcp { host: witness, .. } = parsed else {
            return Err(Refusal::new(
                format!("witness {address:?} is no address of a third machine"),
                WITNESS_ADDRESSES,
            ));
        };
        if of_sites.contains(&witness) {
            return Err(Refusal::new(
                format!(
                    "the witness {address} is on the machine of one of both sites, and would be lost with it"
                ),
                "a witness runs on a third machine",
            ));
        }
    }
    Ok(())
}

impl SiteServer {
    /// Makes DR groups over this link from now on.
    pub fn use_link(&mut self, link: LinkHandle) {
        self.link = Some(link);
    }

    /// Makes the groups of some steps, but for those in pools of which something else failed. Returns those that were not
    /// made, with the reasons.
    pub(super) async fn make_dr_groups(
        &mut self,
        steps: &[SiteStep],
        listens: bool,
        has_failed: impl Fn(&str) -> bool,
    ) -> Vec<(String, Refusal)> {
        let mut refused = Vec::new();
        self.waiting_dr_groups.clear();
        if let Err(refusal) = self.forget_made_groups() {
            self.notices.warn(refusal.to_string());
        }
        for step in steps {
            let SiteStep::MakeDrGroup(group) = step else { continue };
            if let Some(WantedPlace { pool, .. }) = group.places.iter().find(|place| has_failed(&place.pool))
            {
                let refusal = Refusal::new(format!("its pool {pool} is not as the file says"), "");
                refused.push((group.name.clone(), refusal));
            } else if let Err(refusal) = self.make_wanted(group, listens).await {
                let link = self.link.as_ref().map(|link| link.look());
                self.waiting_dr_groups.note_not_made(link.as_deref(), group);
                refused.push((group.name.clone(), refusal));
            }
        }
        self.watch_for_dr_sites();
        refused
    }

    /// Gives groups other modes, but for those in pools of which something else failed. Returns those that were not changed, with
    /// the reasons.
    pub(super) async fn change_dr_groups(
        &self,
        steps: &[SiteStep],
        has_failed: impl Fn(&str) -> bool,
    ) -> Vec<(String, Refusal)> {
        let mut refused = Vec::new();
        for step in steps {
            let SiteStep::ChangeDrGroup { name, pools, to, .. } = step else { continue };
            let failed = pools.iter().find(|pool| has_failed(pool));
            let changed = match failed {
                Some(pool) => Err(Refusal::new(format!("its pool {pool} is not as the file says"), "")),
                None => self.change_dr_group(name, pools, to).await,
            };
            refused.extend(changed.err().map(|refusal| (name.clone(), refusal)));
        }
        refused
    }

    async fn change_dr_group(&self, name: &str, pools: &[String], mode: &DrMode) -> Result<(), Refusal> {
        let mode = mode.checked()?;
        for pool in pools {
            let name = name.to_owned();
            let changed = self.order(pool, "change mode of DR group", move |served| {
                Box::pin(async move {
                    let changed = served.dr.change_mode_of(&name, mode).await;
                    served.show_changes();
                    changed
                })
            });
            changed.await?;
        }
        Ok(())
    }

    async fn make_wanted(&self, group: &WantedDrGroup, listens: bool) -> Result<(), Refusal> {
        let link = self.link.as_ref().ok_or_else(|| match listens {
            true => Refusal::new("a server makes it that runs", "'spindle serve' with this file"),
            false => Refusal::new(
                "this server does not listen for other sites",
                "say listen under [replication], for example listen = \"0.0.0.0:7789\", and start it again",
            ),
        })?;
        let peer = connected_peer(&link.look(), &group.to)?;
        let mode = group.mode().ok_or_else(|| Refusal::new("it has no kind", "say one"))?;
        let mut new = Vec::new();
        for WantedPlace { pool, volumes, pool_there } in group.places.clone() {
            let ids = self.order(&pool, "find volumes", move |served| {
                Box::pin(async move {
                    let known = served.pool.volumes();
                    let id = |name: String| match known.iter().find(|known| known.name == name) {
                        Some(known) => Ok(known.volume),
                        None => Err(Refusal::new(format!("there is no volume {name}"), "")),
                    };
                    volumes.into_iter().map(id).collect::<Result<Vec<_>, _>>()
                })
            });
            let part = NewDrGroup {
                name: group.name.clone(),
                volumes: ids.await?,
                peer,
                pool_there,
                mode: mode.clone(),
                auto: (!group.row.witness.is_empty())
                    .then(|| AutoFailover { witness: group.row.witness.clone() }),
                joint: None,
            };
            let handle = self.pool_handles().into_iter().find(|known| known.name == pool);
            let handle = handle.ok_or_else(|| Refusal::new(format!("pool {pool} is not open"), ""))?;
            new.push((handle, part));
        }
        let begun = self.journal.dr_groups_being_made().map_err(|error| error.refusal())?;
        let is_forgotten = planted::is_in_dr(DrBug::MakingForgotten);
        let id = begun.get(&group.name).copied().filter(|_| !is_forgotten);
        let id = id.unwrap_or_else(|| GroupId(random_uuid(&self.world)));
        self.journal.begin_dr_group(&group.name, id).map_err(|error| error.refusal())?;
        let pools: Vec<&str> = group.places.iter().map(|place| place.pool.as_str()).collect();
        let pools = pools.join(", ");
        let making = make_in_pools(link, id, new);
        match with_deadline(self.world.sleep(MADE_WITHIN), making).await {
            Some(Ok(_)) => self.journal.end_dr_group(&group.name).map_err(|error| error.refusal()),
            Some(Err(DrGroupRefusal::Refused(refusal))) => Err(refusal),
            Some(Err(DrGroupRefusal::Pool(refusal))) => {
                Err(Refusal::new(format!("pool {pools}: {refusal}"), "see its messages"))
            }
            None => {
                let seconds = MADE_WITHIN.as_secs();
                Err(Refusal::new(
                    format!("pool {pools} did not answer within {seconds} s"),
                    "look at its drives",
                ))
            }
        }
    }

    /// A crash may come between the last step of a making and its end in the journal. A group of that name that is made later is
    /// another one.
    fn forget_made_groups(&self) -> Result<(), Refusal> {
        let begun = self.journal.dr_groups_being_made().map_err(|error| error.refusal())?;
        let views = self.pool_handles().into_iter().map(|pool| pool.last_view());
        let known: Vec<(GroupId, Option<JointPart>)> = views
            .flat_map(|view| {
                let part = |group: &DrGroupView| group.joint.as_ref().map(|joint| joint.part);
                view.dr.groups.iter().map(|group| (group.group, part(group))).collect::<Vec<_>>()
            })
            .collect();
        let is_made = |group: &GroupId| {
            let mut parts = known.iter().filter_map(|(_, part)| part.filter(|part| part.whole == *group));
            known.iter().any(|(id, _)| id == group)
                || parts.next().is_some_and(|one| parts.count() + 1 == usize::from(one.parts))
        };
        for (name, _) in begun.iter().filter(|(_, group)| is_made(group)) {
            self.journal.end_dr_group(name).map_err(|error| error.refusal())?;
        }
        Ok(())
    }
}

/// The paired site of a name, if it is connected.
fn connected_peer(link: &LinkView, name: &str) -> Result<SiteId, Refusal> {
    let Some(peer) = link.peers.iter().find(|peer| peer.name == name) else {
        let known: Vec<&str> = link.peers.iter().map(|peer| peer.name.as_str()).collect();
        let next = match known.is_empty() {
            true => {
                "pair with it: 'spindle dr token' there and 'spindle dr pair' here, or the other way round"
                    .to_owned()
            }
            false => format!("paired are: {}", known.join(", ")),
        };
        return Err(Refusal::new(format!("this site is not paired with {name:?}"), next));
    };
    match peer.connected_since {
        Some(_) => Ok(peer.site),
        None => Err(Refusal::new(format!("site {name} is not connected"), "see 'spindle dr status'")),
    }
}
