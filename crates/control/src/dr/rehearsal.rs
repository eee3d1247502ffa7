//! Rehearsals of a failover, on the pool's thread: clones of a secondary's volumes as a promotion now would show them, served
//! over NBD under names of their own, for a bounded time.
//!
//! Invariants:
//!
//! 1. A group has one rehearsal at most. Its clones have identities that follow from those of the volumes, so a server that
//!    was killed knows what it had made, and deletes it when it opens the pool.
//! 2. Clones go when the rehearsal is ended, when no client used them for its idle time, and at the end of its longest time:
//!    whichever comes first. A caller that is killed leaves nothing.
//! 3. The flow of the group waits while the cut and the clones are made, and for nothing else.
//! 4. Of a group with volumes in several pools each part is rehearsed by its pool, and all clones are of one state.

use super::group_clones::{CloneUse, SurplusClones, advice_on, clone_all, free_name};
use crate::pool_thread::ServedPool;
use array::{
    format::{GroupId, Stamp, VolumeId},
    pool::{NewClone, Pool, SnapshotKey, VolumeKey},
};
use replication::{
    joint_cut::JointCutId,
    secondary::{KeptState, SecondaryGroup, ShownCloneError},
};
use report::Refusal;
use serving::export::{WantedExport, WantedExports};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};
use world::{Moment, WallTime};

/// Interval of looking for rehearsals that nobody uses, and of trying deletions again.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const CLONES: CloneUse = CloneUse { what: "a rehearsal", mark: *b"rehearsal clone." };

/// A rehearsal to begin.
#[derive(Clone, Debug)]
pub(crate) struct NewRehearsal {
    pub group: GroupId,
    pub rehearsal: [u8; 16],
    /// The clones go when no client has used them for so long.
    pub idle: Duration,
    /// The clones go then, although clients use them.
    pub at_most: Duration,
    /// A kept state, instead of the newest one.
    pub at: Option<KeptState>,
    /// Everything that hosts were answered until then is in the newest one, as far as that is known.
    pub complete_until: Option<WallTime>,
}

/// A rehearsal that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RehearsalView {
    pub group: GroupId,
    pub rehearsal: [u8; 16],
    pub began: WallTime,
    /// The group was in a pass: the clones are as of its beginning.
    pub is_merging: bool,
    /// The clones are as of this state, which is kept.
    pub state: Option<KeptState>,
    /// Everything that hosts were answered until then is in the clones, as far as that is known.
    pub complete_until: Option<WallTime>,
    /// It ends when nobody has used its clones for so long.
    pub idle: Duration,
    /// It ends after so long.
    pub at_most: Duration,
    pub clones: Vec<RehearsedVolume>,
}

/// A volume of a group, and its clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RehearsedVolume {
    pub volume: VolumeId,
    pub name: String,
    pub clone: VolumeId,
    pub clone_name: String,
    /// Name of the NBD export of the clone.
    pub export: String,
    pub bytes: u64,
}

/// The reason for which a part of a group, or the group in one pool, is not rehearsed.
#[derive(Clone, Debug)]
pub(crate) struct RehearsalRefusal {
    pub refusal: Refusal,
    /// Another part has the cause.
    pub is_effect: bool,
}

impl From<Refusal> for RehearsalRefusal {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, is_effect: false }
    }
}

struct Rehearsal {
    view: RehearsalView,
    new: NewRehearsal,
    name: String,
    began: Moment,
    used_until: Moment,
}

/// The rehearsals of a pool's groups.
pub(crate) struct PoolRehearsals {
    under_way: RefCell<BTreeMap<GroupId, Rehearsal>>,
    surplus: SurplusClones,
}

impl Default for PoolRehearsals {
    fn default() -> Self {
        Self { under_way: RefCell::default(), surplus: SurplusClones::new(&CLONES) }
    }
}

impl PoolRehearsals {
    pub fn views(&self) -> Vec<RehearsalView> {
        self.under_way.borrow().values().map(|one| one.view.clone()).collect()
    }

    /// The exports that are wanted, and those of the clones.
    pub fn with_clones(&self, pool: &Pool, mut wanted: WantedExports) -> WantedExports {
        let under_way = self.under_way.borrow();
        let clones = under_way.values().flat_map(|one| &one.view.clones);
        // Somebody may have deleted one.
        let there = clones.filter(|clone| pool.is_replica(clone.clone).is_ok());
        wanted.nbd.extend(there.map(|clone| WantedExport {
            name: clone.export.clone(),
            volume: clone.clone_name.clone(),
            is_read_only: false,
        }));
        wanted
    }

    /// Deletes the clones that an earlier process left, and from now on those that nobody uses.
    pub fn watch(served: &Rc<ServedPool>) {
        if served.rehearsals.surplus.add_left(served) {
            served.notices.note("clones of a rehearsal that was cut short are deleted");
        }
        let (own, world) = (Rc::downgrade(served), served.world.clone());
        served.world.spawn("rehearsals", async move {
            while let Some(served) = own.upgrade() {
                served.rehearsals.look(&served).await;
                drop(served);
                world.sleep(LOOK_EVERY).await;
            }
        });
    }

    async fn look(&self, served: &Rc<ServedPool>) {
        let now = served.world.now();
        let mut over = Vec::new();
        for (group, one) in self.under_way.borrow_mut().iter_mut() {
            if clients_of(served, &one.view).next().is_some() {
                one.used_until = now;
            }
            if now.since(one.used_until) >= one.new.idle || now.since(one.began) >= one.new.at_most {
                over.push((*group, one.name.clone()));
            }
        }
        for (group, name) in over {
            served.notices.warn(format!(
                "the rehearsal of DR group {name} was not ended in its time: its clones are deleted"
            ));
            self.end(served, group).await;
        }
        self.surplus.delete(served).await;
    }

