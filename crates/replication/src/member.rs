//! A site's part of a group: the volumes that lie in one of its pools, and what the site keeps of the group.

use crate::{
    connect::SiteRole,
    group_state::{GroupRecords, GroupState, JointSlot},
    held_snapshots::SnapshotLocks,
    joint_group::JointGroup,
    lineage::Lineage,
    merge_gate::MergeGate,
    merge_plan::{MergePlan, Suspension},
    secondary::{ForkVolume, forks},
    session::ReplicationMode,
    transfer_meter::TransferMeter,
    witness::keeper::LeaseKeeper,
};
use array::{
    error::Result,
    format::{EpochId, Fence, GroupId, SnapshotId, Stamp, VolumeId},
    pool::{Pool, VolumeKey},
};
use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

/// Drives that answer nothing for so long keep hosts waiting longer than the other site would. The errors of one drive are over by
/// then, as a rule, and others of its pool cover it.
const DRIVES_SILENT_MAX: Duration = Duration::from_secs(10);

pub struct GroupMember {
    pub(crate) pool: Rc<Pool>,
    pub(crate) group: GroupId,
    pub(crate) volumes: BTreeSet<VolumeId>,
    records: Rc<dyn GroupRecords>,
    state: RefCell<GroupState>,
    /// Held while a change becomes stable: two at one time would each record a state without the other.
    changing: tokio::sync::Mutex<()>,
    /// Of a group with a witness.
    keeper: OnceCell<Rc<LeaseKeeper>>,
    /// States that a secondary keeps, as passes brought them: 0 unless it is periodic.
    kept_points: Cell<u16>,
    /// Of a part of a group with volumes in several pools: the others, and its own index.
    joint: OnceCell<(Arc<JointGroup>, usize)>,
    opening: Cell<u64>,
    /// Turns of merges; without it each begins at once.
    merge_gate: OnceCell<Rc<dyn MergeGate>>,
    /// Without it nothing is locked.
    locks: OnceCell<Rc<dyn SnapshotLocks>>,
    /// Of both roles.
    pub(crate) meter: TransferMeter,
}

impl GroupMember {
    pub fn new(
        pool: &Rc<Pool>,
        (group, volumes): (GroupId, BTreeSet<VolumeId>),
        (state, records): (GroupState, Rc<dyn GroupRecords>),
    ) -> Rc<Self> {
        let one_part = state.lineage.as_ref().is_none_or(|lineage| lineage.parts() == 1);
        assert!(one_part && !volumes.is_empty(), "a group with its volumes in one pool");
        let (pool, state) = (Rc::clone(pool), RefCell::new(state));
        let (changing, keeper) = (tokio::sync::Mutex::default(), OnceCell::new());
        let (merge_gate, locks, meter) = (OnceCell::new(), OnceCell::new(), TransferMeter::default());
        let (kept_points, joint) = (Cell::new(0), OnceCell::new());
        Rc::new(Self {
            pool,
            group,
            volumes,
            records,
            state,
            changing,
            keeper,
            kept_points,
            joint,
            opening: Cell::new(0),
            merge_gate,
            locks,
            meter,
        })
    }

    /// Gives the group its turns, before its flows begin.
    ///
    /// # Panics
    ///
    /// If it has them.
    pub fn use_merge_gate(&self, gate: Rc<dyn MergeGate>) {
        assert!(self.merge_gate.set(gate).is_ok(), "a group has its turns once");
    }

    /// Gives the group the rule for locked snapshots, before its flows begin.
    ///
    /// # Panics
    ///
    /// If it has one.
    pub fn use_locks(&self, locks: Rc<dyn SnapshotLocks>) {
        assert!(self.locks.set(locks).is_ok(), "a group has its rule once");
    }

    pub(crate) fn locks(&self) -> Option<&Rc<dyn SnapshotLocks>> {
        self.locks.get()
    }

