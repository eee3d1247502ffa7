//! Orders that a DR group takes on the thread of its pool, and what it asks of those who serve its hosts.

use super::{
    takeover::{Promoted, PromotionOrder},
    thread_channel::ThreadChannel,
};
use array::format::VolumeId;
use replication::{merge_plan::MergePlan, session::ReplicationMode};
use report::Refusal;
use tokio::sync::oneshot;
use world::LocalFuture;

/// Work that a group is asked for.
pub(super) enum GroupOrder {
    Connect(ThreadChannel),
    /// Makes this side primary, whatever the other one does.
    Promote(PromotionOrder, oneshot::Sender<Result<Promoted, Refusal>>),
    /// A person says that the other side is off: this one, which is primary, goes on without it and without the witness.
    GoOnAlone(oneshot::Sender<Result<(), Refusal>>),
    /// Gives the right to the other side, which has everything.
    HandOver(oneshot::Sender<Result<(), Refusal>>),
    /// Sends nothing to the other side until it is resumed.
    Suspend(oneshot::Sender<Result<(), Refusal>>),
    /// Goes on sending, by a plan.
    Resume(MergePlan, oneshot::Sender<Result<(), Refusal>>),
    /// Goes over to another mode.
    ChangeMode(ReplicationMode, oneshot::Sender<Result<(), Refusal>>),
    /// The other side's history counts.
    GiveWay(oneshot::Sender<Result<(), Refusal>>),
    /// Ends the flows; the group may be removed then.
    End(oneshot::Sender<()>),
}

/// The hosts of a group's volumes.
pub(super) trait GroupHosts {
    /// Opens or closes the volumes to hosts, as the groups say now.
    fn refresh(&self);
    /// Shows the groups as they are now.
    fn show(&self);
    /// Ends the clients that use the volumes, and waits for their end. False if some are still there.
    fn end(&self, volumes: &[VolumeId]) -> LocalFuture<bool>;
}
