//! The commits begun and acknowledged, and the states allowed after a crash.
//!
//! Commits are listed in the order of their requests, which is their order in the log. The surviving state
//! must equal some prefix of the list: nothing uncommitted, no partial commit, no commit without all before
//! it. The prefix must include the last acknowledged durable commit; after a clean shutdown it is the whole
//! list.
//!
//! A drive that loses the end of a log, beyond the guarantees of storage, loses acknowledged commits too,
//! even some that were found before. Then any prefix of all commits is allowed ([`History::check_older`]).
//!
//! Invariants:
//!
//! 1. `latest` is `base` with all of `commits` applied; `base` is the empty state with all of `past` applied.
//! 2. `required <= commits.len()`.

use super::{
    mail::{Mail, RowKey, Rows},
    violation::GroupViolation,
};
use std::{collections::BTreeSet, rc::Rc};

/// New content of a row; `None` deletes it.
pub type Change = (RowKey, Option<Rc<Mail>>);

/// The model of a group's rows.
#[derive(Default)]
pub struct History {
    base: Rows,
    /// Commits found by earlier checks.
    past: Vec<Vec<Change>>,
    commits: Vec<Vec<Change>>,
    required: usize,
    latest: Rows,
    /// Tables that must exist, by database and name.
    tables: BTreeSet<(usize, &'static str)>,
}

impl History {
    /// All rows with every commit begun.
    pub fn latest(&self) -> &Rows {
        &self.latest
    }

    /// Starts a commit and returns its ticket for [`History::acknowledge`].
    pub fn begin_commit(&mut self, changes: Vec<Change>) -> usize {
        changes.iter().for_each(|change| apply(&mut self.latest, change));
        self.commits.push(changes);
        self.commits.len()
    }

    /// Acknowledges a durable commit: it and everything before it must survive.
    pub fn acknowledge(&mut self, ticket: usize) {
        self.required = self.required.max(ticket);
        assert!(self.required <= self.commits.len());
    }

    /// Acknowledges a clean shutdown: every commit must survive, lazy ones too.
    pub fn acknowledge_all(&mut self) {
        self.required = self.commits.len();
    }

    /// Acknowledges the creation of a table.
    pub fn note_table(&mut self, database: usize, name: &'static str) {
        self.tables.insert((database, name));
    }

    /// Checks that a missing table was never acknowledged.
    pub fn check_missing_table(&self, database: usize, name: &'static str) -> Result<(), GroupViolation> {
        if self.tables.contains(&(database, name)) {
            Err(GroupViolation::TableLost { database })
        } else {
            Ok(())
        }
    }

    /// Commits begun since the last check.
    pub fn begun(&self) -> usize {
        self.commits.len()
    }

    /// Number of those that must survive.
    pub fn required(&self) -> usize {
        self.required
    }

    /// Checks the rows found against the allowed states. They become the new base and must be found again.
    /// Returns the number of commits that survived.
    pub fn check(&mut self, found: Rows) -> Result<usize, GroupViolation> {
        let mut state = self.base.clone();
        self.commits[..self.required].iter().flatten().for_each(|change| apply(&mut state, change));
        let keys: BTreeSet<RowKey> = state.keys().chain(found.keys()).copied().collect();
        let mut wrong: BTreeSet<RowKey> =
            keys.into_iter().filter(|key| state.get(key) != found.get(key)).collect();
        let mut nearest = (wrong.len(), self.required, wrong.first().copied());
        let mut survived = None;
        for count in self.required..=self.commits.len() {
            if count > self.required {
                for change in &self.commits[count - 1] {
                    if change.1.as_ref() == found.get(&change.0) {
                        wrong.remove(&change.0)
                    } else {
                        wrong.insert(change.0)
                    };
                }
            }
            if wrong.is_empty() {
                survived = Some(count);
                break;
            }
            nearest = nearest.min((wrong.len(), count, wrong.first().copied()));
        }
        let Some(survived) = survived else {
            let (rows, count, first) = nearest;
            let nearest = format!(
                "nearest is the one after {count}: {rows} rows differ, the first being {first:?}; {} rows found",
                found.len()
            );
            return Err(GroupViolation::NoPrefix {
                required: self.required,
                begun: self.commits.len(),
                nearest,
            });
        };
        let survivors = self.commits.drain(..survived);
        self.past.extend(survivors);
        self.begin_with(found);
        Ok(survived)
    }

