//! The state shared by all parts of a run, and its counters.

use super::{
    canary::{Bug, BuggyDrive},
    content::VolumeKey,
    drive_changes::DriveChangeLog,
    early_end::EarlyEnd,
    fault_model::PoolFaultGrade,
    growth::{GrowthLog, slots_in},
    independent_reader::{Audit, CopyRule, audit, platters::Platters},
    model::{CutKey, Model},
    plan::PoolRunPlan,
    resized_drive::ResizedDrive,
    subscriber::Follower,
    violation::PoolViolation,
};
use array::format::{SnapshotId, VolumeId};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};
use world::{
    BlockDevice, World,
    sim::{SimDrive, SimFault},
};

/// Counters and events of a run, for its report and for failure reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolTally {
    pub openings: u64,
    /// Writes and discards acknowledged.
    pub writes: u64,
    /// Reads checked against the model, without those after an opening.
    pub reads: u64,
    /// Catalogue changes acknowledged.
    pub verbs: u64,
    /// Snapshots of single volumes created.
    pub snapshots: u64,
    /// Cuts of several volumes found consistent.
    pub cuts_checked: u64,
    pub snapshots_deleted: u64,
    pub volumes_deleted: u64,
    pub shrinks: u64,
    /// Checkpoints requested.
    pub checkpoints: u64,
    pub closings: u64,
    /// Openings without the faulty drive.
    pub openings_without: u64,
    /// Openings by force.
    pub openings_forced: u64,
    /// CopyRule fixed.
    pub fixed: u64,
    pub drives_added: u64,
    /// Crashes while the pool was created.
    pub cut_creations: u64,
    /// Logs corrupted beyond repair, and refused.
    pub logs_refused: u64,
    /// Logs with a header corrupted beyond repair, and refused.
    pub headers_refused: u64,
    /// Volumes cloned.
    pub clones: u64,
    /// Volumes rolled back to a snapshot.
    pub rollbacks: u64,
    /// Rollbacks undone.
    pub undone: u64,
    /// Volumes that took the place of another.
    pub places_taken: u64,
    /// Clients from which rollbacks withheld volumes, and those that were readmitted.
    pub withheld: u64,
    pub readmitted: u64,
    /// Volumes left by rollbacks, deleted.
    pub left_deleted: u64,
    /// Groups made.
    pub groups: u64,
    pub groups_deleted: u64,
    pub group_snapshots: u64,
    pub group_snapshots_deleted: u64,
    /// Groups cloned.
    pub group_clones: u64,
    pub group_rollbacks: u64,
    /// Fillings begun by verbs.
    pub fills: u64,
    /// Pools read without opening them, with the right contents.
    pub salvaged: u64,
    /// Those of them whose log had a hole before acknowledged operations.
    pub salvaged_in_part: u64,
    /// Sectors older than acknowledged, in a pool that reported the loss.
    pub sectors_said_missing: u64,
    /// Openings cut off right after a replay, with all replayed records still present.
    pub replays_cut: u64,
    /// Blocks that a subscriber of the log had, compared with the volumes.
    pub blocks_followed: u64,
    /// Drives retired, kept after all, and replaced.
    pub drives_retired: u64,
    pub drives_kept: u64,
    pub drives_replaced: u64,
    /// Drives that the others had continued without, and that were added again.
    pub drives_taken_back: u64,
    /// Drives that became larger, and are used as far as they go.
    pub drives_grown: u64,
    /// Drives with data on slots that they did not have at first, in audits.
    pub grown_drives_used: u64,
    /// Changes of drives refused for a reason that the other drives give.
    pub drive_changes_refused: u64,
    /// Drives that had left, found in audits.
    pub drives_left: u64,
    /// Levellings that ended with level drives, or because no move helped.
    pub levellings: u64,
    /// Those of them after one that a crash had interrupted.
    pub levellings_resumed: u64,
    /// Changes of the level of sparing, and those refused for want of room or drives.
    pub sparing_changed: u64,
    pub sparing_refused: u64,
    /// Times that a connection to a drive, or to all, broke.
    pub connections_broken: u64,
    /// Changes of the failure domains of drives.
    pub domains_changed: u64,
    /// Failure domains of which all drives were lost at once.
    pub shelves_lost: u64,
    /// Losses of one drive of each failure set at once.
    pub one_of_each_set_lost: u64,
    /// Openings without one drive of each failure set.
    pub openings_without_one_of_each: u64,
    /// Changes between failure sets and none.
    pub failure_sets_changed: u64,
    /// Openings without any drive of a failure domain.
    pub openings_without_shelf: u64,
    /// Differences of two points applied, with the right result.
    pub differences: u64,
    /// Those between points of different branches.
    pub differences_across: u64,
    /// Pairs of points that have nothing in common, as they were never one or a clone was filled.
    pub unrelated: u64,
    /// Logs corrupted on one copy.
    pub copies_corrupted: u64,
    /// Audits by the independent reader.
    pub audits: u64,
    /// Commands refused for lack of space in the pool.
    pub full: u64,
    /// Commands refused because drives were out of space.
    pub out_of_space: u64,
    /// Incarnations that ended early, or failed to open, for a shortage.
    pub ended_by_shortage: u64,
    /// Commands refused for a limit, or for space reserved for other volumes.
    pub bounded: u64,
    /// Volumes created with caps.
    pub capped: u64,
    pub openings_without_two: u64,
    /// Writes and discards acknowledged from a write cache.
    pub cached: u64,
    /// Flushes acknowledged.
    pub flushes: u64,
    /// Power cuts that lost data of a write cache, by time.
    pub caches_lost: std::collections::BTreeSet<u64>,
    /// Events, in order.
    pub story: Vec<String>,
}

