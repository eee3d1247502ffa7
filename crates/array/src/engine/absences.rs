//! Drives that are absent, and how long they are waited for before copies of what lies on them are made elsewhere.
//!
//! A drive that was pulled, or whose server is out of reach, often comes back soon, with nearly everything it should
//! have. One that failed does not.

use crate::format::MemberIndex;
use std::{cell::RefCell, collections::BTreeMap, time::Duration};
use world::{IoErrorKind, Moment};

/// Why a drive is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    /// It was not there, or not within reach, from then on.
    Away(Moment),
    Failed,
}

/// The absent drives of an open pool.
#[derive(Debug)]
pub(crate) struct Absences {
    /// Time for which a drive that is away is waited for.
    copies_after: Duration,
    absent: RefCell<BTreeMap<MemberIndex, Absence>>,
}

impl Absences {
    pub fn new(copies_after: Duration) -> Self {
        Self { copies_after, absent: RefCell::default() }
    }

    /// Records a drive that was not there when the pool was opened.
    pub fn note_missing(&self, member: MemberIndex, now: Moment) {
        self.absent.borrow_mut().entry(member).or_insert(Absence::Away(now));
    }

    /// Records a drive that failed while the pool was opened.
    pub fn note_failed(&self, member: MemberIndex) {
        self.absent.borrow_mut().insert(member, Absence::Failed);
    }

    /// Records a drive that was lost with an error.
    pub fn note_loss(&self, member: MemberIndex, error: IoErrorKind, now: Moment) {
        let absence = match error {
            IoErrorKind::Disconnected | IoErrorKind::NotFound => Absence::Away(now),
            _ => Absence::Failed,
        };
        self.absent.borrow_mut().entry(member).or_insert(absence);
    }

    /// Nothing lacks a copy: whatever is absent is not needed.
    pub fn forget_all(&self) {
        self.absent.borrow_mut().clear();
    }

    /// A drive joined: nothing is waited for any more.
    pub fn note_addition(&self) {
        self.absent.borrow_mut().values_mut().for_each(|absence| *absence = Absence::Failed);
    }

    /// The moment until which copies wait, if all absent drives may come back and the last one left lately.
    pub fn wait_until(&self, now: Moment) -> Option<Moment> {
        let absent = self.absent.borrow();
        let until = |absence: &Absence| match absence {
            Absence::Away(since) => Some(*since + self.copies_after),
            Absence::Failed => None,
        };
        let all: Option<Vec<Moment>> = absent.values().map(until).collect();
        all?.into_iter().max().filter(|&until| until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_that_are_away_are_waited_for_unless_one_failed() {
        let second = |seconds: u64| Moment(seconds * 1_000_000_000);
        let absences = Absences::new(Duration::from_secs(300));
        assert_eq!(absences.wait_until(second(0)), None, "nothing lacks");
        absences.note_missing(MemberIndex(1), second(0));
        absences.note_loss(MemberIndex(2), IoErrorKind::Disconnected, second(100));
        assert_eq!(absences.wait_until(second(120)), Some(second(400)));
        assert_eq!(absences.wait_until(second(400)), None);
        absences.note_loss(MemberIndex(3), IoErrorKind::Medium, second(130));
        assert_eq!(absences.wait_until(second(130)), None, "one with errors is not");
        let absences = Absences::new(Duration::from_secs(300));
        absences.note_missing(MemberIndex(1), second(0));
        absences.note_addition();
        assert_eq!(absences.wait_until(second(1)), None, "another one takes its place");
        absences.forget_all();
        absences.note_missing(MemberIndex(2), second(9));
        assert_eq!(absences.wait_until(second(10)), Some(second(309)), "the first is not needed any more");
    }
}
