//! Which records are being changed by a running transaction, and what they were before.
//!
//! A writer keeps a record to itself until its transaction ends; another writer is refused at once
//! (ESE: write conflict). A reader is never refused: it is given what was last committed.
//!
//! Invariant: an entry's `committed` is what the record was before its owner's first change.

use super::DatabaseIndex;
use crate::format::page_size::PageNumber;
use std::collections::BTreeMap;

/// A record's name in the whole group: database, root of its tree, key.
pub type RecordName = (DatabaseIndex, PageNumber, Vec<u8>);

struct Lock {
    owner: u32,
    committed: Option<Vec<u8>>,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Locks {
    held: BTreeMap<RecordName, Lock>,
}

/// Another transaction is changing the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict;

impl Locks {
    /// Whether `transaction` may change the record; true in the answer if it already did.
    pub fn may_change(&self, name: &RecordName, transaction: u32) -> Result<bool, Conflict> {
        match self.held.get(name) {
            None => Ok(false),
            Some(lock) if lock.owner == transaction => Ok(true),
            Some(_) => Err(Conflict),
        }
    }

    /// Notes that `transaction` changes a record that was `committed` until now (None: not there).
    pub fn take(&mut self, name: RecordName, transaction: u32, committed: Option<Vec<u8>>) {
        let before = self.held.insert(name, Lock { owner: transaction, committed });
        assert!(before.is_none(), "a record is taken once");
    }

    /// What a reader of `transaction` should see instead of the record, if someone else changes it.
    pub fn committed(&self, name: &RecordName, transaction: Option<u32>) -> Option<Option<&[u8]>> {
        let lock = self.held.get(name)?;
        (Some(lock.owner) != transaction).then_some(lock.committed.as_deref())
    }

    /// Records of a tree from `from` on and below `to` that are being changed, each as it was
    /// last committed.
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

    /// Whether any record of a tree is being changed.
    pub fn any_of(&self, database: DatabaseIndex, root: PageNumber) -> bool {
        let first = (database, root, Vec::new());
        self.held
            .range(first..)
            .next()
            .is_some_and(|((in_database, in_root, _), _)| (*in_database, *in_root) == (database, root))
    }

    /// Lets go of a record when its transaction ends.
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
