//! Points in use by readers of this process. A point in use is not deleted under them.
//!
//! The use is in the point's row, so that it is on the drives as long as it lasts, and a deletion finds it
//! there: it takes away the use *snapshot*, and the point goes with its last reader. All readers of a process
//! are one reference.
//!
//! Invariants:
//!
//! 1. While the pool is open, a point in `counts` has the use *reader*. Others lose it soon: those of a
//!    process that ended without releasing them, and those of readers that were dropped.
//! 2. Rows are changed under the lock `changing`.
//! 3. A branch in `child_counts` does not leave its parent. So the forks between two points that are held stay,
//!    as the branches that begin there read them. Ways are held under the lock `changing`, too. They end with
//!    the process.

use super::route::Route;
use crate::{
    engine::Shared,
    error::{Error, Result},
    format::{
        BranchNumber, RowKey, Stamp, VolumeNumber,
        record::ENTRIES_MAX,
        row::{PointRow, PointUses, VolumeState},
    },
    log::{LogItem, LogWriter},
    pool::{Pool, SnapshotKey, VolumeKey},
};
use std::{cell::RefCell, collections::BTreeMap, ops::Deref, rc::Rc};

type PointKey = (BranchNumber, Stamp);

/// The points in use, with the number of their readers.
pub struct PointHolds {
    shared: Rc<Shared>,
    log: Rc<LogWriter>,
    counts: RefCell<BTreeMap<PointKey, u32>>,
    /// The branches whose forks are on a way that is held, with the number of ways.
    child_counts: RefCell<BTreeMap<BranchNumber, u32>>,
}

/// A point in use.
pub struct PointHold {
    holds: Rc<PointHolds>,
    pub branch: BranchNumber,
    pub stamp: Stamp,
    /// Size of the volume at that time.
    pub sectors: u64,
}

/// A way between two points, none of whose branches leaves its parent.
pub(super) struct RouteHold {
    holds: Rc<PointHolds>,
    route: Route,
}

impl PointHolds {
    pub fn new(shared: &Rc<Shared>, log: &Rc<LogWriter>) -> Rc<Self> {
        Rc::new(Self {
            shared: Rc::clone(shared),
            log: Rc::clone(log),
            counts: RefCell::default(),
            child_counts: RefCell::default(),
        })
    }

    /// Holds a snapshot.
    ///
    /// # Errors
    ///
    /// No such volume or snapshot; or the pool cannot write.
    pub(in super::super) async fn hold_snapshot(
        self: &Rc<Self>,
        pool: &Pool,
        volume: VolumeKey<'_>,
        snapshot: SnapshotKey<'_>,
    ) -> Result<PointHold> {
        let one_at_a_time = self.shared.lock_changes().await;
        let (branch, stamp, row) = pool.snapshot_of(volume, snapshot)?;
        let hold = self.add((branch, stamp), row.sectors);
        if !row.uses.reader {
            let uses = PointUses { reader: true, ..row.uses };
            let row = PointRow { uses, references: row.references + 1, ..row };
            let logged = self.log.append(vec![put((branch, stamp), &row)]);
            drop(self.shared.logged_under(one_at_a_time, logged).await?);
        }
        Ok(hold)
    }

    /// Makes a point of a volume as it is now, which ends with its reader.
    ///
    /// # Errors
    ///
    /// No such volume; or the pool cannot write.
    pub(super) async fn hold_now(self: &Rc<Self>, pool: &Pool, volume: VolumeKey<'_>) -> Result<PointHold> {
        let one_at_a_time = pool.host.admission.admit_rows().await?;
        let uses = PointUses { reader: true, ..PointUses::default() };
        let number = pool.number_of(volume)?;
        pool.check_has_present(number)?;
        let (point, row) = pool.present_point(number, uses);
        let hold = self.add(point, row.sectors);
        drop(self.shared.logged_under(one_at_a_time, self.log.append(vec![put(point, &row)])).await?);
        Ok(hold)
    }

    fn add(self: &Rc<Self>, (branch, stamp): PointKey, sectors: u64) -> PointHold {
        *self.counts.borrow_mut().entry((branch, stamp)).or_default() += 1;
        PointHold { holds: Rc::clone(self), branch, stamp, sectors }
    }

    /// Holds a way between two points that are held. The catalogue must be locked for changes.
    pub(super) fn hold_route(self: &Rc<Self>, route: Route) -> RouteHold {
        let mut counts = self.child_counts.borrow_mut();
        for &child in route.children() {
            *counts.entry(child).or_default() += 1;
        }
        RouteHold { holds: Rc::clone(self), route }
    }

