//! Verifications of an agent's sets: one at a time, on a thread of its own, while rounds go on.

use super::{
    verification::VerifiedBackup,
    verifier_thread::{VerifierEnd, verify_for_agent},
};
use crate::server::place::ServerPlace;
use ::verify::running::RunVerdict;
use protect::set_keeper::{
    PersonOrder, PersonRefusal, SetKeeper, VerificationDue, VerificationResult, VerificationVerdict,
};
use report::Refusal;
use std::{cell::RefCell, rc::Rc};
use world::{World, real::host::machine};

type Verified = Result<VerifiedBackup, Refusal>;

/// The verifier of all sets of an agent.
pub struct AgentVerifier {
    world: World,
    place: ServerPlace,
    end: VerifierEnd,
    running: Rc<RefCell<Running>>,
}

#[derive(Default)]
enum Running {
    #[default]
    Nothing,
    Verifying,
    Done {
        set: String,
        due: VerificationDue,
        verified: Verified,
    },
}

impl AgentVerifier {
    pub fn new(world: &World, place: &ServerPlace) -> Self {
        Self {
            world: world.clone(),
            place: place.clone(),
            end: VerifierEnd::default(),
            running: Rc::default(),
        }
    }

    /// Ends what is under way: the next start begins it again.
    pub fn end(&self) {
        self.end.order();
    }

    /// A verification of the set has ended and is not noted.
    pub fn has_result_of(&self, set: &str) -> bool {
        matches!(&*self.running.borrow(), Running::Done { set: of, .. } if of == set)
    }

    /// Notes the result of a verification of this keeper's set, and begins the next one that is due, if none is under way.
    /// Returns a problem of the catalogue or of the machine.
    pub async fn go_on(&self, keeper: &mut SetKeeper) -> Option<String> {
        let set = keeper.settings().name.clone();
        if self.has_result_of(&set)
            && let Running::Done { due, verified, .. } = self.running.take()
            && let Err(error) = self.note(keeper, &due, verified).await
        {
            return Some(error.to_string());
        }
        if !matches!(*self.running.borrow(), Running::Nothing) {
            return None;
        }
        let due = keeper.verification_due()?;
        let thread = match verify_for_agent(&set, &due, &self.place, &self.end) {
            Ok(thread) => thread,
            Err(refusal) => return Some(refusal.to_string()),
        };
        *self.running.borrow_mut() = Running::Verifying;
        let running = Rc::clone(&self.running);
        drop(self.world.spawn("verifier", async move {
            let verified = thread.join().await;
            let before = running.replace(Running::Done { set, due, verified });
            assert!(matches!(before, Running::Verifying), "one at a time");
        }));
        None
    }

    /// Verifies the backup that is due, and waits for it; false if none is.
    ///
    /// # Errors
    ///
    /// The catalogue cannot be written, or the system has no thread left.
    pub async fn verify_due(&self, keeper: &mut SetKeeper) -> Result<bool, Refusal> {
        let Some(due) = keeper.verification_due() else { return Ok(false) };
        let set = keeper.settings().name.clone();
        let verified = verify_for_agent(&set, &due, &self.place, &self.end)?.join().await;
        self.note(keeper, &due, verified).await.map_err(|error| Refusal::new(error.to_string(), ""))?;
        Ok(true)
    }

    async fn note(
        &self,
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
        let result = VerificationResult { level, version, verdict, findings };
        let by = format!("spindle protect run on {}", machine().hostname);
        match keeper.follow(due.number, &PersonOrder::NoteVerification(result), &by).await {
            // It went meanwhile: a person deleted its snapshots.
            Err(PersonRefusal::Unknown(_)) => Ok(()),
            noted => noted,
        }
    }
}

fn verdict_of(verdict: RunVerdict) -> VerificationVerdict {
    match verdict {
        RunVerdict::Clean => VerificationVerdict::Proven,
        RunVerdict::Damaged => VerificationVerdict::Damaged,
        RunVerdict::Unfinished => VerificationVerdict::Unfinished,
    }
}