    pub(crate) fn merge_gate(&self) -> Option<&Rc<dyn MergeGate>> {
        self.merge_gate.get()
    }

    /// The rule for its passes.
    pub fn merge_plan(&self) -> MergePlan {
        self.state.borrow().merge
    }

    /// Since when and why it is suspended, if it is. Of a primary alone.
    pub fn suspension(&self) -> Option<Suspension> {
        self.state.borrow().suspension
    }

    /// Records that a person suspends the group, or what else stopped it.
    ///
    /// # Errors
    ///
    /// The state cannot be recorded.
    pub async fn suspend(&self, suspension: Suspension) -> Result<()> {
        self.change(|state| state.suspension = Some(suspension)).await
    }

    /// Records that the group is not suspended any more, and the rule for its passes from now on.
    ///
    /// # Errors
    ///
    /// The state cannot be recorded.
    pub async fn resume(&self, merge: MergePlan) -> Result<()> {
        self.change(|state| (state.suspension, state.merge) = (None, merge)).await
    }

    /// Gives the group a witness, before its flows begin.
    ///
    /// # Panics
    ///
    /// If it has one.
    pub fn use_witness(&self, keeper: Rc<LeaseKeeper>) {
        assert!(self.keeper.set(keeper).is_ok(), "a group has one witness");
    }

    /// The right that the witness gives; `None` without a witness.
    pub fn keeper(&self) -> Option<Rc<LeaseKeeper>> {
        self.keeper.get().cloned()
    }

    /// Makes it a part of a group with volumes in several pools, before its flows begin.
    ///
    /// # Panics
    ///
    /// If it is one.
    pub fn use_joint(&self, joint: Arc<JointGroup>, part: usize) {
        let (joined, marked) = {
            let progress = &self.state.borrow().joint;
            (progress.joined, progress.marked)
        };
        self.opening.set(joint.enter(part, (joined, marked)));
        assert!(self.joint.set((joint, part)).is_ok(), "a part is of one group");
    }

    /// Leaves the group with volumes in several pools: the other parts go on without it.
    pub fn leave_joint(&self) {
        if let Some((joint, part)) = self.joint.get() {
            joint.leave(*part, self.opening.get());
        }
    }

    /// The other parts of its group, and its own index; `None` if it is the whole group.
    pub fn joint(&self) -> Option<&(Arc<JointGroup>, usize)> {
        self.joint.get()
    }

    /// A secondary keeps as many of the last states that passes brought as the mode says.
    pub fn keep_points_of(&self, mode: ReplicationMode) {
        self.kept_points.set(match mode {
            ReplicationMode::Periodic { kept, .. } => kept,
            ReplicationMode::Sync { .. } | ReplicationMode::Async { .. } => 0,
        });
    }

    pub(crate) fn points_kept(&self) -> usize {
        self.kept_points.get().into()
    }

    pub fn pool(&self) -> &Rc<Pool> {
        &self.pool
    }

    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Figures of what was sent and received, for people.
    pub fn meter(&self) -> &TransferMeter {
        &self.meter
    }

    pub fn state(&self) -> GroupState {
        self.state.borrow().clone()
    }

    pub(crate) fn fence(&self) -> Fence {
        self.state.borrow().fence
    }

    pub(crate) fn role(&self) -> SiteRole {
        self.state.borrow().role
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.state.borrow().is_alone
    }

    pub(crate) fn lineage(&self) -> Option<Lineage> {
        self.state.borrow().lineage.clone()
    }

    /// The epoch that is being written; none of a new replica.
    pub(crate) fn epoch(&self) -> Option<EpochId> {
        self.state.borrow().lineage.as_ref().map(|lineage| lineage.current().epoch)
    }

    /// True while its volumes have a part of a pass.
    pub(crate) fn is_in_pass(&self) -> bool {
        self.state.borrow().unfinished.is_some()
    }

    pub fn ids(&self) -> Vec<VolumeId> {
        self.volumes.iter().copied().collect()
    }

