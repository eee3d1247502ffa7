//! Record locks: records changed by running transactions, with their committed versions.
//!
//! A writer locks a record until its transaction ends; another writer is refused at once (ESE: write
//! conflict). A reader is never refused: it gets the last committed version.
//!
//! Invariant: an entry's `committed` is the record before its owner's first change.

use super::DatabaseIndex;
use crate::format::page_size::PageNumber;
use std::collections::BTreeMap;

/// Identity of a record in the group: database, root of its tree, key.
pub type RecordName = (DatabaseIndex, PageNumber, Vec<u8>);

struct Lock {
    owner: u32,
    committed: Option<Vec<u8>>,
}

/// The locked records of a group.
#[derive(Default)]
pub struct Locks {
    held: BTreeMap<RecordName, Lock>,
}

/// Error: another transaction has locked the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict;

impl Locks {
    /// Checks that `transaction` may change the record; returns true if it holds the lock already.
    pub fn may_change(&self, name: &RecordName, transaction: u32) -> Result<bool, Conflict> {
        match self.held.get(name) {
            None => Ok(false),
            Some(lock) if lock.owner == transaction => Ok(true),
            Some(_) => Err(Conflict),
        }
    }

    /// Locks a record whose last committed version is `committed` (`None`: it did not exist).
    pub fn take(&mut self, name: RecordName, transaction: u32, committed: Option<Vec<u8>>) {
        let before = self.held.insert(name, Lock { owner: transaction, committed });
        assert!(before.is_none(), "a record is taken once");
    }

    /// The version that `transaction` must see instead of the record, if another transaction has locked it.
    pub fn committed(&self, name: &RecordName, transaction: Option<u32>) -> Option<Option<&[u8]>> {
        let lock = self.held.get(name)?;
        (Some(lock.owner) != transaction).then_some(lock.committed.as_deref())
    }

    /// Locked records of a tree from `from` on and below `to`, each with its last committed version.
    pub fn committed_between<'a>(
        &'a self,
        (database, root): (DatabaseIndex, PageNumber),
        from: &[u8],
        to: Option<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        self.held
            .range((database, root, from.to_vec())..)
            .take_while(move |((in_database, in_root, key), _)| {
                (*in_database, *in_root) == (database, root) && to.is_none_or(|to| key.as_slice() < to)
            })
            .map(|((_, _, key), lock)| (key.as_slice(), lock.committed.as_deref()))
    }

    /// True if any record of a tree is locked.
    pub fn any_of(&self, database: DatabaseIndex, root: PageNumber) -> bool {
        let first = (database, root, Vec::new());
        self.held
            .range(first..)
            .next()
            .is_some_and(|((in_database, in_root, _), _)| (*in_database, *in_root) == (database, root))
    }

    /// Unlocks a record when its transaction ends.
    pub fn release(&mut self, name: &RecordName, transaction: u32) {
        let lock = self.held.remove(name).expect("only a held record is released");
        assert_eq!(lock.owner, transaction, "a record is released by its owner");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_at_a_time_and_readers_see_the_committed_record() {
        let name = (DatabaseIndex(0), PageNumber(7), b"key".to_vec());
        let mut locks = Locks::default();
        assert_eq!(locks.may_change(&name, 1), Ok(false));
        locks.take(name.clone(), 1, Some(b"old".to_vec()));
        assert_eq!(locks.may_change(&name, 1), Ok(true));
        assert_eq!(locks.may_change(&name, 2), Err(Conflict));
        assert_eq!(locks.committed(&name, Some(2)), Some(Some(&b"old"[..])));
        assert_eq!(locks.committed(&name, Some(1)), None);
        locks.release(&name, 1);
        assert_eq!(locks.may_change(&name, 2), Ok(false));
    }
}
