//! Long work on an agent's sets: verifications, and copies to vaults. One thing of each kind at a time, on a thread of its own,
//! while rounds go on.

use super::{
    vault::{
        copier_thread::{DueCopy, copy_for_agent},
        copying::MadeCopy,
    },
    verification::VerifiedBackup,
    verifier_thread::verify_for_agent,
    worker::WorkerEnd,
};
use crate::server::place::ServerPlace;
use ::verify::running::RunVerdict;
use protect::set_keeper::{
    CopyDue, CopyResult, PersonOrder, PersonRefusal, SetKeeper, VerificationDue, VerificationResult,
    VerificationVerdict,
};
use report::Refusal;
use std::{cell::RefCell, future::Future, rc::Rc};
use world::{World, real::host::machine};

type Verified = Result<VerifiedBackup, Refusal>;
type Copied = Result<MadeCopy, Refusal>;

/// The long work on all sets of an agent.
pub struct AgentWork {
    world: World,
    place: ServerPlace,
    end: WorkerEnd,
    verification: WorkSlot<VerificationDue, Verified>,
    copy: WorkSlot<CopyDue, Copied>,
}

/// Work of one kind: what is due, and its result.
struct WorkSlot<D, R>(Rc<RefCell<SlotState<D, R>>>);

enum SlotState<D, R> {
    Nothing,
    UnderWay,
    Done { set: String, due: D, result: R },
}

impl<D: 'static, R: 'static> WorkSlot<D, R> {
    fn new() -> Self {
        Self(Rc::new(RefCell::new(SlotState::Nothing)))
    }

    fn is_free(&self) -> bool {
        matches!(*self.0.borrow(), SlotState::Nothing)
    }

    fn has_result_of(&self, set: &str) -> bool {
        matches!(&*self.0.borrow(), SlotState::Done { set: of, .. } if of == set)
    }

    fn take_result_of(&self, set: &str) -> Option<(D, R)> {
        if !self.has_result_of(set) {
            return None;
        }
        match self.0.replace(SlotState::Nothing) {
            SlotState::Done { due, result, .. } => Some((due, result)),
            SlotState::Nothing | SlotState::UnderWay => unreachable!("it has a result"),
        }
    }

    fn begin(&self, world: &World, set: String, due: D, work: impl Future<Output = R> + 'static) {
        assert!(self.is_free(), "one at a time");
        *self.0.borrow_mut() = SlotState::UnderWay;
        let state = Rc::clone(&self.0);
        drop(world.spawn("long work", async move {
            let result = work.await;
            let before = state.replace(SlotState::Done { set, due, result });
            assert!(matches!(before, SlotState::UnderWay), "one at a time");
        }));
    }
}

impl AgentWork {
    pub fn new(world: &World, place: &ServerPlace) -> Self {
        Self {
            world: world.clone(),
            place: place.clone(),
            end: WorkerEnd::default(),
            verification: WorkSlot::new(),
            copy: WorkSlot::new(),
        }
    }

    /// Ends what is under way: the next start begins it again.
    pub fn end(&self) {
        self.end.order();
    }

    /// Work on the set has ended and is not noted.
    pub fn has_result_of(&self, set: &str) -> bool {
        self.verification.has_result_of(set) || self.copy.has_result_of(set)
    }

    /// Notes results of work on this keeper's set, and begins what is due, if nothing of its kind is under way. Returns a problem
    /// of the catalogue or of the machine.
    pub async fn go_on(&self, keeper: &mut SetKeeper) -> Option<String> {
        let set = keeper.settings().name.clone();
        if let Some((due, verified)) = self.verification.take_result_of(&set)
            && let Err(error) = note_verification(keeper, &due, verified).await
        {
            return Some(error.to_string());
        }
        if let Some((due, copied)) = self.copy.take_result_of(&set)
            && let Err(error) = self.note_copy(keeper, &due, copied).await
        {
            return Some(error.to_string());
        }
        if self.verification.is_free()
            && let Some(due) = keeper.verification_due()
        {
            match verify_for_agent(&set, &due, &self.place, &self.end) {
                Ok(thread) => self.verification.begin(&self.world, set.clone(), due, thread.join()),
                Err(refusal) => return Some(refusal.to_string()),
            }
        }
        if self.copy.is_free()
            && let Some(due) = keeper.copy_due()
        {
            match copy_for_agent(DueCopy::of(&set, &due), &self.place, &self.end) {
                Ok(thread) => self.copy.begin(&self.world, set, due, thread.join()),
                Err(refusal) => return Some(refusal.to_string()),
            }
        }
        None
    }

    /// Does one thing that is due, and waits for it; false if none is.
    ///
    /// # Errors
    ///
    /// The catalogue cannot be written, or the system has no thread left.
    pub async fn do_due(&self, keeper: &mut SetKeeper) -> Result<bool, Refusal> {
        let set = keeper.settings().name.clone();
        let noted = if let Some(due) = keeper.verification_due() {
            let verified = verify_for_agent(&set, &due, &self.place, &self.end)?.join().await;
            note_verification(keeper, &due, verified).await
        } else if let Some(due) = keeper.copy_due() {
            let copied = copy_for_agent(DueCopy::of(&set, &due), &self.place, &self.end)?.join().await;
            self.note_copy(keeper, &due, copied).await
        } else {
            return Ok(false);
        };
        noted.map_err(|error| Refusal::new(error.to_string(), ""))?;
        Ok(true)
    }

    async fn note_copy(
        &self,
        keeper: &mut SetKeeper,
        due: &CopyDue,
        copied: Copied,
    ) -> Result<(), PersonRefusal> {
        let order = match copied {
            Ok(MadeCopy { snapshot, stored_bytes, copies, .. }) => {
                let copies = Some(copies);
                PersonOrder::NoteCopy(CopyResult {
                    to: due.to.clone(),
                    id: snapshot,
                    bytes: stored_bytes,
                    copies,
                })
            }
            // It is begun again after the next start.
            Err(_) if self.end.is_ordered() => return Ok(()),
            Err(refusal) => PersonOrder::NoteFailedCopy { why: refusal.to_string() },
        };
        note(keeper, due.number, &order).await
    }
}

async fn note_verification(
    keeper: &mut SetKeeper,
    due: &VerificationDue,
    verified: Verified,
) -> Result<(), PersonRefusal> {
    let (verdict, findings) = match verified {
        Ok(verified) if verified.is_interrupted => return Ok(()),
        Ok(verified) => (verdict_of(verified.verdict), verified.findings),
        Err(refusal) => (VerificationVerdict::Unfinished, vec![refusal.to_string()]),
    };
    let (level, version) = (due.level.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    let result = VerificationResult { level, version, verdict, findings, points: Vec::new() };
    note(keeper, due.number, &PersonOrder::NoteVerification(result)).await
}

async fn note(keeper: &mut SetKeeper, number: u64, order: &PersonOrder) -> Result<(), PersonRefusal> {
    let by = format!("spindle protect run on {}", machine().hostname);
    match keeper.follow(number, order, &by).await {
        // It went meanwhile: a person deleted its snapshots.
        Err(PersonRefusal::Unknown(_)) => Ok(()),
        noted => noted,
    }
}

fn verdict_of(verdict: RunVerdict) -> VerificationVerdict {
    match verdict {
        RunVerdict::Clean => VerificationVerdict::Proven,
        RunVerdict::Damaged => VerificationVerdict::Damaged,
        RunVerdict::Unfinished => VerificationVerdict::Unfinished,
    }
}