/// Physical changes of the drives.
#[derive(Clone, Debug, Default)]
pub struct Bay {
    /// The drive removed for good.
    pub taken_out: Option<usize>,
    /// The drive with a changed size, and that size in bytes.
    pub resized: Option<(usize, u64)>,
    /// Drives that verbs let leave, and blank ones given to the pool.
    pub changes: DriveChangeLog,
    /// Drives that become larger.
    pub growth: GrowthLog,
    /// Number of attempts to add a drive, each under another name.
    pub additions: u8,
    /// A levelling was under way when the last incarnation ended.
    pub is_levelling: bool,
    /// This incarnation has or had a shortage.
    pub has_shortage: bool,
    pub is_spare_faulty: bool,
    /// The faulty drive fails in this incarnation.
    pub is_ill: bool,
    /// Drives that counted at the last audit.
    pub counting: Vec<usize>,
    /// Those of them in each failure set, if no segment lay across sets.
    pub sets: Vec<Vec<usize>>,
}

/// The context of an incarnation. Cheap to clone.
#[derive(Clone)]
pub struct PoolFixture {
    /// All drives: those of the start, the spare, if there is one, and extra ones.
    pub drives: Rc<Vec<Rc<SimDrive>>>,
    /// Physical state of the drives.
    pub bay: Rc<RefCell<Bay>>,
    pub plan: Rc<PoolRunPlan>,
    /// Operations begun and acknowledged.
    pub model: Rc<RefCell<Model>>,
    pub tally: Rc<RefCell<PoolTally>>,
    /// Drives may have lost stable data, or return older contents, without detection.
    pub is_untold: Rc<Cell<bool>>,
    /// The copies that must be right, given the faults so far.
    pub copies: Rc<Cell<CopyRule>>,
    /// The end of this incarnation in the middle of an operation.
    pub early_end: Rc<EarlyEnd>,
    /// The subscriber of the log while hosts work.
    pub follower: Rc<RefCell<Option<Rc<Follower>>>>,
}

impl PoolFixture {
    /// The device of a drive that the pool gets.
    pub fn device(&self, world: &World, index: usize) -> Rc<dyn BlockDevice> {
        let drive = Rc::clone(&self.drives[index]) as Rc<dyn BlockDevice>;
        let drive = match self.bay.borrow().resized {
            Some((resized, size)) if resized == index => {
                Rc::new(ResizedDrive::new(drive, Rc::new(Cell::new(size)))) as Rc<dyn BlockDevice>
            }
            _ => match self.bay.borrow().growth.sizes.get(&index) {
                Some(size) => Rc::new(ResizedDrive::new(drive, Rc::clone(size))),
                None => drive,
            },
        };
        let drive = self.reached(world, drive);
        match self.plan.bug {
            Some(Bug::BeforeDrives(bug)) => Rc::new(BuggyDrive::new(drive, bug)),
            _ => drive,
        }
    }

