//! The state of a group that a site must not forget.

use crate::{
    connect::{SiteRole, UnfinishedPass},
    joint_group::JoinId,
    lineage::Lineage,
    merge_plan::{MergePlan, Suspension},
    session::ReplicationMode,
};
use array::{
    error::Error,
    format::{EpochId, Fence, SnapshotId, Stamp, VolumeId, WallNanoseconds},
};
use world::LocalFuture;

/// Forks that a state has figures of, at most: older ones are listed without.
pub const FORKS_MAX: usize = 256;

/// Held snapshots that a state lists, at most: more stay as well, and go with a pass after their locks have ended.
pub const HELD_SNAPSHOTS_MAX: usize = 1024;

/// A snapshot that the primary has deleted, and that stays at its secondary since it is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldSnapshot {
    pub snapshot: SnapshotId,
    /// The time of the deletion, by the wall clock of this site, in seconds since 1970.
    pub since_unix_s: u64,
}

/// Stamps of blocks that an unfinished pass brought, and that a state lists, at most: blocks of others come again.
pub const BROUGHT_MAX: usize = 256;

/// A stamp that an unfinished pass gave its blocks here. All that have it are as the sender had them at one of its states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BroughtStamp {
    /// Blocks of this volume; `None`: of any one of the group.
    pub volume: Option<VolumeId>,
    pub stamp: Stamp,
    /// The stamp of that state at the sender.
    pub as_of: Stamp,
    /// The epoch in which the sender gave it: in another one it may give it again.
    pub epoch: EpochId,
}

/// A history of a volume that a site gave up, as it knew it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptFork {
    /// The volume of the group, not the fork.
    pub volume: VolumeId,
    /// The stamp up to which the fork has the site's own history.
    pub has: Stamp,
    /// Blocks that the site changed of its own, behind the history that both sites had.
    pub blocks: u64,
    /// By the wall clock of the site, in seconds since 1970.
    pub kept_unix_s: u64,
}

/// The last state of a secondary's part that fits to those of the other parts, while the volumes have more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JointPoint {
    /// The join under which the volumes themselves will fit.
    pub join: JoinId,
    /// `None` before the first copy: there is nothing that could be shown.
    pub state: Option<JointPointState>,
}

/// The content of a joint state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JointPointState {
    /// Everything up to there, all of each command.
    pub has: Stamp,
    /// Stamp of the cut that shows it, which may be behind: no command has it.
    pub cut: Stamp,
    /// Everything that hosts were answered until then is in it, by the clock of the primary; 0 if nothing is known.
    pub complete_until: WallNanoseconds,
    pub lineage: Lineage,
    /// The one of both cuts of joint states that has it: the next one lies in the other.
    pub slot: JointSlot,
}

/// One of both cuts of joint states that a part may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JointSlot {
    #[default]
    First,
    Second,
}

impl JointSlot {
    pub const BOTH: [Self; 2] = [Self::First, Self::Second];

    pub fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// A later state of a part that is kept, and is its joint state once all parts keep theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JointMark {
    pub mark: JoinId,
    pub state: JointPointState,
}

/// Relation of a part to the others of its group, at a secondary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JointProgress {
    /// The last join. It stays when this side is promoted: other parts learn from it that they joined, too.
    pub joined: JoinId,
    /// The volumes have everything up to there while the cut of a joint state is taken, which may take a stamp.
    pub cutting: Option<Stamp>,
    pub point: Option<JointPoint>,
    /// Of a part that has a joint state.
    pub next: Option<JointMark>,
    /// The last mark that became the joint state. It stays, as `joined` does.
    pub marked: JoinId,
}

impl JointProgress {
    /// Its volumes may have what does not fit to the other parts.
    pub fn is_apart(&self) -> bool {
        self.cutting.is_some() || self.point.is_some()
    }

    /// It has what only groups with marks have.
    pub fn has_marks(&self) -> bool {
        let slot = self.point.as_ref().and_then(|point| point.state.as_ref()).map(|state| state.slot);
        self.next.is_some() || self.marked != JoinId::NONE || slot == Some(JointSlot::Second)
    }
}

/// The state of a group at a site, beside the content of its volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupState {
    pub role: SiteRole,
    /// The highest that it knows of.
    pub fence: Fence,
    /// `None` of a new replica.
    pub lineage: Option<Lineage>,
    /// It is primary, and answers without its peer.
    pub is_alone: bool,
    /// A pass that its volumes have a part of.
    pub unfinished: Option<UnfinishedPass>,
    /// Stamps of what that pass brought, and others that were not finished before it and began there; the oldest first,
    /// [`BROUGHT_MAX`] at most.
    pub brought: Vec<BroughtStamp>,
    /// It was primary before, and its hosts may have been answered up to here. Of a primary whose promotion may have lost
    /// something: the first stamp of its epoch, in which hosts are served although no block may have it.
    pub told: Stamp,
    /// Its state up to this stamp is kept as a fork.
    pub forked_at: Option<Stamp>,
    /// Nothing is sent to the peer, although it is primary.
    pub suspension: Option<Suspension>,
    /// The rule for the passes that it sends.
    pub merge: MergePlan,
    /// In the order in which they were kept, [`FORKS_MAX`] at most.
    pub forks: Vec<KeptFork>,
    /// Of a group with volumes in several pools.
    pub joint: JointProgress,
    /// Of a secondary, each snapshot once, [`HELD_SNAPSHOTS_MAX`] at most.
    pub held: Vec<HeldSnapshot>,
}

impl GroupState {
    /// A new replica, which has nothing.
    pub fn new_replica() -> Self {
        Self {
            role: SiteRole::Secondary,
            fence: Fence(0),
            lineage: None,
            is_alone: false,
            unfinished: None,
            brought: Vec::new(),
            told: Stamp(0),
            forked_at: None,
            suspension: None,
            merge: MergePlan::default(),
            forks: Vec::new(),
            joint: JointProgress::default(),
            held: Vec::new(),
        }
    }
}

/// Place of the states of groups.
pub trait GroupRecords {
    /// Keeps a state instead of the one before. Resolves when it is stable.
    fn put(&self, state: &GroupState) -> LocalFuture<Result<(), Error>>;
    /// Keeps a state together with another mode of the group: after a crash there are both or none. Later states are kept with
    /// that mode.
    fn put_with_mode(&self, state: &GroupState, mode: ReplicationMode) -> LocalFuture<Result<(), Error>>;
}
