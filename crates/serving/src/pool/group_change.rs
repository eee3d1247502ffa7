//! Changes of groups as values: an order makes them in a served pool, in one that has the whole group or in each of several at
//! the same time. A stopped pool has the same by `group` and `shared_group`.
//!
//! Invariants:
//!
//! 1. A refused change changes nothing, and no client is withheld from who was not before.
//! 2. A rollback under clients does not happen before the pool keeps from whom its volumes are withheld.

use super::{
    branching::users_text,
    cut::is_effect,
    group::HELP,
    volume_change::{ChangeablePool, VolumeRef},
};
use crate::export::{ClientsKeptAway, IdentityOrigin, SharedDevice, WithheldClients};
use array::{
    error::Error,
    format::{GroupId, SnapshotId, row::IdSeed},
    pool::{
        CutMember, GroupInfo, GroupMemberChange, NewGroupClone, NewSnapshot, UnsettledCut, VolumeInfo,
        VolumeKey,
    },
};
use report::Refusal;
use std::{rc::Rc, time::Duration};

/// A change of a group. What it makes has its identity from the UUID of the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// All volumes at one moment.
    Snapshot {
        name: String,
        /// At most 768 bytes; empty for none.
        note: String,
    },
    Clone {
        snapshot: SnapshotId,
        /// Follows the name of each volume.
        suffix: String,
        is_independent: bool,
    },
    RollBack {
        snapshot: SnapshotId,
        /// Although clients use the volumes: they are withheld from them.
        is_forced: bool,
    },
}

/// A change of a group that was made in one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupChangeDone {
    /// Clones, or states of before; none of a snapshot.
    pub made: Vec<MadeOfVolume>,
    /// Answers to hosts waited so long.
    pub held: Duration,
}

/// A volume of a group, and the one that a change made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeOfVolume {
    pub volume: String,
    pub made: String,
    /// Clients that had the volume in use, and have to let go of what they cached.
    pub withheld: WithheldClients,
}

/// A group in one pool, as an order finds it.
#[derive(Clone, Debug)]
pub struct GroupSighting {
    pub info: GroupInfo,
    /// Its volumes there.
    pub members: Vec<VolumeInfo>,
    /// Of the pool.
    pub unsettled: Vec<UnsettledCut>,
    /// Volumes made of its own by a change with the UUID that was asked for.
    pub made: Vec<GroupMemberChange>,
}

/// The refusal of a pool's part.
#[derive(Clone, Debug)]
pub struct PartRefusal {
    pub refusal: Refusal,
    /// It follows from what another pool refused.
    pub is_effect: bool,
}

impl PartRefusal {
    fn of(on: &ChangeablePool<'_>, error: &Error) -> Self {
        Self { refusal: on.refusal(error, HELP), is_effect: is_effect(error) }
    }
}

impl From<Refusal> for PartRefusal {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, is_effect: false }
    }
}

impl GroupSighting {
    /// The group, if the pool has a part of it; `change` is the UUID of a change that may have been made.
    pub fn of(on: &ChangeablePool<'_>, group: GroupId, change: [u8; 16]) -> Option<Self> {
        let info = on.pool.groups().into_iter().find(|info| info.group == group)?;
        let volumes = on.pool.volumes();
        let named = |name: &String| volumes.iter().find(|known| known.name == *name).cloned();
        let members: Vec<VolumeInfo> = info.volumes.iter().filter_map(named).collect();
        let made = members.iter().filter_map(|member| {
            let id = IdSeed(change).volume_of(member.volume);
            let made = volumes.iter().find(|known| known.volume == id)?;
            Some(GroupMemberChange { volume: member.name.clone(), made: made.name.clone() })
        });
        let made = made.collect();
        Some(Self { info, members, unsettled: on.pool.unsettled_cuts(), made })
    }
}

/// Makes a change of a group, or the part of this pool in it.
///
/// # Errors
///
/// A refusal, of this pool or because of another one, or because clients use a volume.
pub async fn perform(
    on: &ChangeablePool<'_>,
    group: GroupId,
    change: &GroupChange,
    part: Option<CutMember>,
) -> Result<GroupChangeDone, PartRefusal> {
    let refused = |error: Error| PartRefusal::of(on, &error);
    match change {
        GroupChange::Snapshot { name, note } => {
            let new = NewSnapshot { name, snapshot: SnapshotId(on.new_uuid()), note: note.as_bytes() };
            let held = match part {
                Some(part) => on.pool.take_part_in_group_cut(group, &new, part).await.map_err(refused)?,
                None => {
                    on.pool.snapshot_group(group, &new).await.map_err(refused)?;
                    Duration::ZERO
                }
            };
            Ok(GroupChangeDone { made: Vec::new(), held })
        }
        GroupChange::Clone { snapshot, suffix, is_independent } => {
            let (seed, suffix) = (IdSeed(on.new_uuid()), suffix.clone());
            let new = NewGroupClone { suffix, seed, is_independent: *is_independent };
            let made = match part {
                Some(part) => on.pool.take_part_in_group_clone(group, *snapshot, &new, part).await,
                None => on.pool.clone_group(group, *snapshot, &new).await,
            };
            let made = made.map_err(refused)?.into_iter().map(|change| made_of(change, &[]));
            Ok(GroupChangeDone { made: made.collect(), held: Duration::ZERO })
        }
        GroupChange::RollBack { snapshot, is_forced } => {
            roll_back(on, group, (*snapshot, *is_forced), part).await
        }
    }
}