    /// Changes the state once it is stable.
    pub(crate) async fn change(&self, change: impl FnOnce(&mut GroupState)) -> Result<()> {
        let _one_at_a_time = self.changing.lock().await;
        self.record(None, change).await
    }

    /// Changes the mode together with the state, once both are stable.
    pub(crate) async fn change_mode(
        &self,
        mode: ReplicationMode,
        change: impl FnOnce(&mut GroupState),
    ) -> Result<()> {
        let _one_at_a_time = self.changing.lock().await;
        self.record(Some(mode), change).await
    }

    /// The primary's mode holds at its secondary, too, from now on: false if this side is none.
    ///
    /// # Errors
    ///
    /// It cannot be recorded.
    pub async fn follow_mode(&self, mode: ReplicationMode) -> Result<bool> {
        let _one_at_a_time = self.changing.lock().await;
        if self.role() != SiteRole::Secondary {
            return Ok(false);
        }
        self.record(Some(mode), |_| ()).await?;
        Ok(true)
    }

    /// Records a change of the state, and of the mode. To be called while no other change is under way.
    async fn record(
        &self,
        mode: Option<ReplicationMode>,
        change: impl FnOnce(&mut GroupState),
    ) -> Result<()> {
        let mut state = self.state();
        change(&mut state);
        // Nothing is sent by a secondary anyway.
        state.suspension = state.suspension.filter(|_| state.role == SiteRole::Primary);
        if state.unfinished.is_none() {
            state.brought = Vec::new();
        }
        if state.role == SiteRole::Primary {
            // They are its own from now on, and so is the rule for how long they stay.
            state.held = Vec::new();
        }
        match mode {
            None => self.records.put(&state).await?,
            Some(mode) => {
                self.records.put_with_mode(&state, mode).await?;
                self.keep_points_of(mode);
            }
        }
        *self.state.borrow_mut() = state;
        Ok(())
    }

    /// Identity of the cut at which an unfinished pass began: as long as there is one, the group is shown as of then.
    pub(crate) fn shown_cut(&self) -> SnapshotId {
        self.cut_of(b"shown cut of it.")
    }

    /// Identity of a cut that shows a state in which the volumes fit to the other parts of the group.
    pub(crate) fn joint_cut(&self, slot: JointSlot) -> SnapshotId {
        match slot {
            JointSlot::First => self.cut_of(b"joint state....."),
            JointSlot::Second => self.cut_of(b"joint state, two"),
        }
    }

    /// Deletes the cuts of joint states.
    pub(crate) async fn delete_joint_cuts(&self) -> Result<()> {
        for slot in JointSlot::BOTH {
            self.pool.delete_cut(&self.ids(), self.joint_cut(slot)).await?;
        }
        Ok(())
    }

    /// Identity of a cut for a purpose: the group has one of each at most.
    pub(crate) fn cut_of(&self, purpose: &[u8; 16]) -> SnapshotId {
        let mut id = self.group.0;
        id.iter_mut().zip(purpose).for_each(|(byte, other)| *byte ^= other);
        SnapshotId(id)
    }

    /// The highest stamp of the volumes, right after the pool was opened: they have all of each command up to it, but for
    /// the last one, of which a crash may have left a part.
    ///
    /// # Errors
    ///
    /// A volume is missing.
    pub fn position_after_opening(&self) -> Result<Stamp> {
        let state = self.state.borrow();
        if let Some(pass) = &state.unfinished {
            return Ok(pass.since.stamps()[0]);
        }
        let Some(lineage) = &state.lineage else { return Ok(Stamp(0)) };
        if let Some(has) = state.joint.cutting {
            return Ok(has);
        }
        let last = self.last_stamp()?;
        if let Some(joint) = state.joint.point.as_ref().and_then(|point| point.state.as_ref())
            && joint.cut == last
        {
            // Nothing came behind the cut, which no command made.
            return Ok(joint.has);
        }
        let span = lineage.current().spans[0];
        let has = if last < span.start { span.fork } else { last };
        // The promotion says that its epoch has begun, though no block may have its first stamp.
        let is_begun = state.role == SiteRole::Primary && state.told >= span.start;
        Ok(if is_begun { has.max(state.told) } else { has })
    }