    /// Clones a group and serves the clones. To be called in all pools of a group with several.
    ///
    /// # Errors
    ///
    /// The group is not secondary here, has nothing that could be promoted, or is being rehearsed; or the pool cannot write.
    pub async fn begin(
        &self,
        served: &Rc<ServedPool>,
        new: NewRehearsal,
    ) -> Result<RehearsalView, RehearsalRefusal> {
        let (name, follower) = served.dr.follower(new.group)?;
        if let Some(one) = self.under_way.borrow().get(&new.group) {
            return match one.new.rehearsal == new.rehearsal {
                true => Ok(one.view.clone()),
                false => Err(RehearsalRefusal::from(Refusal::new(
                    format!("{name} is being rehearsed already"),
                    "wait for its end; 'spindle dr status' shows it",
                ))),
            };
        }
        let clones = clones_for(served, &name, &follower);
        self.surplus.add(clones.iter().map(|clone| clone.clone));
        self.surplus.delete(served).await;
        let state = follower.member().state();
        let is_merging = state.unfinished.is_some() || state.joint.is_apart();
        let before = shown_stamp(&follower);
        let cloned = match &new.at {
            Some(state) => clone_state(served, state, &new_clones(&clones)).await,
            None => {
                let cut = JointCutId(new.rehearsal);
                clone_all(served, &follower, (cut, &new_clones(&clones))).await
            }
        };
        if let Err(error) = cloned {
            self.surplus.add(clones.iter().map(|clone| clone.clone));
            self.surplus.delete(served).await;
            let problem = format!("{name} cannot be rehearsed now: {error}");
            let is_effect = matches!(error, ShownCloneError::OtherPart { .. });
            return Err(RehearsalRefusal { refusal: Refusal::new(problem, advice_on(&error)), is_effect });
        }
        let state = new.at.clone().or_else(|| {
            // Nothing came meanwhile.
            let states = follower.member().kept_states().unwrap_or_default();
            states.into_iter().find(|state| state.stamp == before && shown_stamp(&follower) == before)
        });
        let view = RehearsalView {
            state,
            // A state of before lacks what came since.
            complete_until: new.complete_until.filter(|_| new.at.is_none()),
            idle: new.idle,
            at_most: new.at_most,
            group: new.group,
            rehearsal: new.rehearsal,
            began: served.world.wall(),
            is_merging,
            clones,
        };
        let began = served.world.now();
        let (group, view_of) = (new.group, view.clone());
        let one = Rehearsal { view: view_of, new, name, began, used_until: began };
        self.under_way.borrow_mut().insert(group, one);
        served.serve_again();
        Ok(view)
    }

    /// Ends a rehearsal: its clients are disconnected, and its clones deleted. False if there is none.
    pub async fn end(&self, served: &Rc<ServedPool>, group: GroupId) -> bool {
        let Some(ended) = self.under_way.borrow_mut().remove(&group) else { return false };
        for number in clients_of(served, &ended.view) {
            served.end_nbd_client(number);
        }
        served.serve_again();
        self.surplus.add(ended.view.clones.iter().map(|clone| clone.clone));
        self.surplus.delete(served).await;
        served.show_changes();
        true
    }
}

/// The stamp of what a promotion now would show.
fn shown_stamp(follower: &SecondaryGroup) -> Stamp {
    if follower.member().joint().is_some() {
        return follower.shown();
    }
    let pass = follower.member().state().unfinished;
    pass.map_or_else(|| follower.has(), |pass| pass.since.stamps()[0])
}

/// Clones a state that is kept.
async fn clone_state(
    served: &ServedPool,
    state: &KeptState,
    clones: &[(VolumeId, NewClone)],
) -> Result<(), ShownCloneError> {
    for (volume, clone) in clones {
        let at = SnapshotKey::Id(state.snapshot);
        served.pool.clone_volume(VolumeKey::Id(*volume), Some(at), clone).await?;
    }
    Ok(())
}

/// The NBD clients that use the clones of a rehearsal.
fn clients_of<'a>(served: &ServedPool, view: &'a RehearsalView) -> impl Iterator<Item = u64> + use<'a> {
    let is_of = |export: &str| view.clones.iter().any(|clone| clone.export == export);
    served
        .listed_clients()
        .into_iter()
        .filter(move |client| is_of(&client.export))
        .map(|client| client.number)
}

/// The clones that a rehearsal is to have, with names that are free.
fn clones_for(served: &ServedPool, group: &str, follower: &SecondaryGroup) -> Vec<RehearsedVolume> {
    let all = served.pool.volumes();
    let ids = follower.member().ids();
    let volumes = all.iter().filter(|info| ids.contains(&info.volume));
    // Volumes of two pools may have one name.
    let of_part = match follower.member().joint() {
        Some((_, part)) => format!("{}-", part + 1),
        None => String::new(),
    };
    let clone = |info: &array::pool::VolumeInfo| {
        let clone = CLONES.clone_of(info.volume);
        RehearsedVolume {
            volume: info.volume,
            name: info.name.clone(),
            clone,
            clone_name: free_name(&all, &format!("{}-rehearsal", info.name), clone),
            export: format!("{group}-rehearsal-{of_part}{}", info.name),
            bytes: info.size_bytes,
        }
    };
    volumes.map(clone).collect()
}

fn new_clones(clones: &[RehearsedVolume]) -> Vec<(VolumeId, NewClone)> {
    let new = |clone: &RehearsedVolume| {
        let named = NewClone { name: clone.clone_name.clone(), volume: clone.clone, is_independent: false };
        (clone.volume, named)
    };
    clones.iter().map(new).collect()
}
