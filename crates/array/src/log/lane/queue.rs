//! What waits to be logged, and how it is packed into flights.

use crate::{
    error::{Error, Result},
    format::ChecksumSeed,
    log::{Draft, Part},
};
use std::collections::VecDeque;
use tokio::sync::oneshot;
use world::Stability;

/// Told when it is done, or why not.
pub type Answer = oneshot::Sender<Result<()>>;

/// What somebody wants to have logged.
pub struct Command {
    /// In their order.
    pub parts: VecDeque<Part>,
    /// All in one record: they happen together.
    pub is_one: bool,
    /// What the answer promises.
    pub stability: Stability,
    /// Who waits.
    pub answer: Answer,
}

/// What is written at once, and who waits for it.
pub struct Flight {
    /// Records in the making, in the order of the log.
    pub drafts: VecDeque<Draft>,
    /// Those whose last part is in it.
    pub answers: Vec<Answer>,
    /// Whether one of them is promised that it is stable.
    pub is_stable: bool,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Queue {
    commands: VecDeque<Command>,
}

impl Queue {
    /// One more waits.
    pub fn push(&mut self, command: Command) {
        self.commands.push_back(command);
    }

    /// Tells all that wait that it will not be.
    pub fn refuse(&mut self, error: &Error) {
        for command in self.commands.drain(..) {
            // Who no longer waits need not know.
            let _ = command.answer.send(Err(error.clone()));
        }
    }

    /// Packs what waits into records, as many as one flight takes. A command is answered with the flight that
    /// has its last part.
    pub fn gather(&mut self, seed: ChecksumSeed, records_max: usize) -> Flight {
        let mut flight = Flight { drafts: VecDeque::new(), answers: Vec::new(), is_stable: false };
        let mut draft = Draft::default();
        'commands: while let Some(command) = self.commands.front_mut() {
            if command.is_one && !draft.is_empty() {
                flight.drafts.push_back(std::mem::take(&mut draft));
                if flight.drafts.len() == records_max {
                    break;
                }
            }
            while let Some(part) = command.parts.pop_front() {
                let Err(part) = draft.push(seed, part) else { continue };
                assert!(!command.is_one, "what happens together fits into one record");
                flight.drafts.push_back(std::mem::take(&mut draft));
                if flight.drafts.len() == records_max {
                    command.parts.push_front(part);
                    break 'commands;
                }
                draft.push(seed, part).expect("an empty draft takes any part");
            }
            let command = self.commands.pop_front().expect("looked at");
            flight.is_stable |= command.stability == Stability::Stable;
            flight.answers.push(command.answer);
        }
        if !draft.is_empty() {
            flight.drafts.push_back(draft);
        }
        flight
    }
}
