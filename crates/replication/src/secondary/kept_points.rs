//! States of a periodic group that its secondary keeps: as the last passes brought them.
//!
//! Invariants:
//!
//! 1. A kept point shows all volumes of the group at one cut of the primary.
//! 2. There are no more of them than were asked for, and the newest ones stay.

use crate::{
    member::GroupMember,
    planted::{self, ReplicationBug},
};
use array::{
    error::{Error, Result},
    format::{SnapshotId, Stamp, WallNanoseconds},
    pool::{NewSnapshot, VolumeKey},
};

/// Names of points end with a number. People give no name with a `~`, so a pass never brings one of these.
const NAME_BEGIN: &str = "replica~";
/// Difference of the second half of a point's identity from that of its group.
const POINT_MARK: [u8; 8] = *b"kept pt.";

/// Keeps the state that a pass has brought, which is that of the primary at a time, and lets the oldest ones go.
pub(super) async fn keep(member: &GroupMember, until: Stamp, time: WallNanoseconds) -> Result<()> {
    let kept = member.points_kept();
    if kept == 0 {
        return Ok(());
    }
    // Their space is free before the next one takes some.
    prune(member, kept - 1).await?;
    let ids = member.ids();
    let mut last = 0;
    for &volume in &ids {
        let snapshots = member.pool.snapshots(VolumeKey::Id(volume))?;
        let number = |name: &str| name.strip_prefix(NAME_BEGIN)?.parse::<u32>().ok().map(u64::from);
        let numbers = snapshots.iter().filter_map(|found| number(&found.name));
        last = numbers.fold(last, u64::max);
    }
    let name = format!("{NAME_BEGIN}{}", last + 1);
    let ids = match planted::is(ReplicationBug::PointOfOneVolume) {
        true => ids[..1].to_vec(),
        false => ids,
    };
    let new = NewSnapshot { name: &name, snapshot: point_of(member, until), note: &[] };
    match member.pool.take_point_of_replica(&ids, &new, (until, time)).await {
        // A pass that was repeated: its state was kept before it was confirmed.
        Err(Error::StampTaken { .. }) => Ok(()),
        taken => taken,
    }
}

/// Deletes the oldest points beyond `kept`. A crash may leave some of a point's volumes; then the next time ends it.
async fn prune(member: &GroupMember, kept: usize) -> Result<()> {
    let mut points: Vec<(Stamp, SnapshotId)> = Vec::new();
    for &volume in &member.ids() {
        let snapshots = member.pool.snapshots(VolumeKey::Id(volume))?;
        let of_group = snapshots.into_iter().filter(|found| is_point_of(member, found.snapshot));
        points.extend(of_group.map(|found| (stamp_of(member, found.snapshot), found.snapshot)));
    }
    points.sort_unstable();
    points.dedup();
    let surplus = points.len().saturating_sub(kept);
    for (_, point) in points.drain(..surplus) {
        member.pool.delete_cut(&member.ids(), point).await?;
    }
    Ok(())
}

/// Identity of the point at a stamp.
fn point_of(member: &GroupMember, until: Stamp) -> SnapshotId {
    let mut id = member.group().0;
    id[..8].iter_mut().zip(until.0.to_le_bytes()).for_each(|(byte, other)| *byte ^= other);
    id[8..].iter_mut().zip(POINT_MARK).for_each(|(byte, other)| *byte ^= other);
    SnapshotId(id)
}

pub(super) fn is_point_of(member: &GroupMember, point: SnapshotId) -> bool {
    point_of(member, stamp_of(member, point)) == point
}

pub(super) fn stamp_of(member: &GroupMember, point: SnapshotId) -> Stamp {
    let mut stamp = [0; 8];
    let group = member.group().0;
    let pairs = point.0.iter().zip(&group);
    stamp.iter_mut().zip(pairs).for_each(|(byte, (one, other))| *byte = one ^ other);
    Stamp(u64::from_le_bytes(stamp))
}