    /// True once the pool takes no writes any more, until it is opened again.
    pub fn has_pool_stopped(&self) -> bool {
        self.pool.failure().is_some()
    }

    /// True while the pool takes no writes: it has stopped, or its drives do not answer.
    pub fn takes_no_writes(&self) -> bool {
        self.has_pool_stopped() || self.pool.drives_silent_for() >= DRIVES_SILENT_MAX
    }

    /// The highest stamp of the volumes once the group has ended that led here and had everything up to `has`: with those of
    /// commands that were refused while they were on their way. Waits for these. Of a stamp above `has` the volumes may
    /// have what the group's peer never got.
    ///
    /// # Errors
    ///
    /// A volume is missing.
    pub async fn position_after_leading(&self, has: Stamp) -> Result<Stamp> {
        let now = self.pool.between_writes(&self.ids(), || self.position_after_opening()).await??;
        Ok(now.max(has))
    }

    /// The highest stamp of the volumes, of a command or of a cut.
    pub(crate) fn last_stamp(&self) -> Result<Stamp> {
        let stamps = self.volumes.iter().map(|&volume| self.pool.last_stamp(VolumeKey::Id(volume)));
        Ok(stamps.collect::<Result<Vec<_>>>()?.into_iter().max().unwrap_or_default())
    }

    /// The volumes that keep what this side once gave up of the group's, until they are deleted.
    pub fn forks(&self) -> Vec<ForkVolume> {
        forks::all(self)
    }

    /// A person says that the other side's history counts: what this one has beyond it becomes a fork at the next
    /// connection, although hosts were answered. If it claims to be primary it stands down; its hosts have to be gone.
    ///
    /// # Errors
    ///
    /// The state cannot be recorded.
    pub async fn yield_to_peer(&self) -> Result<()> {
        self.change(|state| (state.role, state.told) = (SiteRole::Secondary, Stamp(0))).await
    }

    /// A primary that returned, and does not reach its peer, claims no right any more: it asks the witness as a secondary
    /// does, and begins a new epoch. In sync hosts were answered nothing that the peer lacks.
    ///
    /// # Errors
    ///
    /// The state cannot be recorded.
    pub async fn step_back(&self, has: Stamp) -> Result<()> {
        let step_back = |state: &mut GroupState| {
            state.role = SiteRole::Secondary;
            state.told = if state.is_alone { has } else { Stamp(0) };
        };
        self.change(step_back).await
    }

    /// Gives up an unfinished pass: the volumes go back to where it began. Without the cut that a pass begins with it is one
    /// that never was: the volumes go back to a state that this side keeps.
    ///
    /// # Errors
    ///
    /// The pool or the records cannot write; repeated, it ends the same.
    pub(crate) async fn abandon_pass(&self) -> Result<()> {
        if let Some(pass) = self.state().unfinished {
            for &volume in &self.volumes {
                // They come again.
                for point in self.pool.snapshots_above(volume, pass.since.stamps()[0])? {
                    self.pool.delete_cut(&[volume], point.snapshot.snapshot).await?;
                }
            }
            match self.pool.has_cut(&self.ids(), self.shown_cut()) {
                true => self.pool.take_back_to_cut(&self.ids(), self.shown_cut()).await?,
                false => self.take_back_to_kept(pass.since.stamps()[0]).await?,
            }
            self.change(|state| state.unfinished = None).await?;
            self.pool.delete_cut(&self.ids(), self.shown_cut()).await?;
        }
        Ok(())
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        self.leave_joint();
    }
}
