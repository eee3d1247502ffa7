//! What a client of a device elsewhere must know to say whether a flush can mean what it says.
//!
//! Invariants:
//!
//! 1. Only what was written is flushed.
//! 2. Whoever is told that a write was done is not told so of a later flush if the connection broke in between: who answers by
//!    then may be another one, and what was in its cache is lost.

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Unflushed {
    /// Writes that were answered, and are stable only after a flush.
    answered: u64,
    /// The first so many of them are stable.
    flushed: u64,
    may_have_lost: bool,
}

impl Unflushed {
    /// Writes that were answered so far: what a flush that is asked for now will make stable.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// A write was answered.
    pub fn wrote(&mut self) {
        self.answered += 1;
    }

    /// A flush was answered that was asked for when so many writes were answered.
    pub fn flushed(&mut self, answered_before: u64) {
        self.flushed = self.flushed.max(answered_before);
        assert!(self.flushed <= self.answered, "only what was written is flushed");
    }

    /// Who answers may be another one from now on. Whether flushes that are under way cannot mean what they say: if there are
    /// any, they fail, and nobody has to be told later.
    pub fn broke(&mut self, has_flushes: bool) -> bool {
        let may_have_lost = self.may_have_lost || self.flushed < self.answered;
        self.flushed = self.answered;
        self.may_have_lost = may_have_lost && !has_flushes;
        may_have_lost
    }

    /// Whether writes may be lost that no flush has told of yet. It is told once.
    pub fn take_loss(&mut self) -> bool {
        std::mem::take(&mut self.may_have_lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_flushed_before_a_break_is_told_once() {
        let mut unflushed = Unflushed::default();
        assert!(!unflushed.broke(false) && !unflushed.take_loss(), "nothing was written");
        unflushed.wrote();
        let before = unflushed.answered();
        unflushed.wrote();
        unflushed.flushed(before);
        assert!(unflushed.broke(false), "the second one is lost, perhaps");
        assert!(unflushed.take_loss() && !unflushed.take_loss());
        unflushed.wrote();
        unflushed.flushed(unflushed.answered());
        assert!(!unflushed.broke(true));
        unflushed.wrote();
        assert!(unflushed.broke(true) && !unflushed.take_loss(), "those that were under way have told it");
    }
}
