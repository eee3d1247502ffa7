//! Names that a secondary gives before and after a pass: of blocks that it changed of its own, blocks that unfinished passes
//! brought, snapshots.

use super::{SecondaryEnd, SecondaryGroup, forks};
use crate::{
    channel::FrameChannel,
    connect::{Introduction, Transfer, TransferWay, WayBack},
    exchange::{Agreement, names_changed},
    frame::{BroughtRangesFrame, ChangedRangesFrame, FrameBody, PassSnapshotsFrame, SentRange},
    group_state::BroughtStamp,
    pass::{BlockRanges, before, blocks_with_stamp, changed_by_pass, changed_ranges, kept_snapshots},
    planted::{self, ReplicationBug},
};
use array::{
    error::Error,
    format::{SnapshotId, Stamp, VolumeId},
    pool::VolumeKey,
};
use std::collections::BTreeMap;

/// Ranges of one frame at most.
const RANGES_AT_ONCE: usize = 4096;

impl SecondaryGroup {
    /// Names the blocks that this side changed above the common cut, or may have of a command in doubt; what it has of its
    /// own is kept as a fork first.
    pub(super) async fn name_changed(
        &self,
        channel: &impl FrameChannel,
        (agreement, ours): (&Agreement, &Introduction),
        transfer: Option<&Transfer>,
    ) -> Result<(), SecondaryEnd> {
        let Some(common) = &agreement.outcome.common else { return Ok(()) };
        let common = common.cut.stamps()[0];
        let forks = transfer.is_some_and(|transfer| transfer.way_back != WayBack::NotNeeded);
        let is_named = names_changed(agreement, ours);
        let is_log = transfer.is_some_and(|transfer| transfer.way == TransferWay::Log);
        if is_log || transfer.is_none() {
            // Records go on from where the pass began.
            self.member.abandon_pass().await?;
        }
        if !is_named {
            return Ok(());
        }
        // It shows what this side has of its own, also while a pass is not finished.
        let (member, cut) = (&self.member, self.member.shown_cut());
        if transfer.is_none() && !member.is_in_pass() {
            return self.name_last_command(channel, before(common)).await;
        }
        if !member.is_in_pass() {
            member.pool.take_cut_of_replica(&member.ids(), cut).await?;
        }
        if forks {
            for &volume in &member.volumes {
                // Those above are not its own: a pass that was not finished brought them.
                let until = match planted::is(ReplicationBug::PassTakenForFork) {
                    false => self.has.get(),
                    true => Stamp(u64::MAX),
                };
                member.pool.keep_snapshots_of_fork(volume, (common, until)).await?;
            }
            let now = u64::try_from(self.world.wall().seconds).unwrap_or(0);
            forks::keep(member, (cut, self.has.get()), (common, now)).await?;
        }
        let points = member.volumes.iter().map(|&volume| (volume, cut)).collect();
        self.send_changed(channel, (&points, before(common)), forks).await
    }

    /// Names the blocks of the command in doubt, although the stream may go on with it: no stamp of one that is still to
    /// come is taken, and no point stays. A volume that was not written since has none of them; at its last stamp there may
    /// be a point that a fork needs.
    async fn name_last_command(&self, channel: &impl FrameChannel, since: Stamp) -> Result<(), SecondaryEnd> {
        let (pool, cut) = (&self.member.pool, self.member.shown_cut());
        let mut points = BTreeMap::new();
        for &volume in &self.member.volumes {
            if pool.last_stamp(VolumeKey::Id(volume))? <= since {
                continue;
            }
            let point = match pool.point_at_present(volume) {
                Some(point) => point,
                None => {
                    pool.take_cut_of_following_replica(&[volume], cut).await?;
                    cut
                }
            };
            points.insert(volume, point);
        }
        let sent = self.send_changed(channel, (&points, since), false).await;
        pool.delete_cut(&self.member.ids(), cut).await?;
        sent
    }

    /// Names the snapshots that this side has of the primary's.
    pub(super) async fn name_snapshots(&self, channel: &impl FrameChannel) -> Result<(), SecondaryEnd> {
        for &volume in &self.member.volumes {
            let kept = kept_snapshots(&self.member.pool, volume, Stamp(u64::MAX))?;
            channel.send(FrameBody::PassSnapshots(PassSnapshotsFrame { volume, kept })).await?;
        }
        Ok(())
    }

