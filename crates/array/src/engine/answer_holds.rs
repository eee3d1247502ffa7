//! Holds of answers: a subscriber of the log keeps hosts waiting until it has made a record safe elsewhere; a cut
//! over several pools keeps them waiting until every pool has its part in the log.
//!
//! Only answers wait. A record that is held is in the tables already, reads see it, its blocks are unlocked,
//! and the log goes on. What the pool logs for itself, moves of cleaning for example, is never held.
//!
//! Invariants:
//!
//! 1. A hold is of one subscriber and of one record that was delivered to it. It ends with its guard, or with
//!    the subscription.
//! 2. A command is answered with success only when no hold of its record, or of an earlier one, is there, and
//!    no hold of all answers. A subscriber may limit its holds to some volumes: commands of others pass them.
//! 3. A command whose record is held when the pool stops or is closed gets an error: its effect stays, but
//!    the subscriber may not have it. So does one whose record is held when its subscriber refuses, or later.

use super::{log_subscribers::SubscriberNumber, shared::Shared};
use crate::{
    error::{Error, Result},
    format::{Position, VolumeId, VolumeNumber},
    simulation::canary::{self, Canary},
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    fmt,
    rc::Rc,
};
use tokio::sync::Notify;

/// Records whose answers wait, each with the subscriber that holds them.
#[derive(Debug, Default)]
pub(crate) struct AnswerHolds {
    held: RefCell<BTreeMap<SubscriberNumber, BTreeSet<Position>>>,
    /// The volumes of subscribers whose holds are limited.
    limits: RefCell<BTreeMap<SubscriberNumber, BTreeSet<VolumeId>>>,
    /// Subscribers that let no held command be answered with success any more.
    refusing: RefCell<BTreeSet<SubscriberNumber>>,
    /// Of subscriptions that have ended so.
    refused: RefCell<Vec<RefusedAnswers>>,
    /// Holds of all answers.
    of_all: Cell<usize>,
    changed: Notify,
}

/// Commands that a subscription held at its end, after it had refused.
#[derive(Debug)]
struct RefusedAnswers {
    first: Position,
    last: Position,
    volumes: BTreeSet<VolumeId>,
}

impl RefusedAnswers {
    fn has(&self, position: Position, volume: Option<VolumeId>) -> bool {
        (self.first..=self.last).contains(&position) && concerns(Some(&self.volumes), volume)
    }
}

/// True if holds that are limited so concern a command of this volume.
fn concerns(limit: Option<&BTreeSet<VolumeId>>, volume: Option<VolumeId>) -> bool {
    limit.is_none_or(|volumes| volume.is_none_or(|volume| volumes.contains(&volume)))
}

/// Holds the answers of a record and of all later ones until it is dropped.
pub struct AnswerHold {
    holds: Rc<AnswerHolds>,
    record: (Position, SubscriberNumber),
}

/// Holds all answers until it is dropped.
pub(crate) struct AllAnswersHold(Rc<AnswerHolds>);

impl Drop for AllAnswersHold {
    fn drop(&mut self) {
        self.0.of_all.update(|count| count - 1);
        self.0.changed.notify_waiters();
    }
}

impl AnswerHolds {
    /// Holds the answers of all commands that were not answered yet, and of those to come.
    pub fn begin_of_all(self: &Rc<Self>) -> AllAnswersHold {
        self.of_all.update(|count| count + 1);
        AllAnswersHold(Rc::clone(self))
    }

    /// Begins a hold of a record that was not answered yet.
    pub fn begin(self: &Rc<Self>, position: Position, subscriber: SubscriberNumber) -> AnswerHold {
        let record = (position, subscriber);
        let is_new = self.held.borrow_mut().entry(subscriber).or_default().insert(position);
        assert!(is_new, "{position:?} is delivered once");
        AnswerHold { holds: Rc::clone(self), record }
    }

    /// Ends all holds of a subscriber. Returns the volumes whose hosts it refused.
    pub fn end(&self, subscriber: SubscriberNumber) -> BTreeSet<VolumeId> {
        let held = self.held.borrow_mut().remove(&subscriber).unwrap_or_default();
        let volumes = self.limits.borrow_mut().remove(&subscriber);
        self.changed.notify_waiters();
        if !self.refusing.borrow_mut().remove(&subscriber) {
            return BTreeSet::new();
        }
        let volumes = volumes.expect("a subscriber that refuses is of some volumes");
        if let (Some(&first), Some(&last)) = (held.first(), held.last()) {
            let volumes = volumes.clone();
            self.refused.borrow_mut().push(RefusedAnswers { first, last, volumes });
        }
        volumes
    }

