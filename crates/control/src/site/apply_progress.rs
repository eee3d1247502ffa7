//! The progress of applies, for plans that are made beside them.

use std::sync::{Arc, Mutex, MutexGuard};

/// Applies that wait or are under way.
#[derive(Clone, Debug, Default)]
pub(super) struct ApplyProgress(Arc<Mutex<ProgressState>>);

#[derive(Debug, Default)]
struct ProgressState {
    applies: usize,
    /// Steps that are done, of all, of the one under way.
    steps: Option<(usize, usize)>,
}

/// An apply, until it is dropped.
pub(super) struct ApplyInProgress(ApplyProgress);

impl ApplyProgress {
    pub fn one_more(&self) -> ApplyInProgress {
        self.state().applies += 1;
        ApplyInProgress(self.clone())
    }

    /// Notes the steps of the apply under way; `None` at its end.
    pub fn set_steps(&self, steps: Option<(usize, usize)>) {
        self.state().steps = steps;
    }

    /// Progress of applies, in words; `None` without any.
    pub fn words(&self) -> Option<String> {
        let state = self.state();
        match (state.steps, state.applies) {
            (Some((done, all)), _) => {
                Some(format!("an apply is under way: {done} of {all} changes are done"))
            }
            (None, 0) => None,
            (None, _) => Some("an apply waits for its turn".to_owned()),
        }
    }

    fn state(&self) -> MutexGuard<'_, ProgressState> {
        self.0.lock().expect("nothing panics with the lock held")
    }
}

impl Drop for ApplyInProgress {
    fn drop(&mut self) {
        self.0.state().applies -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applies_are_counted_until_they_are_answered() {
        let progress = ApplyProgress::default();
        assert_eq!(progress.words(), None);
        let one = progress.one_more();
        assert_eq!(progress.words().unwrap(), "an apply waits for its turn");
        progress.set_steps(Some((2, 7)));
        assert_eq!(progress.words().unwrap(), "an apply is under way: 2 of 7 changes are done");
        progress.set_steps(None);
        drop(one);
        assert_eq!(progress.words(), None);
    }
}