    /// Names the blocks that were changed above a stamp, as the points show them; of a volume without a point none.
    async fn send_changed(
        &self,
        channel: &impl FrameChannel,
        (points, since): (&BTreeMap<VolumeId, SnapshotId>, Stamp),
        forks: bool,
    ) -> Result<(), SecondaryEnd> {
        let ids = self.member.ids();
        for (index, &volume) in ids.iter().enumerate() {
            let (pool, has) = (&self.member.pool, self.has.get());
            let mut changed = match points.get(&volume) {
                Some(&point) => changed_ranges(pool, (volume, point), since, forks).await?,
                None => BlockRanges::default(),
            };
            if self.member.is_in_pass() {
                changed = changed.union(&changed_by_pass(pool, volume, has).await?);
            }
            let sent = changed.sent();
            let mut parts: Vec<&[SentRange]> = sent.chunks(RANGES_AT_ONCE).collect();
            if parts.is_empty() {
                parts.push(&[]);
            }
            for (at, part) in parts.iter().enumerate() {
                let is_last = index + 1 == ids.len() && at + 1 == parts.len();
                let frame = ChangedRangesFrame { volume, ranges: part.to_vec(), is_last };
                channel.send(FrameBody::ChangedRanges(frame)).await?;
            }
        }
        Ok(())
    }

    /// Names the blocks that passes which were not finished brought, with the state of the primary that they are of, as far as
    /// its history still has that.
    pub(super) async fn name_brought(
        &self,
        channel: &impl FrameChannel,
        agreement: &Agreement,
    ) -> Result<(), SecondaryEnd> {
        let (member, lineage) = (&self.member, agreement.theirs.lineage.as_ref());
        let is_of_history = |one: &BroughtStamp| {
            let epoch = lineage.and_then(|lineage| lineage.epoch_of(0, one.as_of));
            epoch.is_some_and(|epoch| epoch.epoch == one.epoch)
        };
        let stamps = member.state().brought.into_iter().filter(is_of_history);
        let (stamps, mut used): (Vec<BroughtStamp>, Vec<BroughtStamp>) = (stamps.collect(), Vec::new());
        let ids = member.ids();
        for &volume in &ids {
            let point = self.point_of_naming(volume).await?;
            for one in stamps.iter().filter(|one| one.volume.is_none_or(|of| of == volume)) {
                let blocks = blocks_with_stamp(&member.pool, (volume, point), one.stamp).await?;
                let ranges = blocks.sent();
                for part in ranges.chunks(RANGES_AT_ONCE) {
                    let ranges = part.to_vec();
                    let frame = BroughtRangesFrame { volume, as_of: one.as_of, ranges, is_last: false };
                    channel.send(FrameBody::BroughtRanges(frame)).await?;
                }
                if !ranges.is_empty() && !used.contains(one) {
                    used.push(*one);
                }
            }
        }
        self.delete_cut_of_naming().await?;
        if used.len() < member.state().brought.len() {
            member.change(|state| state.brought.retain(|one| used.contains(one))).await?;
        }
        let (volume, ranges) = (ids[0], Vec::new());
        let end = BroughtRangesFrame { volume, as_of: Stamp(0), ranges, is_last: true };
        Ok(channel.send(FrameBody::BroughtRanges(end)).await?)
    }

    /// A point that shows a volume as it is, within a pass.
    async fn point_of_naming(&self, volume: VolumeId) -> Result<SnapshotId, Error> {
        let (pool, cut) = (&self.member.pool, self.cut_of_naming());
        match pool.point_at_present(volume) {
            Some(point) => Ok(point),
            None => pool.take_cut_of_replica(&[volume], cut).await.map(|()| cut),
        }
    }

    /// Deletes the cuts of naming, also those that a crash or a lost line left.
    pub(super) async fn delete_cut_of_naming(&self) -> Result<(), Error> {
        self.member.pool.delete_cut(&self.member.ids(), self.cut_of_naming()).await
    }

    fn cut_of_naming(&self) -> SnapshotId {
        self.member.cut_of(b"named of passes.")
    }
}