/// Takes a snapshot of volumes of one pool, or the part of this pool in one. Returns how long answers to hosts waited.
///
/// # Errors
///
/// As [`perform`].
pub async fn cut(
    on: &ChangeablePool<'_>,
    volumes: &[VolumeRef],
    (name, note): (&str, &str),
    part: CutMember,
) -> Result<Duration, PartRefusal> {
    let new = NewSnapshot { name, snapshot: SnapshotId(on.new_uuid()), note: note.as_bytes() };
    let keys: Vec<VolumeKey<'_>> = volumes.iter().map(VolumeRef::key).collect();
    on.pool.take_part_in_cut(&keys, &new, part).await.map_err(|error| PartRefusal {
        refusal: on.refusal(&error, "see 'spindle volume snapshot --help'"),
        is_effect: is_effect(&error),
    })
}

async fn roll_back(
    on: &ChangeablePool<'_>,
    group: GroupId,
    (snapshot, is_forced): (SnapshotId, bool),
    part: Option<CutMember>,
) -> Result<GroupChangeDone, PartRefusal> {
    let refused = |error: Error| PartRefusal::of(on, &error);
    let seed = on.new_uuid();
    let sighting =
        GroupSighting::of(on, group, seed).ok_or_else(|| refused(Error::NoGroup(group.to_string())))?;
    let devices: Vec<(VolumeInfo, Rc<SharedDevice>)> = sighting
        .members
        .into_iter()
        .filter_map(|member| Some((member.clone(), on.device(&member)?)))
        .collect();
    if !devices.is_empty() && !is_forced {
        return Err(in_use(on, &devices).into());
    }
    let mut away = Vec::new();
    for (volume, device) in &devices {
        away.push((volume, device.served.keep_away().await));
    }
    let clients: Vec<_> = away.iter().map(|(volume, away)| (volume.volume, away.clients())).collect();
    // Those that an earlier rollback keeps away stay away, whatever becomes of this one.
    let known = clients.iter().map(|(volume, _)| on.pool.withheld_from(*volume));
    let known: Vec<_> = known.map(Result::unwrap_or_default).collect();
    let new = match on.pool.withhold(&clients).await {
        Ok(new) => new,
        Err(error) => {
            let mut new = clients;
            for ((_, clients), known) in new.iter_mut().zip(known) {
                clients.retain(|client| known.iter().all(|row| row.client != *client));
            }
            take_back(on, away, new).await;
            return Err(refused(error));
        }
    };
    let is_used = !devices.is_empty();
    let done = match part {
        Some(part) => {
            on.pool.take_part_in_group_rollback(group, snapshot, (IdSeed(seed), is_used), part).await
        }
        None => on.pool.roll_back_group(group, snapshot, IdSeed(seed), is_used).await,
    };
    match done {
        Ok(made) => {
            let changed = away.into_iter().map(|(volume, away)| (volume, away.contents_changed()));
            let withheld: Vec<_> =
                changed.map(|(volume, withheld)| (volume.name.clone(), withheld)).collect();
            let made = made.into_iter().map(|change| made_of(change, &withheld)).collect();
            Ok(GroupChangeDone { made, held: Duration::ZERO })
        }
        Err(error) => {
            take_back(on, away, new).await;
            Err(refused(error))
        }
    }
}

/// Gives the volumes of a rollback that did not happen to those again from whom they were not withheld before it. A pool that
/// cannot write may find the rollback decided when it is opened again: then they stay withheld.
async fn take_back(
    on: &ChangeablePool<'_>,
    away: Vec<(&VolumeInfo, ClientsKeptAway<'_>)>,
    new: Vec<(array::format::VolumeId, Vec<array::format::row::WithheldClient>)>,
) {
    for ((volume, away), (_, clients)) in away.into_iter().zip(new) {
        if on.pool.readmit(volume.volume, |client| clients.contains(client)).await.is_ok() {
            away.take_back();
        }
    }
}

fn made_of(
    GroupMemberChange { volume, made }: GroupMemberChange,
    withheld: &[(String, WithheldClients)],
) -> MadeOfVolume {
    let of_volume = withheld.iter().find(|(name, _)| *name == volume);
    let withheld = of_volume.map(|(_, withheld)| withheld.clone()).unwrap_or_default();
    MadeOfVolume { volume, made, withheld }
}

/// The refusal of a rollback under clients.
fn in_use(on: &ChangeablePool<'_>, devices: &[(VolumeInfo, Rc<SharedDevice>)]) -> Refusal {
    let exports = on.exports.expect("they are served by them");
    let used = devices.iter().map(|(volume, device)| {
        let services = exports.services_of(&IdentityOrigin::Volume(volume.volume));
        format!("{}{}", on.path(&volume.name).display(), users_text(&services, &device.served.initiators()))
    });
    Refusal::new(
        used.collect::<Vec<_>>().join("; "),
        "end their use and take them out of the site file first, or say ⟨force⟩: the volumes are withheld then from each \
         client until it has let go of what it cached",
    )
}

/// Refuses to delete a snapshot of a group that is served of one of its volumes here.
///
/// # Errors
///
/// It is served.
pub fn check_unserved(
    on: &ChangeablePool<'_>,
    sighting: &GroupSighting,
    snapshot: (&str, SnapshotId),
) -> Result<(), Refusal> {
    sighting.members.iter().try_for_each(|member| {
        let origin = IdentityOrigin::Snapshot(member.volume, snapshot.1);
        on.check_unserved(&origin, &format!("{}@{}", member.name, snapshot.0))
    })
}