    /// Number of reads so far that returned wrong data.
    pub fn wrong_reads(&self) -> u64 {
        let wrong = [SimFault::BitRot, SimFault::Unreadable, SimFault::MisdirectedRead, SimFault::StaleRead];
        let met = self.drives.iter().map(|drive| drive.statistics().faults);
        met.map(|met| wrong.iter().filter_map(|fault| met.get(fault)).sum::<u64>()).sum()
    }

    /// Drives a pool is opened on: all but the absent ones.
    pub fn drives_there(&self, absent: &[usize]) -> Vec<usize> {
        let bay = self.bay.borrow();
        let is_spare_given = self.plan.spare.is_some() && bay.additions > 0;
        let begun = self.plan.drives.len() + usize::from(is_spare_given);
        let extras = self.extras().filter(|&index| bay.changes.was_given(index));
        let all = (0..begun).chain(extras);
        all.filter(|index| !absent.contains(index) && Some(*index) != bay.taken_out).collect()
    }

    /// True if several drives had a shortage in this incarnation.
    pub fn has_shortage(&self) -> bool {
        self.bay.borrow().has_shortage
    }

    /// Index of the drive that is no member at the start.
    pub fn spare(&self) -> Option<usize> {
        self.plan.spare.as_ref().map(|_| self.plan.drives.len())
    }

    /// Audits the drives with the independent reader.
    pub fn audit(&self, when: &'static str) -> Result<Option<Audit>, PoolViolation> {
        if self.plan.grade == PoolFaultGrade::Beyond {
            return Ok(None);
        }
        self.tally.borrow_mut().audits += 1;
        let audited = audit(&Platters(self.drives.to_vec()), self.copies.get());
        let audit = audited.map_err(|what| PoolViolation::Foreign { when, what })?;
        // A pool that is not short of room puts no copies into one domain.
        if let Some(number) = audit.in_one_domain.first().filter(|_| self.plan.keeps_apart()) {
            let what = format!("all copies of segment {number} lie in one failure domain");
            return Err(PoolViolation::Foreign { when, what });
        }
        if let Some(number) = audit.across_sets.first().filter(|_| self.plan.keeps_sets()) {
            let what = format!("the copies of segment {number} lie across failure sets");
            return Err(PoolViolation::Foreign { when, what });
        }
        let mut bay = self.bay.borrow_mut();
        // Only where each segment lies in one set may a drive of each be lost.
        bay.sets =
            if audit.across_sets.is_empty() { audit.sets.clone().into_values().collect() } else { vec![] };
        bay.counting = audit.drives.values().copied().collect();
        bay.changes.left = audit.left.clone();
        bay.changes.is_taken_back = false;
        self.tally.borrow_mut().drives_left += audit.left.len() as u64;
        let has_grown = |(&drive, &used): (&usize, &u32)| {
            let size = self.plan.drives.get(drive)?.size.0;
            (u64::from(used) > slots_in(size) && bay.growth.sizes.contains_key(&drive)).then_some(())
        };
        self.tally.borrow_mut().grown_drives_used +=
            audit.slots_used.iter().filter_map(has_grown).count() as u64;
        Ok(Some(audit))
    }

    /// Records an event.
    pub fn tell(&self, line: String) {
        self.tally.borrow_mut().story.push(line);
    }
}

/// The volume id of a key.
pub fn volume_id(key: VolumeKey) -> VolumeId {
    VolumeId((u128::from(key.0) | 7 << 64).to_be_bytes())
}

/// The snapshot id of a key.
pub fn snapshot_id(key: CutKey) -> SnapshotId {
    SnapshotId((u128::from(key.0) | 9 << 64).to_be_bytes())
}

/// The key of a snapshot id.
pub fn cut_key(id: SnapshotId) -> CutKey {
    CutKey(u128::from_be_bytes(id.0) as u32)
}