    /// True if a difference is read whose way uses the parent of a branch.
    pub fn holds_parent_of(&self, branch: BranchNumber) -> bool {
        self.child_counts.borrow().contains_key(&branch)
    }

    /// Refuses the deletion of a volume of which a point is in use.
    ///
    /// # Errors
    ///
    /// [`Error::PointsInUse`].
    pub fn check_unused(&self, volume: VolumeNumber, name: &str) -> Result<()> {
        let state = self.shared.state.borrow();
        let counts = self.counts.borrow();
        let of_volume = counts.keys().filter(|(branch, stamp)| {
            state.catalogue.point(*branch, *stamp).is_some_and(|row| row.volume == volume)
        });
        match of_volume.count() {
            0 => Ok(()),
            count => Err(Error::PointsInUse { volume: name.to_owned(), count }),
        }
    }

    /// True if a point has the use *reader* and no reader.
    pub fn has_unread(&self) -> bool {
        !self.unread().is_empty()
    }

    fn unread(&self) -> Vec<(PointKey, PointRow)> {
        let state = self.shared.state.borrow();
        let counts = self.counts.borrow();
        let branches = state.catalogue.branch_numbers();
        let points = branches.flat_map(|branch| {
            state.catalogue.points_of(branch).map(move |(stamp, row)| ((branch, stamp), row))
        });
        let is_unread = |key: &PointKey, row: &PointRow| {
            row.uses.reader && row.state == VolumeState::Live && !counts.contains_key(key)
        };
        points.filter(|(key, row)| is_unread(key, row)).map(|(key, row)| (key, row.clone())).collect()
    }

    /// Takes the use *reader* from points without a reader.
    ///
    /// # Errors
    ///
    /// The pool cannot write.
    pub async fn release_unread(&self) -> Result<()> {
        let mut one_at_a_time = self.shared.lock_changes().await;
        let puts: Vec<LogItem> = self.unread().iter().map(|(key, row)| put(*key, &released(row))).collect();
        let mut left = puts.into_iter().peekable();
        while left.peek().is_some() {
            let logged = self.log.append_together(left.by_ref().take(ENTRIES_MAX).collect());
            one_at_a_time = self.shared.logged_under(one_at_a_time, logged).await?;
        }
        drop(one_at_a_time);
        Ok(())
    }
}

impl PointHold {
    /// Ends the use, and the point if it was its last.
    ///
    /// # Errors
    ///
    /// The pool cannot write. The point is released when it can, or is opened again.
    pub async fn release(self) -> Result<()> {
        let holds = Rc::clone(&self.holds);
        drop(self);
        holds.release_unread().await
    }
}

impl Drop for PointHold {
    fn drop(&mut self) {
        count_out(&mut self.holds.counts.borrow_mut(), (self.branch, self.stamp));
    }
}

impl Deref for RouteHold {
    type Target = Route;

    fn deref(&self) -> &Route {
        &self.route
    }
}

impl Drop for RouteHold {
    fn drop(&mut self) {
        let mut counts = self.holds.child_counts.borrow_mut();
        self.route.children().iter().for_each(|&child| count_out(&mut counts, child));
    }
}

/// One reader less.
fn count_out<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    let count = counts.get_mut(&key).expect("a reader that ends has begun");
    *count -= 1;
    if *count == 0 {
        counts.remove(&key);
    }
}

/// The row of a point without readers. A point that only a fork uses is kept by the branch that begins there.
fn released(row: &PointRow) -> PointRow {
    let uses = PointUses { reader: false, ..row.uses };
    let references = row.references.saturating_sub(1);
    if uses.snapshot || uses.transfer {
        return PointRow { uses, references, ..row.clone() };
    }
    let uses = if uses.fork { uses } else { row.uses };
    PointRow { uses, references, state: VolumeState::Deleting, ..row.clone() }
}

fn put((branch, stamp): PointKey, row: &PointRow) -> LogItem {
    LogItem::Put { row: RowKey::of_point(branch, stamp), bytes: row.encode() }
}

/// The row of a snapshot that is deleted: a point that is in use stays for its users. The note goes.
pub fn row_of_deleted(row: PointRow) -> PointRow {
    let row = PointRow { note: Vec::new(), ..row };
    if row.uses.reader || row.uses.transfer {
        return PointRow { uses: PointUses { snapshot: false, ..row.uses }, ..row };
    }
    PointRow { state: VolumeState::Deleting, ..row }
}