    /// Has commands that the subscriber holds, now or later, answered with an error.
    pub fn refuse(&self, subscriber: SubscriberNumber) {
        assert!(
            self.limits.borrow().contains_key(&subscriber),
            "a subscriber that refuses is of some volumes"
        );
        self.refusing.borrow_mut().insert(subscriber);
        self.changed.notify_waiters();
    }

    /// Limits the holds of a subscriber, those it has included, to commands of these volumes, and to those that
    /// are of no single volume.
    pub fn limit(&self, subscriber: SubscriberNumber, volumes: BTreeSet<VolumeId>) {
        self.limits.borrow_mut().insert(subscriber, volumes);
        self.changed.notify_waiters();
    }

    /// Wakes waiting commands. To be called when the pool has stopped.
    pub fn note_change(&self) {
        self.changed.notify_waiters();
    }

    /// True if no record up to `position` is held, for a command of this volume.
    fn is_free(&self, position: Position, volume: Option<VolumeId>) -> bool {
        self.of_all.get() == 0 && self.holders(position, volume).is_empty()
    }

    /// True if a subscriber has refused a command of this volume.
    fn is_refused(&self, position: Position, volume: Option<VolumeId>) -> bool {
        let refusing = self.refusing.borrow();
        let holds_it = || self.holders(position, volume).iter().any(|holder| refusing.contains(holder));
        let was_held = || self.refused.borrow().iter().any(|refused| refused.has(position, volume));
        !refusing.is_empty() && holds_it() || was_held()
    }

    /// The subscribers that hold a record up to `position`, for a command of this volume.
    fn holders(&self, position: Position, volume: Option<VolumeId>) -> Vec<SubscriberNumber> {
        let (held, limits) = (self.held.borrow(), self.limits.borrow());
        let holds = |(subscriber, positions): &(&SubscriberNumber, &BTreeSet<Position>)| {
            let is_held = positions.first().is_some_and(|&first| first <= position);
            is_held && concerns(limits.get(subscriber), volume)
        };
        held.iter().filter(holds).map(|(&subscriber, _)| subscriber).collect()
    }
}

impl Drop for AnswerHold {
    fn drop(&mut self) {
        // The subscription may have ended before.
        let (position, subscriber) = self.record;
        if self.holds.refusing.borrow().contains(&subscriber) {
            return;
        }
        let mut held = self.holds.held.borrow_mut();
        let was_held = held.get_mut(&subscriber).is_some_and(|positions| positions.remove(&position));
        drop(held);
        if was_held {
            self.holds.changed.notify_waiters();
        }
    }
}

impl fmt::Debug for AnswerHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnswerHold({:?})", self.record.0)
    }
}

impl Shared {
    /// Holds all answers to hosts, until the guard is dropped.
    pub fn hold_answers(&self) -> AllAnswersHold {
        self.subscribers.holds.begin_of_all()
    }

    /// Waits until the subscribers let a command be answered whose records were all applied just now. Does
    /// not yield if nothing is held.
    ///
    /// # Errors
    ///
    /// The pool stopped, or was closed, or the subscriber refused, while the command was held.
    pub async fn wait_for_release(&self) -> Result<()> {
        self.wait_for_release_of(None).await
    }

    /// As [`Self::wait_for_release`], for a command of one volume; `None`, or a volume that was deleted: for one
    /// that all holds concern.
    pub async fn wait_for_release_of(&self, volume: Option<VolumeNumber>) -> Result<()> {
        let holds = &self.subscribers.holds;
        let (position, volume) = {
            let state = self.state.borrow();
            let row = volume.and_then(|volume| state.catalogue.volume(volume));
            (state.log_taken.previous.position, row.map(|row| row.volume))
        };
        loop {
            // Created before the check, so that a notification after it is not missed.
            let changed = holds.changed.notified();
            if holds.is_refused(position, volume) {
                return Err(Error::AnswerRefused);
            }
            if holds.is_free(position, volume) || canary::is(Canary::AnswerDespiteHold) {
                return Ok(());
            }
            self.check_runs()?;
            changed.await;
        }
    }
}
