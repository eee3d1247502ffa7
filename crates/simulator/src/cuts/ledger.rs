//! The model of a run: for each cut the answers that its callers got, and the bounds of its contents.

use array::format::{
    SnapshotId,
    row::{GroupOperation, IdSeed},
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

/// The fate of a cut, by the answers that its callers got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutFate {
    /// Nothing yet, or an error after all parts were placed: it is in both pools or in none.
    Open,
    /// One of them got success: it is in both pools.
    Acknowledged,
    /// All of them got an error that says that it is nowhere.
    Refused,
    /// A pool gave up waiting for the other one: it may be in one pool alone.
    GivenUp,
    /// It was deleted, in one pool or both.
    Deleted,
}

/// A cut.
#[derive(Clone, Debug)]
pub struct KnownCut {
    pub name: String,
    /// It is one of the group, not of single volumes.
    pub is_of_group: bool,
    pub fate: CutFate,
    /// Of each chain: the last number answered before it began, and begun before it ended.
    pub bounds: Vec<(u64, u64)>,
}

/// A clone or rollback of the group, from its beginning until it was checked.
#[derive(Clone, Debug)]
pub struct KnownOperation {
    pub operation: GroupOperation,
    pub seed: IdSeed,
    /// By the answers of its callers; open, refused, acknowledged or given up.
    pub fate: CutFate,
    /// The numbers of each chain in the volumes before it, and in the snapshot.
    pub before: Vec<[u64; 2]>,
    pub goal: Vec<[u64; 2]>,
}

/// Counters of a run, and its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutTally {
    /// Cuts that all callers got.
    pub taken: u64,
    /// Cuts that failed before all parts were placed.
    pub refused: u64,
    /// Cuts that a caller left open.
    pub unsettled: u64,
    /// Cuts whose contents were checked, each time they were.
    pub checked: u64,
    pub given_up: u64,
    /// Clones and rollbacks that were found in both pools, and in none.
    pub operations: u64,
    pub operations_refused: u64,
    pub deleted: u64,
    /// Writes answered.
    pub writes: u64,
    pub audits: u64,
    /// Events, in order.
    pub story: Vec<String>,
}

/// The cuts of a run.
#[derive(Debug, Default)]
pub struct Ledger {
    cuts: RefCell<BTreeMap<SnapshotId, KnownCut>>,
    /// The one that is under way, or was not checked yet.
    pub operation: RefCell<Option<KnownOperation>>,
    operations: Cell<u64>,
    pub tally: RefCell<CutTally>,
}

impl Ledger {
    /// Begins a cut with a new identity and name.
    pub fn begin(&self, answered: Vec<u64>, is_of_group: bool) -> (SnapshotId, String) {
        let mut cuts = self.cuts.borrow_mut();
        let number = cuts.len() as u64 + 1;
        let (snapshot, name) =
            (SnapshotId((u128::from(number) | 5 << 64).to_be_bytes()), format!("cut{number}"));
        let bounds = answered.into_iter().map(|answered| (answered, u64::MAX)).collect();
        cuts.insert(snapshot, KnownCut { name: name.clone(), is_of_group, fate: CutFate::Open, bounds });
        (snapshot, name)
    }

    /// A seed for another operation on the group.
    pub fn next_seed(&self) -> IdSeed {
        self.operations.set(self.operations.get() + 1);
        IdSeed((u128::from(self.operations.get()) | 7 << 64).to_be_bytes())
    }

    /// Its callers have returned, or were stopped: later writes are not in it.
    pub fn end(&self, snapshot: SnapshotId, fate: CutFate, begun: &[u64]) {
        let mut cuts = self.cuts.borrow_mut();
        let cut = cuts.get_mut(&snapshot).expect("it was begun");
        cut.fate = fate;
        for (bounds, begun) in cut.bounds.iter_mut().zip(begun) {
            bounds.1 = bounds.1.min(*begun);
        }
    }

    pub fn set_fate(&self, snapshot: SnapshotId, fate: CutFate) {
        self.cuts.borrow_mut().get_mut(&snapshot).expect("it was begun").fate = fate;
    }

    /// One pool has given up waiting for the other: it may have happened in one alone.
    pub fn give_up_operation(&self) {
        if let Some(operation) = self.operation.borrow_mut().as_mut() {
            operation.fate = CutFate::GivenUp;
        }
    }

    /// After a crash: nothing that is written from here on is in any cut so far.
    pub fn end_all(&self, begun: &[u64]) {
        for cut in self.cuts.borrow_mut().values_mut() {
            for (bounds, begun) in cut.bounds.iter_mut().zip(begun) {
                bounds.1 = bounds.1.min(*begun);
            }
        }
    }

    pub fn all(&self) -> Vec<(SnapshotId, KnownCut)> {
        self.cuts.borrow().iter().map(|(&snapshot, cut)| (snapshot, cut.clone())).collect()
    }

    pub fn tell(&self, line: String) {
        self.tally.borrow_mut().story.push(line);
    }
}