    /// Like [`History::check`], but the end of the log may be lost: any prefix of all commits is allowed.
    /// Returns the number of surviving commits begun since the last check.
    pub fn check_older(&mut self, found: Rows) -> Result<usize, GroupViolation> {
        let before = self.past.len();
        let mut state = Rows::new();
        let mut longest = found.is_empty().then_some(0);
        for (index, changes) in self.past.iter().chain(&self.commits).enumerate() {
            changes.iter().for_each(|change| apply(&mut state, change));
            if state == found {
                longest = Some(index + 1);
            }
        }
        let Some(longest) = longest else {
            let nearest = format!("{} rows found, {} after all commits", found.len(), state.len());
            return Err(GroupViolation::NoPrefix {
                required: 0,
                begun: before + self.commits.len(),
                nearest,
            });
        };
        self.past.append(&mut self.commits);
        self.past.truncate(longest);
        self.begin_with(found);
        Ok(longest.saturating_sub(before))
    }

    fn begin_with(&mut self, found: Rows) {
        self.base = found.clone();
        self.latest = found;
        self.commits.clear();
        self.required = 0;
    }
}

fn apply(rows: &mut Rows, (key, row): &Change) {
    match row {
        Some(row) => rows.insert(*key, Rc::clone(row)),
        None => rows.remove(key),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(message: i64) -> RowKey {
        RowKey { database: 0, mailbox: 1, message }
    }

    fn mail(text: &str) -> Rc<Mail> {
        Rc::new(Mail { subject: text.to_owned(), body: vec![1] })
    }

    /// Three commits, of which the second was durable and acknowledged.
    fn three() -> History {
        let mut history = History::default();
        history.begin_commit(vec![(key(1), Some(mail("a")))]);
        let second = history.begin_commit(vec![(key(2), Some(mail("b"))), (key(1), Some(mail("c")))]);
        history.acknowledge(second);
        history.begin_commit(vec![(key(1), None), (key(3), Some(mail("d")))]);
        history
    }

    #[test]
    fn only_prefixes_that_hold_every_durable_commit_pass() {
        let rows = |rows: &[(i64, &str)]| rows.iter().map(|(at, text)| (key(*at), mail(text))).collect();
        let check = |found: &[(i64, &str)]| three().check(rows(found)).ok();
        assert_eq!(check(&[(1, "c"), (2, "b")]), Some(2));
        assert_eq!(check(&[(2, "b"), (3, "d")]), Some(3));
        assert_eq!(check(&[(1, "a")]), None, "a durable commit is lost");
        assert_eq!(check(&[(1, "c"), (2, "b"), (3, "d")]), None, "half a commit");
        assert_eq!(check(&[(1, "a"), (2, "b")]), None, "a commit without the rest of it");
        assert_eq!(check(&[(1, "c"), (2, "b"), (9, "x")]), None, "an uncommitted row");
    }

    #[test]
    fn after_a_clean_shutdown_every_commit_must_be_there() {
        let mut history = three();
        history.acknowledge_all();
        let rows = |rows: &[(i64, &str)]| rows.iter().map(|(at, text)| (key(*at), mail(text))).collect();
        assert!(history.check(rows(&[(1, "c"), (2, "b")])).is_err(), "a lazy commit is lost");
        assert_eq!(history.check(rows(&[(2, "b"), (3, "d")])).ok(), Some(3));
    }

    #[test]
    fn a_log_without_its_end_may_return_to_any_earlier_state_and_to_no_other() {
        let rows = |rows: &[(i64, &str)]| rows.iter().map(|(at, text)| (key(*at), mail(text))).collect();
        let mut history = three();
        assert_eq!(history.check(rows(&[(2, "b"), (3, "d")])).unwrap(), 3);
        history.begin_commit(vec![(key(4), Some(mail("e")))]);
        for found in [&[(1, "a"), (2, "b")][..], &[(1, "c"), (2, "b"), (4, "e")]] {
            assert!(history.check_older(rows(found)).is_err(), "{found:?}");
        }
        assert_eq!(history.check_older(rows(&[(1, "a")])).unwrap(), 0);
        assert!(history.check_older(rows(&[(2, "b"), (3, "d")])).is_err(), "a lost commit does not return");
        assert_eq!(history.check_older(Rows::new()).unwrap(), 0);
    }

    #[test]
    fn a_state_found_once_must_be_found_again() {
        let mut history = three();
        let found: Rows = [(key(2), mail("b")), (key(3), mail("d"))].into();
        assert_eq!(history.check(found.clone()).unwrap(), 3);
        assert_eq!(history.check(found).unwrap(), 0);
        assert!(history.check(Rows::new()).is_err());
    }
}
