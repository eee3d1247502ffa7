//! The queue of append requests, and their packing into batches.

use crate::{
    engine::DeviceTime,
    error::{Error, Result},
    format::ChecksumSeed,
    log::{LogItem, RecordDraft},
};
use std::collections::VecDeque;
use tokio::sync::oneshot;
use world::Stability;

/// Channel that carries the result to the caller.
pub type Completion = oneshot::Sender<Result<()>>;

/// An append request.
pub struct AppendCommand {
    pub items: VecDeque<LogItem>,
    /// All items go into one record, so that a crash keeps all or none.
    pub is_one: bool,
    /// Durability the answer promises.
    pub stability: Stability,
    /// Time that drives work for it, if it is timed.
    pub device: Option<DeviceTime>,
    pub answer: Completion,
}

/// Records of one write, and the callers to answer after it.
pub struct RecordBatch {
    pub drafts: VecDeque<RecordDraft>,
    /// Callers whose last item is in this batch.
    pub answers: Vec<Completion>,
    /// True if one of them was promised stability.
    pub is_stable: bool,
    /// Of the timed requests with items in this batch.
    pub timed: Vec<DeviceTime>,
}

/// Append requests, oldest first.
#[derive(Default)]
pub struct Queue {
    commands: VecDeque<AppendCommand>,
}

impl Queue {
    pub fn push(&mut self, command: AppendCommand) {
        self.commands.push_back(command);
    }

    /// Fails all pending requests with `error`.
    pub fn refuse(&mut self, error: &Error) {
        for command in self.commands.drain(..) {
            // A caller that was dropped needs no answer.
            let _ = command.answer.send(Err(error.clone()));
        }
    }

    /// Packs pending requests into at most `records_max` records. A request is answered with the batch that
    /// has its last item.
    pub fn gather(&mut self, seed: ChecksumSeed, records_max: usize) -> RecordBatch {
        let mut batch =
            RecordBatch { drafts: VecDeque::new(), answers: Vec::new(), is_stable: false, timed: Vec::new() };
        let mut draft = RecordDraft::default();
        'commands: while let Some(command) = self.commands.front_mut() {
            if command.is_one && !draft.is_empty() {
                batch.drafts.push_back(std::mem::take(&mut draft));
                if batch.drafts.len() == records_max {
                    break;
                }
            }
            batch.timed.extend(command.device.clone());
            let mut is_begun = false;
            while let Some(item) = command.items.pop_front() {
                let Err(item) = draft.push(seed, item) else {
                    is_begun = true;
                    continue;
                };
                assert!(!command.is_one, "what happens together fits into one record");
                if is_begun {
                    draft.note_goes_on();
                }
                batch.drafts.push_back(std::mem::take(&mut draft));
                if batch.drafts.len() == records_max {
                    command.items.push_front(item);
                    break 'commands;
                }
                draft.push(seed, item).expect("an empty draft takes any item");
                is_begun = true;
            }
            let command = self.commands.pop_front().expect("looked at");
            batch.is_stable |= command.stability == Stability::Stable;
            batch.answers.push(command.answer);
        }
        if !draft.is_empty() {
            batch.drafts.push_back(draft);
        }
        batch
    }
}
