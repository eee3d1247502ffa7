//! Forks: what a side had of its own, kept as volumes of their own before it goes over to the other history.

use crate::{
    group_state::{FORKS_MAX, KeptFork},
    member::GroupMember,
    pass::count_born_since,
};
use array::{
    error::Result,
    format::{SnapshotId, Stamp, VolumeId},
    pool::{NewClone, SnapshotKey, VolumeInfo, VolumeKey},
};

/// A volume that keeps what a site gave up of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkVolume {
    pub volume: VolumeId,
    pub name: String,
    /// The volume of the group.
    pub source: VolumeId,
    /// Figures of its beginning; `None` if the record has them no more.
    pub kept: Option<KeptFork>,
}

/// Keeps what a cut of the volumes has as a fork, once for each stamp. Not what they have now: the point of that would get
/// a stamp of this pool. `common`: both sites had everything up to there.
pub(super) async fn keep(
    member: &GroupMember,
    (cut, has): (SnapshotId, Stamp),
    (common, kept_unix_s): (Stamp, u64),
) -> Result<()> {
    if member.state().forked_at == Some(has) {
        return Ok(());
    }
    let mut kept = Vec::new();
    for &volume in &member.volumes {
        let blocks = count_born_since(&member.pool, (volume, cut), common).await?;
        kept.push(KeptFork { volume, has, blocks, kept_unix_s });
        let id = fork_of(volume, has);
        let all = member.pool.volumes();
        // A crash may have come between the volumes of a group.
        if all.iter().any(|info| info.volume == id) {
            continue;
        }
        let name = all.iter().find(|info| info.volume == volume).map(|info| info.name.clone());
        let name = name.ok_or(array::error::Error::NoVolume(volume.to_string()))?;
        let is_taken = |name: &str| all.iter().any(|info| info.name == name);
        let names = (1..).map(|number| format!("{name}-fork{number}"));
        let name = names.into_iter().find(|name| !is_taken(name)).expect("numbers do not end");
        let new = NewClone { name, volume: id, is_independent: false };
        member.pool.clone_volume(VolumeKey::Id(volume), Some(SnapshotKey::Id(cut)), &new).await?;
    }
    let there: Vec<VolumeId> = member.pool.volumes().into_iter().map(|info| info.volume).collect();
    member
        .change(|state| {
            state.forked_at = Some(has);
            // Those that were deleted are forgotten here.
            state.forks.retain(|fork| fork.has != has && there.contains(&fork_of(fork.volume, fork.has)));
            state.forks.extend(kept);
            let surplus = state.forks.len().saturating_sub(FORKS_MAX);
            state.forks.drain(..surplus);
        })
        .await
}

/// Difference of the second half of a fork's identity from that of its volume.
const FORK_MARK: [u8; 8] = *b"its fork";

/// Identity of the fork of a volume: the same whenever it is made of this state.
fn fork_of(volume: VolumeId, has: Stamp) -> VolumeId {
    let mut id = volume.0;
    id[..8].iter_mut().zip(has.0.to_le_bytes()).for_each(|(byte, other)| *byte ^= other);
    id[8..].iter_mut().zip(FORK_MARK).for_each(|(byte, other)| *byte ^= other);
    VolumeId(id)
}

/// True if `other` is the fork of a volume, of any state.
fn is_fork_of(volume: VolumeId, other: VolumeId) -> bool {
    let both = volume.0[8..].iter().zip(&other.0[8..]).map(|(one, other)| one ^ other);
    both.eq(FORK_MARK)
}

/// The forks of the group's volumes that were not deleted yet.
pub(crate) fn all(member: &GroupMember) -> Vec<ForkVolume> {
    let state = member.state();
    let source_of = |id| member.volumes.iter().copied().find(|&volume| is_fork_of(volume, id));
    let fork = |info: VolumeInfo| {
        let source = source_of(info.volume)?;
        let is_of = |kept: &&KeptFork| fork_of(kept.volume, kept.has) == info.volume;
        let kept = state.forks.iter().find(is_of).copied();
        Some(ForkVolume { volume: info.volume, name: info.name, source, kept })
    };
    member.pool.volumes().into_iter().filter_map(fork).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_is_known_by_its_identity_whatever_its_name() {
        let (one, other) = (VolumeId([7; 16]), VolumeId([9; 16]));
        assert!(is_fork_of(one, fork_of(one, Stamp(0x1234_5678_9abc))));
        assert!(!is_fork_of(other, fork_of(one, Stamp(5))) && !is_fork_of(one, one));
    }
}
