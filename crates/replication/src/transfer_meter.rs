//! Figures of what a side has sent and received. Nothing is decided by them: they are for people.

use crate::merge_gate::MergeStandstill;
use std::cell::{Cell, RefCell};
use world::{Moment, World};

/// A pass under way, at either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassProgress {
    /// Counts the passes of this side.
    pub number: u64,
    /// It brings everything, to a side that has nothing.
    pub is_first_copy: bool,
    /// Bytes of blocks that were sent, or received.
    pub done_bytes: u64,
    /// Bytes of blocks in all; those that the receiver wants beside may be counted twice.
    pub expected_bytes: u64,
}

/// Counts of one side of a group, from its opening on.
#[derive(Debug, Default)]
pub struct TransferMeter {
    sent_bytes: Cell<u64>,
    received_bytes: Cell<u64>,
    /// Of all passes, in both directions.
    pass_bytes: Cell<u64>,
    passes: Cell<u64>,
    pass: RefCell<Option<PassProgress>>,
    /// This side sends a first copy that the peer does not have whole.
    is_first_copy_lacking: Cell<bool>,
    word_at: Cell<Option<Moment>>,
    standstill: RefCell<Option<MergeStandstill>>,
}

impl TransferMeter {
    /// Bytes of blocks that were sent; of what else changed, about.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.get()
    }

    /// Bytes of blocks that were received; of what else changed, about.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.get()
    }

    /// The part of both that was in passes.
    pub fn pass_bytes(&self) -> u64 {
        self.pass_bytes.get()
    }

    pub fn pass(&self) -> Option<PassProgress> {
        *self.pass.borrow()
    }

    /// True from the beginning of a first copy that this side sends until the peer has all of it.
    pub fn is_first_copy_lacking(&self) -> bool {
        self.is_first_copy_lacking.get()
    }

    /// The last word of the primary, at its secondary.
    pub fn word_at(&self) -> Option<Moment> {
        self.word_at.get()
    }

    /// Of a primary: why the next pass does not begin, or the one under way does not go on.
    pub fn standstill(&self) -> Option<MergeStandstill> {
        self.standstill.borrow().clone()
    }

    pub(crate) fn set_standstill(&self, standstill: Option<MergeStandstill>) {
        *self.standstill.borrow_mut() = standstill;
    }

    pub(crate) fn note_word(&self, world: &World) {
        self.word_at.set(Some(world.now()));
    }

    pub(crate) fn note_sent(&self, bytes: u64) {
        self.sent_bytes.update(|sent| sent + bytes);
    }

    pub(crate) fn note_received(&self, bytes: u64) {
        self.received_bytes.update(|received| received + bytes);
    }

    /// Blocks of the pass under way were sent or received.
    pub(crate) fn note_pass_blocks(&self, bytes: u64, is_sender: bool) {
        if is_sender {
            self.note_sent(bytes)
        } else {
            self.note_received(bytes)
        }
        self.pass_bytes.update(|all| all + bytes);
        if let Some(pass) = &mut *self.pass.borrow_mut() {
            pass.done_bytes += bytes;
        }
    }

    pub(crate) fn begin_pass(&self, is_first_copy: bool, expected_bytes: u64) {
        let number = self.passes.get() + 1;
        self.passes.set(number);
        *self.pass.borrow_mut() = Some(PassProgress { number, is_first_copy, done_bytes: 0, expected_bytes });
    }

    /// No pass is under way any more.
    pub(crate) fn end_pass(&self) {
        self.pass.borrow_mut().take();
    }

    pub(crate) fn set_first_copy_lacking(&self, is_lacking: bool) {
        self.is_first_copy_lacking.set(is_lacking);
    }
}
