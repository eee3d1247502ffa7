//! All presentations of a server, as its threads share them.
//!
//! Invariants:
//!
//! 1. A presentation is here as the journal has it: the journal is written first.
//! 2. Work on one presentation is done by one flow at a time.

use super::presentation::{Presentation, PresentationStage};
use crate::{
    journal::{DaemonJournal, JournalError},
    planted::{self, PresentBug},
};
use array::format::{PoolId, SnapshotId, VolumeId};
use report::Refusal;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

/// The presentations of a server. Clones are one.
#[derive(Clone, Default)]
pub struct PresentationBoard(Arc<Mutex<BoardState>>);

#[derive(Default)]
struct BoardState {
    journal: Option<Arc<DaemonJournal>>,
    all: BTreeMap<[u8; 16], Arc<Presentation>>,
    under_way: BTreeSet<[u8; 16]>,
}

/// Work on a presentation; it ends when this is dropped.
pub(crate) struct PresentationWork {
    board: PresentationBoard,
    id: [u8; 16],
}

impl Drop for PresentationWork {
    fn drop(&mut self) {
        self.board.state().under_way.remove(&self.id);
    }
}

impl PresentationBoard {
    fn state(&self) -> MutexGuard<'_, BoardState> {
        self.0.lock().expect("nothing panics with the lock held")
    }

    /// Reads what the journal has.
    pub fn load(&self, journal: &Arc<DaemonJournal>) -> Result<(), JournalError> {
        let all = journal.presentations()?;
        let mut state = self.state();
        state.all = all.into_iter().map(|one| (one.id, Arc::new(one))).collect();
        state.journal = Some(Arc::clone(journal));
        Ok(())
    }

    /// Begins work on a presentation; `None` while another flow works on it.
    pub fn begin_work(&self, id: [u8; 16]) -> Option<PresentationWork> {
        let is_free = self.state().under_way.insert(id);
        is_free.then(|| PresentationWork { board: self.clone(), id })
    }

    /// Records a presentation, in the place of what was known of it.
    pub fn put(&self, presentation: &Presentation) -> Result<(), JournalError> {
        if let Some(journal) = self.journal() {
            journal.put_presentation(presentation)?;
        }
        self.state().all.insert(presentation.id, Arc::new(presentation.clone()));
        Ok(())
    }

    /// Forgets a presentation.
    pub fn forget(&self, id: [u8; 16]) -> Result<(), JournalError> {
        if let Some(journal) = self.journal() {
            journal.forget_presentation(id)?;
        }
        self.state().all.remove(&id);
        Ok(())
    }

    fn journal(&self) -> Option<Arc<DaemonJournal>> {
        self.state().journal.clone()
    }

    pub fn get(&self, id: [u8; 16]) -> Option<Arc<Presentation>> {
        self.state().all.get(&id).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Presentation>> {
        self.state().all.values().cloned().collect()
    }

    pub fn of_pool(&self, pool: PoolId) -> Vec<Arc<Presentation>> {
        self.state().all.values().filter(|one| one.pool_id() == pool).cloned().collect()
    }

    /// Volumes that are clones of presentations.
    pub fn clones(&self) -> BTreeSet<VolumeId> {
        self.state().all.values().filter_map(|one| one.clone_id()).collect()
    }

    /// Refuses to take away a point that is presented, or the clone of a presentation.
    ///
    /// # Errors
    ///
    /// It is.
    pub fn check_not_held(&self, volume: VolumeId, snapshot: Option<SnapshotId>) -> Result<(), Refusal> {
        let is_meant = |one: &&Arc<Presentation>| match snapshot {
            Some(_) if planted::is_in_presenting(PresentBug::PointNotHeld) => false,
            Some(snapshot) => one.volume_id() == volume && one.snapshot_id() == snapshot,
            // At its end the presentation takes it away itself.
            None => one.clone_id() == Some(volume) && !matches!(one.stage, PresentationStage::Ending(_)),
        };
        self.state().all.values().find(is_meant).map_or(Ok(()), |one| Err(held(one)))
    }

    /// Refuses to take away a volume with a point that is presented, or that is the clone of a presentation.
    ///
    /// # Errors
    ///
    /// It is.
    pub fn check_volume_not_held(&self, volume: VolumeId) -> Result<(), Refusal> {
        let is_meant = |one: &&Arc<Presentation>| one.volume_id() == volume || one.clone_id() == Some(volume);
        self.state().all.values().find(is_meant).map_or(Ok(()), |one| Err(held(one)))
    }
}

fn held(presentation: &Presentation) -> Refusal {
    let Presentation { path, initiator, .. } = presentation;
    let withdraw = format!("'spindle volume withdraw {path} --from {initiator}'");
    Refusal::new(presentation.words(), format!("wait for that, or end it: {withdraw}"))
}
