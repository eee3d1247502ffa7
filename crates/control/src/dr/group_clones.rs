//! Clones of a secondary's volumes, all as of one cut: for rehearsals, and for those who read a replica.

use crate::pool_thread::ServedPool;
use array::{
    error::Error,
    format::VolumeId,
    pool::{NewClone, VolumeInfo, VolumeKey},
};
use replication::{
    joint_cut::JointCutId,
    secondary::{SecondaryGroup, ShownCloneError},
};
use std::{cell::RefCell, collections::BTreeMap, time::Duration};

/// Pause and number of attempts while a command is in parts, some of which have not come.
const PART_PAUSE: Duration = Duration::from_millis(20);
const PART_ATTEMPTS: u8 = 100;

/// A use of clones: a volume has one clone for each at most.
pub(super) struct CloneUse {
    /// In messages.
    pub what: &'static str,
    /// Difference of the clone's identity from the volume's.
    pub mark: [u8; 16],
}

impl CloneUse {
    /// Identity of the clone of a volume: a server that was killed knows what it had made.
    pub fn clone_of(&self, VolumeId(mut id): VolumeId) -> VolumeId {
        id.iter_mut().zip(self.mark).for_each(|(byte, other)| *byte ^= other);
        VolumeId(id)
    }
}

/// A name for the clone that no other volume has.
pub(crate) fn free_name(all: &[VolumeInfo], plain: &str, clone: VolumeId) -> String {
    let is_taken = |name: &str| all.iter().any(|known| known.name == name && known.volume != clone);
    let mut names = std::iter::once(plain.to_owned()).chain((2..).map(|n| format!("{plain}{n}")));
    names.find(|name| !is_taken(name)).expect("numbers do not end")
}

/// Clones volumes of a group between two commands; those of a part together with the other parts, which name the same `cut`.
pub(super) async fn clone_all(
    served: &ServedPool,
    follower: &SecondaryGroup,
    (cut, new): (JointCutId, &[(VolumeId, NewClone)]),
) -> Result<(), ShownCloneError> {
    let is_part = follower.member().joint().is_some();
    for attempt in 1_u8.. {
        let cloned = match is_part {
            true => follower.clone_part(attempt_at(cut, attempt), new).await,
            false => follower.clone_shown(new).await,
        };
        match cloned {
            // The other parts make their next attempt, too.
            Err(error) if error.passes() && attempt < PART_ATTEMPTS => {
                served.world.sleep(PART_PAUSE).await;
            }
            done => return done,
        }
    }
    unreachable!("the last attempt returned")
}

fn attempt_at(JointCutId(mut id): JointCutId, attempt: u8) -> JointCutId {
    id[15] ^= attempt;
    JointCutId(id)
}

/// Advice on clones that could not be made.
pub(super) fn advice_on(error: &ShownCloneError) -> &'static str {
    match error {
        ShownCloneError::Pool(_) => "see the pool's messages",
        ShownCloneError::PartMissing => "open that pool; see 'spindle dr status'",
        ShownCloneError::OtherCut | ShownCloneError::OtherPart { .. } => "try again; see 'spindle dr status'",
        ShownCloneError::PartOfCommand | ShownCloneError::StampTaken => {
            "try again after the next write of a host"
        }
        _ => "try again when 'spindle dr status' says following",
    }
}

/// Clones that are deleted as soon as the pool can.
pub(super) struct SurplusClones {
    of: &'static CloneUse,
    /// By whether it was said that one could not be deleted.
    all: RefCell<BTreeMap<VolumeId, bool>>,
}

impl SurplusClones {
    pub fn new(of: &'static CloneUse) -> Self {
        Self { of, all: RefCell::default() }
    }

    pub fn add(&self, clones: impl IntoIterator<Item = VolumeId>) {
        self.all.borrow_mut().extend(clones.into_iter().map(|clone| (clone, false)));
    }

    /// Adds those that an earlier process left. True if there are any.
    pub fn add_left(&self, served: &ServedPool) -> bool {
        let volumes = served.pool.volumes();
        let left = served.dr.all_volumes().into_iter().map(|volume| self.of.clone_of(volume));
        let left: Vec<VolumeId> =
            left.filter(|clone| volumes.iter().any(|info| info.volume == *clone)).collect();
        let any = !left.is_empty();
        self.add(left);
        any
    }

    /// Deletes them; those that cannot be are said once, and tried with the next call.
    pub async fn delete(&self, served: &ServedPool) {
        let clones: Vec<VolumeId> = self.all.borrow().keys().copied().collect();
        for clone in clones {
            // Another call may have deleted it, and it may be a new one by now.
            if !self.all.borrow().contains_key(&clone) {
                continue;
            }
            match served.pool.delete_volume(VolumeKey::Id(clone), true).await {
                Ok(()) | Err(Error::NoVolume(_)) => drop(self.all.borrow_mut().remove(&clone)),
                Err(error) => {
                    let was_said = self.all.borrow_mut().insert(clone, true);
                    if was_said == Some(false) {
                        let what = self.of.what;
                        served.notices.warn(format!(
                            "a clone of {what} cannot be deleted yet: {error}; it is tried again"
                        ));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_volumes_have_identities_of_their_own_that_stay() {
        let (one, other) = (VolumeId([7; 16]), VolumeId([8; 16]));
        let of = CloneUse { what: "a test", mark: *b"clones of a test" };
        assert_eq!(of.clone_of(one), of.clone_of(one));
        assert_ne!(of.clone_of(one), one);
        assert_ne!(of.clone_of(one), of.clone_of(other));
        assert_eq!(of.clone_of(of.clone_of(one)), one);
    }
}
